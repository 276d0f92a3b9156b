package daemon

import (
	"context"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/migrate/compat/stats"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/internal/operate/tracing"
)

// calls measures every gRPC call of both transports. It turns a panic into INTERNAL,
// so that the panic ends only its own call.
type calls struct {
	metrics *metrics.Metrics
	log     *zap.Logger
	// reference has the methods that dropin.metrics and dropin.statsd count, by their
	// full names. Nil: none.
	reference map[string]*stats.Method
	// tracer makes the spans of calls. Nil: traces are off.
	tracer *tracing.Tracer
}

var errPanicked = status.Error(codes.Internal, "internal error")

// panicked counts a panic and logs its stack. It does not log the panic's value, which
// may hold an API key.
func (c calls) panicked(method string) {
	c.metrics.Panicked()
	c.log.Error("a call panicked; this is a bug, please report it",
		zap.String("method", method), zap.ByteString("stack", debug.Stack()))
}

// end turns a panic into an error, measures the call, and ends its span. recovered is the
// result of recover.
func (c calls) end(recovered any, method string, begin time.Time, err *error, span *tracing.Call) {
	if recovered != nil {
		c.panicked(method)
		*err = errPanicked
	}
	seconds, code := time.Since(begin).Seconds(), status.Code(*err)
	metrics.Observe(c.metrics.RPC(method, code.String()), seconds, span.Exemplar())
	span.End(*err)
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
	var span *tracing.Call
	if c.tracer != nil && decides(info.FullMethod) {
		md, _ := metadata.FromIncomingContext(ctx)
		ctx, span = c.tracer.Begin(ctx, info.FullMethod, md)
	}
	defer func() { c.end(recover(), info.FullMethod, begin, &err, span) }()
	return handler(ctx, in)
}

// decides reports whether a method decides requests, so that its calls have a span.
func decides(method string) bool {
	return method == rlsv3.RateLimitService_ShouldRateLimit_FullMethodName || method == authv3.Authorization_Check_FullMethodName
}

// handler returns h as a handler that measures calls and recovers from panics, as intercept
// does for other methods.
func (c calls) handler(method string, h unary.Handler) unary.Handler {
	if c.tracer != nil {
		return c.traced(method, h)
	}
	ok := c.metrics.RPC(method, codes.OK.String()) // most calls end with OK
	counted := c.reference[method]
	return func(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
		defer func() {
			if recovered := recover(); recovered != nil || err != nil {
				c.end(recovered, method, call.Begin, &err, nil)
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

// A tracedState is unary.Call.State of a call that is asked again with waiting.
type tracedState struct {
	state any // of the handler
	span  *tracing.Call
}

// traced is handler for a process with traces. The span begins with the first call of h and ends
// when the call is decided.
func (c calls) traced(method string, h unary.Handler) unary.Handler {
	return func(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
		var span *tracing.Call
		if earlier, again := call.State.(*tracedState); again {
			call.State, span = earlier.state, earlier.span
			ctx = span.In(ctx)
		} else {
			ctx, span = c.tracer.Begin(ctx, method, call.Metadata)
		}
		defer func() {
			if recovered := recover(); recovered != nil || err != nil || decided {
				c.end(recovered, method, call.Begin, &err, span)
				return
			}
			call.State = &tracedState{call.State, span}
		}()
		out = answer // the result if h panics
		return h(ctx, wait, call, answer)
	}
}

// traceHTTP returns h as a handler whose decisions have spans: those of /json and /authz.
func (c calls) traceHTTP(h http.Handler) http.Handler {
	if c.tracer == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if first != "json" && first != "authz" {
			h.ServeHTTP(w, r)
			return
		}
		ctx, span := c.tracer.BeginHTTP(r.Context(), "/"+first, r.Header)
		panicked := true
		defer func() { span.EndHTTP(panicked) }()
		h.ServeHTTP(w, r.WithContext(ctx))
		panicked = false
	})
}
