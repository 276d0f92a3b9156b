package tracing

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/core/decide"
)

// A Call is the span of one call. A nil Call is a call that is not sampled, and its methods do
// nothing. One goroutine at a time may use it, but for what a store reports.
type Call struct {
	span trace.Span
	// batches is how many calls of the script decided the request, and shared is the most
	// requests that one of them had.
	batches, shared atomic.Int64
}

// callKey is the key of the Call in a context.
type callKey struct{}

// of returns the Call of a context, or nil.
func of(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// incoming reads the metadata of a call.
type incoming metadata.MD

// Get implements propagation.TextMapCarrier.
func (m incoming) Get(name string) string {
	if values := m[strings.ToLower(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier. Nothing is sent.
func (incoming) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (m incoming) Keys() []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	return names
}

// Begin begins the span of a gRPC call. method is its full name. md has the metadata of the call,
// or those of [Tracer.Fields]. It returns the context of the call, and nil for a call that is not
// sampled.
func (t *Tracer) Begin(ctx context.Context, method string, md metadata.MD) (context.Context, *Call) {
	name := strings.TrimPrefix(method, "/")
	service, short, _ := strings.Cut(name, "/")
	return t.begin(ctx, name, incoming(md),
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", short))
}

// BeginHTTP is Begin for a request over HTTP. path must not come from a client.
func (t *Tracer) BeginHTTP(ctx context.Context, path string, header map[string][]string) (context.Context, *Call) {
	return t.begin(ctx, path, propagation.HeaderCarrier(header), attribute.String("http.route", path))
}

func (t *Tracer) begin(ctx context.Context, name string, from propagation.TextMapCarrier, attributes ...attribute.KeyValue) (context.Context, *Call) {
	_, span := t.tracer.Start(t.propagator.Extract(ctx, from), name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	if !span.IsRecording() {
		return ctx, nil
	}
	c := &Call{span: span}
	return c.In(ctx), c
}

// In returns ctx with the span, for the decider and the store.
func (c *Call) In(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, c)
}

// End ends the span with the status of the call. Do not use c afterwards.
func (c *Call) End(err error) {
	if c == nil {
		return
	}
	code := status.Code(err)
	c.span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
	if err != nil {
		c.span.SetStatus(codes.Error, code.String()) // the message may quote the request
	}
	c.span.End()
}

// EndHTTP ends the span of a request over HTTP. Do not use c afterwards.
func (c *Call) EndHTTP(panicked bool) {
	if c == nil {
		return
	}
	if panicked {
		c.span.SetStatus(codes.Error, "panic")
	}
	c.span.End()
}

// Exemplar returns the labels that lead from a metric to the trace, or nil for a call that is not
// sampled.
func (c *Call) Exemplar() map[string]string {
	if c == nil {
		return nil
	}
	s := c.span.SpanContext()
	return map[string]string{"trace_id": s.TraceID().String(), "span_id": s.SpanID().String()}
}

// ExemplarOf returns Exemplar of the call that a context belongs to.
func ExemplarOf(ctx context.Context) map[string]string { return of(ctx).Exemplar() }

// Answered notes that Redis has answered the call that ctx belongs to, in a call of the script
// with that many requests. It may run several times at once.
func Answered(ctx context.Context, requests int) {
	c := of(ctx)
	if c == nil {
		return
	}
	c.batches.Add(1)
	for {
		most := c.shared.Load()
		if int64(requests) <= most || c.shared.CompareAndSwap(most, int64(requests)) {
			return
		}
	}
}

var _ decide.Tracer = (*Tracer)(nil)

// Stored implements [decide.Tracer]. If Redis was asked, or the store failed, the call has a child
// span. All other decisions take microseconds.
func (t *Tracer) Stored(ctx context.Context, begin time.Time, took time.Duration, err error) {
	c := of(ctx)
	if c == nil {
		return
	}
	c.span.SetAttributes(attribute.Float64("slidegate.store.seconds", took.Seconds()))
	batches := c.batches.Load()
	if batches == 0 && err == nil {
		return
	}
	_, span := t.tracer.Start(trace.ContextWithSpan(ctx, c.span), "store", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(begin))
	if batches > 0 {
		span.SetAttributes(attribute.String("db.system", "redis"),
			attribute.Int64("slidegate.store.shared_by", c.shared.Load()), attribute.Int64("slidegate.store.calls", batches))
	}
	if err != nil {
		span.SetStatus(codes.Error, "the store could not decide") // the error may hold addresses
	}
	span.End(trace.WithTimestamp(begin.Add(took)))
}

// maxDomain bounds what a span shows of a domain, in bytes. A client can make it up.
const maxDomain = 128

// Decided implements [decide.Tracer].
func (t *Tracer) Decided(ctx context.Context, req *decide.Request, v *decide.Verdict, err error) {
	c := of(ctx)
	if c == nil {
		return
	}
	domain := strings.ToValidUTF8(req.Domain[:min(len(req.Domain), maxDomain)], "\uFFFD")
	set := []attribute.KeyValue{attribute.String("slidegate.domain", strings.Clone(domain))}
	if err != nil {
		c.span.SetAttributes(append(set, attribute.String("slidegate.outcome", decide.OutcomeError.String()))...)
		c.span.SetStatus(codes.Error, "the request could not be decided")
		return
	}
	set = append(set, attribute.String("slidegate.outcome", outcome(v)),
		attribute.Int("slidegate.limits", len(v.Limits)), attribute.Bool("slidegate.degraded", v.Degraded))
	if v.Decisive >= 0 {
		s := &v.Limits[v.Decisive]
		set = append(set, attribute.String("slidegate.rule", s.Rule.Name))
		if s.Tier != "" {
			set = append(set, attribute.String("slidegate.tier", s.Tier))
		}
		if !s.Decision.Allowed && !s.Decision.Never {
			set = append(set, attribute.Float64("slidegate.wait.seconds", s.Wait().Seconds()))
		}
	}
	if v.Shadowed >= 0 {
		set = append(set, attribute.String("slidegate.shadowed", v.Limits[v.Shadowed].Rule.Name))
	}
	c.span.SetAttributes(set...)
}

// Authorized notes the result of an authorization in the span that ctx belongs to.
func Authorized(ctx context.Context, result string) {
	if c := of(ctx); c != nil {
		c.span.SetAttributes(attribute.String("slidegate.authorization", result))
	}
}

// outcome returns what happened to the request, as the metrics call it.
func outcome(v *decide.Verdict) string {
	switch {
	case !v.Allowed && v.Decisive >= 0 && v.Limits[v.Decisive].Decision.Never:
		return decide.OutcomeNever.String()
	case !v.Allowed:
		return decide.OutcomeDenied.String()
	case len(v.Limits) == 0:
		return "no_limit"
	default:
		return decide.OutcomeAllowed.String()
	}
}
