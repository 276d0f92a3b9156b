package decide

import (
	"context"
	"fmt"
	"slices"

	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// ending reports whether the request says that its stream has ended.
func (c *Call) ending() bool { return c.req.Ending != "" && c.req.Stream != 0 && c.req.EndsStream() }

// settle ends the stream of a prepared request. The store gets what the stream has cost under budgets
// together with its end. Other costs of the request are charged if the stream had a hold.
func (c *Call) settle(ctx context.Context, wait bool) (decided bool, err error) {
	if !wait {
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
	d.opts.Meters.Ended(result)
	if result == inflight.EndReleased {
		d.waiters.Ended()
		if n > 0 {
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
// subject that the customer source could not find goes: the log of its reservation is unknown. Costs of one
// log, such as input and output in two descriptors, become one.
func (c *Call) partBudgets() (n int) {
	checks, limits := c.batch.checks, c.verdict.Limits
	kept := 0
	for i := range limits {
		s := &limits[i]
		if s.Limit.Budget != nil {
			c.req.Descriptors[s.Descriptor].Ends = true // no rule counts it as a request
		}
		if s.Limit.Budget != nil && (s.Source == verdict.SourceUnresolved || addCost(checks[n:kept], &checks[i])) {
			continue
		}
		checks[kept], limits[kept], checks[i], limits[i] = checks[i], limits[i], checks[kept], limits[kept]
		if s = &limits[kept]; s.Limit.Budget == nil {
			checks[n], limits[n], checks[kept], limits[kept] = checks[kept], limits[kept], checks[n], limits[n]
			n++
		}
		kept++
	}
	c.keepChecks(kept)
	return n
}

// addCost adds a cost to that of the same log among others, and reports whether there is one.
func addCost(others []window.Check, cost *window.Check) (ok bool) {
	i := slices.IndexFunc(others, func(o window.Check) bool { return o.Log() == cost.Log() })
	if i >= 0 {
		others[i].Cost = min(others[i].Cost+cost.Cost, rules.MaxCost)
	}
	return i >= 0
}

// countReserved counts what a decided request has reserved, and reports the budgets that it met.
func (c *Call) countReserved() {
	for i := range c.verdict.Limits {
		s, check := &c.verdict.Limits[i], &c.batch.checks[i]
		if check.Budget == nil || s.DecidedBy != verdict.ByStore || check.Cost == 0 {
			continue
		}
		if c.decider.counts && c.verdict.Allowed && s.Mode.Charged(true, s.Decision.Allowed) {
			c.meter(s.Rule).Budget(inflight.BudgetReserved, s.Cost)
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
			inflight.OutcomesOf(l, c.meter(rule).Budget)
		}
	}
}
