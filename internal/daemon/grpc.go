package daemon

import (
	"context"
	"crypto/tls"
	"net"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/unary"
)

// healthNames are the services that health checks may ask for: the whole server,
// the name that the reference service uses, and the full names.
var healthNames = []string{"", "ratelimit", rlsv3.RateLimitService_ServiceDesc.ServiceName, authv3.Authorization_ServiceDesc.ServiceName}

// streamWorkers is how many goroutines stay to handle calls. gRPC makes one for
// each call otherwise, whose stack then grows anew for each call, which costs more
// than a decision. A call that finds all of them busy, waiting for Redis say, gets
// a goroutine of its own as ever. The option is marked experimental; all that
// would be lost with it is this.
const streamWorkers = 64

// A grpcServer is what serves Envoy: *grpc.Server or *unary.Server.
type grpcServer interface {
	grpc.ServiceRegistrar
	reflection.ServiceInfoProvider
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

var (
	_ grpcServer = (*grpc.Server)(nil)
	_ grpcServer = (*unary.Server)(nil)
)

// A service answers one method, on either transport.
type service interface {
	Register(grpc.ServiceRegistrar)
	// Handle is a unary.Handler.
	Handle(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error)
}

// A transport is what a gRPC server is made of, whichever it is.
type transport struct {
	settings settings.GRPC
	secure   *tls.Config // nil: plain text
	calls    calls
	meters   unary.Meters // of connections, which grpc-go does not count
}

// newTransport returns the transport of the settings. secure is nil for plain text.
func newTransport(s settings.GRPC, secure *tls.Config, c calls, registry prometheus.Registerer) transport {
	t := transport{settings: s, secure: secure, calls: c}
	if s.Transport == settings.TransportUnary {
		t.meters = metrics.NewTransport(registry)
	}
	return t
}

// server returns the server that the settings choose, with services by the full names
// of their methods, and with the health of all, which is SERVING.
func (t transport) server(services map[string]service) (grpcServer, *health.Server) {
	h := health.NewServer()
	for _, name := range healthNames {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	register := func(server grpc.ServiceRegistrar) {
		for _, s := range services {
			s.Register(server)
		}
		healthv1.RegisterHealthServer(server, h)
	}
	if t.settings.Transport != settings.TransportUnary {
		server := t.standard()
		register(server)
		reflection.Register(server)
		return server, h
	}
	server := t.unary()
	register(server)
	for method, s := range services {
		server.Handle(method, t.calls.handler(method, s.Handle))
	}
	return server, h
}

// standard returns a server of grpc-go without services.
func (t transport) standard() *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(grpcCredentials(t.secure, t.calls.log)),
		grpc.ForceServerCodecV2(adapter.NewCodec()),
		grpc.UnaryInterceptor(t.calls.intercept),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(t.settings.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(t.settings.MaxConcurrentStreams)),
		// Envoy pings idle connections too; the default would answer its third
		// ping with GOAWAY too_many_pings.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             t.settings.KeepaliveMinTime,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:              t.settings.KeepaliveTime,
			Timeout:           t.settings.KeepaliveTimeout,
			MaxConnectionIdle: t.settings.MaxConnectionIdle,
			MaxConnectionAge:  t.settings.MaxConnectionAge,
		}),
	)
}

// unary returns a server of our own without services.
func (t transport) unary() *unary.Server {
	return unary.NewServer(unary.Options{
		Codec:             adapter.NewCodec(),
		Interceptor:       t.calls.intercept,
		MaxMessageBytes:   t.settings.MaxMessageBytes,
		MaxStreams:        uint32(t.settings.MaxConcurrentStreams),
		TLS:               t.secure,
		KeepaliveTime:     t.settings.KeepaliveTime,
		KeepaliveTimeout:  t.settings.KeepaliveTimeout,
		MinPingInterval:   t.settings.KeepaliveMinTime,
		MaxConnectionIdle: t.settings.MaxConnectionIdle,
		MaxConnectionAge:  t.settings.MaxConnectionAge,
		Meters:            t.meters,
		Log:               t.calls.log,
	})
}

// newDescribing returns the server that tells people of another one: which services
// it has, and how h is, also by the streams that transport unary does not have.
func newDescribing(other reflection.ServiceInfoProvider, h *health.Server) *grpc.Server {
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, h)
	reflection.Register(struct {
		grpc.ServiceRegistrar
		reflection.ServiceInfoProvider
	}{server, other})
	return server
}
