package transport

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// The two servers, by what the setting grpc.transport calls them.
const (
	standard = "standard"
	lean     = "unary"
)

// names are all servers.
var names = []string{standard, lean}

// A server is what the suites need of one.
type server interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	Stop()
}

// options of a server that it gets from a suite. The zero value is plain text
// and the server's own limit.
type options struct {
	tls             *tls.Config
	maxMessageBytes int
}

// newServer returns one of the two servers, which are as they are by default
// otherwise.
func newServer(name string, o options) server {
	if name == lean {
		return unary.NewServer(unary.Options{TLS: o.tls, MaxMessageBytes: o.maxMessageBytes})
	}
	var more []grpc.ServerOption
	if o.tls != nil {
		more = append(more, grpc.Creds(credentials.NewTLS(o.tls)))
	}
	if o.maxMessageBytes > 0 {
		more = append(more, grpc.MaxRecvMsgSize(o.maxMessageBytes))
	}
	return grpc.NewServer(more...)
}
