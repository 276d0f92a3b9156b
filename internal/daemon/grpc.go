package daemon

import (
	"context"
	"crypto/tls"
	"runtime/debug"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/ratelimit"
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

// registrar adds a service to a server.
type registrar interface{ Register(grpc.ServiceRegistrar) }

// newGRPC returns the server with every service registered and serving. A nil secure
// is plain text.
func newGRPC(s config.GRPC, secure *tls.Config, m *metrics.Metrics, log *zap.Logger, services ...registrar) (*grpc.Server, *health.Server) {
	server := grpc.NewServer(
		grpc.Creds(grpcCredentials(secure, log)),
		grpc.ForceServerCodecV2(ratelimit.NewCodec()),
		grpc.ChainUnaryInterceptor(observe(m), recoverPanics(m, log)),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(s.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(s.MaxConcurrentStreams)),
		// Envoy pings idle connections too; the default would answer its third
		// ping with GOAWAY too_many_pings.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             s.KeepaliveMinTime,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepaliveParams(s)),
	)
	for _, service := range services {
		service.Register(server)
	}
	h := health.NewServer()
	for _, name := range healthNames {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(server, h)
	reflection.Register(server)
	return server, h
}

// observe measures every call, whatever becomes of it.
func observe(m *metrics.Metrics) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		start := time.Now()
		out, err := handler(ctx, in)
		m.RPC(info.FullMethod, status.Code(err).String()).Observe(time.Since(start).Seconds())
		return out, err
	}
}

// panicked counts a panic and logs where it was. What was being handled is not
// logged: it may hold a key.
func panicked(m *metrics.Metrics, log *zap.Logger, method string) {
	m.Panicked()
	log.Error("a call panicked; this is a bug, please report it",
		zap.String("method", method), zap.ByteString("stack", debug.Stack()))
}

// recoverPanics turns a panic into INTERNAL, and says so.
func recoverPanics(m *metrics.Metrics, log *zap.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
		defer func() {
			if recover() != nil {
				panicked(m, log, info.FullMethod)
				out, err = nil, status.Error(codes.Internal, "internal error")
			}
		}()
		return handler(ctx, in)
	}
}
