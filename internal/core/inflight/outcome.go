package inflight

import (
	"slices"
	"strconv"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

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
	// BudgetUnreserved: the cost or an estimate was recorded of a stream that had reserved nothing.
	BudgetUnreserved
	// BudgetExpired: the stream has not ended in time, and its estimate was spent. What a later end says that it has cost
	// replaces that.
	BudgetExpired
	// BudgetRetried: Envoy has tried a request more than once, which is settled or something else, too.
	BudgetRetried
)

// BudgetOutcomes lists the outcomes of budgets by number with their metric label.
var BudgetOutcomes = [...]string{
	BudgetReserved:      "reserved",
	BudgetSettled:       "settled",
	BudgetUnknown:       "unknown",
	BudgetAboveEstimate: "above_estimate",
	BudgetUnreserved:    "unreserved",
	BudgetExpired:       "expired",
	BudgetRetried:       "retried",
}

// OutcomesOf yields what the end of a request's stream has done to one budget, with the units of each outcome. A stream
// with a reservation ends as unknown or settled. Reservations of any stream expire before.
func OutcomesOf(req *identity.Request, l *window.SettledLog, yield func(o BudgetOutcome, requests, units uint64)) {
	if l.Expired.Holds > 0 {
		yield(BudgetExpired, l.Expired.Holds, l.Expired.Units)
	}
	if l.Cost < 0 && l.Reserved == 0 && l.Spent == 0 {
		return // nothing else has changed
	}
	if tries, err := strconv.Atoi(req.Reported.Attempts); err == nil && tries > 1 {
		yield(BudgetRetried, 1, l.Spent)
	}
	switch {
	case l.Reserved == 0:
		yield(BudgetUnreserved, 1, l.Spent)
	case l.Cost < 0:
		yield(BudgetUnknown, 1, l.Spent)
	default:
		yield(BudgetSettled, 1, l.Spent)
	}
	if l.Reserved > 0 && l.Spent > l.Reserved {
		yield(BudgetAboveEstimate, 1, l.Spent-l.Reserved)
	}
}

// AddCost adds what a stream has cost to the cost of the same log among others, and reports whether there is one. A cost
// takes the place of an estimate.
func AddCost(others []window.Check, cost *window.Check) (ok bool) {
	i := slices.IndexFunc(others, func(o window.Check) bool { return o.Log() == cost.Log() })
	switch {
	case i < 0:
		return false
	case others[i].Mode == cost.Mode:
		others[i].Cost = min(others[i].Cost+cost.Cost, rules.MaxCost)
	case cost.Mode == window.Always:
		others[i] = *cost
	}
	return true
}

// Correct changes a check for the cost of an ended stream, if the end has charged an estimate to a log because it did not
// know that the cost belongs to it: the check then adds the rest of the cost, or gives the rest of the estimate back. The
// rule of the check has lost its budget meanwhile, or it has one, but not the customer. It returns false if nothing is
// left to charge.
func Correct(check *window.Check, logs []window.SettledLog, rule *rules.Rule, budget bool) (ok bool) {
	var of *window.SettledLog
	id := check.Log()
	for i := range logs {
		l := &logs[i]
		if budget && descriptors.RuleID(descriptors.RuleOfKey(l.Log.Key)) == rule.ID() {
			id.Key = l.Log.Key
		}
		if l.Cost < 0 && l.Log == id && l.Reserved+l.Spent > 0 {
			if of != nil {
				return false // one of two, unknown which
			}
			of = l
		}
	}
	switch {
	case of == nil:
		return !budget
	case budget && (check.Mode != window.Always || check.Limit.Policy == window.TokenBucket): // its rate is unknown
		return false
	case check.Cost < of.Spent:
		check.Mode, check.Cost = window.Refund, of.Spent-check.Cost
	default:
		check.Cost -= of.Spent
	}
	check.Key = of.Log.Key
	return check.Cost > 0
}
