package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Call is one request on its way through a [Decider]. The zero value is ready for
// [Decider.Begin]. The next request reuses its memory. A Call is not safe for concurrent
// use.
type Call struct {
	decider *Decider // nil: there is no request
	rules   *Rules   // the generation that decides the request
	domain  *domain  // nil: the rules have none for the request
	req     Request
	step    step
	err     error // of the decision
	verdict Verdict

	checks    []window.Check    // one for each limit of the verdict
	decisions []window.Decision // one for each check
	records   bool              // a limit has LimitStatus.records
	quota     bool              // a limit is one of several alternatives
	part      []window.Check    // the checks of one of several store calls
	partAt    []int             // their indexes in checks
	identity  []descriptors.Text
	key       []byte
	names     []byte // of logs, with Options.CopiesNames
	detail    []byte
	own       []Limit
	stream    streamState
	exceeds   string        // see exceed
	clock     time.Duration // Options.Clock when the checks were made; 0: not read yet

	// Subjects of keys, while the request is prepared.
	ctx      context.Context //nolint:containedctx // only while prepare runs
	resolver tier.Resolver   // nil: no key has a subject
	left     time.Duration   // how long the request may still wait, or tier.NoWait
	mustWait bool            // a subject was not found without waiting
	lookups  []lookup
}

// step is how far a Call is.
type step int

const (
	isBegun    step = iota
	isPrepared      // the checks are made
	isDecided       // there is a verdict or an error
)

// Decide decides the request. If wait is false, Decide does not block: it reports false
// if it has to ask the store or a source of tiers first. Nothing is charged or counted
// then, and the next Decide continues from there, by the same rules.
//
// Once the request is decided, Decide returns the same result again and charges nothing.
// An error means that neither the store nor the rules could decide. It is unknown then
// whether the store has charged the request, except after [ErrMissing], which Decide returns
// before it asks the store. A request that exceeds a bound is no error: its rules decide it
// without the store.
//
// With wait, Decide blocks until the source of tiers and the store answer. ctx bounds both,
// and Options.Wait bounds the wait for the source.
func (c *Call) Decide(ctx context.Context, wait bool) (decided bool, err error) {
	if c.step == isBegun && c.ending() {
		if !wait {
			return false, nil
		}
		if settles, err := c.endStream(ctx); !settles {
			c.verdict.begin(len(c.req.Descriptors))
			c.verdict.Allowed = true
			c.finish(ctx, err)
		}
	}
	if c.step == isBegun && c.prepare(ctx, wait) {
		c.step = isPrepared
	}
	if c.step == isPrepared {
		if decided, err = c.decide(ctx, wait); decided {
			c.finish(ctx, err)
		}
	}
	return c.step == isDecided, c.err
}

// finish notes that the request is decided.
func (c *Call) finish(ctx context.Context, err error) {
	c.step, c.err = isDecided, err
	if err == nil && c.decider.opts.Recorder != nil {
		c.record()
	}
	c.countMisuse()
	if t := c.decider.opts.Tracer; t != nil {
		t.Decided(ctx, &c.req, &c.verdict, err)
	}
}

// Verdict returns the verdict on the request. It is valid after [Call.Decide] has
// decided without an error, until [Call.Forget].
func (c *Call) Verdict() *Verdict { return &c.verdict }

// Checks returns the check of each limit of the verdict, in their order. It is valid as long as
// the verdict.
func (c *Call) Checks() []window.Check { return c.checks }

// Forget removes all of the request from c, and keeps memory for the next one. Without
// it c keeps the texts of the request in memory.
func (c *Call) Forget() {
	c.unprepare()
	c.req = Request{}
	c.decider, c.rules, c.step, c.err = nil, nil, isBegun, nil
	reuse.Reset(&c.decisions)
	reuse.Reset(&c.part)
	reuse.Reset(&c.partAt)
	reuse.Reset(&c.identity)
	reuse.Reset(&c.key)
	reuse.Reset(&c.detail)
	reuse.Reset(&c.own)
	reuse.Reset(&c.lookups)
	c.resolver, c.left, c.mustWait = nil, 0, false
}

// unprepare forgets what prepare has made, but for the subjects that it has found.
func (c *Call) unprepare() {
	c.verdict.forget()
	reuse.Reset(&c.checks)
	reuse.Reset(&c.names)
	c.domain = nil
	c.records, c.quota, c.clock, c.stream, c.exceeds = false, false, 0, streamState{}, ""
}

// prepare matches the rules and makes the checks. It reports false if a subject is
// missing or matching takes long, and wait is false. It counts nothing, because it may run again.
func (c *Call) prepare(ctx context.Context, wait bool) (ok bool) {
	c.verdict.begin(len(c.req.Descriptors))
	c.exceeds = c.req.Exceeds
	if c.domain = c.rules.domainOf(c.req.Domain); c.domain == nil {
		return true
	}
	c.verdict.Headers = c.domain.headers
	for i := range c.req.Descriptors {
		// Rules match these forms, so that one client has one log.
		entries := c.req.Descriptors[i].Entries
		for j := range entries {
			entries[j].Value = Canonical(entries[j])
		}
	}
	if !c.match(wait) {
		c.unprepare()
		return false
	}
	if c.rules.tiers != nil {
		c.beginLookups(ctx, wait)
	}
	for i := range c.req.Descriptors {
		if c.addChecks(i); c.mustWait {
			break
		}
	}
	c.ctx = nil
	if c.mustWait {
		c.unprepare()
		return false
	}
	if c.quota {
		c.settleQuota()
	}
	if n := len(c.checks); n > 1 && n <= window.MaxChecks {
		c.settleModes()
	}
	if n := len(c.checks); n <= cap(c.decisions) {
		c.decisions = c.decisions[:n]
	} else {
		c.decisions = make([]window.Decision, n)
	}
	return true
}

// decide makes the verdict of a request that is prepared, if that needs no waiting or
// wait is true.
func (c *Call) decide(ctx context.Context, wait bool) (decided bool, err error) {
	switch n, what := len(c.checks), c.beyond(); {
	case c.stream.endless != nil:
		return true, &EndlessError{c.stream.endless}
	case n == 0 && c.rules.missing:
		return true, ErrMissing
	case what != "":
		c.decideBeyond(what)
		return true, nil
	case n == 0:
		c.verdict.Allowed = true
		c.countUnlimited()
		return true, nil
	}
	withoutStore := c.verdict.Unresolved && c.denyUnresolved()
	if !withoutStore {
		if decided, err = c.take(ctx, wait); !decided {
			return false, nil
		}
	}
	if c.decider.counts {
		c.countUnlimited()
	}
	if err != nil && ctx.Err() != nil {
		window.GiveBack(ctx, err)
		return true, err // the caller has left, which is no failure of the store
	}
	if withoutStore || err != nil {
		return true, c.decideWithout(ctx, err)
	}
	// Without waiting, a store denies only by repeating a denial that Learn has seen.
	if c.decider.learner != nil && (wait || window.GroupAllowed(c.checks, c.decisions)) {
		c.teach()
	}
	c.fold()
	if c.decider.counts {
		c.countLimits()
	}
	return true, nil
}

// decideWithout makes the verdict of a request that the store did not decide, as a whole or in some
// scopes. cause is why; nil: the store was not asked, and the decisions are made.
func (c *Call) decideWithout(ctx context.Context, cause error) error {
	some := c.markUndecided(cause)
	c.countErrors()
	c.countUndecided(cause)
	if cause != nil {
		if err := c.degrade(ctx, cause); err != nil {
			return err
		}
	}
	v := &c.verdict
	if c.records {
		c.recordDenied(ctx, window.MayWait, c.decider.opts.Local, true)
		if some {
			c.recordDenied(ctx, window.MayWait, c.decider.opts.Store, false)
		}
	}
	c.fold()
	v.Degraded = v.Allowed || v.Decisive < 0 || v.Limits[v.Decisive].undecided
	if some {
		c.teach()
		if c.decider.counts {
			c.countLimits()
		}
	}
	c.countDegraded()
	return nil
}

func (c *Call) fold() {
	c.verdict.fold(c.decisions, c.rules.shadow)
	if c.rules.jitters {
		c.setJitter()
	}
}

// markUndecided marks the limits that the store has not decided, because of cause. It reports
// whether it has decided some.
func (c *Call) markUndecided(cause error) (some bool) {
	for i := range c.verdict.Limits {
		s := &c.verdict.Limits[i]
		s.undecided = true
		if cause == nil {
			continue
		}
		var part *window.PartError
		if _, without := window.WithoutLog(&c.checks[i]); without && errors.As(cause, &part) {
			s.undecided = false // it needs no store
		} else {
			s.undecided = window.FailedIn(cause, c.checks[i].Scope) != nil
		}
		some = some || !s.undecided
	}
	return some
}

// take makes the store call of the request. It reports false if wait is false and the
// store has to wait.
func (c *Call) take(ctx context.Context, wait bool) (decided bool, err error) {
	o := &c.decider.opts
	ends := c.decider.places.ends.Load()
	apart := c.rules.shadow && c.mixed()
	if apart && !wait {
		return false, nil // the first of two calls could charge, and the second could have to wait
	}
	var start time.Time
	if o.StoreSeconds != nil || o.Tracer != nil {
		start = time.Now()
	}
	if apart {
		decided, err = true, c.takeApart(ctx)
	} else {
		decided, err = o.Store.Take(ctx, wait, c.checks, c.decisions)
	}
	if !decided && err == nil {
		return false, nil
	}
	if o.StoreSeconds != nil && (err != nil || !c.remembered()) {
		o.StoreSeconds(time.Since(start).Seconds())
	}
	if o.Tracer != nil {
		o.Tracer.Stored(ctx, start, time.Since(start), err)
	}
	if c.full(err) {
		switch {
		case wait:
			err = c.await(ctx, ends)
		case c.decider.places.waiting.Load() < maxWaiting:
			return false, nil // it may wait for a place
		}
	}
	if err != nil {
		c.decider.failed(err)
		return true, fmt.Errorf("the store could not decide: %w", err)
	}
	return !c.records || c.recordDenied(ctx, wait, o.Store, false), nil
}

// remembered reports whether a denial was repeated from memory, so that there was no store call.
func (c *Call) remembered() bool {
	for i := range c.decisions {
		if c.decisions[i].Remembered {
			return true
		}
	}
	return false
}

// mixed reports whether some checks charge unconditionally and others do not.
func (c *Call) mixed() bool {
	for i := range c.checks {
		if c.checks[i].Mode.Unconditional() != c.checks[0].Mode.Unconditional() {
			return true
		}
	}
	return false
}

// takeApart is take while all rules are only observed. Checks that charge
// unconditionally go in a call of their own: in the store they would deny the request,
// and the others would not be charged although the request passes.
func (c *Call) takeApart(ctx context.Context) error {
	for _, unconditional := range []bool{true, false} {
		reuse.Reset(&c.part)
		reuse.Reset(&c.partAt)
		for i := range c.checks {
			if c.checks[i].Mode.Unconditional() == unconditional {
				c.part, c.partAt = append(c.part, c.checks[i]), append(c.partAt, i)
			}
		}
		if err := c.takePart(ctx, c.decider.opts.Store); err != nil {
			var part *window.PartError
			if unconditional && errors.As(err, &part) {
				return errors.Join(part.Unwrap()...) // no scope has decided the others
			}
			return err
		}
	}
	return nil
}

// takePart asks a store for the checks in part, if there are any.
func (c *Call) takePart(ctx context.Context, store window.Store) error {
	if len(c.part) == 0 {
		return nil
	}
	decisions := make([]window.Decision, len(c.part))
	_, err := store.Take(ctx, window.MayWait, c.part, decisions)
	var part *window.PartError
	if err != nil && !errors.As(err, &part) {
		return err
	}
	for i, at := range c.partAt {
		c.decisions[at] = decisions[i]
	}
	return err
}
