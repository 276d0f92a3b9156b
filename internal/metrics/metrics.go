package metrics

import (
	"maps"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// Options of [New].
type Options struct {
	// Version labels build_info.
	Version string
	// MaxDetailSeries bounds the series that the values of descriptors have. Zero:
	// they have none of their own.
	MaxDetailSeries int
}

// Metrics is every metric of one process. It is safe for concurrent use and
// implements policy.Meters and ratelimit.Meters.
type Metrics struct {
	rules            *rules
	unknownDomains   prometheus.Counter
	ignoredOverrides prometheus.Counter
	degraded         map[policy.OnStoreError]prometheus.Counter
	storeSeconds     prometheus.Histogram
	storeDown        prometheus.Gauge
	foreignValues    prometheus.Counter
	rpcSeconds       *prometheus.HistogramVec
	rpcs             atomic.Pointer[map[rpc]prometheus.Observer] // never written to
	rpcsMu           sync.Mutex                                  // held to replace it
	panics           prometheus.Counter
	reloads          *prometheus.CounterVec
	configLoaded     prometheus.Gauge
	configBroken     prometheus.Gauge
}

// latencies spans what a decision may take: 10 us from memory, 15 ms at the end
// of the store's patience, 20 ms at the end of Envoy's.
var latencies = []float64{
	0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 1,
}

// New registers every metric. A registry that already has one of the names is a
// mistake of the program, and panics.
func New(registry prometheus.Registerer, o Options) *Metrics {
	degraded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slidegate_degraded_answers_total",
		Help: "Requests decided without the store, by the choice that their rules made for that.",
	}, []string{"choice"})
	m := &Metrics{
		rules: newRules(o.MaxDetailSeries),
		ignoredOverrides: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slidegate_ignored_overrides_total",
			Help: "Limits that came with a descriptor and are none, so that its rule counted.",
		}),
		degraded: map[policy.OnStoreError]prometheus.Counter{
			policy.StoreErrorAllow: degraded.WithLabelValues("allow"),
			policy.StoreErrorDeny:  degraded.WithLabelValues("deny"),
			policy.StoreErrorLocal: degraded.WithLabelValues("local"),
		},
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
			Help: "1 while a server of the store is not asked because it has failed, or refuses to write.",
		}),
		foreignValues: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slidegate_store_foreign_values_total",
			Help: "Values in Redis under a key of ours that were not a log, and were thrown away.",
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
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "slidegate_build_info",
		Help:        "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": o.Version, "go": runtime.Version()},
	})
	build.Set(1)
	for _, result := range []string{"loaded", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	registry.MustRegister(
		m.rules.decisions, m.rules.shadow, m.rules.detail, m.rules.overflow,
		m.unknownDomains, m.ignoredOverrides, degraded, m.storeSeconds, m.storeDown, m.foreignValues, m.rpcSeconds, m.panics,
		m.reloads, m.configLoaded, m.configBroken, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Memory registers what tells how full an embedded store is.
func Memory(registry prometheus.Registerer, stats func() memstore.Stats) {
	gauge := func(name, help string, value func(memstore.Stats) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(stats()) }))
	}
	counter := func(name, help string, value func(memstore.Stats) float64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return value(stats()) }))
	}
	gauge("slidegate_store_memory_keys", "Logs held by the memory store, one for each key and window.",
		func(s memstore.Stats) float64 { return float64(s.Logs) })
	gauge("slidegate_store_memory_bytes", "Memory taken by the logs of the memory store.",
		func(s memstore.Stats) float64 { return float64(s.Bytes) })
	counter("slidegate_store_memory_evicted_total", "Logs dropped to make room although something in them still counted.",
		func(s memstore.Stats) float64 { return float64(s.Evicted) })
	counter("slidegate_store_memory_refused_total", "Store calls refused because the memory store was full of logs that all limited somebody.",
		func(s memstore.Stats) float64 { return float64(s.Refused) })
}

// Meter implements policy.Meters. Rules that share a name share a meter.
func (m *Metrics) Meter(domain, rule string) policy.Meter { return m.rules.meter(domain, rule) }

// UnknownDomain implements policy.Meters.
func (m *Metrics) UnknownDomain() { m.unknownDomains.Inc() }

// IgnoredOverride implements ratelimit.Meters.
func (m *Metrics) IgnoredOverride() { m.ignoredOverrides.Inc() }

// DegradedAnswer implements ratelimit.Meters.
func (m *Metrics) DegradedAnswer(by policy.OnStoreError) {
	if c, ok := m.degraded[by]; ok {
		c.Inc()
	}
}

// StoreSeconds observes one store call.
func (m *Metrics) StoreSeconds(seconds float64) { m.storeSeconds.Observe(seconds) }

// StoreDown records whether a server of the store is not asked.
func (m *Metrics) StoreDown(down bool) {
	if down {
		m.storeDown.Set(1)
	} else {
		m.storeDown.Set(0)
	}
}

// ForeignValue counts a value in Redis that was not a log and was thrown away.
func (m *Metrics) ForeignValue() { m.foreignValues.Inc() }

// rpc names the histogram of some calls.
type rpc struct{ method, code string }

// RPC returns the histogram of one method and status code. It is asked for every
// call, and the library takes longer to find one by its labels than to observe.
func (m *Metrics) RPC(method, code string) prometheus.Observer {
	name := rpc{method, code}
	if known := m.rpcs.Load(); known != nil {
		if o := (*known)[name]; o != nil {
			return o
		}
	}
	m.rpcsMu.Lock()
	defer m.rpcsMu.Unlock()
	all := make(map[rpc]prometheus.Observer)
	if known := m.rpcs.Load(); known != nil {
		maps.Copy(all, *known)
	}
	o := m.rpcSeconds.WithLabelValues(method, code)
	all[name] = o
	m.rpcs.Store(&all)
	return o
}

// Panicked counts a call that panicked.
func (m *Metrics) Panicked() { m.panics.Inc() }

// Loaded records that a generation became active at the given time, in seconds
// since 1970. The series of rules that have not been given a [Metrics.Meter] since
// the last time end: the new generation does not have them.
func (m *Metrics) Loaded(at float64) {
	m.rules.forget()
	m.reloads.WithLabelValues("loaded").Inc()
	m.configLoaded.Set(at)
	m.configBroken.Set(0)
}

// Refused records that a broken generation was not taken.
func (m *Metrics) Refused() {
	m.reloads.WithLabelValues("refused").Inc()
	m.configBroken.Set(1)
}

// Authorization registers the counter of what became of requests that asked for
// authorization.
func Authorization(registry prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slidegate_authorizations_total",
		Help: "Requests that asked for authorization, by what became of them.",
	}, []string{"result"})
	registry.MustRegister(c)
	return c
}
