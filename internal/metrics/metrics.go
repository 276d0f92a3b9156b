package metrics

import (
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/slidegate/slidegate/internal/policy"
)

// Metrics is every metric of one process. It is safe for concurrent use and
// implements policy.Meters.
type Metrics struct {
	decisions      *prometheus.CounterVec
	unknownDomains prometheus.Counter
	storeSeconds   prometheus.Histogram
	storeDown      prometheus.Gauge
	rpcSeconds     *prometheus.HistogramVec
	panics         prometheus.Counter
	reloads        *prometheus.CounterVec
	configLoaded   prometheus.Gauge
	configBroken   prometheus.Gauge

	mu     sync.Mutex
	meters map[meterName]policy.Meter
}

type meterName struct{ domain, rule string }

// latencies spans what a decision may take: 10 us from memory, 15 ms at the end
// of the store's patience, 20 ms at the end of Envoy's.
var latencies = []float64{
	0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 1,
}

// New registers every metric. version labels build_info. A registry that already
// has one of the names is a mistake of the program, and panics.
func New(registry prometheus.Registerer, version string) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_decisions_total",
			Help: "Descriptors decided, by domain, rule and outcome. Rule is empty for descriptors that no rule limits.",
		}, []string{"domain", "rule", "outcome"}),
		unknownDomains: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slidegate_unknown_domain_requests_total",
			Help: "Requests for a domain that has no rules; they are allowed.",
		}),
		storeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "slidegate_store_seconds",
			Help:    "Time of one store call, which decides all limits of a request.",
			Buckets: latencies,
		}),
		storeDown: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slidegate_store_down",
			Help: "1 from the third call in a row that the store could not decide until the next that it could.",
		}),
		rpcSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slidegate_rpc_seconds",
			Help:    "Time of one gRPC call in the service, by method and status code.",
			Buckets: latencies,
		}, []string{"method", "code"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slidegate_panics_total",
			Help: "Calls that panicked and were answered with INTERNAL. Every one is a bug.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_config_reloads_total",
			Help: "Times the rules and tiers were read again, by result.",
		}, []string{"result"}),
		configLoaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slidegate_config_loaded_timestamp_seconds",
			Help: "When the active rules and tiers were loaded.",
		}),
		configBroken: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slidegate_config_broken",
			Help: "1 while the files are broken and the last good generation is active.",
		}),
		meters: make(map[meterName]policy.Meter),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "slidegate_build_info",
		Help:        "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	build.Set(1)
	for _, result := range []string{"loaded", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	registry.MustRegister(
		m.decisions, m.unknownDomains, m.storeSeconds, m.storeDown, m.rpcSeconds, m.panics,
		m.reloads, m.configLoaded, m.configBroken, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Logs registers a gauge of the logs that an embedded store holds.
func Logs(registry prometheus.Registerer, count func() int) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "slidegate_store_logs",
		Help: "Logs held by the embedded store.",
	}, func() float64 { return float64(count()) }))
}

// meter is the series of one rule, looked up once.
type meter [len(policy.Outcomes)]prometheus.Counter

// Count implements policy.Meter.
func (m *meter) Count(o policy.Outcome) { m[o].Inc() }

// Detail implements policy.Meter.
func (*meter) Detail([]byte, policy.Outcome) {}

// Meter implements policy.Meters. Rules that share a name share a meter.
func (m *Metrics) Meter(domain, rule string) policy.Meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := meterName{domain, rule}
	if old, ok := m.meters[name]; ok {
		return old
	}
	series := new(meter)
	for o, label := range policy.Outcomes {
		series[o] = m.decisions.WithLabelValues(domain, rule, label)
	}
	m.meters[name] = series
	return series
}

// UnknownDomain implements policy.Meters.
func (m *Metrics) UnknownDomain() { m.unknownDomains.Inc() }

// StoreSeconds observes one store call.
func (m *Metrics) StoreSeconds(seconds float64) { m.storeSeconds.Observe(seconds) }

// StoreDown records whether the store decides.
func (m *Metrics) StoreDown(down bool) {
	if down {
		m.storeDown.Set(1)
	} else {
		m.storeDown.Set(0)
	}
}

// RPC returns the histogram of one method and status code.
func (m *Metrics) RPC(method, code string) prometheus.Observer {
	return m.rpcSeconds.WithLabelValues(method, code)
}

// Panicked counts a call that panicked.
func (m *Metrics) Panicked() { m.panics.Inc() }

// Loaded records that a generation became active at the given time, in seconds
// since 1970.
func (m *Metrics) Loaded(at float64) {
	m.reloads.WithLabelValues("loaded").Inc()
	m.configLoaded.Set(at)
	m.configBroken.Set(0)
}

// Refused records that a broken generation was not taken.
func (m *Metrics) Refused() {
	m.reloads.WithLabelValues("refused").Inc()
	m.configBroken.Set(1)
}
