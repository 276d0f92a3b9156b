package daemon

import (
	"crypto/tls"
	"net"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
)

// serverTLS returns the TLS of gRPC listeners, or nil without TLS. Each handshake uses what
// the files hold then, or held when they could be read last. It is for connections over
// TCP: the file mode of a unix socket says which users of this machine may connect.
func serverTLS(s settings.GRPC, log *zap.Logger) (*tls.Config, error) {
	if !s.TLS.On() {
		return nil, nil
	}
	const setting = "grpc.tls"
	files, err := watch.NewReread(setting, s.TLS.Files(), func() (*tls.Config, error) { return s.TLS.Config(setting) }, log)
	if err != nil {
		return nil, err
	}
	// A reader of the configuration finds here what does not depend on the files.
	c := files.Get().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Get(), nil }
	return c, nil
}

// grpcCredentials are how grpc-go greets connections: with c over TCP and in plain
// text on unix sockets. A nil c is plain text everywhere.
func grpcCredentials(c *tls.Config, log *zap.Logger) credentials.TransportCredentials {
	plain := insecure.NewCredentials()
	if c == nil {
		return plain
	}
	return &greeter{TransportCredentials: credentials.NewTLS(c), sockets: plain, log: log}
}

// A greeter chooses by what a connection came in on. It is for servers.
type greeter struct {
	credentials.TransportCredentials // over TCP
	sockets                          credentials.TransportCredentials
	log                              *zap.Logger
}

// ServerHandshake implements credentials.TransportCredentials. grpc-go keeps
// failures to itself, and a certificate that is refused is a thing to find.
func (g *greeter) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if conn.LocalAddr().Network() == "unix" {
		return g.sockets.ServerHandshake(conn)
	}
	secured, info, err := g.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		g.log.Debug("a client did not get through TLS", zap.Stringer("client", conn.RemoteAddr()), zap.Error(err))
	}
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (g *greeter) Clone() credentials.TransportCredentials {
	return &greeter{TransportCredentials: g.TransportCredentials.Clone(), sockets: g.sockets.Clone(), log: g.log}
}
