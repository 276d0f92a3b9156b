package grpcserver

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
)

// HealthNames are the services that health checks may ask for: the whole server, the name
// that envoyproxy/ratelimit uses, and the full names.
var HealthNames = []string{"", "ratelimit", rlsv3.RateLimitService_ServiceDesc.ServiceName, authv3.Authorization_ServiceDesc.ServiceName}

// streamWorkers is the number of goroutines that grpc-go keeps to handle calls. Without
// them it starts a goroutine for each call. Its stack then grows in each call, which costs
// more than a decision. If all of them are busy, for example waiting for Redis, a call gets
// another goroutine. grpc-go marks the option as experimental; without it calls are
// only slower.
const streamWorkers = 64

// A Server serves Envoy: a *grpc.Server or a *unary.Server.
type Server interface {
	grpc.ServiceRegistrar
	reflection.ServiceInfoProvider
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

var (
	_ Server = (*grpc.Server)(nil)
	_ Server = (*unary.Server)(nil)
)

// A Service answers one method, on either transport.
type Service interface {
	Register(grpc.ServiceRegistrar)
	// Handle is a unary.Handler.
	Handle(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error)
}

// Options say what a server is made of.
type Options struct {
	Settings settings.GRPC
	TLS      *tls.Config        // nil: plain text
	Services map[string]Service // by the full names of their methods
	// Intercept runs around the calls of grpc-go, and Wrap returns what package unary calls in place of
	// the handler of a method.
	Intercept grpc.UnaryServerInterceptor
	Wrap      func(method string, h unary.Handler) unary.Handler
	Metadata  []string     // the header fields that traces need
	Meters    unary.Meters // of connections; nil with grpc-go, which does not count them
	Log       *zap.Logger
}

// New returns the server that the settings choose, and its health, which is SERVING for all names.
func New(o Options) (Server, *health.Server) {
	h := health.NewServer()
	for _, name := range HealthNames {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	register := func(server grpc.ServiceRegistrar) {
		for _, s := range o.Services {
			s.Register(server)
		}
		healthv1.RegisterHealthServer(server, h)
	}
	if o.Settings.Transport != settings.TransportUnary {
		server := newStandard(&o)
		register(server)
		reflection.Register(server)
		return server, h
	}
	server := newUnary(&o)
	register(server)
	for method, s := range o.Services {
		server.Handle(method, o.Wrap(method, s.Handle))
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

func newStandard(o *Options) *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(serverCredentials(o.TLS, o.Settings.TLS.UnixSockets, o.Log)),
		grpc.ForceServerCodecV2(adapter.NewBoundedCodec(maxMessage)),
		grpc.UnaryInterceptor(o.Intercept),
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
			MaxConnectionAge: o.Settings.MaxConnectionAge,
		}),
	)
}

func newUnary(o *Options) *unary.Server {
	return unary.NewServer(unary.Options{
		Codec:           adapter.NewCodec(),
		Interceptor:     o.Intercept,
		MaxMessageBytes: maxMessage,
		MaxStreams:      maxStreams,
		TLS:             o.TLS,
		TLSOnSockets:    o.Settings.TLS.UnixSockets,
		Lifetime: unary.Lifetime{
			KeepaliveTime:    keepaliveTime,
			KeepaliveTimeout: keepaliveTimeout,
			MinPingInterval:  minPingInterval,
			MaxConnectionAge: o.Settings.MaxConnectionAge,
		},
		Meters:   o.Meters,
		Keep:     adapter.Kept,
		Metadata: o.Metadata,
		Beyond:   true,
		Log:      o.Log,
	})
}

// Describe returns a gRPC server that describes another one, for the admin port. It
// lists the services of other and shows h. It has streams, which transport unary has not.
func Describe(other reflection.ServiceInfoProvider, h *health.Server) *grpc.Server {
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, h)
	reflection.Register(struct {
		grpc.ServiceRegistrar
		reflection.ServiceInfoProvider
	}{server, other})
	return server
}
