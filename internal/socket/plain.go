//go:build !linux || !(amd64 || arm64) || plainsockets

package socket

import "net"

// Direct returns c. The tag plainsockets builds it where another Direct is to be compared with it.
func Direct(c net.Conn) net.Conn { return c }
