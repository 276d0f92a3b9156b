package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A Timeline decides requests one after the other, each at its time. It drops expired logs
// as its time goes on. It is not safe for concurrent use. Close it after use.
type Timeline struct {
	*Live
	store *memstore.Store
	now   time.Duration // since 1970
	// The store is swept when it has sweepAt logs, and Decide asks how many it has once every
	// lookEvery requests.
	sweepAt, look int
}

const (
	lookEvery = 4096
	// minSweep is the fewest logs that are worth a sweep.
	minSweep = 16 << 10
)

// NewTimeline returns a timeline of rules with empty logs, which take so many bytes at most. Zero:
// any number.
func NewTimeline(rs *rules.Rules, maxBytes int64) *Timeline {
	t := &Timeline{sweepAt: minSweep, look: lookEvery}
	clock := func() time.Duration { return t.now }
	t.store = memstore.New(memstore.Options{Clock: clock, SweepInterval: -1, MaxBytes: maxBytes, Owner: descriptors.RuleOfKey})
	t.Live = NewLive(rs, t.store, clock)
	return t
}

// Close frees the store.
func (t *Timeline) Close() error { return t.store.Close() }

// Decide decides a request at a time since 1970-01-01 UTC. If at is before the time of the last
// request, the request is decided at the time of the last one. For the rest see [Live.Decide].
func (t *Timeline) Decide(ctx context.Context, at time.Duration, req decide.Request, caller *tier.Subject) (*decide.Verdict, error) {
	t.now = max(t.now, at)
	if t.look--; t.look <= 0 {
		t.sweep()
	}
	return t.Live.Decide(ctx, req, caller)
}

// sweep drops expired logs when the store has twice as many logs as after the last sweep. So the
// store never has more than about twice the logs in which something counts, and the work for each
// new log is bounded.
func (t *Timeline) sweep() {
	t.look = lookEvery
	if t.store.Len() < t.sweepAt {
		return
	}
	t.store.Sweep()
	t.sweepAt = max(2*t.store.Len(), minSweep)
}

// A Live decides requests one after the other on a store that has a clock. It counts
// nothing but hits. It is not safe for concurrent use.
type Live struct {
	decider *decide.Decider
	call    decide.Call // of the last request
	rules   *rules.Rules
	caller  *tier.Subject // of the request that is decided; nil: its keys say who calls
}

// NewLive returns a Live of rules and a store. clock is the time since 1970; nil: the system's.
func NewLive(rs *rules.Rules, store window.Store, clock func() time.Duration) *Live {
	l := &Live{rules: rs}
	// Without Patience, because the time of a Timeline stands still while a request is decided.
	o := decide.Options{Store: store, Clock: clock}
	_, o.CopiesNames = store.(*memstore.Store)
	if rs.Tiers() != nil {
		o.Subjects = (*callers)(l)
	}
	l.decider = decide.NewDecider(rs, o)
	return l
}

// Decide decides a request now. caller, unless it is nil, is the subject of every API key of the
// request. The verdict is valid until the next Decide. An error says why the rules could not
// decide.
func (l *Live) Decide(ctx context.Context, req decide.Request, caller *tier.Subject) (*decide.Verdict, error) {
	l.caller = caller
	l.decider.Begin(&l.call, req)
	if _, err := l.call.Decide(ctx, window.MayWait); err != nil {
		return nil, fmt.Errorf("deciding a request of domain %s: %w", req.Domain, err)
	}
	return l.call.Verdict(), nil
}

// Checks returns the check of each limit of the last verdict, in their order. They are valid until
// the next Decide.
func (l *Live) Checks() []window.Check { return l.call.Checks() }

// callers resolves every key to the caller of the request, if there is one.
type callers Live

// Resolve implements [tier.Resolver].
func (c *callers) Resolve(ctx context.Context, k tier.Key, wait time.Duration) (tier.Answer, bool) {
	if c.caller != nil {
		return tier.Answer{Subject: c.caller}, true
	}
	return c.rules.Tiers().Resolve(ctx, k, wait)
}
