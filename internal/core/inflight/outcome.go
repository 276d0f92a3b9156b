package inflight

import "github.com/slidegate/slidegate/pkg/window"

// A BudgetOutcome is what happened to the cost of a stream under a budget.
type BudgetOutcome int

// The outcomes of budgets, and the units that each counts.
const (
	// BudgetReserved: a request has reserved its estimate.
	BudgetReserved BudgetOutcome = iota
	// BudgetSettled: the stream has ended, and its true cost was recorded.
	BudgetSettled
	// BudgetUnknown: the stream has ended without a cost, and that of on_unknown was recorded.
	BudgetUnknown
	// BudgetAboveEstimate: the true cost, which is settled too, was above the estimate by these units.
	BudgetAboveEstimate
	// BudgetUnreserved: the true cost of a stream was recorded that had reserved nothing.
	BudgetUnreserved
	// BudgetExpired: the stream has ended so late that its estimate counted as spent.
	BudgetExpired
)

// BudgetOutcomes lists the outcomes of budgets by number with their metric label.
var BudgetOutcomes = [...]string{
	BudgetReserved:      "reserved",
	BudgetSettled:       "settled",
	BudgetUnknown:       "unknown",
	BudgetAboveEstimate: "above_estimate",
	BudgetUnreserved:    "unreserved",
	BudgetExpired:       "expired",
}

// OutcomesOf yields what the end of a stream has done to one budget, with the units of each outcome.
func OutcomesOf(l *window.SettledLog, yield func(o BudgetOutcome, units uint64)) {
	if l.Late {
		yield(BudgetExpired, l.Reserved)
	}
	switch {
	case l.Reserved == 0:
		yield(BudgetUnreserved, l.Spent)
	case l.Cost < 0:
		yield(BudgetUnknown, l.Spent)
	default:
		yield(BudgetSettled, l.Spent)
	}
	if l.Reserved > 0 && l.Spent > l.Reserved {
		yield(BudgetAboveEstimate, l.Spent-l.Reserved)
	}
}
