package daemon

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
)

// healthNames are the services that health checks may ask for: the whole server, the name
// that envoyproxy/ratelimit uses, and the full names.
var healthNames = []string{"", "ratelimit", rlsv3.RateLimitService_ServiceDesc.ServiceName, authv3.Authorization_ServiceDesc.ServiceName}

// streamWorkers is the number of goroutines that grpc-go keeps to handle calls. Without
// them it starts a goroutine for each call. Its stack then grows in each call, which costs
// more than a decision. If all of them are busy, for example waiting for Redis, a call gets
// a goroutine of its own. grpc-go marks the option as experimental; without it calls are
// only slower.
const streamWorkers = 64

// A grpcServer serves Envoy: a *grpc.Server or a *unary.Server.
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

// A transport has the parts that each of the two gRPC servers is made of.
type transport struct {
	settings settings.GRPC
	secure   *tls.Config // nil: plain text
	calls    calls
	meters   unary.Meters // of connections; nil with grpc-go, which does not count them
}

// server returns the server that the settings choose, and its health, which is SERVING for
// all names. services has the services by the full names of their methods.
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

const (
	// maxMessage bounds a message in bytes, and maxStreams the calls of a connection at once.
	maxMessage = 1 << 20
	maxStreams = 4096
	// minPingInterval is the least time between two pings of a client. Envoy pings every 30 s.
	minPingInterval = 10 * time.Second
	// A connection without a word for keepaliveTime is pinged, and closed after keepaliveTimeout.
	keepaliveTime    = 2 * time.Hour
	keepaliveTimeout = 20 * time.Second
)

// maxRead bounds a message that grpc-go reads: 256 descriptors with the largest header that Envoy
// accepts by default. grpc-go refuses a longer one with an error.
const maxRead = 16 << 20

func (t transport) standard() *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(grpcCredentials(t.secure, t.settings.TLS.UnixSockets, t.calls.log)),
		grpc.ForceServerCodecV2(adapter.NewBoundedCodec(maxMessage)),
		grpc.UnaryInterceptor(t.calls.intercept),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(maxRead),
		grpc.MaxConcurrentStreams(maxStreams),
		// Envoy pings idle connections too. The default would answer its third ping with
		// GOAWAY too_many_pings.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             minPingInterval,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:             keepaliveTime,
			Timeout:          keepaliveTimeout,
			MaxConnectionAge: t.settings.MaxConnectionAge,
		}),
	)
}

func (t transport) unary() *unary.Server {
	var fields []string
	if t.calls.tracer != nil {
		fields = t.calls.tracer.Fields()
	}
	return unary.NewServer(unary.Options{
		Codec:           adapter.NewCodec(),
		Interceptor:     t.calls.intercept,
		MaxMessageBytes: maxMessage,
		MaxStreams:      maxStreams,
		TLS:             t.secure,
		TLSOnSockets:    t.settings.TLS.UnixSockets,
		Lifetime: unary.Lifetime{
			KeepaliveTime:    keepaliveTime,
			KeepaliveTimeout: keepaliveTimeout,
			MinPingInterval:  minPingInterval,
			MaxConnectionAge: t.settings.MaxConnectionAge,
		},
		Meters:   t.meters,
		Keep:     adapter.Kept,
		Metadata: fields,
		Beyond:   true,
		Log:      t.calls.log,
	})
}

// newDescribing returns a gRPC server that describes another one, for the admin port. It
// lists the services of other and shows h. It has streams, which transport unary has not.
func newDescribing(other reflection.ServiceInfoProvider, h *health.Server) *grpc.Server {
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, h)
	reflection.Register(struct {
		grpc.ServiceRegistrar
		reflection.ServiceInfoProvider
	}{server, other})
	return server
}
