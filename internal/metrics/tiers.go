package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/tier"
)

// tiersCollector reads all statistics of a cache of tiers at once, at each scrape.
type tiersCollector struct {
	stats    func() tier.CacheStats
	previous func() uint64

	answers, lookups, pushes, byPrevious, open, watching *prometheus.Desc
}

// Tiers registers the metrics of a cache of tiers. previous returns the number of API keys
// that were found only under the previous secret. Both functions are called at each scrape.
// sourceSeconds observes the time that the source took for a question.
func Tiers(registry prometheus.Registerer, stats func() tier.CacheStats, previous func() uint64) (sourceSeconds func(float64)) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "slidegate_tiers_source_seconds",
		Help:    "Time of one look-up in the customer source.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	})
	registry.MustRegister(seconds, &tiersCollector{
		stats:      stats,
		previous:   previous,
		answers:    desc("slidegate_tiers_answers_total", "Customers found for API keys, by origin of the answer.", "from"),
		lookups:    desc("slidegate_tiers_lookups_total", "Look-ups in the customer source, by outcome.", "outcome"),
		pushes:     desc("slidegate_tiers_pushes_total", "Changes that the customer source announced."),
		byPrevious: desc("slidegate_tiers_previous_secret_total", "API keys found only by their digest under the previous secret. While it rises, that secret is needed."),
		open:       desc("slidegate_tiers_source_open", "1 while the customer source is not asked because it failed five times in a row."),
		watching:   desc("slidegate_tiers_watching", "1 while the customer source announces changes. 0: a change takes effect when tiers.cache.ttl ends."),
	})
	return seconds.Observe
}

// Describe implements prometheus.Collector.
func (c *tiersCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.answers, c.lookups, c.pushes, c.byPrevious, c.open, c.watching} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *tiersCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	for from, n := range map[string]uint64{
		"hit": s.Hits, "hit_unknown": s.NegativeHits, "asked": s.Asked, "stale": s.Stale, "unavailable": s.Unavailable,
	} {
		counter(c.answers, n, from)
	}
	for outcome, n := range map[string]uint64{
		"found": s.Found, "unknown": s.Unknown, "bad_record": s.BadRecords, "timeout": s.Timeouts, "error": s.Errors,
		"limited": s.Limited, "refused": s.Refused,
	} {
		counter(c.lookups, n, outcome)
	}
	counter(c.pushes, s.Pushes)
	counter(c.byPrevious, c.previous())
	gauge(c.open, oneIf(s.Open))
	gauge(c.watching, oneIf(s.Watching))
}
