package decide

import (
	"context"
	"log/slog"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// recordsDenied reports whether a descriptor's cost is recorded under a rule if it is denied while
// something remains; see [rules.Rules.ReportUsage].
func (c *Call) recordsDenied(rule *rules.Rule, desc *Descriptor) bool {
	return rule.RecordsDenied() && desc.Cost > 1 && !desc.Refund && c.req.Ending == ""
}

// The requests so far to a rule whose file does not say how it charges.
const (
	askedCosts  = iota // no quota check, which is a cost of 0
	askedChecks        // quota checks, and no cost since
	askedBoth
)

// noteAsked logs once for each rule that quota checks and costs come to it, because its costs may be
// usage updates, which are lost if they are denied. It changes no decision.
func (c *Call) noteAsked(rule *rules.Rule, desc *Descriptor) {
	if !rule.ChargeUnsaid() || c.decider.opts.Log == nil || desc.Refund || c.req.Ending != "" {
		return
	}
	asked := &c.gen.asked[rule.Number()]
	switch before := asked.Load(); {
	case desc.Cost == 0 && before == askedCosts:
		asked.CompareAndSwap(askedCosts, askedChecks)
	case desc.Cost > 0 && before == askedChecks:
		// A line that the logger drops is left for the next request.
		const advice = "the rule gets quota checks (a cost of 0) and costs, but does not say how it charges: a cost that is denied is not recorded; write charge: always in the rule if its costs are usage updates, otherwise charge: allowed"
		if write := c.decider.line(advice); write != nil && asked.CompareAndSwap(askedChecks, askedBoth) {
			write(slog.Any("rule", rule), slog.String("name", rule.Name))
		}
	}
}

// recordDenied records costs that a store has denied while something remained. It returns false if
// wait is false and the store has to wait. The store has charged nothing then.
//
// If recording fails, the denial stays, and the usage is lost. If undecided is true, it records for
// the limits that the store has not decided, otherwise for the others.
func (c *Call) recordDenied(ctx context.Context, wait bool, store window.Store, undecided bool) (decided bool) {
	reuse.Reset(&c.batch.part)
	reuse.Reset(&c.batch.partAt)
	for i := range c.verdict.Limits {
		s, d := &c.verdict.Limits[i], &c.batch.decisions[i]
		if s.Unknown() || s.DeniedUndecided() || (s.DecidedBy != verdict.ByStore) != undecided || !s.Update.Records || d.Allowed || d.Remaining == 0 {
			continue
		}
		check := c.batch.checks[i]
		check.Mode, check.Lease = window.Always, window.Lease{}
		c.batch.part, c.batch.partAt = append(c.batch.part, check), append(c.batch.partAt, i)
	}
	if len(c.batch.part) == 0 {
		return true
	}
	decisions := make([]window.Decision, len(c.batch.part))
	decided, err := store.Take(ctx, wait, c.batch.part, decisions)
	if err != nil {
		c.decider.warn("a usage update was not recorded: the store failed, and the limit has more room than it should; repair the store", slog.Any("error", err))
		return true
	}
	if !decided {
		return false
	}
	for i, at := range c.batch.partAt {
		d := &c.batch.decisions[at]
		update := &c.verdict.Limits[at].Update
		update.Recorded, update.Room = true, d.Remaining
		if d.Allowed == decisions[i].Allowed {
			*d = decisions[i]
			continue
		}
		// The first decision stays, and what remains is as it is now.
		d.Cut = decisions[i].Cut
		d.Remaining, d.UnitAfter, d.ResetAfter = decisions[i].Remaining, decisions[i].UnitAfter, decisions[i].ResetAfter
	}
	return true
}
