package metrics

import "github.com/prometheus/client_golang/prometheus"

// SpansLost returns the counter of spans that could not be sent. It is not registered.
func SpansLost() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "slidegate_spans_lost_total",
		Help: "Spans that could not be sent to the receiver of traces.",
	})
}

// Observe observes a value, with an exemplar that leads to its trace unless that is nil.
func Observe(o prometheus.Observer, seconds float64, exemplar map[string]string) {
	if e, ok := o.(prometheus.ExemplarObserver); ok && exemplar != nil {
		e.ObserveWithExemplar(seconds, exemplar)
		return
	}
	o.Observe(seconds)
}
