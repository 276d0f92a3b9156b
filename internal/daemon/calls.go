package daemon

import (
	"context"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/unary"
)

// calls measures every gRPC call, whatever becomes of it, and turns a panic into
// INTERNAL, so that it stays with its call.
type calls struct {
	metrics *metrics.Metrics
	log     *zap.Logger
}

var errPanicked = status.Error(codes.Internal, "internal error")

// panicked counts a panic and logs where it was. What was being handled is not
// logged: it may hold a key.
func (c calls) panicked(method string) {
	c.metrics.Panicked()
	c.log.Error("a call panicked; this is a bug, please report it",
		zap.String("method", method), zap.ByteString("stack", debug.Stack()))
}

// observe measures a call that has ended.
func (c calls) observe(method string, begin time.Time, err error) {
	c.metrics.RPC(method, status.Code(err).String()).Observe(time.Since(begin).Seconds())
}

// intercept is a grpc.UnaryServerInterceptor.
func (c calls) intercept(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	begin := time.Now()
	defer func() {
		if recover() != nil {
			c.panicked(info.FullMethod)
			out, err = nil, errPanicked
		}
		c.observe(info.FullMethod, begin, err)
	}()
	return handler(ctx, in)
}

// A prompt is a unary.Prompt of somebody who does not know that package.
type prompt func(request string, answer []byte) ([]byte, func(ctx context.Context, answer []byte) ([]byte, error), error)

// intercepted does for f what intercept does for other methods. A call that has a
// rest ends with that.
func (c calls) intercepted(method string, f prompt) unary.Prompt {
	// What nearly every call ends with: there is no need to look for it each time.
	ok := c.metrics.RPC(method, codes.OK.String())
	return func(request string, answer []byte) (out []byte, rest unary.Rest, err error) {
		begin := time.Now()
		defer func() {
			if recover() != nil {
				c.panicked(method)
				out, rest, err = answer, nil, errPanicked
			}
			switch {
			case rest != nil:
			case err == nil:
				ok.Observe(time.Since(begin).Seconds())
			default:
				c.observe(method, begin, err)
			}
		}()
		out, more, err := f(request, answer)
		if more == nil || err != nil {
			return out, nil, err
		}
		return out, c.rest(method, begin, more), nil
	}
}

// rest does the same for what is left of a call that began some time ago.
func (c calls) rest(method string, begin time.Time, f unary.Rest) unary.Rest {
	return func(ctx context.Context, answer []byte) (out []byte, err error) {
		defer func() {
			if recover() != nil {
				c.panicked(method)
				out, err = answer, errPanicked
			}
			c.observe(method, begin, err)
		}()
		return f(ctx, answer)
	}
}
