package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/migrate/compare"
)

// Comparisons counts what a compare.Comparer has compared. It is safe for concurrent use.
type Comparisons struct {
	rules *ruleMetrics
	pairs *prometheus.CounterVec
}

var _ compare.Meters = (*Comparisons)(nil)

// Comparisons registers the metrics of a compare.Comparer. Call it once.
func (m *Metrics) Comparisons(registry prometheus.Registerer) *Comparisons {
	c := &Comparisons{
		rules: m.rules,
		pairs: factory{registry}.counters("slidegate_compare_total", "Calls compared with the service at compare.address, by both answers, and by the reason if only one service denies. The rule is empty if none applies.",
			"domain", "rule", "ours", "theirs", "reason"),
	}
	m.rules.mu.Lock()
	m.rules.comparisons = c
	m.rules.mu.Unlock()
	return c
}

// Compared implements compare.Meters. It counts nothing for a rule that is gone. The empty rule is
// never gone.
func (c *Comparisons) Compared(domain, rule string, ours, theirs compare.Answer, why compare.Reason) {
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	if rule == "" || c.rules.meters[meterName{domain, rule}] != nil {
		c.pairs.WithLabelValues(domain, rule, ours.String(), theirs.String(), why.String()).Inc()
	}
}

// end removes every series of a rule. The caller holds rules.mu.
func (c *Comparisons) end(name meterName) {
	c.pairs.DeletePartialMatch(prometheus.Labels{"domain": name.domain, "rule": name.rule})
}
