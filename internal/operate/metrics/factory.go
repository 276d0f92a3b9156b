package metrics

import "github.com/prometheus/client_golang/prometheus"

// A factory makes metrics and registers them. It panics if the registry has the name already.
type factory struct{ registry prometheus.Registerer }

func register[C prometheus.Collector](f factory, c C) C {
	f.registry.MustRegister(c)
	return c
}

func (f factory) counter(name, help string) prometheus.Counter {
	return register(f, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(f, newCounters(name, help, labels))
}

// counterFunc makes a counter whose value is asked at each scrape.
func (f factory) counterFunc(name, help string, value func() float64) {
	register(f, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	return register(f, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// gaugeFunc is counterFunc for a gauge.
func (f factory) gaugeFunc(name, help string, value func() float64) {
	register(f, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// seconds makes a histogram, whose buckets end at bounds.
func (f factory) seconds(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return register(f, newHistograms(name, help, bounds, labels))
}
