package daemon

import (
	"crypto/tls"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
)

// serverTLS returns the TLS configuration of gRPC listeners, or nil without TLS. Each
// handshake uses the files as they are then. If they cannot be read, it uses their last good
// state.
func serverTLS(s settings.GRPC, log *zap.Logger) (*tls.Config, error) {
	if !s.TLS.On() {
		return nil, nil
	}
	now, err := watch.TLS("grpc.tls", s.TLS.Files(), s.TLS.Config, log)
	if err != nil {
		return nil, err
	}
	// The clone keeps the parts that do not depend on the files, for readers of c.
	c := now().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return now(), nil }
	return c, nil
}
