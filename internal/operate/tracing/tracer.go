package tracing

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// Options of [Open]. Log is required.
type Options struct {
	// Protocol turns traces on, without a variable that does: ProtocolGRPC or ProtocolHTTP. It
	// replaces the protocol of the variables. Empty: the variables decide.
	Protocol string
	// Sampling is the fraction of the traces that begin here and are sent, from 0 to 1. It counts
	// only with Protocol, and replaces the sampler of the variables.
	Sampling float64
	// Attributes describe the process, as name=value. They replace the variables' attributes.
	Attributes []string
	// Version of Slidegate.
	Version string
	// Lost counts spans that could not be sent. Nil: they are not counted.
	Lost func(spans int)
	// Log gets the failures of the receiver. Wrap it, so that they are rare.
	Log *zap.Logger
}

// A Tracer makes the spans of decisions and sends them. It is safe for concurrent use. A nil
// Tracer means that traces are off; only Close may be called then.
type Tracer struct {
	provider   *sdk.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	fields     []string
	described  string
}

// flushTimeout bounds how long Close sends the spans that wait.
const flushTimeout = 2 * time.Second

// Open returns a Tracer that the options and the variables of OpenTelemetry describe, or nil if
// they name no receiver. The receiver need not answer yet. The error names each variable that is
// wrong. It is about wrong variables only while traces are on.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	e := &environment{get: os.Getenv}
	on := e.on() || o.Protocol != ""
	if strings.EqualFold(e.get(disabledVariable), "true") || !on {
		return nil, e.err()
	}
	protocol := e.protocol()
	if o.Protocol != "" {
		protocol = o.Protocol
	}
	e.check()
	formats := e.propagators()
	if err := e.err(); err != nil {
		return nil, err
	}
	_, from := e.otlp("ENDPOINT")
	endpoint := e.get(from)
	exporter, err := newExporter(ctx, protocol, endpoint != "")
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	if o.Lost == nil {
		o.Lost = func(int) {}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Warn("traces: a problem in the OpenTelemetry library; calls are not affected", zap.String("error", brief(err)))
	}))
	described, err := describe(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	options := []sdk.TracerProviderOption{
		sdk.WithBatcher(&reporting{SpanExporter: exporter, lost: o.Lost, log: o.Log}),
		sdk.WithResource(described),
	}
	if o.Protocol != "" {
		options = append(options, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Sampling))))
	}
	t := &Tracer{provider: sdk.NewTracerProvider(options...)}
	t.tracer = t.provider.Tracer("github.com/slidegate/slidegate", trace.WithInstrumentationVersion(o.Version))
	t.propagator, t.fields = newPropagator(formats)
	if endpoint == "" {
		endpoint = "localhost"
	}
	t.described = protocol + " to " + endpoint
	return t, nil
}

// String says where spans go. It holds no secret.
func (t *Tracer) String() string {
	if t == nil {
		return "off"
	}
	return t.described
}

// Fields returns the names of the metadata that may hold the context of a trace, in lower case.
func (t *Tracer) Fields() []string { return t.fields }

// Close sends the spans that wait, for two seconds at most, and ends what runs in the background.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // spans that were not sent are no reason to stop with an error
	return nil
}

// newExporter returns the client of OTLP. It reads its further options from the variables. Without
// an endpoint it sends to this machine, without TLS.
func newExporter(ctx context.Context, protocol string, endpoint bool) (sdk.SpanExporter, error) {
	if protocol == ProtocolGRPC {
		var options []otlptracegrpc.Option
		if !endpoint {
			options = append(options, otlptracegrpc.WithInsecure())
		}
		return otlptracegrpc.New(ctx, options...)
	}
	var options []otlptracehttp.Option
	if !endpoint {
		options = append(options, otlptracehttp.WithInsecure())
	}
	return otlptracehttp.New(ctx, options...)
}

// describe returns what describes the process. Of two values with one name, the later counts:
// those of Slidegate, of the variables, and of the options.
func describe(ctx context.Context, o Options) (*resource.Resource, error) {
	standard := []attribute.KeyValue{attribute.String("service.name", "slidegate"), attribute.String("service.version", o.Version)}
	if host, err := os.Hostname(); err == nil {
		standard = append(standard, attribute.String("service.instance.id", host))
	}
	var given []attribute.KeyValue
	for _, pair := range o.Attributes {
		name, value, _ := strings.Cut(pair, "=")
		given = append(given, attribute.String(name, value))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(standard...), resource.WithFromEnv(), resource.WithAttributes(given...))
}

// newPropagator returns what reads the formats of trace context, and the fields that it reads. If
// a call has several formats, the one of the W3C counts.
func newPropagator(formats []string) (propagation.TextMapPropagator, []string) {
	var all []propagation.TextMapPropagator
	var encoding b3.Encoding
	if slices.Contains(formats, "b3") {
		encoding |= b3.B3SingleHeader
	}
	if slices.Contains(formats, "b3multi") {
		encoding |= b3.B3MultipleHeader
	}
	if encoding != 0 {
		all = append(all, b3.New(b3.WithInjectEncoding(encoding)))
	}
	if slices.Contains(formats, "tracecontext") {
		all = append(all, propagation.TraceContext{})
	}
	composite := propagation.NewCompositeTextMapPropagator(all...)
	fields := composite.Fields()
	for i := range fields {
		fields[i] = strings.ToLower(fields[i])
	}
	return composite, fields
}

// reporting is a SpanExporter that counts and logs failures.
type reporting struct {
	sdk.SpanExporter
	lost func(spans int)
	log  *zap.Logger
}

// maxFailure bounds what a line shows of a failure, in bytes. The receiver can send any text.
const maxFailure = 300

// brief returns the beginning of an error.
func brief(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")
}

// ExportSpans implements sdk.SpanExporter. It returns no error, because the library would print it.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := r.SpanExporter.ExportSpans(ctx, spans); err != nil {
		r.lost(len(spans))
		r.log.Warn("spans could not be sent and are lost; check the receiver and "+otlpPrefix+"ENDPOINT",
			zap.Int("spans", len(spans)), zap.String("error", brief(err)))
	}
	return nil
}
