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

// Comparisons registers the metrics of a compare.Comparer. Call it once.
func (m *Metrics) Comparisons(registry prometheus.Registerer) *Comparisons {
	c := &Comparisons{
		rules: m.rules,
		pairs: register(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_compare_total",
			Help: "Calls compared with the service at compare.address, by both answers. The rule is empty if none applies.",
		}, []string{"domain", "rule", "ours", "theirs"})),
		reasons: register(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_compare_differences_total",
			Help: "Calls that either Slidegate or the service at compare.address denied, but not both, by reason.",
		}, []string{"domain", "rule", "reason"})),
	}
	m.rules.mu.Lock()
	m.rules.comparisons = c
	m.rules.mu.Unlock()
	return c
}

// Compared implements compare.Meters.
func (c *Comparisons) Compared(domain, rule string, ours, theirs compare.Answer) {
	c.count(c.pairs, domain, rule, ours.String(), theirs.String())
}

// Differed implements compare.Meters.
func (c *Comparisons) Differed(domain, rule string, r compare.Reason) {
	c.count(c.reasons, domain, rule, r.String())
}

// count increases a counter of a rule. It counts nothing for a rule that is gone. The empty rule is
// never gone.
func (c *Comparisons) count(vec *prometheus.CounterVec, domain, rule string, labels ...string) {
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	if rule == "" || c.rules.meters[meterName{domain, rule}] != nil {
		vec.WithLabelValues(append([]string{domain, rule}, labels...)...).Inc()
	}
}

// end removes every series of a rule. The caller holds rules.mu.
func (c *Comparisons) end(name meterName) {
	of := prometheus.Labels{"domain": name.domain, "rule": name.rule}
	c.pairs.DeletePartialMatch(of)
	c.reasons.DeletePartialMatch(of)
}
