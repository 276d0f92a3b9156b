package metrics

import "github.com/prometheus/client_golang/prometheus"

// Spans counts the spans of traces. It is safe for concurrent use, and implements
// tracing.Meters.
type Spans struct{ ended, sent, failed prometheus.Counter }

// NewSpans returns a Spans that is not registered.
func NewSpans() *Spans {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &Spans{
		ended:  counter("slidegate_spans_ended_total", "Spans of sampled traces that ended. Those that were neither sent nor lost wait, or were dropped because the queue was full."),
		sent:   counter("slidegate_spans_sent_total", "Spans that the receiver of traces has accepted."),
		failed: counter("slidegate_spans_lost_total", "Spans that could not be sent to the receiver of traces."),
	}
}

// Register registers the metrics.
func (s *Spans) Register(registry prometheus.Registerer) {
	registry.MustRegister(s.ended, s.sent, s.failed)
}

// Ended implements tracing.Meters.
func (s *Spans) Ended() { s.ended.Inc() }

// Sent implements tracing.Meters.
func (s *Spans) Sent(spans int) { s.sent.Add(float64(spans)) }

// Failed implements tracing.Meters.
func (s *Spans) Failed(spans int) { s.failed.Add(float64(spans)) }

// Observe observes a value, with an exemplar that leads to its trace unless that is nil.
func Observe(o prometheus.Observer, seconds float64, exemplar map[string]string) {
	if e, ok := o.(prometheus.ExemplarObserver); ok && exemplar != nil {
		e.ObserveWithExemplar(seconds, exemplar)
		return
	}
	o.Observe(seconds)
}
