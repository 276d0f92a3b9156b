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

	batchCalls, errors, refused, notTakenBack *prometheus.Desc
	open, refuses, evicts, queued             *prometheus.Desc
	instances                                 *prometheus.Desc
}

// Store registers the metrics of a store in Redis. stats is called at each scrape.
func Store(registry prometheus.Registerer, stats func() redisstore.Stats) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	registry.MustRegister(&storeCollector{
		stats:        stats,
		batchCalls:   desc("slidegate_store_batch_calls", "Number of store calls sent to Redis in one command. Near 64, Redis or the network is the bottleneck."),
		errors:       desc("slidegate_store_errors_total", "Requests that Redis did not decide, by class of the failure.", "class"),
		refused:      desc("slidegate_store_refused_total", "Store calls not sent because too many waited, by the priority of their rules. on_store_error decides them.", "priority"),
		notTakenBack: desc("slidegate_store_not_taken_back_total", "Hits of denied requests that could not be rolled back. They use quota until they expire."),
		open:         desc("slidegate_store_node_open", "1 while a server is not asked because it failed five times in a row. rls probes it every 100 ms.", "node"),
		refuses:      desc("slidegate_store_node_refuses", "1 while a server refuses to write (oom, noreplicas, misconf): it decides denials only.", "node"),
		evicts:       desc("slidegate_store_node_evicts", "1 while the server's maxmemory-policy is not noeviction: when its memory is full, it deletes counters, and their limits start from zero.", "node"),
		queued:       desc("slidegate_store_node_queued", "Store calls that wait to be sent to the server.", "node"),
		instances:    desc("slidegate_store_replicas", "Instances that share the store, as they count themselves in Redis. While Redis is unavailable, local divides each limit by this number."),
	})
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.batchCalls, c.errors, c.refused, c.notTakenBack, c.open, c.refuses, c.evicts, c.queued, c.instances} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for priority, n := range s.Refused {
		counter(c.refused, n, priority.String())
	}
	counter(c.notTakenBack, s.NotTakenBack)
	to <- prometheus.MustNewConstMetric(c.instances, prometheus.GaugeValue, float64(s.Instances))
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
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// LocalStats are the statistics of what a process decides without the store.
type LocalStats struct {
	// Denials counts requests denied by a remembered denial.
	Denials uint64
}

// Local registers the metrics of what a process decides without the store. stats is called
// at each scrape.
func Local(registry prometheus.Registerer, stats func() LocalStats) {
	values(registry, stats, []value[LocalStats]{
		{"slidegate_local_denials_total", "Requests denied by a cached denial, without asking Redis.", prometheus.CounterValue, func(s LocalStats) float64 { return float64(s.Denials) }},
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
