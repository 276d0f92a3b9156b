package decide

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// denyUnresolved denies the request without the store, if Options.DenyUnresolved says so
// and a limit that may deny has no resolved subject.
func (c *Call) denyUnresolved() (denied bool) {
	v := &c.verdict
	if !c.decider.opts.DenyUnresolved {
		return false
	}
	for i := range v.Limits {
		s := &v.Limits[i]
		c.batch.decisions[i] = window.Decision{Allowed: true, Remaining: s.Limit.Hits}
		if s.Source == verdict.SourceUnresolved && s.MayDeny() {
			s.DecidedBy, c.batch.decisions[i] = verdict.ByNoTier, window.Decision{RetryAfter: rules.StoreErrorRetry}
			denied = true
		}
	}
	for i := range v.Limits {
		if s := &v.Limits[i]; denied && s.DecidedBy == verdict.ByStore {
			s.DecidedBy = verdict.ByRuleAllow // the store was not asked
		}
	}
	return denied
}

// teach passes the decisions of the store to the local store.
func (c *Call) teach() {
	if c.decider.learner == nil {
		return
	}
	for i := range c.verdict.Limits {
		if s := &c.verdict.Limits[i]; s.Rule.StoreError() == rules.StoreErrorLocal && s.DecidedBy == verdict.ByStore {
			c.decider.learner.Learn(&c.batch.checks[i], &c.batch.decisions[i])
		}
	}
}

// degrade decides the limits that the store has not decided by the choices of their rules, after
// it has failed with cause. The strictest choice counts: rules.StoreErrorDeny denies the request, else
// rules.StoreErrorReported makes degrade return cause, else the local logs decide. If the request is not
// allowed, degrade takes back what the other scopes have charged.
func (c *Call) degrade(ctx context.Context, cause error) error {
	if errors.Is(cause, window.ErrBadCheck) {
		return cause // a bug here, not a failure of the store
	}
	v := &c.verdict
	var group window.Verdict
	report, room := false, false
	reuse.Reset(&c.batch.part)
	reuse.Reset(&c.batch.partAt)
	for i := range v.Limits {
		s := &v.Limits[i]
		if s.DecidedBy == verdict.ByStore {
			group.Add(s.Mode, c.batch.decisions[i].Allowed)
			room = room || s.Mode == window.Any && c.batch.decisions[i].Allowed
			continue
		}
		report = c.choose(i) || report
		group.Add(s.Mode, c.batch.decisions[i].Allowed)
	}
	if !group.Allowed() {
		for _, at := range c.batch.partAt {
			v.Limits[at].DecidedBy = verdict.ByRuleAllow // the local store is not asked
		}
		window.GiveBack(ctx, cause)
		return nil
	}
	if report {
		window.GiveBack(ctx, cause)
		return cause
	}
	for i := range c.batch.part {
		if room && c.batch.part[i].Mode == window.Any {
			c.batch.part[i].Mode = window.Observe // another alternative passes anyway
		}
	}
	if err := c.takePart(ctx, c.decider.opts.Local); err != nil {
		window.GiveBack(ctx, cause)
		return fmt.Errorf("%w; the local store could not decide either: %w", cause, err)
	}
	if !window.GroupAllowed(c.batch.checks, c.batch.decisions) {
		window.GiveBack(ctx, cause)
	}
	return nil
}

// choose applies the choice of the rule of a limit that the store has not decided. It reports
// whether that is rules.StoreErrorReported.
func (c *Call) choose(i int) (report bool) {
	s := &c.verdict.Limits[i]
	choice := s.Rule.StoreError()
	if choice == rules.StoreErrorLocal && c.decider.opts.Local == nil {
		choice = rules.StoreErrorReported
	}
	if choice == rules.StoreErrorReported && s.Observed() {
		choice = rules.StoreErrorAllow // an observed limit must not deny, and a report may
	}
	c.batch.decisions[i] = window.Decision{Allowed: true, Remaining: s.Limit.Hits}
	switch choice {
	case rules.StoreErrorAllow:
		s.DecidedBy = verdict.ByRuleAllow
	case rules.StoreErrorDeny:
		if s.Mode != window.Refund { // a refund is lost, and never denied
			s.DecidedBy, c.batch.decisions[i] = verdict.ByRuleDeny, window.Decision{RetryAfter: rules.StoreErrorRetry}
		}
	case rules.StoreErrorLocal:
		c.batch.part, c.batch.partAt = append(c.batch.part, c.batch.checks[i]), append(c.batch.partAt, i)
	default:
		s.DecidedBy = verdict.ByRuleAllow
		report = true
	}
	return report
}
