package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// batchBounds are the bounds of redisstore.Stats.BatchSizes.
var batchBounds = []float64{1, 2, 4, 8, 16, 32, 64}

// collector reads statistics at each scrape.
type collector struct {
	descs   []*prometheus.Desc
	collect func(to chan<- prometheus.Metric)
}

// desc describes one more metric.
func (c *collector) desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	c.descs = append(c.descs, d)
	return d
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) { c.collect(to) }

// Store registers the metrics of a store in Redis. stats is called at each scrape.
func Store(registry prometheus.Registerer, stats func() redisstore.Stats) {
	c := new(collector)
	batchCalls := c.desc("slidegate_store_batch_calls", "Number of store calls sent to Redis in one command. Near 64, Redis or the network is the bottleneck.")
	failures := c.desc("slidegate_store_errors_total", "Requests that Redis did not decide, by class of the failure.", "class")
	refused := c.desc("slidegate_store_refused_total", "Store calls not sent because too many waited, by the priority of their rules. on_store_error decides them.", "priority")
	notTakenBack := c.desc("slidegate_store_not_taken_back_total", "Hits of denied requests that could not be rolled back. They use quota until they expire.")
	open := c.desc("slidegate_store_node_open", "1 while a server is not asked because it failed five times in a row. rls probes it every 100 ms.", "node")
	refuses := c.desc("slidegate_store_node_refuses", "1 while a server refuses to write (oom, noreplicas, misconf): it decides denials only.", "node")
	evicts := c.desc("slidegate_store_node_evicts", "1 while the server's maxmemory-policy is not noeviction: when its memory is full, it deletes counters, and their limits start from zero.", "node")
	queued := c.desc("slidegate_store_node_queued", "Store calls that wait to be sent to the server.", "node")
	instances := c.desc("slidegate_store_replicas", "Instances that share the store, as they count themselves in Redis. While Redis is unavailable, local divides each limit by this number.")
	c.collect = func(to chan<- prometheus.Metric) {
		s := stats()
		for priority, n := range s.Refused {
			counterOf(to, refused, n, priority.String())
		}
		counterOf(to, notTakenBack, s.NotTakenBack)
		gaugeOf(to, instances, float64(s.Instances))
		for class, n := range s.Failures {
			counterOf(to, failures, n, string(class))
		}
		buckets := make(map[float64]uint64, len(batchBounds))
		var count uint64
		for i, n := range s.BatchSizes {
			count += n
			if i < len(batchBounds) {
				buckets[batchBounds[i]] = count
			}
		}
		to <- prometheus.MustNewConstHistogram(batchCalls, count, float64(s.Sent), buckets)
		for _, n := range s.Nodes {
			gaugeOf(to, open, oneIf(n.Open), n.Address)
			gaugeOf(to, refuses, oneIf(n.Refuses), n.Address)
			if n.Policy != "" {
				gaugeOf(to, evicts, oneIf(n.Evicts()), n.Address)
			}
			gaugeOf(to, queued, float64(n.Queued), n.Address)
		}
	}
	registry.MustRegister(c)
}

func counterOf(to chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func gaugeOf(to chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Local registers the metric of what a process decides without the store. denials is called at each
// scrape, and counts requests denied by a remembered denial.
func Local(registry prometheus.Registerer, denials func() uint64) {
	factory{registry}.counterFunc("slidegate_local_denials_total", "Requests denied by a cached denial, without asking Redis.", func() float64 { return float64(denials()) })
}
