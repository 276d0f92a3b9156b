package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// batchBounds are the bounds of redisstore.Stats.BatchSizes.
var batchBounds = []float64{1, 2, 4, 8, 16, 32, 64}

// storeCollector reads a store's statistics at each scrape, all at once.
type storeCollector struct {
	stats func() redisstore.Stats

	batchCalls, calls, errors, late, dropped *prometheus.Desc
	takenBack, notTakenBack                  *prometheus.Desc
	open, refuses, evicts, queued, inFlight  *prometheus.Desc
	clockOffset, clockError                  *prometheus.Desc
}

// Store registers what a store in Redis counts. stats is called at each scrape.
func Store(registry prometheus.Registerer, stats func() redisstore.Stats) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	registry.MustRegister(&storeCollector{
		stats:        stats,
		batchCalls:   desc("slidegate_store_batch_calls", "Store calls that were sent to Redis in one command."),
		calls:        desc("slidegate_store_calls_total", "Store calls that Redis was asked to decide."),
		errors:       desc("slidegate_store_errors_total", "Store calls without an answer from Redis, by class.", "class"),
		late:         desc("slidegate_store_late_total", "Store calls that Redis got to after their deadline and did not charge."),
		dropped:      desc("slidegate_store_dropped_total", "Store calls that were not sent because their caller had gone."),
		takenBack:    desc("slidegate_store_taken_back_total", "Hits that were charged in one server and taken back because another one denied the request."),
		notTakenBack: desc("slidegate_store_not_taken_back_total", "Hits that should have been taken back, but could not be: they count until they expire."),
		open:         desc("slidegate_store_node_open", "1 while a server is not asked because it failed too often.", "node"),
		refuses:      desc("slidegate_store_node_refuses", "1 while a server refuses to write, so that it decides denials only.", "node"),
		evicts:       desc("slidegate_store_node_evicts", "1 while the maxmemory-policy of a server is not noeviction, so that it may throw logs away, which resets their limits. No series while the policy is not known.", "node"),
		queued:       desc("slidegate_store_node_queued", "Store calls that wait to be sent to a server.", "node"),
		inFlight:     desc("slidegate_store_node_in_flight", "Commands that a server is being asked.", "node"),
		clockOffset:  desc("slidegate_store_clock_offset_seconds", "The clock of a server less ours, while it is known.", "node"),
		clockError:   desc("slidegate_store_clock_error_seconds", "How far from the truth the clock offset may be, while it is known.", "node"),
	})
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.batchCalls, c.calls, c.errors, c.late, c.dropped, c.takenBack, c.notTakenBack, c.open, c.refuses, c.evicts, c.queued, c.inFlight, c.clockOffset, c.clockError} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	counter(c.calls, s.Calls)
	counter(c.late, s.Late)
	counter(c.dropped, s.Dropped)
	counter(c.takenBack, s.TakenBack)
	counter(c.notTakenBack, s.NotTakenBack)
	for class, n := range s.Failures {
		counter(c.errors, n, string(class))
	}

	buckets := make(map[float64]uint64, len(batchBounds))
	var count uint64
	for i, n := range s.BatchSizes {
		count += n
		if i < len(batchBounds) {
			buckets[batchBounds[i]] = count
		}
	}
	to <- prometheus.MustNewConstHistogram(c.batchCalls, count, float64(s.Sent), buckets)

	for _, n := range s.Nodes {
		gauge := func(d *prometheus.Desc, v float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, n.Address)
		}
		gauge(c.open, oneIf(n.Open))
		gauge(c.refuses, oneIf(n.Refuses))
		if n.Policy != "" {
			gauge(c.evicts, oneIf(n.Evicts()))
		}
		gauge(c.queued, float64(n.Queued))
		gauge(c.inFlight, float64(n.InFlight))
		if n.ClockKnown {
			gauge(c.clockOffset, n.ClockOffset.Seconds())
			gauge(c.clockError, n.ClockError.Seconds())
		}
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// PoolStats is what the pool of connections to Redis counts.
type PoolStats struct {
	// Hits and Misses are commands that found an idle connection and that did not;
	// Timeouts are those that waited for one in vain.
	Hits, Misses, Timeouts uint64
	// Stale are connections that were thrown away, idle for too long or broken.
	Stale             uint64
	Connections, Idle int
}

// Pool registers what tells how well connections to Redis are used. stats is
// called at each scrape.
func Pool(registry prometheus.Registerer, stats func() PoolStats) {
	values(registry, stats, []value[PoolStats]{
		{"slidegate_store_pool_hits_total", "Commands that found an idle connection to Redis.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Hits) }},
		{"slidegate_store_pool_misses_total", "Commands that found none and had one made.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Misses) }},
		{"slidegate_store_pool_timeouts_total", "Commands that waited for a connection in vain.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Timeouts) }},
		{"slidegate_store_pool_stale_total", "Idle connections that were thrown away, too old or broken.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Stale) }},
		{"slidegate_store_pool_connections", "Connections to Redis.", prometheus.GaugeValue, func(s PoolStats) float64 { return float64(s.Connections) }},
		{"slidegate_store_pool_idle_connections", "Connections to Redis that are not used now.", prometheus.GaugeValue, func(s PoolStats) float64 { return float64(s.Idle) }},
	})
}

// LocalStats is what a process has answered by itself.
type LocalStats struct {
	// Denials are answers without the store, of remembered denials; Keys are the
	// logs that something is remembered of.
	Denials uint64
	Keys    int
	// Leased are hits that were admitted on what was reserved ahead, Returned what of
	// that was given back.
	Leased, Returned uint64
	// Settled are hits that were admitted without the store and charged to it
	// afterwards, Found those that it had charged already, Abandoned those that could
	// not be charged.
	Settled, Found, Abandoned uint64
}

// Local registers what tells how much a process answers by itself. stats is
// called at each scrape.
func Local(registry prometheus.Registerer, stats func() LocalStats) {
	values(registry, stats, []value[LocalStats]{
		{"slidegate_local_denials_total", "Requests denied without asking the store, by a denial that still held.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Denials) }},
		{"slidegate_local_keys", "Logs whose last answer is remembered.", prometheus.GaugeValue, func(s LocalStats) float64 { return float64(s.Keys) }},
		{"slidegate_leased_hits_total", "Hits admitted on what was reserved ahead, without asking the store.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Leased) }},
		{"slidegate_returned_hits_total", "Hits that were reserved ahead and given back.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Returned) }},
		{"slidegate_settled_hits_total", "Hits admitted by the local share after a call that was late, and charged to the store afterwards.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Settled) }},
		{"slidegate_settled_found_hits_total", "Hits admitted by the local share after a call that was late, and charged by that call already.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Found) }},
		{"slidegate_abandoned_hits_total", "Hits admitted by the local share after a call that was late, and never charged to the store.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Abandoned) }},
	})
}

// value is one series without labels of some statistics.
type value[S any] struct {
	name, help string
	kind       prometheus.ValueType
	of         func(S) float64
}

// valuesCollector reads statistics at each scrape, all at once.
type valuesCollector[S any] struct {
	stats  func() S
	values []value[S]
	descs  []*prometheus.Desc
}

func values[S any](registry prometheus.Registerer, stats func() S, all []value[S]) {
	c := &valuesCollector[S]{stats: stats, values: all}
	for _, v := range all {
		c.descs = append(c.descs, prometheus.NewDesc(v.name, v.help, nil, nil))
	}
	registry.MustRegister(c)
}

// Describe implements prometheus.Collector.
func (c *valuesCollector[S]) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *valuesCollector[S]) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	for i, v := range c.values {
		to <- prometheus.MustNewConstMetric(c.descs[i], v.kind, v.of(s))
	}
}
