package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/pkg/window"
)

// take makes the store call of the request. It reports false if wait is false and the
// store has to wait.
func (c *Call) take(ctx context.Context, wait bool) (decided bool, err error) {
	o := &c.decider.opts
	ends := c.decider.waiters.Ends()
	apart := c.gen.rules.ObservesAll() && c.mixed()
	if apart && !wait {
		return false, nil // the first of two calls could charge, and the second could have to wait
	}
	var start time.Time
	if o.Observer.Seconds != nil || o.Observer.Tracer != nil {
		start = time.Now()
	}
	if !wait && c.batch.records {
		ctx = window.WithoutPauser(ctx) // recordDenied could have to wait after a charge
	}
	if apart {
		decided, err = true, c.takeApart(ctx)
	} else {
		decided, err = o.Store.Take(ctx, wait, c.batch.checks, c.batch.decisions)
	}
	if !decided && err == nil {
		return false, nil
	}
	if o.Observer.Seconds != nil && (err != nil || !c.remembered()) {
		o.Observer.Seconds(time.Since(start).Seconds())
	}
	if o.Observer.Tracer != nil {
		o.Observer.Tracer.Stored(ctx, start, time.Since(start), err)
	}
	if c.full(err) {
		switch {
		case wait:
			err = c.await(ctx, ends)
		case c.decider.waiters.Waiting() < inflight.MaxWaiting:
			return false, nil // it may wait for a slot
		}
	}
	if err != nil {
		c.decider.failed(err)
		return true, fmt.Errorf("the store could not decide: %w", err)
	}
	return !c.batch.records || c.recordDenied(ctx, wait, o.Store, false), nil
}

// remembered reports whether a denial was repeated from memory, so that there was no store call.
func (c *Call) remembered() bool {
	for i := range c.batch.decisions {
		if c.batch.decisions[i].Remembered {
			return true
		}
	}
	return false
}

// mixed reports whether some checks charge unconditionally and others do not.
func (c *Call) mixed() bool {
	return slices.ContainsFunc(c.batch.checks, func(k window.Check) bool { return k.Mode.Unconditional() != c.batch.checks[0].Mode.Unconditional() })
}

// takeApart is take while all rules are only observed. It sends the checks that charge
// unconditionally in a separate call. In one call, their denials would keep the store from charging
// the other checks.
func (c *Call) takeApart(ctx context.Context) error {
	for _, unconditional := range []bool{true, false} {
		reuse.Reset(&c.batch.part)
		reuse.Reset(&c.batch.partAt)
		for i := range c.batch.checks {
			if c.batch.checks[i].Mode.Unconditional() == unconditional {
				c.batch.part, c.batch.partAt = append(c.batch.part, c.batch.checks[i]), append(c.batch.partAt, i)
			}
		}
		if err := c.takePart(ctx, c.decider.opts.Store); err != nil {
			if part, ok := errors.AsType[*window.PartError](err); ok && unconditional {
				return errors.Join(part.Unwrap()...) // no scope has decided the others
			}
			return err
		}
	}
	return nil
}

// takePart asks a store for the checks in part, if there are any.
func (c *Call) takePart(ctx context.Context, store window.Store) error {
	if len(c.batch.part) == 0 {
		return nil
	}
	decisions := make([]window.Decision, len(c.batch.part))
	_, err := store.Take(ctx, window.MayWait, c.batch.part, decisions)
	if _, ok := errors.AsType[*window.PartError](err); err != nil && !ok {
		return err
	}
	for i, at := range c.batch.partAt {
		c.batch.decisions[at] = decisions[i]
	}
	return err
}

// full reports whether the request should wait for a slot: it was denied, and only because limits
// in flight are full. err is that of the store.
func (c *Call) full(err error) (full bool) {
	if !c.stream.Holds || err != nil || c.decider.opts.Patience <= 0 {
		return false
	}
	for i := range c.batch.checks {
		check, d := &c.batch.checks[i], &c.batch.decisions[i]
		switch {
		case check.Mode.Unconditional():
			return false // the store has charged it, and would charge it again
		case d.Allowed || check.Mode == window.Observe:
		case check.Limit.Policy != window.InFlight || d.Never || check.Limit.Hits == 0:
			if check.Mode == window.Enforce {
				return false
			}
		default:
			full = true
		}
	}
	return full && !window.GroupAllowed(c.batch.checks, c.batch.decisions)
}

// await asks the store again for a request that was denied because a limit in flight is full. ends is
// [inflight.Waiters.Ends] from before the denial.
func (c *Call) await(ctx context.Context, ends uint64) error {
	o := &c.decider.opts
	return c.decider.waiters.Await(ctx, o.Patience, ends, func() (full bool, err error) {
		_, err = o.Store.Take(ctx, window.MayWait, c.batch.checks, c.batch.decisions)
		return c.full(err), err
	})
}
