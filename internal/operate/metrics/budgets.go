package metrics

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/operate/events"
)

// budgets are the metrics of rules with budgets.
type budgets struct{ requests, units, thresholds *prometheus.CounterVec }

func newBudgets(f factory) budgets {
	return budgets{
		requests:   f.counters("slidegate_budget_requests_total", "Requests under budgets, by what became of their cost. Those that were above their estimate, or retried, have another outcome, too.", "domain", "rule", "outcome"),
		units:      f.counters("slidegate_budget_units_total", "Units of these costs: tokens, or millionths of the currency. Those of above_estimate exceed the estimate.", "domain", "rule", "outcome"),
		thresholds: f.counters("slidegate_budget_events_total", "Events of budgets: 80 % of a budget is spent, or 100 %.", "domain", "rule", "threshold"),
	}
}

// A budget has the counters of one outcome of a rule. They are nil before it.
type budget struct {
	requests, units atomic.Pointer[prometheus.Counter]
}

// Budget implements decide.Meter.
func (m *meter) Budget(o inflight.BudgetOutcome, requests, units uint64) {
	m.add(&m.budgets[o].requests, m.rules.budgets.requests, requests, inflight.BudgetOutcomes[o])
	m.add(&m.budgets[o].units, m.rules.budgets.units, units, inflight.BudgetOutcomes[o])
}

// endBudgets removes the series of budgets. The caller holds rules.mu.
func (m *meter) endBudgets() {
	of := prometheus.Labels{"domain": m.name.domain, "rule": m.name.rule}
	for o := range m.budgets {
		m.budgets[o].requests.Store(nil)
		m.budgets[o].units.Store(nil)
	}
	m.rules.budgets.requests.DeletePartialMatch(of)
	m.rules.budgets.units.DeletePartialMatch(of)
	m.rules.budgets.thresholds.DeletePartialMatch(of)
}

// Threshold counts that a budget has reached a threshold, in percent. It counts nothing for a rule that is
// gone.
func (m *Metrics) Threshold(domain, rule string, threshold int) {
	rs := m.rules
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.meters[meterName{domain, rule}] != nil {
		rs.budgets.thresholds.WithLabelValues(domain, rule, strconv.Itoa(threshold)).Inc()
	}
}

// Webhook registers the metric of a webhook of events, and returns what counts its results.
func Webhook(registry prometheus.Registerer) (count func(events.Result)) {
	all := factory{registry}.counters("slidegate_webhook_events_total", "Events for events.webhook, by result: delivered, failed (rls tries again), refused (the receiver answered 410) or dropped (1000 events waited, or the process ended).", "result")
	var of [len(events.Results)]prometheus.Counter
	for r, name := range events.Results {
		of[r] = all.WithLabelValues(name)
	}
	return func(r events.Result) { of[r].Inc() }
}
