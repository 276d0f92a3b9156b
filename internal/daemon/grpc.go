package daemon

import (
	"context"
	"net"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/ratelimit"
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

// An adapter is a service that answers one method.
type adapter interface{ Register(grpc.ServiceRegistrar) }

// A prompter is an adapter that answers without waiting where it can.
type prompter interface {
	adapter
	Prompt(request, answer []byte) ([]byte, func(ctx context.Context, answer []byte) ([]byte, error), error)
}

// newGRPC returns the server of the transport that the settings choose, with the
// adapters by the full names of their methods and with health, all serving. Meters
// count what happens on the connections of transport unary.
func newGRPC(s config.GRPC, c calls, meters unary.Meters, adapters map[string]adapter) (grpcServer, *health.Server) {
	h := health.NewServer()
	for _, name := range healthNames {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	register := func(server grpc.ServiceRegistrar) {
		for _, a := range adapters {
			a.Register(server)
		}
		healthv1.RegisterHealthServer(server, h)
	}
	if s.Transport != config.TransportUnary {
		server := newStandard(s, c)
		register(server)
		reflection.Register(server)
		return server, h
	}
	server := newUnary(s, c, meters)
	register(server)
	for method, a := range adapters {
		if p, ok := a.(prompter); ok {
			server.Prompt(method, c.intercepted(method, p.Prompt))
		}
	}
	return server, h
}

// newStandard returns a server of grpc-go without services.
func newStandard(s config.GRPC, c calls) *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(ratelimit.NewCodec()),
		grpc.UnaryInterceptor(c.intercept),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(s.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(s.MaxConcurrentStreams)),
		// Envoy pings idle connections too; the default would answer its third
		// ping with GOAWAY too_many_pings.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             s.KeepaliveMinTime,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:              s.KeepaliveTime,
			Timeout:           s.KeepaliveTimeout,
			MaxConnectionIdle: s.MaxConnectionIdle,
			MaxConnectionAge:  s.MaxConnectionAge,
		}),
	)
}

// newUnary returns a server of our own without services.
func newUnary(s config.GRPC, c calls, meters unary.Meters) *unary.Server {
	return unary.NewServer(unary.Options{
		Codec:             ratelimit.NewCodec(),
		Interceptor:       c.intercept,
		Panicked:          c.panicked,
		MaxMessageBytes:   s.MaxMessageBytes,
		MaxStreams:        uint32(s.MaxConcurrentStreams),
		MinPingInterval:   s.KeepaliveMinTime,
		KeepaliveTime:     s.KeepaliveTime,
		KeepaliveTimeout:  s.KeepaliveTimeout,
		MaxConnectionIdle: s.MaxConnectionIdle,
		MaxConnectionAge:  s.MaxConnectionAge,
		Meters:            meters,
		Log:               c.log,
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
