package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/compare"
)

// Comparisons counts what a compare.Comparer has compared. It is safe for concurrent use.
type Comparisons struct {
	rules   *rules
	pairs   *prometheus.CounterVec
	reasons *prometheus.CounterVec
}

var _ compare.Meters = (*Comparisons)(nil)

// compared has the series of one rule. A counter is nil before its first call. rules.mu
// guards it.
type compared struct {
	pairs   [len(compare.Answers)][len(compare.Answers)]prometheus.Counter
	reasons [len(compare.Reasons)]prometheus.Counter
}

// Comparisons registers the metrics of a compare.Comparer. Call it once.
func (m *Metrics) Comparisons(registry prometheus.Registerer) *Comparisons {
	c := &Comparisons{
		rules: m.rules,
		pairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_compare_total",
			Help: "Calls compared with the service at compare.address, by both answers. The rule is empty if none applies.",
		}, []string{"domain", "rule", "ours", "theirs"}),
		reasons: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_compare_differences_total",
			Help: "Calls that either Slidegate or the service at compare.address denied, but not both, by reason.",
		}, []string{"domain", "rule", "reason"}),
	}
	m.rules.mu.Lock()
	m.rules.comparisons = c
	m.rules.mu.Unlock()
	registry.MustRegister(c.pairs, c.reasons)
	return c
}

// Compared implements compare.Meters.
func (c *Comparisons) Compared(domain, rule string, ours, theirs compare.Answer) {
	c.count(domain, rule, func(s *compared) *prometheus.Counter { return &s.pairs[ours][theirs] },
		func() prometheus.Counter {
			return c.pairs.WithLabelValues(domain, rule, ours.String(), theirs.String())
		})
}

// Differed implements compare.Meters.
func (c *Comparisons) Differed(domain, rule string, r compare.Reason) {
	c.count(domain, rule, func(s *compared) *prometheus.Counter { return &s.reasons[r] },
		func() prometheus.Counter { return c.reasons.WithLabelValues(domain, rule, r.String()) })
}

// count increases a counter of a rule, which begin makes. It counts nothing for a rule that is
// gone. The empty rule is never gone.
func (c *Comparisons) count(domain, rule string, place func(*compared) *prometheus.Counter, begin func() prometheus.Counter) {
	if rule == "" {
		begin().Inc()
		return
	}
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	m := c.rules.meters[meterName{domain, rule}]
	if m == nil {
		return
	}
	if m.compared == nil {
		m.compared = new(compared)
	}
	at := place(m.compared)
	if *at == nil {
		*at = begin()
	}
	(*at).Inc()
}

// end removes every series of a rule. The caller holds rules.mu.
func (c *Comparisons) end(name meterName, s *compared) {
	for ours := range s.pairs {
		for theirs, counter := range s.pairs[ours] {
			if counter != nil {
				c.pairs.DeleteLabelValues(name.domain, name.rule, compare.Answer(ours).String(), compare.Answer(theirs).String())
			}
		}
	}
	for r, counter := range s.reasons {
		if counter != nil {
			c.reasons.DeleteLabelValues(name.domain, name.rule, compare.Reason(r).String())
		}
	}
}
