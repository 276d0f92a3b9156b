package daemon

import (
	"context"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/compat/stats"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/unary"
)

// calls measures every gRPC call of both transports. It turns a panic into INTERNAL,
// so that the panic ends only its own call.
type calls struct {
	metrics *metrics.Metrics
	log     *zap.Logger
	// reference has the methods that reference.metrics and reference.statsd count, by their
	// full names. Nil: none.
	reference map[string]*stats.Method
}

var errPanicked = status.Error(codes.Internal, "internal error")

// panicked counts a panic and logs its stack. It does not log the panic's value, which
// may hold an API key.
func (c calls) panicked(method string) {
	c.metrics.Panicked()
	c.log.Error("a call panicked; this is a bug, please report it",
		zap.String("method", method), zap.ByteString("stack", debug.Stack()))
}

// end turns a panic into an error, and measures the call. recovered is the result of
// recover.
func (c calls) end(recovered any, method string, begin time.Time, err *error) {
	if recovered != nil {
		c.panicked(method)
		*err = errPanicked
	}
	seconds, code := time.Since(begin).Seconds(), status.Code(*err)
	c.metrics.RPC(method, code.String()).Observe(seconds)
	if counted := c.reference[method]; counted != nil {
		counted.Observe(seconds)
		if code == codes.InvalidArgument {
			counted.Invalid()
		}
	}
}

// intercept is the grpc.UnaryServerInterceptor of both transports.
func (c calls) intercept(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	begin := time.Now()
	defer func() { c.end(recover(), info.FullMethod, begin, &err) }()
	return handler(ctx, in)
}

// handler returns h as a handler that measures calls and recovers from panics, as intercept
// does for other methods.
func (c calls) handler(method string, h unary.Handler) unary.Handler {
	ok := c.metrics.RPC(method, codes.OK.String()) // most calls end with OK
	counted := c.reference[method]
	return func(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
		defer func() {
			if recovered := recover(); recovered != nil || err != nil {
				c.end(recovered, method, call.Begin, &err)
			} else if decided {
				seconds := time.Since(call.Begin).Seconds()
				ok.Observe(seconds)
				counted.Observe(seconds)
			}
		}()
		out = answer // the result if h panics
		return h(ctx, wait, call, answer)
	}
}
