package daemon

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/health"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// drain answers everything for a while, then lets calls in flight finish. It
// ends at once when ctx does: another part has ended, maybe since the last call has
// and the server with it.
func drain(ctx context.Context, s settings.Drain, server grpcServer, h *health.Server, log *zap.Logger) {
	delay, timeout := s.Delay, s.Timeout
	log.Info("draining; another signal ends it at once", zap.Duration("delay", delay), zap.Duration("timeout", timeout),
		zap.Bool("not_serving", s.NotServing))
	if s.NotServing {
		h.Shutdown()
	}
	wait(ctx, delay)
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
			log.Warn("calls were still in flight at the end of drain.timeout and are cut off")
		}
		server.Stop()
		<-finished
	}
}

// wait returns after d or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
