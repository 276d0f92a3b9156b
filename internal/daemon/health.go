package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/edge/grpcserver"
)

// healthInterval is how often the health of gRPC follows what a drop-in needs.
const healthInterval = 250 * time.Millisecond

// followHealth sets the status of all names until ctx ends. why returns why the process is unhealthy,
// or the empty string. After h.Shutdown it has no effect. It returns nil.
func followHealth(ctx context.Context, h *health.Server, why func() string, log *zap.Logger) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for bad := false; ; {
		if reason := why(); (reason != "") != bad {
			bad = !bad
			status := healthv1.HealthCheckResponse_SERVING
			if bad {
				status = healthv1.HealthCheckResponse_NOT_SERVING
				log.Warn("unhealthy: /healthcheck is 500 and gRPC health NOT_SERVING", zap.String("reason", reason))
			} else {
				log.Info("healthy again")
			}
			for _, name := range grpcserver.HealthNames {
				h.SetServingStatus(name, status)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
