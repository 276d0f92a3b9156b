package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/extauthz"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/internal/operate/tracing"
)

// openTracer makes what sends spans, if the settings or the variables of OpenTelemetry ask for it.
func (p *process) openTracer(ctx context.Context, version string) (err error) {
	s := p.settings.DropIn.Traces
	if s.Protocol == settings.TracesOff {
		return nil
	}
	lost := metrics.SpansLost()
	p.measures.tracer, err = tracing.Open(ctx, tracing.Options{
		Protocol: s.Protocol, Sampling: s.Sampling, Attributes: s.Attributes,
		Version: version, Lost: func(spans int) { lost.Add(float64(spans)) }, Log: p.logs.rare,
	})
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	if p.measures.tracer != nil {
		p.measures.registry.MustRegister(lost)
		p.open.add(p.measures.tracer.Close)
	}
	return nil
}

// observer returns what observes decisions and how long store calls take. With traces, storing does.
func (m *measures) observer(failed func(error)) decide.Observer {
	if m.tracer == nil {
		return decide.Observer{Seconds: m.metrics.StoreSeconds, Failed: failed}
	}
	return decide.Observer{Tracer: storing{m.tracer, m.metrics}, Failed: failed}
}

// answered returns what notes in spans how many requests shared a call to Redis, or nil.
func (m *measures) answered() func(context.Context, int) {
	if m.tracer == nil {
		return nil
	}
	return tracing.Answered
}

// authorizations returns what notes the result of an authorization in its span, or nil.
func (m *measures) authorizations() func(context.Context, extauthz.Result) {
	if m.tracer == nil {
		return nil
	}
	return func(ctx context.Context, r extauthz.Result) { tracing.Authorized(ctx, r.String()) }
}

// storing is a decide.Tracer that also observes how long store calls take, with the trace.
type storing struct {
	*tracing.Tracer
	metrics *metrics.Metrics
}

// Stored implements decide.Tracer.
func (s storing) Stored(ctx context.Context, begin time.Time, took time.Duration, err error) {
	s.metrics.StoreSecondsTraced(took.Seconds(), tracing.ExemplarOf(ctx))
	s.Tracer.Stored(ctx, begin, took, err)
}
