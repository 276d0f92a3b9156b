package grpcserver

import (
	"crypto/tls"
	"net"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// serverCredentials returns the credentials of the grpc-go server. They are TLS with c over TCP,
// or plain text if c is nil. Unix sockets have plain text unless onSockets is set: their file
// mode says which users may connect.
func serverCredentials(c *tls.Config, onSockets bool, log *zap.Logger) credentials.TransportCredentials {
	plain := insecure.NewCredentials()
	if c == nil {
		return plain
	}
	if onSockets {
		plain = nil
	}
	return &greeter{TransportCredentials: credentials.NewTLS(c), sockets: plain, log: log}
}

// A greeter does the server's handshake: with TLS over TCP, with sockets on unix sockets.
type greeter struct {
	credentials.TransportCredentials                                  // over TCP
	sockets                          credentials.TransportCredentials // nil: TLS there too
	log                              *zap.Logger
}

// ServerHandshake implements credentials.TransportCredentials. It logs failures, because
// grpc-go does not and the operator must be able to find a refused certificate.
func (g *greeter) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if g.sockets != nil && conn.LocalAddr().Network() == "unix" {
		return g.sockets.ServerHandshake(conn)
	}
	secured, info, err := g.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		g.log.Debug("the TLS handshake with a client failed", zap.Stringer("client", conn.RemoteAddr()), zap.Error(err))
	}
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (g *greeter) Clone() credentials.TransportCredentials {
	return &greeter{TransportCredentials: g.TransportCredentials.Clone(), sockets: g.sockets, log: g.log}
}
