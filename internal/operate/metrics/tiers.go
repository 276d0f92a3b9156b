package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/core/tier/cache"
)

// Tiers registers the metrics of a cache of tiers. previous returns the number of API keys
// that were found only under the previous secret. Both functions are called at each scrape.
// sourceSeconds observes the time that the source took for a question.
func Tiers(registry prometheus.Registerer, stats func() cache.Stats, previous func() uint64) (sourceSeconds func(float64)) {
	seconds := factory{registry}.seconds("slidegate_tiers_source_seconds", "Time of one look-up in the customer source.", []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5})
	c := new(collector)
	answers := c.desc("slidegate_tiers_answers_total", "Customers found for API keys, by origin of the answer.", "from")
	lookups := c.desc("slidegate_tiers_lookups_total", "Look-ups in the customer source, by outcome.", "outcome")
	pushes := c.desc("slidegate_tiers_pushes_total", "Changes that the customer source announced.")
	byPrevious := c.desc("slidegate_tiers_previous_secret_total", "API keys found only by their digest under the previous secret. While it rises, that secret is needed.")
	open := c.desc("slidegate_tiers_source_open", "1 while the customer source is not asked because it failed five times in a row.")
	watching := c.desc("slidegate_tiers_watching", "1 while the customer source announces changes. 0: a change takes effect when tiers.cache.ttl ends.")
	c.collect = func(to chan<- prometheus.Metric) {
		s := stats()
		for from, n := range map[string]uint64{
			"hit": s.Hits, "hit_unknown": s.NegativeHits, "asked": s.Asked, "stale": s.Stale, "unavailable": s.Unavailable,
		} {
			counterOf(to, answers, n, from)
		}
		for outcome, n := range map[string]uint64{
			"found": s.Found, "unknown": s.Unknown, "bad_record": s.BadRecords, "timeout": s.Timeouts, "error": s.Errors,
			"limited": s.Limited, "refused": s.Refused,
		} {
			counterOf(to, lookups, n, outcome)
		}
		counterOf(to, pushes, s.Pushes)
		counterOf(to, byPrevious, previous())
		gaugeOf(to, open, oneIf(s.Open))
		gaugeOf(to, watching, oneIf(s.Watching))
	}
	registry.MustRegister(c)
	return seconds.WithLabelValues().Observe
}
