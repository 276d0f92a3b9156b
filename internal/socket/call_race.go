//go:build linux && (amd64 || arm64) && !plainsockets && race

package socket

import (
	"errors"
	"syscall"
)

// The race detector sees what the sender of bytes did before the receiver only through package
// syscall.

func receive(fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	return again(func() (int, error) {
		if flags != 0 {
			n, _, err := syscall.Recvfrom(int(fd), p, int(flags)|syscall.MSG_DONTWAIT)
			return n, err
		}
		return syscall.Read(int(fd), p)
	})
}

func send(fd uintptr, p []byte) (int, syscall.Errno) {
	return again(func() (int, error) { return syscall.Write(int(fd), p) })
}

func again(call func() (int, error)) (int, syscall.Errno) {
	for {
		n, err := call()
		if err == nil {
			return n, 0
		}
		if errno, _ := errors.AsType[syscall.Errno](err); errno != syscall.EINTR {
			return 0, errno
		}
	}
}
