package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/tier"
)

// tiersCollector reads all statistics of a cache of tiers at once, at each scrape.
type tiersCollector struct {
	stats    func() tier.CacheStats
	previous func() uint64

	requests, questions, records             *prometheus.Desc
	unknownRules                             *prometheus.Desc
	pushes, unknownTiers, byPrevious         *prometheus.Desc
	open, watching, inFlight, last, staleAge *prometheus.Desc
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
		Help:    "Time that the source of tiers took for one question.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
	})
	registry.MustRegister(seconds, &tiersCollector{
		stats:        stats,
		previous:     previous,
		requests:     desc("slidegate_tiers_answers_total", "Answers about the subject of an API key. They come from a cached record (hit, hit_unknown for a key without a subject), from the source (asked), from an expired record because the source cannot answer (stale), or there is none (unavailable).", "from"),
		questions:    desc("slidegate_tiers_questions_total", "Look-ups in the source of tiers, by outcome. The outcomes limited (more keys wait than the source answers) and refused (the source has failed) count look-ups that were not sent.", "outcome"),
		records:      desc("slidegate_tiers_records", "Cached records, of keys with a subject (known) and without one (unknown).", "kind"),
		pushes:       desc("slidegate_tiers_pushes_total", "Changes that the source of tiers has announced."),
		unknownTiers: desc("slidegate_tiers_unknown_tier_total", "Records with a tier that the rules do not define. The default tier applies to them."),
		unknownRules: desc("slidegate_tiers_unknown_rule_total", "Overrides in records for rules that do not exist. They have no effect."),
		byPrevious:   desc("slidegate_tiers_previous_secret_total", "API keys found only by their digest under the previous secret."),
		open:         desc("slidegate_tiers_source_open", "1 while the source of tiers is not asked because it failed too often in a row."),
		watching:     desc("slidegate_tiers_watching", "1 while the source of tiers announces changes."),
		inFlight:     desc("slidegate_tiers_questions_in_flight", "Look-ups that wait for the source of tiers."),
		last:         desc("slidegate_tiers_last_answer_timestamp_seconds", "Time of the last answer from the source of tiers."),
		staleAge:     desc("slidegate_tiers_stale_age_seconds", "Age of the last answer that came from an expired record."),
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
