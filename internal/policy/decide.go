package policy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Request is what an adapter asks. The Decider keeps nothing of it, but brings
// addresses in it into their one form.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	// Tier, unless empty, is everybody's tier, whoever they are: for asking what
	// would be.
	Tier string
	// Caller says who calls where the adapter has asked already. Nil: it has not.
	Caller *Caller
	// Plain are the API keys themselves, for a source that has to be asked by them.
	// Nil for all others.
	Plain []PlainKey
}

// A Caller is what an adapter knows of an API key.
type Caller struct {
	Fingerprint string
	Answer      tier.Answer
}

// A PlainKey is an API key and what the rest of the request calls it by.
type PlainKey struct{ Fingerprint, Key string }

// A Descriptor of a request with what it costs.
type Descriptor struct {
	Entries descriptors.Descriptor
	// Cost is the number of hits to spend; zero only asks.
	Cost uint64
	// Override replaces the limits of whatever rule matches, and makes a limit
	// where none does. Its log is told apart by all entries.
	Override *window.Limit
	// Refund gives the cost back: newest first, never below zero. It is always
	// allowed.
	Refund bool
}

// Options of a [Decider]. Store, Meters and Log are required.
type Options struct {
	// Store bounds its calls by itself, on top of the caller's own deadline.
	Store  window.Store
	Meters Meters
	// StoreSeconds observes how long each store call took. Nil: nobody does.
	StoreSeconds func(seconds float64)
	// Local decides for rules with StoreErrorLocal where Store cannot. Nil: these
	// rules count as StoreErrorReported. A [Learner] is told what Store has decided
	// for these rules. It is memory: Try asks it too.
	Local window.Store
	// Subjects says whose an API key is. Nil: the directory of the rules.
	Subjects tier.Resolver
	// Wait is how long one request waits for Subjects at most.
	Wait time.Duration
	// DenyUnresolved denies whom Subjects cannot say anything about. Otherwise they
	// are limited as somebody unknown.
	DenyUnresolved bool
	// Log gets denials at debug level. Wrap it to sample them.
	Log *zap.Logger
	// Unknown gets a warning for each request whose domain has no rules. Wrap it to
	// sample them. Nil disables the warnings.
	Unknown *zap.Logger
}

// A Learner is a store that decides in the place of another one, and goes on where
// that one ended.
type Learner interface {
	// Learn is told what the other store has decided. It keeps neither argument. It
	// is called by every request that such a rule limits.
	Learn(*window.Check, *window.Decision)
}

// A Debtor is a store that decides in the place of another one, and has the other one
// charged with that afterwards. Until then it decides the requests that concern the
// same logs.
type Debtor interface {
	// Owing reports whether there may be such logs. It is cheap.
	Owing() bool
	// TakeOwed decides a group if one of its logs is such a log.
	TakeOwed(context.Context, []window.Check, []window.Decision) (decided bool, err error)
	// Recheck is told of a group that the other store has allowed. It decides the group
	// anew if it was asked too early to count what the other store is to be charged for.
	Recheck(context.Context, []window.Check, []window.Decision) (decided bool, err error)
	// TakeAfter is Take after the other store has failed with cause.
	TakeAfter(ctx context.Context, cause error, checks []window.Check, decisions []window.Decision) error
}

// Decider decides requests by the active generation of rules. It is safe for
// concurrent use.
type Decider struct {
	opts    Options
	learner Learner // nil: nobody wants to know
	debtor  Debtor  // nil: nothing is charged afterwards
	rules   atomic.Pointer[Rules]
}

// NewDecider returns a Decider with rules as its first generation.
func NewDecider(rules *Rules, opts Options) *Decider {
	d := &Decider{opts: opts}
	d.learner, _ = opts.Local.(Learner)
	d.debtor, _ = opts.Local.(Debtor)
	d.Swap(rules)
	return d
}

// Swap makes rules the active generation. Requests that have begun finish with
// the one they began with.
func (d *Decider) Swap(rules *Rules) {
	for _, r := range rules.rules {
		r.meter = d.opts.Meters.Meter(r.Domain, r.Name)
	}
	for name, dom := range rules.domains {
		dom.unruled = d.opts.Meters.Meter(name, "")
		dom.override.meter = d.opts.Meters.Meter(name, dom.override.Name)
	}
	d.rules.Store(rules)
}

// Rules returns the active generation.
func (d *Decider) Rules() *Rules { return d.rules.Load() }

// Decide fills v. An error means that nobody could decide, and that nothing is
// known to have been charged. After a Try that has not decided the same request it
// goes on from there, by the rules that Try went by.
func (d *Decider) Decide(ctx context.Context, req *Request, v *Verdict) error {
	p := v.resume(req)
	if p.req == nil {
		p = preparation{req: req, rules: d.rules.Load()}
	}
	if !p.complete {
		v.callers.begin(ctx, &d.opts, p.rules)
		p.prepare(v)
		v.callers.end()
	}
	if d.withoutStore(&p, v) {
		return nil
	}
	p.count(&d.opts, v)
	err := d.take(ctx, v, p.rules.shadow)
	if err != nil && ctx.Err() != nil {
		return err // the caller gave up: nobody waits for an answer, and it is not the store's failure
	}
	return d.conclude(ctx, &p, v, err)
}

// Try is Decide where that needs no waiting: not for the store, and not for whose
// an API key is. It reports whether it has decided, which it has with an error too.
// Where it has not, nothing was charged or counted, and Decide goes on from here if
// it is asked with the same arguments, which nobody has changed. Who asks something
// else then has v forget.
func (d *Decider) Try(req *Request, v *Verdict) (decided bool, err error) {
	v.resume(nil)
	p := preparation{req: req, rules: d.rules.Load()}
	v.callers.beginPrompt(&d.opts, p.rules)
	p.prepare(v)
	if v.callers.waits {
		v.callers.pause()
		v.tried = p
		return false, nil
	}
	v.callers.end()
	if d.withoutStore(&p, v) {
		return true, nil
	}
	if decided, err = d.tryTake(v, p.rules.shadow); !decided {
		v.tried = p
		return false, nil
	}
	p.count(&d.opts, v)
	p.prompt = true
	// What decides instead of a store that cannot is memory, so nobody waits for it.
	return true, d.conclude(context.Background(), &p, v, err)
}

// A preparation is what is found out about a request before the store is asked. The
// checks themselves are in its verdict.
type preparation struct {
	req      *Request // nil: there is none
	rules    *Rules
	domain   *domain // nil: it has no rules
	complete bool
	prompt   bool // the store has decided at once
}

// resume returns what a Try that has not decided req has left for Decide, if there
// was one. Nothing is left afterwards.
func (v *Verdict) resume(req *Request) preparation {
	p := v.tried
	if v.tried = (preparation{}); p.req == req && req != nil {
		return p
	}
	v.callers.end()
	return preparation{}
}

// prepare matches the rules and makes the checks, unless it would have to wait for
// whose an API key is and must not. It counts nothing, because it may be done again.
func (p *preparation) prepare(v *Verdict) {
	req := p.req
	v.reset(len(req.Descriptors))
	if p.domain = p.rules.domains[req.Domain]; p.domain == nil {
		p.complete = true
		return
	}
	v.Headers = p.domain.headers
	for i := range req.Descriptors {
		// Before anything is matched: one client must not have two names.
		for j := range req.Descriptors[i].Entries {
			e := &req.Descriptors[i].Entries[j]
			e.Value = canonical(*e)
		}
	}
	p.rules.match(p.domain, req, v)
	for i := range req.Descriptors {
		p.rules.addChecks(p.domain, req, i, v)
		if v.callers.waits {
			return
		}
	}
	p.rules.settleQuota(v)
	settleModes(v)
	p.complete = true
}

// count counts what no limit of the request says.
func (p *preparation) count(o *Options, v *Verdict) {
	if p.domain == nil {
		o.Meters.UnknownDomain()
		logUnknown(o.Unknown, p.req.Domain)
		return
	}
	at := 0
	for i := range v.Matches {
		m, limited := &v.Matches[i], false
		for ; at < len(v.Limits) && v.Limits[at].Descriptor == i; at++ {
			limited = true
		}
		switch {
		case limited:
		case m.Rule == nil:
			p.domain.unruled.Count(OutcomeNoRule)
		case m.ReplacedBy != nil:
			m.Rule.meter.Count(OutcomeReplaced)
		case m.Unlimited:
			m.Rule.meter.Count(OutcomeUnlimited)
		default: // the rule has no limit for this tier
			p.domain.unruled.Count(OutcomeNoRule)
		}
	}
}

// withoutStore decides a request that the store need not be asked about, and reports
// whether it is one.
func (d *Decider) withoutStore(p *preparation, v *Verdict) bool {
	if len(v.checks) == 0 {
		p.count(&d.opts, v)
		return true
	}
	if !d.opts.DenyUnresolved || !v.Unresolved || !v.refuse() {
		return false
	}
	p.count(&d.opts, v)
	v.countErrors()
	v.fold(p.rules.shadow)
	d.logDenial(p.req, v)
	return true
}

// conclude makes the verdict of what the store has decided, or of its error.
func (d *Decider) conclude(ctx context.Context, p *preparation, v *Verdict, err error) error {
	if err != nil {
		v.countErrors()
		if err == errOwed { //nolint:errorlint // it is never wrapped
			v.Degraded = true
		} else if err := d.degrade(ctx, v, err, p.rules.shadow); err != nil {
			return err
		}
		v.fold(p.rules.shadow)
		d.logDenial(p.req, v)
		return nil
	}
	allowed := window.GroupAllowed(v.checks, v.decisions)
	// The store denies at once only by what it has told before, which is learned.
	if d.learner != nil && (allowed || !p.prompt) {
		for i := range v.Limits {
			if v.Limits[i].Rule.storeError == StoreErrorLocal {
				d.learner.Learn(&v.checks[i], &v.decisions[i])
			}
		}
	}
	if d.debtor != nil && allowed && !p.prompt && d.debtor.Owing() && v.onlyLocal(p.rules.shadow) {
		if decided, err := d.debtor.Recheck(ctx, v.checks, v.decisions); decided && err == nil {
			v.Degraded = true
		}
	}
	v.fold(p.rules.shadow)
	d.record(p.req, v)
	d.logDenial(p.req, v)
	return nil
}

// countErrors counts that nobody could decide: once a descriptor, not once a
// window of its rule.
func (v *Verdict) countErrors() {
	for i := range v.Limits {
		if i == 0 || v.Limits[i].Descriptor != v.Limits[i-1].Descriptor {
			v.Limits[i].Rule.meter.Count(OutcomeError)
		}
	}
}

// refuse denies a request where nobody could say whose limits count, and reports
// whether it does: the store need not be asked then.
func (v *Verdict) refuse() (denied bool) {
	v.decisions = emptied(v.decisions)
	for i := range v.Limits {
		s := &v.Limits[i]
		decision := window.Decision{Allowed: true, Remaining: s.Limit.Hits}
		if s.Blind = s.Unresolved && s.MayDeny(); s.Blind {
			decision = window.Decision{RetryAfter: s.Rule.storeErrorRetry()}
			denied = true
		}
		v.decisions = append(v.decisions, decision)
	}
	for i := range v.Limits {
		s := &v.Limits[i]
		if !denied {
			s.Blind = false
		} else if !s.Blind {
			s.Unknown = true // it was not asked
		}
	}
	v.Degraded = denied
	return denied
}

// errOwed says that the local store has decided, because the other one is still to be
// charged with what the local one has admitted.
var errOwed = errors.New("decided by the local store")

// takeOwed decides a request of which the local store has a log that the other store
// is still to be charged for. It reports whether it has.
func (d *Decider) takeOwed(ctx context.Context, v *Verdict, shadow bool) (decided bool) {
	if d.debtor == nil || !d.debtor.Owing() || !v.onlyLocal(shadow) {
		return false
	}
	decided, err := d.debtor.TakeOwed(ctx, v.checks, v.decisions)
	return decided && err == nil
}

// onlyLocal reports whether all limits are decided by the local store where the other
// one cannot, and the request can be denied.
func (v *Verdict) onlyLocal(shadow bool) bool {
	for i := range v.Limits {
		if v.Limits[i].Rule.storeError != StoreErrorLocal {
			return false
		}
	}
	return !shadow
}

// take makes the one store call of the request.
func (d *Decider) take(ctx context.Context, v *Verdict, shadow bool) (err error) {
	v.makeRoom()
	if d.takeOwed(ctx, v, shadow) {
		return errOwed
	}
	start := d.clock()
	if shadow && v.mixed() {
		err = d.takeObserved(ctx, v)
	} else {
		_, err = d.opts.Store.Take(ctx, window.MayWait, v.checks, v.decisions)
	}
	d.observe(start)
	return withCause(err)
}

// tryTake is take where the store need not wait. Where take makes two calls it never
// decides: the first could have charged when the second turns out to have to wait.
func (d *Decider) tryTake(v *Verdict, shadow bool) (decided bool, err error) {
	if shadow && v.mixed() {
		return false, nil
	}
	v.makeRoom()
	if d.takeOwed(context.Background(), v, shadow) {
		return true, errOwed
	}
	start := d.clock()
	if decided, err = d.opts.Store.Take(context.Background(), window.NoWait, v.checks, v.decisions); decided {
		d.observe(start)
	}
	return decided, withCause(err)
}

func withCause(err error) error {
	if err != nil {
		return fmt.Errorf("the store could not decide: %w", err)
	}
	return nil
}

// clock tells when a store call begins, if anybody wants to know.
func (d *Decider) clock() (start time.Time) {
	if d.opts.StoreSeconds != nil {
		start = time.Now()
	}
	return start
}

func (d *Decider) observe(start time.Time) {
	if d.opts.StoreSeconds != nil {
		d.opts.StoreSeconds(time.Since(start).Seconds())
	}
}

// makeRoom makes as many decisions as there are checks, to be filled in.
func (v *Verdict) makeRoom() {
	if n := len(v.checks); n <= cap(v.decisions) {
		v.decisions = v.decisions[:n]
	} else {
		v.decisions = make([]window.Decision, n)
	}
}

// mixed reports whether some checks are charged whatever comes of the request and
// others are not.
func (v *Verdict) mixed() bool {
	for i := range v.checks {
		if v.checks[i].Mode.Unconditional() != v.checks[0].Mode.Unconditional() {
			return true
		}
	}
	return false
}

// takeObserved is take where every rule is only observed. What is charged whatever
// comes of the request would deny it in the store, and keep the others from being
// charged although the request passes: so those are asked apart. Nothing is denied,
// so there is nothing to be all or nothing about.
func (d *Decider) takeObserved(ctx context.Context, v *Verdict) error {
	for _, unconditional := range []bool{true, false} {
		v.local, v.localAt = emptied(v.local), emptied(v.localAt)
		for i := range v.checks {
			if v.checks[i].Mode.Unconditional() == unconditional {
				v.local, v.localAt = append(v.local, v.checks[i]), append(v.localAt, i)
			}
		}
		if err := v.takeSome(ctx, d.opts.Store); err != nil {
			return err
		}
	}
	return nil
}

// takeSome asks a store for the checks in v.local.
func (v *Verdict) takeSome(ctx context.Context, store window.Store) error {
	if len(v.local) == 0 {
		return nil
	}
	decisions := make([]window.Decision, len(v.local))
	if _, err := store.Take(ctx, window.MayWait, v.local, decisions); err != nil {
		return err
	}
	for i, at := range v.localAt {
		v.decisions[at] = decisions[i]
	}
	return nil
}

// degrade decides by the rules' choices for a store that cannot decide. The strictest
// choice counts: StoreErrorDeny denies the request, else StoreErrorReported makes
// degrade return cause for the adapter to tell Envoy, else the local logs decide.
func (d *Decider) degrade(ctx context.Context, v *Verdict, cause error, shadow bool) error {
	if errors.Is(cause, window.ErrBadCheck) {
		return cause // a mistake of ours
	}
	var group window.Verdict
	report := false
	v.local, v.localAt = emptied(v.local), emptied(v.localAt)
	for i := range v.Limits {
		s := &v.Limits[i]
		choice := s.Rule.storeError
		if choice == StoreErrorLocal && d.opts.Local == nil {
			choice = StoreErrorReported
		}
		if choice == StoreErrorReported && s.Observed {
			choice = StoreErrorAllow // it must not deny, and a report may
		}
		v.decisions[i] = window.Decision{Allowed: true, Remaining: s.Limit.Hits}
		switch choice {
		case StoreErrorAllow:
			s.Unknown = true
		case StoreErrorDeny:
			if s.Mode != window.Refund { // which is lost, but nobody's fault
				v.decisions[i] = window.Decision{RetryAfter: s.Rule.storeErrorRetry()}
				s.Blind = true
			}
		case StoreErrorLocal:
			v.local = append(v.local, v.checks[i])
			v.localAt = append(v.localAt, i)
		default:
			s.Unknown = true
			report = true
		}
		group.Add(s.Mode, v.decisions[i].Allowed)
	}
	deny := !group.Allowed()
	if report && !deny {
		return cause
	}
	if deny {
		for _, at := range v.localAt {
			v.Limits[at].Unknown = true // it was not asked
		}
	} else if err := d.takeLocal(ctx, v, cause, shadow); err != nil {
		return fmt.Errorf("%w; and nor could the local one: %w", cause, err)
	}
	v.Degraded = true
	return nil
}

// takeLocal asks the local store for the checks in v.local. What it admits is charged
// to the other store afterwards if it has decided the whole request.
func (d *Decider) takeLocal(ctx context.Context, v *Verdict, cause error, shadow bool) error {
	if d.debtor != nil && len(v.local) > 0 && v.onlyLocal(shadow) {
		return d.debtor.TakeAfter(ctx, cause, v.checks, v.decisions)
	}
	return v.takeSome(ctx, d.opts.Local)
}
