package daemon

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/health"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/grpcserver"
)

// drain lets the server accept calls for s.Delay, and then lets the calls in flight finish,
// at most for s.Timeout. If ctx ends, drain stops the server at once: another part ended.
// That part may be the server itself, after its last call.
//
// With s.NotServing, the health of gRPC is NOT_SERVING meanwhile.
func drain(ctx context.Context, s settings.Drain, server grpcserver.Server, h *health.Server, log *zap.Logger) {
	delay, timeout := s.Delay, s.Timeout
	log.Info("draining; another signal ends it at once", zap.Duration("delay", delay), zap.Duration("timeout", timeout),
		zap.Bool("not_serving", s.NotServing))
	if s.NotServing {
		h.Shutdown()
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		server.GracefulStop()
	}()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-finished:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			log.Warn("calls were still in flight at the end of drain.timeout; their connections are closed; if this happens often, raise drain.timeout")
		}
		server.Stop()
		<-finished
	}
}
