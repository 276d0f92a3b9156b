package policy

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/reuse"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A usage says how a check differs because Envoy may report usage with the rule. It is for
// rules whose file says nothing of charge.
type usage uint8

const (
	usagePlain usage = iota // it does not differ
	// usageQuestion is a cost of 0 that passes while the limit is not exceeded. The check
	// asks under a limit that is larger by one.
	usageQuestion
	// usageLarge is a cost above 1 that is recorded if it does not fit while something
	// remains.
	usageLarge
	// usageReport is a cost that is recorded whatever the store decides.
	usageReport
)

// usageOf returns what a descriptor's cost is to a rule. A cost of 0 makes every later cost
// of the rule a report.
func (c *Call) usageOf(rule *Rule, desc *Descriptor) usage {
	switch {
	case !rule.learns || desc.Refund || c.req.Ending != "":
	case desc.Cost == 0:
		c.learn(rule)
		if rule.reports {
			return usageQuestion
		}
	case rule.asked.Load():
		return usageReport
	case desc.Cost > 1 && rule.reports:
		return usageLarge
	}
	return usagePlain
}

// learn notes that a rule was asked with a cost of 0, and logs it the first time.
func (c *Call) learn(rule *Rule) {
	if rule.asked.Load() || c.decider.opts.NeverLearns || !rule.asked.CompareAndSwap(false, true) {
		return
	}
	if log := c.decider.opts.Learned; log != nil {
		log.Warn("the rule was asked with a cost of 0: from now on its costs are usage reports, which are recorded even if they are denied; charge: allowed in the rule prevents that",
			zap.Stringer("rule", rule), zap.String("name", rule.Name))
	}
}

// ask changes a check according to the usage of its limit. The check must have its mode.
func (s *LimitStatus) ask(check *window.Check) {
	switch {
	case check.Limit.Policy == window.InFlight:
		s.usage = usagePlain // what a stream holds is no usage that can be reported
	case s.usage == usageQuestion && check.Limit.Policy == window.TokenBucket:
		s.usage = usagePlain // a larger bucket has no more tokens
	case s.usage == usageQuestion && check.Limit.Hits < window.MaxHits-1:
		check.Limit.Hits++ // a cost of 0 needs the room of one hit
	case s.usage == usageReport && s.Mode == window.Enforce:
		s.Mode, check.Mode = window.Always, window.Always
		s.usage = usagePlain
	case s.usage == usageQuestion || s.Mode.Unconditional():
		s.usage = usagePlain
	}
}

// recordReports records usage that a store has decided and not charged. It reports false if
// wait is false and the store has to wait. The store has charged nothing then.
//
// If recording fails, the answer stays: what is denied is denied. The usage is lost. It is for
// the limits that the store has decided, or for the others if undecided is true.
func (c *Call) recordReports(ctx context.Context, wait bool, store window.Store, undecided bool) (decided bool) {
	reuse.Reset(&c.part)
	reuse.Reset(&c.partAt)
	allowed := window.GroupAllowed(c.checks, c.decisions)
	for i := range c.verdict.Limits {
		s, d := &c.verdict.Limits[i], &c.decisions[i]
		if s.Unknown || s.Blind || s.undecided != undecided || !s.uncharged(allowed, d) {
			continue
		}
		check := c.checks[i]
		check.Mode, check.Lease = window.Always, window.Lease{}
		c.part, c.partAt = append(c.part, check), append(c.partAt, i)
	}
	if len(c.part) == 0 {
		return true
	}
	decisions := make([]window.Decision, len(c.part))
	decided, err := store.Take(ctx, wait, c.part, decisions)
	if err != nil {
		if log := c.decider.opts.Log; log != nil {
			log.Warn("a usage report was not recorded: the store failed; the limit has more room than it should", zap.Error(err))
		}
		return true
	}
	if !decided {
		return false
	}
	for i, at := range c.partAt {
		d := &c.decisions[at]
		c.verdict.Limits[at].recorded, c.verdict.Limits[at].room = true, d.Remaining
		if d.Allowed == decisions[i].Allowed {
			*d = decisions[i]
			continue
		}
		// The first decision stays, and what remains is as it is now.
		d.Remaining, d.UnitAfter, d.ResetAfter = decisions[i].Remaining, decisions[i].UnitAfter, decisions[i].ResetAfter
	}
	return true
}

// uncharged reports whether the limit has usage to record that the store has not charged.
// allowed is the verdict on the group, and d the store's decision.
func (s *LimitStatus) uncharged(allowed bool, d *window.Decision) bool {
	switch s.usage {
	case usageLarge:
		return !d.Allowed && d.Remaining > 0
	case usageReport:
		return !s.Mode.Charged(allowed, d.Allowed)
	default:
		return false
	}
}

// answerQuestions corrects what remains in the decisions on questions, which were asked under
// a larger limit.
func (c *Call) answerQuestions() {
	for i := range c.verdict.Limits {
		s, check := &c.verdict.Limits[i], &c.checks[i]
		if s.usage != usageQuestion || s.Unknown || c.decisions[i].Remaining == 0 {
			continue
		}
		// A store decides all checks of one log under the smallest of their limits.
		smaller := func(o window.Check) bool {
			return o.Limit.Hits < check.Limit.Hits && o.Mode == check.Mode && o.Log() == check.Log()
		}
		if !slices.ContainsFunc(c.checks, smaller) {
			c.decisions[i].Remaining--
		}
	}
}

// keepAsked copies from the rules before which rules were asked with a cost of 0, and which
// domains got limits with requests. A rule that is asked for the first time meanwhile learns
// it again at its next question.
func (rs *Rules) keepAsked(before *Rules) {
	if before == nil {
		return
	}
	for name, dom := range rs.domains {
		was := before.domains[name]
		if was == nil {
			continue
		}
		if was.override.asked.Load() {
			dom.override.asked.Store(true)
		}
		if was.overridden.Load() {
			dom.overridden.Store(true)
		}
	}
	asked := make(map[descriptors.RuleID]bool)
	for _, r := range before.rules {
		if r.asked.Load() {
			asked[r.id] = true
		}
	}
	if len(asked) == 0 {
		return
	}
	for _, r := range rs.rules {
		if asked[r.id] {
			r.asked.Store(true)
		}
	}
}
