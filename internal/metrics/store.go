package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// batchBounds are the bounds of redisstore.Stats.BatchSizes.
var batchBounds = []float64{1, 2, 4, 8, 16, 32, 64}

// storeCollector reads all statistics of a store at once, at each scrape.
type storeCollector struct {
	stats func() redisstore.Stats

	batchCalls, calls, errors, late, dropped, refused *prometheus.Desc
	takenBack, notTakenBack                           *prometheus.Desc
	open, refuses, evicts, queued, inFlight           *prometheus.Desc
	clockOffset, clockError                           *prometheus.Desc
}

// Store registers the metrics of a store in Redis. stats is called at each scrape.
func Store(registry prometheus.Registerer, stats func() redisstore.Stats) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	registry.MustRegister(&storeCollector{
		stats:        stats,
		batchCalls:   desc("slidegate_store_batch_calls", "Number of store calls sent to Redis in one command."),
		calls:        desc("slidegate_store_calls_total", "Store calls that Redis was asked to decide."),
		errors:       desc("slidegate_store_errors_total", "Store calls that Redis did not decide, by class.", "class"),
		late:         desc("slidegate_store_late_total", "Store calls that reached Redis after their deadline. Redis did not charge them."),
		dropped:      desc("slidegate_store_dropped_total", "Store calls not sent because their caller gave up while they waited."),
		refused:      desc("slidegate_store_refused_total", "Store calls not sent because too many waited for the server, by the priority of their rules. on_store_error decides them.", "priority"),
		takenBack:    desc("slidegate_store_taken_back_total", "Hits charged in one server of a Cluster, or in one scope, and taken back because another one denied the request."),
		notTakenBack: desc("slidegate_store_not_taken_back_total", "Hits that could not be taken back. They count until they expire."),
		open:         desc("slidegate_store_node_open", "1 while a server is not asked because it failed too often in a row.", "node"),
		refuses:      desc("slidegate_store_node_refuses", "1 while a server refuses to write, so it can decide denials only.", "node"),
		evicts:       desc("slidegate_store_node_evicts", "1 while the maxmemory-policy of a server is not noeviction, so it may delete logs, which resets their limits. No series while the policy is unknown.", "node"),
		queued:       desc("slidegate_store_node_queued", "Store calls that wait to be sent to the server.", "node"),
		inFlight:     desc("slidegate_store_node_in_flight", "Commands that the server has not answered yet.", "node"),
		clockOffset:  desc("slidegate_store_clock_offset_seconds", "The server's clock minus the clock of this instance, while known. Limits do not depend on it.", "node"),
		clockError:   desc("slidegate_store_clock_error_seconds", "Largest possible error of the clock offset, while known.", "node"),
	})
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.batchCalls, c.calls, c.errors, c.late, c.dropped, c.refused, c.takenBack, c.notTakenBack, c.open, c.refuses, c.evicts, c.queued, c.inFlight, c.clockOffset, c.clockError} {
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
	for priority, n := range s.Refused {
		counter(c.refused, n, priority.String())
	}
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

// PoolStats are the statistics of the connection pool to Redis.
type PoolStats struct {
	// Hits counts commands that found an idle connection, and Misses commands that did
	// not. Timeouts counts commands that got no connection in time.
	Hits, Misses, Timeouts uint64
	// Stale counts connections closed because they were idle for too long or broken.
	Stale             uint64
	Connections, Idle int // now
}

// Pool registers the metrics of the connection pool to Redis. stats is called at each
// scrape.
func Pool(registry prometheus.Registerer, stats func() PoolStats) {
	values(registry, stats, []value[PoolStats]{
		{"slidegate_store_pool_hits_total", "Commands that found an idle connection to Redis.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Hits) }},
		{"slidegate_store_pool_misses_total", "Commands that found no idle connection to Redis, so that one was opened.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Misses) }},
		{"slidegate_store_pool_timeouts_total", "Commands that got no connection to Redis in time.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Timeouts) }},
		{"slidegate_store_pool_stale_total", "Idle connections to Redis that were closed, unused for too long or broken.", prometheus.CounterValue, func(s PoolStats) float64 { return float64(s.Stale) }},
		{"slidegate_store_pool_connections", "Connections to Redis.", prometheus.GaugeValue, func(s PoolStats) float64 { return float64(s.Connections) }},
		{"slidegate_store_pool_idle_connections", "Connections to Redis that are idle now.", prometheus.GaugeValue, func(s PoolStats) float64 { return float64(s.Idle) }},
	})
}

// LocalStats are the statistics of what a process decides without the store.
type LocalStats struct {
	// Denials counts requests denied by a remembered denial. Keys is the number of logs
	// whose last answer is remembered.
	Denials uint64
	Keys    int
	// Leased counts hits admitted from a lease, and Returned leased hits given back.
	Leased, Returned uint64
	// EndsWaiting is the number of ends of streams that the store has not heard of yet.
	// EndsDelivered counts those that it heard of later, and EndsLost those that it never
	// hears of.
	EndsWaiting             int
	EndsDelivered, EndsLost uint64
}

// Local registers the metrics of what a process decides without the store. stats is called
// at each scrape.
func Local(registry prometheus.Registerer, stats func() LocalStats) {
	values(registry, stats, []value[LocalStats]{
		{"slidegate_local_denials_total", "Requests denied without asking Redis, by a remembered denial that still held.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Denials) }},
		{"slidegate_local_keys", "Logs whose last answer is remembered.", prometheus.GaugeValue, func(s LocalStats) float64 { return float64(s.Keys) }},
		{"slidegate_leased_hits_total", "Hits admitted from a lease, without asking Redis.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Leased) }},
		{"slidegate_returned_hits_total", "Leased hits that were given back.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Returned) }},
		{"slidegate_stream_ends_waiting", "Ends of streams that Redis has not heard of yet, because it did not answer.", prometheus.GaugeValue, func(s LocalStats) float64 { return float64(s.EndsWaiting) }},
		{"slidegate_stream_ends_delivered_total", "Ends of streams that Redis heard of later, because it did not answer at first.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.EndsDelivered) }},
		{"slidegate_stream_ends_lost_total", "Ends of streams that Redis never hears of. What such a stream holds counts until its hold expires.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.EndsLost) }},
	})
}

// ReplicaStats describes the instances that share the limits.
type ReplicaStats struct {
	Instances int    // their number
	Errors    uint64 // lookups of store.peers without an answer
}

// Replicas registers the metrics of the instances that share the limits. stats is called at each
// scrape.
func Replicas(registry prometheus.Registerer, stats func() ReplicaStats) {
	values(registry, stats, []value[ReplicaStats]{
		{"slidegate_store_replicas", "Instances that share the limits, by store.replicas or store.peers. While Redis is away, local gives each this share of a limit.", prometheus.GaugeValue, func(s ReplicaStats) float64 { return float64(s.Instances) }},
		{"slidegate_store_peers_errors_total", "Lookups of store.peers without an answer. The last known number of instances stays.", prometheus.CounterValue, func(s ReplicaStats) float64 { return float64(s.Errors) }},
	})
}

// value is a metric without labels that is read from statistics.
type value[S any] struct {
	name, help string
	kind       prometheus.ValueType
	of         func(S) float64
}

// valuesCollector reads all statistics at once, at each scrape.
type valuesCollector[S any] struct {
	stats  func() S
	values []value[S]
	descs  []*prometheus.Desc
}

// values registers metrics that are read from statistics at each scrape.
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
