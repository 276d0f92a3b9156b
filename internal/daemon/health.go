package daemon

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthInterval is how often the health of gRPC follows the states of dropin.unhealthy for
// clients that watch it.
const healthInterval = 250 * time.Millisecond

// A followingHealth is a health server whose status follows the states of dropin.unhealthy. It is
// safe for concurrent use.
type followingHealth struct {
	*health.Server
	why func() string // returns why the process is unhealthy, or the empty string
	log *zap.Logger

	mu  sync.Mutex
	bad bool // the status is NOT_SERVING
}

// follow sets the status of all names. After Shutdown it has no effect.
func (h *followingHealth) follow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	why := h.why()
	if (why != "") == h.bad {
		return
	}
	h.bad = why != ""
	status := healthv1.HealthCheckResponse_SERVING
	if h.bad {
		status = healthv1.HealthCheckResponse_NOT_SERVING
		h.log.Warn("unhealthy: /healthcheck is 500 and gRPC health NOT_SERVING", zap.String("reason", why))
	} else {
		h.log.Info("healthy again")
	}
	for _, name := range healthNames {
		h.SetServingStatus(name, status)
	}
}

// Check implements the health service with the state of this moment.
func (h *followingHealth) Check(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	h.follow()
	return h.Server.Check(ctx, in)
}

// List implements the health service with the state of this moment.
func (h *followingHealth) List(ctx context.Context, in *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	h.follow()
	return h.Server.List(ctx, in)
}

// run follows the states for clients that watch, until ctx ends.
func (h *followingHealth) run(ctx context.Context) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		h.follow()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
