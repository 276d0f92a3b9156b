// Package calls measures every call of a process, with spans if traces are on. It turns a panic
// into INTERNAL, or 500, so that a panic ends one call alone. Its [Recorder] has the interceptor of
// gRPC and the wrappers of handlers for package unary and HTTP.
package calls

import (
	"context"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

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

// A Recorder measures calls. Metrics and Log are required. Its methods are safe for concurrent use.
type Recorder struct {
	Metrics *metrics.Metrics
	Log     *zap.Logger
	// Reference has the methods that dropin.metrics and dropin.statsd count, by their
	// full names. Nil: none.
	Reference map[string]*stats.Method
	// Tracer makes the spans of calls. Nil: traces are off.
	Tracer *tracing.Tracer
	// Traced are the full names of the methods that decide requests: their calls have spans.
	Traced []string
}

var errPanicked = status.Error(codes.Internal, "internal error")

// panicked counts a panic and logs its stack. It does not log the panic's value, which
// may be an API key.
func (r Recorder) panicked(method string) {
	r.Metrics.Panicked()
	r.Log.Error("a call panicked; this is a bug, please report it",
		zap.String("method", method), zap.ByteString("stack", debug.Stack()))
}

// end turns a panic into an error, measures the call, and ends its span. recovered is the
// result of recover.
func (r Recorder) end(recovered any, method string, begin time.Time, err *error, span *tracing.Call) {
	if recovered != nil {
		r.panicked(method)
		*err = errPanicked
	}
	seconds, code := time.Since(begin).Seconds(), status.Code(*err)
	metrics.Observe(r.Metrics.RPC(method, code.String()), seconds, span.Exemplar())
	span.End(*err)
	if counted := r.Reference[method]; counted != nil {
		counted.Observe(seconds)
		if code == codes.InvalidArgument {
			counted.Invalid()
		}
	}
}

// Intercept is the grpc.UnaryServerInterceptor of both transports.
func (r Recorder) Intercept(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	begin := time.Now()
	var span *tracing.Call
	if r.Tracer != nil && slices.Contains(r.Traced, info.FullMethod) {
		md, _ := metadata.FromIncomingContext(ctx)
		ctx, span = r.Tracer.Begin(ctx, info.FullMethod, md)
	}
	defer func() { r.end(recover(), info.FullMethod, begin, &err, span) }()
	return handler(ctx, in)
}

// Wrap returns h as a handler that measures calls and recovers from panics, as Intercept
// does for other methods.
func (r Recorder) Wrap(method string, h unary.Handler) unary.Handler {
	if r.Tracer != nil {
		return r.traced(method, h)
	}
	ok := r.Metrics.RPC(method, codes.OK.String()) // most calls end with OK
	counted := r.Reference[method]
	return func(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
		defer func() {
			if recovered := recover(); recovered != nil || err != nil {
				r.end(recovered, method, call.Begin, &err, nil)
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

// traced is Wrap for a process with traces. The span begins with the first call of h and ends
// when the call is decided.
func (r Recorder) traced(method string, h unary.Handler) unary.Handler {
	return func(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
		var span *tracing.Call
		if earlier, again := call.State.(*tracedState); again {
			call.State, span = earlier.state, earlier.span
			ctx = span.In(ctx)
		} else {
			ctx, span = r.Tracer.Begin(ctx, method, call.Metadata)
		}
		defer func() {
			if recovered := recover(); recovered != nil || err != nil || decided {
				r.end(recovered, method, call.Begin, &err, span)
				return
			}
			call.State = &tracedState{call.State, span}
		}()
		out = answer // the result if h panics
		return h(ctx, wait, call, answer)
	}
}

// TraceHTTP returns h as a handler whose decisions have spans, for /json and /authz.
func (r Recorder) TraceHTTP(h http.Handler) http.Handler {
	if r.Tracer == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		first, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
		if first != "json" && first != "authz" {
			h.ServeHTTP(w, req)
			return
		}
		ctx, span := r.Tracer.BeginHTTP(req.Context(), "/"+first, req.Header)
		panicked := true
		defer func() { span.EndHTTP(panicked) }()
		h.ServeHTTP(w, req.WithContext(ctx))
		panicked = false
	})
}

// RecoverHTTP returns h as a handler that answers 500 if h panics.
func (r Recorder) RecoverHTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			if recover() != nil {
				// The log gets only the first part of the path. Behind /authz the rest comes
				// from a client.
				first, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
				r.panicked("/" + first)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, req)
	})
}
