package policy

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/internal/reuse"
	"github.com/slidegate/slidegate/pkg/window"
)

// denyUnresolved denies the request without the store, if Options.DenyUnresolved says so
// and a limit that may deny has no resolved subject.
func (c *Call) denyUnresolved() (denied bool) {
	v := &c.verdict
	if !c.decider.opts.DenyUnresolved || !v.Unresolved {
		return false
	}
	for i := range v.Limits {
		s := &v.Limits[i]
		c.decisions[i] = window.Decision{Allowed: true, Remaining: s.Limit.Hits}
		if s.Blind = s.Unresolved && s.MayDeny(); s.Blind {
			c.decisions[i] = window.Decision{RetryAfter: s.Rule.storeErrorRetry()}
			denied = true
		}
	}
	for i := range v.Limits {
		if s := &v.Limits[i]; denied && !s.Blind {
			s.Unknown = true // the store was not asked
		}
	}
	return denied
}

// takeOwed has the local store decide, if one of its logs is still to be charged to the
// store. It reports whether the local store has decided.
func (c *Call) takeOwed(ctx context.Context) (ok bool) {
	debtor := c.decider.debtor
	if debtor == nil || !debtor.Owing() || !c.onlyLocal() {
		return false
	}
	ok, err := debtor.TakeOwed(ctx, c.checks, c.decisions)
	return ok && err == nil
}

// tellLocal tells the local store what the store has decided. It reports whether the
// local store has decided the request again.
func (c *Call) tellLocal(ctx context.Context, wait bool) (again bool) {
	d := c.decider
	allowed := window.GroupAllowed(c.checks, c.decisions)
	// Without waiting, a store denies only by repeating a denial that Learn has seen.
	if d.learner != nil && (allowed || wait) {
		for i := range c.verdict.Limits {
			if c.verdict.Limits[i].Rule.storeError == StoreErrorLocal {
				d.learner.Learn(&c.checks[i], &c.decisions[i])
			}
		}
	}
	if d.debtor == nil || !allowed || !wait || !d.debtor.Owing() || !c.onlyLocal() {
		return false
	}
	again, err := d.debtor.Recheck(ctx, c.checks, c.decisions)
	return again && err == nil
}

// onlyLocal reports whether the local store can decide the whole request, and may deny
// it.
func (c *Call) onlyLocal() bool {
	for i := range c.verdict.Limits {
		if c.verdict.Limits[i].Rule.storeError != StoreErrorLocal {
			return false
		}
	}
	return !c.rules.shadow
}

// degrade decides a request by the choices of its rules, after the store has failed with
// cause. The strictest choice counts: StoreErrorDeny denies the request, else
// StoreErrorReported makes degrade return cause, else the local logs decide.
func (c *Call) degrade(ctx context.Context, cause error) error {
	if errors.Is(cause, window.ErrBadCheck) {
		return cause // a bug here, not a failure of the store
	}
	v := &c.verdict
	var group window.Verdict
	report := false
	c.part, c.partAt = reuse.Slice(c.part), reuse.Slice(c.partAt)
	for i := range v.Limits {
		s := &v.Limits[i]
		choice := s.Rule.storeError
		if choice == StoreErrorLocal && c.decider.opts.Local == nil {
			choice = StoreErrorReported
		}
		if choice == StoreErrorReported && s.Observed {
			choice = StoreErrorAllow // an observed limit must not deny, and a report may
		}
		c.decisions[i] = window.Decision{Allowed: true, Remaining: s.Limit.Hits}
		switch choice {
		case StoreErrorAllow:
			s.Unknown = true
		case StoreErrorDeny:
			if s.Mode != window.Refund { // a refund is lost, and never denied
				c.decisions[i] = window.Decision{RetryAfter: s.Rule.storeErrorRetry()}
				s.Blind = true
			}
		case StoreErrorLocal:
			c.part, c.partAt = append(c.part, c.checks[i]), append(c.partAt, i)
		default:
			s.Unknown = true
			report = true
		}
		group.Add(s.Mode, c.decisions[i].Allowed)
	}
	if !group.Allowed() {
		for _, at := range c.partAt {
			v.Limits[at].Unknown = true // the local store is not asked
		}
		return nil
	}
	if report {
		return cause
	}
	if err := c.takeLocal(ctx, cause); err != nil {
		return fmt.Errorf("%w; the local store could not decide either: %w", cause, err)
	}
	return nil
}

// takeLocal asks the local store for the checks in part. If these are the whole request,
// the store may be charged later with what the local store admits.
func (c *Call) takeLocal(ctx context.Context, cause error) error {
	d := c.decider
	if d.debtor != nil && len(c.part) > 0 && c.onlyLocal() {
		return d.debtor.TakeAfter(ctx, cause, c.checks, c.decisions)
	}
	return c.takePart(ctx, d.opts.Local)
}
