package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/tier"
)

// tiersCollector reads the statistics of a cache of tiers at each scrape, all at
// once.
type tiersCollector struct {
	stats    func() tier.CacheStats
	previous func() uint64

	requests, questions, records             *prometheus.Desc
	unknownRules                             *prometheus.Desc
	pushes, unknownTiers, byPrevious         *prometheus.Desc
	open, watching, inFlight, last, staleAge *prometheus.Desc
}

// Tiers registers what a cache of tiers counts, and how many API keys were found
// by the previous secret alone. Both are called at each scrape. The returned
// function observes how long the source took for a question, in seconds.
func Tiers(registry prometheus.Registerer, stats func() tier.CacheStats, previous func() uint64) (sourceSeconds func(float64)) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "slidegate_tiers_source_seconds",
		Help:    "How long the source of tiers took for a question.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	})
	registry.MustRegister(seconds, &tiersCollector{
		stats:        stats,
		previous:     previous,
		requests:     desc("slidegate_tiers_answers_total", "Times that somebody asked who calls, by where the answer came from: a record that counts (hit, of a key that nobody has: hit_unknown), the source (asked), a record that has expired while the source cannot say (stale), or nowhere (unavailable).", "from"),
		questions:    desc("slidegate_tiers_questions_total", "What became of questions to the source of tiers. Those that are limited (lookups_per_second) or refused (the source has failed) were not asked.", "outcome"),
		records:      desc("slidegate_tiers_records", "Records that are held, of keys that somebody has (known) and that nobody has (unknown).", "kind"),
		pushes:       desc("slidegate_tiers_pushes_total", "Changes that the source of tiers told of."),
		unknownTiers: desc("slidegate_tiers_unknown_tier_total", "Records with a tier that the rules do not know; the default tier counts for them."),
		unknownRules: desc("slidegate_tiers_unknown_rule_total", "Overrides, in records, of rules that there are not; they do nothing."),
		byPrevious:   desc("slidegate_tiers_previous_secret_total", "API keys that were found by their digest under the previous secret alone."),
		open:         desc("slidegate_tiers_source_open", "1 while the source of tiers is not asked because it failed too often."),
		watching:     desc("slidegate_tiers_watching", "1 while the source of tiers tells of changes."),
		inFlight:     desc("slidegate_tiers_questions_in_flight", "Questions that the source of tiers is being asked."),
		last:         desc("slidegate_tiers_last_answer_timestamp_seconds", "When the source of tiers answered last."),
		staleAge:     desc("slidegate_tiers_stale_age_seconds", "How old the last answer was that came from a record that had expired."),
	})
	return seconds.Observe
}

// Describe implements prometheus.Collector.
func (c *tiersCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.questions, c.records, c.pushes, c.unknownTiers, c.unknownRules, c.byPrevious, c.open, c.watching, c.inFlight, c.last, c.staleAge} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *tiersCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for from, n := range map[string]uint64{
		"hit": s.Hits, "hit_unknown": s.NegativeHits, "asked": s.Asked, "stale": s.Stale, "unavailable": s.Unavailable,
	} {
		counter(c.requests, n, from)
	}
	for outcome, n := range map[string]uint64{
		"found": s.Found, "unknown": s.Unknown, "bad_record": s.BadRecords, "timeout": s.Timeouts, "error": s.Errors,
		"limited": s.Limited, "refused": s.Refused,
	} {
		counter(c.questions, n, outcome)
	}
	gauge(c.records, float64(s.Subjects), "known")
	gauge(c.records, float64(s.UnknownKeys), "unknown")
	counter(c.pushes, s.Pushes)
	counter(c.unknownTiers, s.UnknownTiers)
	counter(c.unknownRules, s.UnknownRules)
	counter(c.byPrevious, c.previous())
	gauge(c.open, oneIf(s.Open))
	gauge(c.watching, oneIf(s.Watching))
	gauge(c.inFlight, float64(s.Questions))
	if !s.LastAnswer.IsZero() {
		gauge(c.last, float64(s.LastAnswer.UnixMilli())/1000)
	}
	gauge(c.staleAge, s.StaleAge.Seconds())
}
