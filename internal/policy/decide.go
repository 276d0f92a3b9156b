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
	// Local decides for rules that ask for it where Store cannot
	// (StoreErrorLocal). Nil: they count as if they had not chosen. A [Learner] is
	// told what Store has decided for these rules.
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
}

// A Learner is a store that decides in the place of another one, and goes on where
// that one ended.
type Learner interface {
	// Learn is told what the other store has decided. It keeps neither argument. It
	// is called by every request that such a rule limits.
	Learn(*window.Check, *window.Decision)
}

// Decider decides requests by the active generation of rules. It is safe for
// concurrent use.
type Decider struct {
	opts    Options
	learner Learner // nil: nobody wants to know
	rules   atomic.Pointer[Rules]
}

// NewDecider returns a Decider with rules as its first generation.
func NewDecider(rules *Rules, opts Options) *Decider {
	d := &Decider{opts: opts}
	d.learner, _ = opts.Local.(Learner)
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
// known to have been charged.
func (d *Decider) Decide(ctx context.Context, req *Request, v *Verdict) error {
	rules := d.rules.Load()
	v.reset(len(req.Descriptors))
	dom := rules.domains[req.Domain]
	if dom == nil {
		d.opts.Meters.UnknownDomain()
		return nil
	}
	v.Headers = dom.headers
	for i := range req.Descriptors {
		// Before anything is matched: one client must not have two names.
		for j := range req.Descriptors[i].Entries {
			e := &req.Descriptors[i].Entries[j]
			e.Value = canonical(*e)
		}
	}
	rules.match(dom, req, v)
	v.callers.begin(ctx, &d.opts, rules)
	for i := range req.Descriptors {
		rules.addChecks(dom, req, i, v)
	}
	v.callers.end()
	if len(v.checks) == 0 {
		return nil
	}
	rules.settleQuota(v)
	settleModes(v)
	if d.opts.DenyUnresolved && v.refuse() {
		v.countErrors()
		v.fold(rules.shadow)
		d.logDenial(req, v)
		return nil
	}
	if err := d.take(ctx, v, rules.shadow); err != nil {
		if ctx.Err() != nil {
			return err // the caller gave up: nobody waits for an answer, and it is not the store's failure
		}
		v.countErrors()
		if err := d.degrade(ctx, v, err); err != nil {
			return err
		}
		v.fold(rules.shadow)
		d.logDenial(req, v)
		return nil
	}
	if d.learner != nil {
		for i := range v.Limits {
			if v.Limits[i].Rule.OnStoreError == StoreErrorLocal {
				d.learner.Learn(&v.checks[i], &v.decisions[i])
			}
		}
	}
	v.fold(rules.shadow)
	d.record(req, v)
	d.logDenial(req, v)
	return nil
}

// Try is Decide where that needs no waiting: not for the store, and not for whose
// an API key is. It reports whether it has decided. Where it has not, nothing was
// charged or counted, and Decide goes on from here if it is asked with the same
// arguments.
func (*Decider) Try(*Request, *Verdict) (decided bool, err error) { return false, nil }

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
	v.decisions = v.decisions[:0]
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

// take makes the one store call of the request.
func (d *Decider) take(ctx context.Context, v *Verdict, shadow bool) error {
	if n := len(v.checks); n <= cap(v.decisions) {
		v.decisions = v.decisions[:n]
	} else {
		v.decisions = make([]window.Decision, n)
	}
	start := time.Now()
	var err error
	if shadow {
		err = d.takeObserved(ctx, v)
	} else {
		err = d.opts.Store.Take(ctx, v.checks, v.decisions)
	}
	if d.opts.StoreSeconds != nil {
		d.opts.StoreSeconds(time.Since(start).Seconds())
	}
	if err != nil {
		return fmt.Errorf("the store could not decide: %w", err)
	}
	return nil
}

// takeObserved is take where every rule is only observed. What is charged whatever
// comes of the request would deny it in the store, and keep the others from being
// charged although the request passes: so those are asked apart. Nothing is denied,
// so there is nothing to be all or nothing about.
func (d *Decider) takeObserved(ctx context.Context, v *Verdict) error {
	for _, unconditional := range []bool{true, false} {
		v.local, v.localAt = v.local[:0], v.localAt[:0]
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
	if err := store.Take(ctx, v.local, decisions); err != nil {
		return err
	}
	for i, at := range v.localAt {
		v.decisions[at] = decisions[i]
	}
	return nil
}

// degrade decides by what the rules say of a store that cannot: of their choices
// the strictest counts, and not to have chosen is stricter than all but to deny.
// It returns cause if the adapter has to tell Envoy.
func (d *Decider) degrade(ctx context.Context, v *Verdict, cause error) error {
	if errors.Is(cause, window.ErrBadCheck) {
		return cause // a mistake of ours
	}
	var group window.Verdict
	report := false
	v.local, v.localAt = v.local[:0], v.localAt[:0]
	for i := range v.Limits {
		s := &v.Limits[i]
		choice := s.Rule.OnStoreError
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
	} else if err := v.takeSome(ctx, d.opts.Local); err != nil {
		return fmt.Errorf("%w; and nor could the local one: %w", cause, err)
	}
	v.Degraded = true
	return nil
}
