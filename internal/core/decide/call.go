package decide

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Call is one request on its way through a [Decider]. The zero value is ready for
// [Decider.Begin]. The next request reuses its memory. A Call is not safe for concurrent
// use.
type Call struct {
	decider *Decider      // nil: there is no request
	gen     *generation   // decides the request
	domain  *rules.Domain // nil: the rules have none for the request
	req     Request
	step    step
	err     error // of the decision
	verdict Verdict
	who     identity.Finder

	batch    batch
	text     []byte // memory for what is hashed or counted
	override []rules.Limit
	stream   inflight.Stream
	exceeds  string        // see exceed
	clock    time.Duration // Options.Clock when the checks were made; 0: not read yet
}

// A batch has the checks of a request and their decisions. A store takes checks as one slice and
// writes decisions into another ([window.Store]), so a batch has two slices.
type batch struct {
	checks    []window.Check    // one for each limit of the verdict
	decisions []window.Decision // one for each check
	part      []window.Check    // the checks of one of several store calls
	partAt    []int             // their indexes in checks
	records   bool              // a limit has LimitStatus.Update.Records
	quota     bool              // a limit is one of several alternatives
}

// step is how far a Call is.
type step int

const (
	isBegun    step = iota
	isPrepared      // the checks are made
	isDecided       // there is a verdict or an error
)

// Decide decides the request. If wait is false, Decide does not block: it reports false
// if it has to ask the store or a customer source first. Nothing is charged or counted
// then, and the next Decide continues from there, by the same rules.
//
// Once the request is decided, Decide returns the same result again and charges nothing.
// An error means that neither the store nor the rules could decide. It is unknown then
// whether the store has charged the request, except after rules.ErrMissing, which Decide returns
// before it asks the store. A request that exceeds a bound is no error: its rules decide it
// without the store.
//
// With wait, Decide blocks until the customer source and the store answer. ctx bounds both,
// and Options.Wait bounds the wait for the source.
func (c *Call) Decide(ctx context.Context, wait bool) (decided bool, err error) {
	if c.step == isBegun && c.prepare(ctx, wait) {
		c.step = isPrepared
	}
	if c.step == isPrepared {
		if c.ending() {
			decided, err = c.settle(ctx, wait)
		} else {
			decided, err = c.decide(ctx, wait)
		}
		if decided {
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
	if t := c.decider.opts.Observer.Tracer; t != nil {
		t.Decided(ctx, &c.req, &c.verdict, err)
	}
}

// Verdict returns the verdict on the request. It is valid after [Call.Decide] has
// decided without an error, until [Call.Forget].
func (c *Call) Verdict() *Verdict { return &c.verdict }

// Checks returns the check of each limit of the verdict, in their order. It is valid as long as
// the verdict.
func (c *Call) Checks() []window.Check { return c.batch.checks }

// Forget removes the request from c, and keeps memory for the next request. Until Forget, c keeps the
// texts of the request in memory.
func (c *Call) Forget() {
	c.unprepare()
	c.req = Request{}
	c.decider, c.gen, c.step, c.err = nil, nil, isBegun, nil
	c.who.Forget()
	reuse.Reset(&c.batch.decisions)
	reuse.Reset(&c.batch.part)
	reuse.Reset(&c.batch.partAt)
	reuse.Reset(&c.override)
	reuse.Reset(&c.text)
}

// unprepare undoes prepare, but keeps the subjects that were found.
func (c *Call) unprepare() {
	c.verdict.Forget()
	reuse.Reset(&c.batch.checks)
	c.who.ForgetNames()
	c.domain = nil
	c.batch.records, c.batch.quota, c.clock, c.stream, c.exceeds = false, false, 0, inflight.Stream{}, ""
}

// prepare matches the rules and makes the checks. It reports false if a subject is
// missing or matching takes long, and wait is false. It counts nothing, because it may run again.
func (c *Call) prepare(ctx context.Context, wait bool) (ok bool) {
	c.verdict.Begin(len(c.req.Descriptors))
	c.exceeds = c.req.Exceeds
	c.who.Begin(c.gen.rules, &c.req)
	c.who.CopiesNames = c.decider.opts.CopiesNames
	if c.domain = c.gen.rules.Domain(c.req.Domain); c.domain == nil {
		return true
	}
	c.verdict.Headers = c.domain.Headers
	for i := range c.req.Descriptors {
		// Rules match these forms, so that one client has one log.
		entries := c.req.Descriptors[i].Entries
		for j := range entries {
			entries[j].Value = rules.Canonical(entries[j])
		}
	}
	if !c.match(wait) {
		c.unprepare()
		return false
	}
	c.askSubjects(ctx, wait)
	for i := range c.req.Descriptors {
		if c.addChecks(i); c.who.MustWait() {
			break
		}
	}
	c.who.Done()
	if c.who.MustWait() {
		c.unprepare()
		return false
	}
	if c.batch.quota {
		c.verdict.SettleQuota(c.batch.checks, c.gen.rules.AllQuota())
	}
	n := len(c.batch.checks)
	if n > 1 && n <= window.MaxChecks {
		c.verdict.SettleModes(c.batch.checks)
	}
	c.batch.decisions = slices.Grow(c.batch.decisions[:0], n)[:n]
	return true
}

// askSubjects lets c.who ask the customer source until the end of prepare.
func (c *Call) askSubjects(ctx context.Context, wait bool) {
	o := &c.decider.opts
	switch tiers := c.gen.rules.Tiers(); {
	case tiers == nil:
	case o.Subjects == nil:
		c.who.Ask(ctx, tiers, 0)
	case wait:
		c.who.Ask(ctx, o.Subjects, o.Wait)
	default:
		c.who.Ask(ctx, o.Subjects, tier.NoWait)
	}
}

// decide makes the verdict of a prepared request. It reports false if that needs waiting and wait is
// false.
func (c *Call) decide(ctx context.Context, wait bool) (decided bool, err error) {
	switch n, what := len(c.batch.checks), c.Exceeds(); {
	case n == 0 && c.gen.rules.Missing():
		return true, rules.ErrMissing
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
	// Learn has seen a denial that is repeated.
	if c.decider.learner != nil && (wait || window.GroupAllowed(c.batch.checks, c.batch.decisions) || !c.remembered()) {
		c.teach()
	}
	c.fold()
	if c.decider.counts {
		c.countLimits()
	}
	if c.stream.Reserves {
		c.countReserved()
	}
	return true, nil
}

// decideWithout makes the verdict if the store of some or all scopes did not decide. cause says why;
// nil: the store was not asked, and the decisions are made.
func (c *Call) decideWithout(ctx context.Context, cause error) error {
	some := cause != nil && c.markUndecided(cause)
	c.countErrors()
	c.countUndecided(cause)
	if cause != nil {
		if err := c.degrade(ctx, cause); err != nil {
			return err
		}
	}
	v := &c.verdict
	if c.batch.records {
		c.recordDenied(ctx, window.MayWait, c.decider.opts.Local, true)
		if some {
			c.recordDenied(ctx, window.MayWait, c.decider.opts.Store, false)
		}
	}
	c.fold()
	v.Degraded = v.Allowed || v.Decisive < 0 || v.Limits[v.Decisive].DecidedBy != verdict.ByStore
	if some {
		c.teach()
		if c.decider.counts {
			c.countLimits()
		}
	}
	if c.stream.Reserves {
		c.countReserved()
	}
	c.countDegraded()
	return nil
}

func (c *Call) fold() {
	c.verdict.Fold(c.batch.decisions, c.gen.rules.ObservesAll())
	if c.gen.rules.Jitters() {
		c.verdict.SetJitter(c.batch.checks)
	}
}

// markUndecided marks the limits that the store has not decided, because of cause. It reports
// whether it has decided some.
func (c *Call) markUndecided(cause error) (some bool) {
	_, parts := errors.AsType[*window.PartError](cause)
	for i := range c.verdict.Limits {
		if _, without := window.WithoutLog(&c.batch.checks[i]); without && parts || window.FailedIn(cause, c.batch.checks[i].Scope) == nil {
			some = true // decided, or it needs no store
		} else {
			c.verdict.Limits[i].DecidedBy = verdict.ByLocal
		}
	}
	return some
}

// countMisuse counts and logs the misuse of the request, if there is one.
func (c *Call) countMisuse() {
	misuse := c.stream.Misuse(&c.req)
	if misuse == "" {
		return
	}
	c.decider.opts.Meters.Misused()
	if write := c.decider.line(misuse); write != nil {
		write(domainField(c.req.Domain))
	}
}
