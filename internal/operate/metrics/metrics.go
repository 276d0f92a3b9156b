package metrics

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// Options of [New].
type Options struct {
	// Version and Commit label build_info.
	Version, Commit string
	// MaxDetailSeries bounds the series for values of descriptors. With zero all values
	// share one series.
	MaxDetailSeries int
}

// Metrics holds the metrics that every process has. It is safe for concurrent use and
// implements decide.Meters and ratelimit.Meters.
type Metrics struct {
	rules            *ruleMetrics
	unknownDomains   prometheus.Counter
	ignoredOverrides prometheus.Counter
	cutUpdates       prometheus.Counter
	degraded         map[rules.OnStoreError]prometheus.Counter
	storeSeconds     prometheus.Observer
	storeDown        atomic.Pointer[func() bool]
	corruptValues    prometheus.Counter
	rpcSeconds       *prometheus.HistogramVec
	rpcs             sync.Map // of prometheus.Observer, by rpc
	panics           prometheus.Counter
	resets           prometheus.Counter
	streams          streams
	reloads          *prometheus.CounterVec
	configBroken     prometheus.Gauge
}

// New registers the metrics that every process has. It panics if the registry has one of
// the names already.
func New(registry prometheus.Registerer, o Options) *Metrics {
	f := factory{registry}
	degraded := f.counters("slidegate_degraded_answers_total", "Requests that the store did not decide, by the on_store_error that decided them: allow, deny or local.", "choice")
	m := &Metrics{
		rules:            newRules(f, o.MaxDetailSeries),
		cutUpdates:       f.counter("slidegate_cut_updates_total", "Usage updates recorded only in part, because usage exceeds a limit by at most one limit. Check the cost that Envoy sends."),
		ignoredOverrides: f.counter("slidegate_ignored_overrides_total", "Limits from Envoy ignored as invalid (unknown unit, or window above 400 days). The rule's limit applied."),
		degraded: map[rules.OnStoreError]prometheus.Counter{
			rules.StoreErrorAllow: degraded.WithLabelValues("allow"),
			rules.StoreErrorDeny:  degraded.WithLabelValues("deny"),
			rules.StoreErrorLocal: degraded.WithLabelValues("local"),
		},
		unknownDomains: f.counter("slidegate_unknown_domain_requests_total", "Requests for a domain without rules, which are allowed. Usually a typing mistake in Envoy: see the log."),
		storeSeconds:   f.seconds("slidegate_store_seconds", "Time of one store call, which evaluates all limits of a request. A cached denial makes no store call.", latencies[:]).WithLabelValues(),
		corruptValues:  f.counter("slidegate_store_foreign_values_total", "Unreadable values under Slidegate's keys in Redis. Each was deleted, and its limit started from zero. Another program writes under store.redis.key_prefix."),
		rpcSeconds:     f.seconds("slidegate_rpc_seconds", "Time of one gRPC call within the service.", latencies[:], "method", "code"),
		panics:         f.counter("slidegate_panics_total", "Calls that panicked and were answered INTERNAL. Each is a bug: report the stack in the log."),
		streams:        newStreams(f),
		resets:         f.counter("slidegate_resets_total", "Resets of limits by operators, including those that removed nothing."),
		reloads:        f.counters("slidegate_config_reloads_total", "Reloads of rules and tiers, by result: loaded or refused.", "result"),
		configBroken:   f.gauge("slidegate_config_broken", "1 while newer rules or tiers are broken and the last good configuration is active. /rlconfig has the errors."),
	}
	for _, result := range []string{"loaded", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	f.gaugeFunc("slidegate_store_down", "1 while a Redis server fails and is not asked, or refuses to write.", func() float64 {
		down := m.storeDown.Load()
		return oneIf(down != nil && (*down)())
	})
	register(f, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "slidegate_build_info", Help: "Always 1. The labels have the versions.",
		ConstLabels: prometheus.Labels{"version": o.Version, "commit": o.Commit, "go": runtime.Version()},
	})).Set(1)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Memory registers the metrics of the memory store. stats is called at each scrape.
func Memory(registry prometheus.Registerer, stats func() memstore.Stats) {
	f := factory{registry}
	of := func(value func(memstore.Stats) float64) func() float64 {
		return func() float64 { return value(stats()) }
	}
	f.gaugeFunc("slidegate_store_memory_keys", "Counters in the memory store, one for each key and window.", of(func(s memstore.Stats) float64 { return float64(s.Logs) }))
	f.gaugeFunc("slidegate_store_memory_bytes", "Memory of these counters, as store.memory.max_bytes counts it.", of(func(s memstore.Stats) float64 { return float64(s.Bytes) }))
	f.counterFunc("slidegate_store_memory_evicted_total", "Counters in use that the memory store dropped to make room. The store is too small, or a client invents keys.", of(func(s memstore.Stats) float64 { return float64(s.Evicted) }))
	f.counterFunc("slidegate_store_memory_refused_total", "Store calls refused because the memory store, or the part that one rule may fill, was full of counters that deny.", of(func(s memstore.Stats) float64 { return float64(s.Refused) }))
}

// Meter implements decide.Meters. Rules that share a name share a meter.
func (m *Metrics) Meter(domain, rule string) decide.Meter { return m.rules.meter(domain, rule) }

// UnknownDomain implements decide.Meters.
func (m *Metrics) UnknownDomain() { m.unknownDomains.Inc() }

// CutUpdate implements decide.Meters.
func (m *Metrics) CutUpdate() { m.cutUpdates.Inc() }

// IgnoredOverride implements ratelimit.Meters.
func (m *Metrics) IgnoredOverride() { m.ignoredOverrides.Inc() }

// DegradedAnswer implements ratelimit.Meters.
func (m *Metrics) DegradedAnswer(by rules.OnStoreError) {
	if c, ok := m.degraded[by]; ok {
		c.Inc()
	}
}

// StoreSeconds observes one store call.
func (m *Metrics) StoreSeconds(seconds float64) { m.storeSeconds.Observe(seconds) }

// StoreSecondsTraced is StoreSeconds with an exemplar that leads to the trace of the call. Nil:
// there is none.
func (m *Metrics) StoreSecondsTraced(seconds float64, exemplar map[string]string) {
	Observe(m.storeSeconds, seconds, exemplar)
}

// StoreDown sets the function that reports at each scrape whether a server of the store is
// down. Without it, none is.
func (m *Metrics) StoreDown(down func() bool) { m.storeDown.Store(&down) }

// CorruptValue counts a value in Redis that was not a log and was deleted.
func (m *Metrics) CorruptValue() { m.corruptValues.Inc() }

// rpc is the labels of one histogram of calls.
type rpc struct{ method, code string }

// RPC returns the histogram of one method and status code. The library takes longer to find one by its
// labels than to observe.
func (m *Metrics) RPC(method, code string) prometheus.Observer {
	name := rpc{method, code}
	known, ok := m.rpcs.Load(name)
	if !ok {
		known, _ = m.rpcs.LoadOrStore(name, m.rpcSeconds.WithLabelValues(method, code))
	}
	return known.(prometheus.Observer)
}

// Panicked counts a call that panicked.
func (m *Metrics) Panicked() { m.panics.Inc() }

// Reset records that an operator has reset limits.
func (m *Metrics) Reset() { m.resets.Inc() }

// Loaded records that a generation became active.
// Call [Metrics.Meter] for each rule of the generation before. Loaded ends the series of all
// other rules.
func (m *Metrics) Loaded() {
	m.rules.forget()
	m.reloads.WithLabelValues("loaded").Inc()
	m.configBroken.Set(0)
}

// Refused records that a broken generation was refused.
func (m *Metrics) Refused() {
	m.reloads.WithLabelValues("refused").Inc()
	m.Broken()
}

// Broken records that what is newer than the active generation is broken.
func (m *Metrics) Broken() { m.configBroken.Set(1) }

// XDS registers the metric of the xDS server. connected reports whether there is a stream.
func XDS(registry prometheus.Registerer, connected func() bool) {
	factory{registry}.gaugeFunc("slidegate_xds_connected", "1 while the xDS server of the rules is connected.", func() float64 { return oneIf(connected()) })
}

// Authorization registers and returns the counter of authorizations.
func Authorization(registry prometheus.Registerer) *prometheus.CounterVec {
	return factory{registry}.counters("slidegate_authorizations_total", "Authorizations, by result.", "result")
}
