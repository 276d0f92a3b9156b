package decide

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// ending reports whether the request says that its stream has ended.
func (c *Call) ending() bool { return c.req.Ending != "" && c.req.Stream != 0 && c.req.EndsStream() }

// settle ends the stream of a prepared request. The store gets what the stream has cost under budgets
// together with its end. Other costs of the request are charged if the stream had a hold.
func (c *Call) settle(ctx context.Context, wait bool) (decided bool, err error) {
	if !wait && !c.decider.releases.AtOnce() {
		return false, nil
	}
	if c.Exceeds() != "" { // its costs are not complete
		c.keepChecks(0)
	}
	d, n := c.decider, c.partBudgets()
	settled, result, err := d.releases.Release(ctx, &c.req, c.batch.checks[n:])
	switch {
	case result == inflight.EndFailed:
		d.failed(err)
		err = fmt.Errorf("the store could not end a stream: %w", err)
	case err != nil:
		return true, err
	default:
		c.countSettled(settled.Logs, c.verdict.Limits[n:])
	}
	c.keepChecks(n)
	c.correct(settled.Logs)
	d.opts.Meters.Ended(result)
	if result == inflight.EndReleased {
		d.waiters.Ended()
		if len(c.batch.checks) > 0 {
			return c.decide(ctx, wait)
		}
	}
	c.keepChecks(0)
	c.verdict.Allowed = true
	return true, err
}

// keepChecks removes all checks but the first n.
func (c *Call) keepChecks(n int) {
	clear(c.batch.checks[n:])
	clear(c.verdict.Limits[n:])
	c.batch.checks, c.verdict.Limits, c.batch.decisions = c.batch.checks[:n], c.verdict.Limits[:n], c.batch.decisions[:n]
}

// partBudgets moves the checks of budgets behind the others, and returns how many those are. A cost of a
// subject that the customer source could not find is one of the others: the log of its reservation is unknown. Costs of
// one log, such as input and output in two descriptors, become one.
func (c *Call) partBudgets() (n int) {
	checks, limits := c.batch.checks, c.verdict.Limits
	kept := 0
	for i := range limits {
		s := &limits[i]
		budget := s.Limit.Budget != nil && s.Source != verdict.SourceUnresolved
		if s.Limit.Budget != nil {
			c.req.Descriptors[s.Descriptor].Ends = true // no rule counts it as a request
		}
		if budget && inflight.AddCost(checks[n:kept], &checks[i]) {
			continue
		}
		c.swap(kept, i)
		if !budget {
			c.swap(n, kept)
			n++
		}
		kept++
	}
	c.keepChecks(kept)
	return n
}

func (c *Call) swap(i, j int) {
	checks, limits := c.batch.checks, c.verdict.Limits
	checks[i], limits[i], checks[j], limits[j] = checks[j], limits[j], checks[i], limits[i]
}

// correct keeps those checks of an ended stream that are to be charged, and changes those whose logs have an estimate
// instead of their cost: see [inflight.Correct].
func (c *Call) correct(logs []window.SettledLog) {
	n := 0
	for i := range c.batch.checks {
		s, check := &c.verdict.Limits[i], &c.batch.checks[i]
		if inflight.Correct(check, logs, s.Rule, s.Limit.Budget != nil) {
			s.Mode, s.Cost = check.Mode, check.Cost
			if s.Limit.Budget != nil {
				s.Source = verdict.SourceRule // its log is known now
			}
			c.swap(n, i)
			n++
		}
	}
	c.keepChecks(n)
}

// countReserved counts what a decided request has reserved, and which reservations it has found expired. It reports the
// budgets that it met.
func (c *Call) countReserved() {
	for i := range c.verdict.Limits {
		s, check := &c.verdict.Limits[i], &c.batch.checks[i]
		if check.Budget == nil || s.DecidedBy != verdict.ByStore || check.Cost == 0 {
			continue
		}
		if e := s.Decision.Expired; e.Holds > 0 && c.decider.counts {
			c.meter(s.Rule).Budget(inflight.BudgetExpired, e.Holds, e.Units)
		}
		if s.Decision.HoldsFull {
			c.decider.warn(inflight.BudgetHoldsFull, slog.Any("rule", s.Rule), slog.Int("most", window.MaxHolds))
		}
		if c.decider.counts && c.verdict.Allowed && !s.Decision.Repeated && s.Mode.Charged(true, s.Decision.Allowed) {
			c.meter(s.Rule).Budget(inflight.BudgetReserved, 1, s.Cost)
		}
		if r := c.decider.opts.Recorder; r != nil {
			r.Budget(&c.req, s, check.Key)
		}
	}
}

// countSettled counts what the end of a stream has changed in the logs of budgets.
func (c *Call) countSettled(logs []window.SettledLog, limits []LimitStatus) {
	for i := range logs {
		l := &logs[i]
		rule := c.gen.rules.Rule(descriptors.RuleID(descriptors.RuleOfKey(l.Log.Key)))
		if l.Cost >= 0 {
			s := &limits[l.Cost]
			rule, s.Decision = s.Rule, window.Decision{Allowed: true, Remaining: l.Remaining, Reserved: l.OtherReserved}
			if r := c.decider.opts.Recorder; r != nil {
				r.Budget(&c.req, s, l.Log.Key)
			}
		}
		if rule != nil && c.decider.counts { // otherwise a reload has removed it
			inflight.OutcomesOf(&c.req, l, c.meter(rule).Budget)
		}
	}
}
