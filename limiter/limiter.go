package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// The most descriptors of a request, and the most entries of all of them together. The service
// has the same bounds.
const (
	MaxDescriptors = 256
	MaxEntries     = 4096
)

// Errors. Nothing was charged.
var (
	// ErrInFlight, of [New] and [Limiter.Swap]: the rules limit requests in flight or have budgets, and the
	// store is not a [window.Releaser]. The stores of this module are.
	ErrInFlight = errors.New("limiter: the store cannot count requests in flight or budgets: it has no End")
	// ErrBadRequest, of [Limiter.Allow]: the request has no domain or no descriptors, or too many descriptors, entries or
	// limits. The error that wraps it says which.
	ErrBadRequest = errors.New("limiter: bad request")
)

// An Entry is one key and value of a descriptor. Both may contain any bytes.
type Entry = descriptors.Entry

// A Request asks which limits of its descriptors have room. They are decided together: either all
// limits are charged or none.
type Request struct {
	Domain      string
	Descriptors []Descriptor
}

// A Descriptor is an ordered list of entries, which the rules match, with a cost.
type Descriptor struct {
	Entries []Entry
	// Cost is the number of hits to spend. Zero means 1, or the reserve of a budget, unless Ask is set.
	Cost uint64
	// Ask spends nothing: the decision says what remains. It is denied if that is nothing. Cost must
	// be zero. Unlike in the service, later costs of the rule do not become usage updates: charge: always
	// makes them so.
	Ask bool
	// Refund gives Cost back, the newest hits first. It is always allowed.
	Refund bool
}

// One returns a request with one descriptor of one entry, and the cost 1.
func One(domain, key, value string) Request {
	return Request{Domain: domain, Descriptors: []Descriptor{{Entries: []Entry{{Key: key, Value: value}}}}}
}

// A Fallback is a store with a local store for outages. The local store decides for rules with
// on_store_error local while the store cannot. redislimit.Store is one.
type Fallback interface {
	window.Store
	Local() window.Store
}

// scoped is a store of several scopes: redislimit.Store.
type scoped interface {
	Scopes() []string
	Holds(window.Scope)
}

// A Limiter decides requests. Make it with [New]: the zero value is not usable. It starts no
// goroutine, and is safe for concurrent use.
type Limiter struct {
	decider *decide.Decider
	noEnd   bool     // the store cannot end streams
	scopes  []string // of the store, by their numbers; nil: it has one log for all of them
	holds   func(window.Scope)
	streams atomic.Bool // some of the rules so far limit requests in flight, or have budgets
	calls   sync.Pool   // of *call
	swaps   sync.Mutex
	active  atomic.Pointer[Rules]
}

// New returns a Limiter that keeps its logs in a store: a [memstore.Store], a redislimit.Store, or
// another one that keeps the contract of [window.Store]. The caller closes the store, after the
// last call of Allow. If the rules belong to another Limiter already, or name a scope that the store
// does not have, New returns an error. A memory store counts the limits of all scopes.
func New(store window.Store, rules *Rules) (*Limiter, error) {
	switch {
	case store == nil:
		return nil, errors.New("limiter: New needs a store")
	case rules.empty():
		return nil, errors.New("limiter: New needs rules that were read: use ReadRules, ParseRules or MakeRules")
	}
	o := decide.Options{Store: store, NearLimit: 1}
	l := &Limiter{scopes: []string{settings.ScopeRegion}}
	if m, ok := store.(*memstore.Store); ok {
		o.CopiesNames, o.Clock, l.scopes = true, m.Now, nil
	}
	if s, ok := store.(scoped); ok {
		l.scopes, l.holds = s.Scopes(), s.Holds
	}
	if f, ok := store.(Fallback); ok {
		o.Local = f.Local()
	}
	_, ends := store.(window.Releaser)
	l.noEnd = !ends
	if err := l.take(rules); err != nil {
		return nil, err
	}
	l.decider = decide.NewDecider(rules.generation.Rules, o)
	l.calls.New = func() any { return new(call) }
	l.active.Store(rules)
	return l, nil
}

// Swap makes other rules the active ones. A request that is being decided keeps the rules that it
// began with. Logs stay. The rules must be read for this purpose, and digest API keys as those
// before: otherwise Swap returns an error and changes nothing.
func (l *Limiter) Swap(rules *Rules) error {
	l.swaps.Lock()
	defer l.swaps.Unlock()
	switch {
	case rules.empty():
		return errors.New("limiter: Swap needs rules that were read")
	case !rules.sameSecrets(l.active.Load()):
		return errors.New("limiter: the new rules digest API keys in another way: keep the settings in secrets, or make a new Limiter")
	}
	if err := l.take(rules); err != nil {
		return err
	}
	l.active.Store(rules)
	l.decider.Swap(rules.generation.Rules)
	return nil
}

// Rules returns the active rules.
func (l *Limiter) Rules() *Rules { return l.active.Load() }

// empty reports whether there are no rules, or those of the zero value.
func (r *Rules) empty() bool { return r == nil || r.generation == nil }

// take marks the rules as those of l, and its store learns in which scopes they limit requests in flight.
func (l *Limiter) take(rules *Rules) error {
	all := rules.generation.Rules
	for _, rule := range all.All() {
		if rule.Storage.Scope == "" || l.scopes == nil {
			continue
		}
		if at := slices.Index(all.Scopes(), rule.Storage.Scope); at >= len(l.scopes) || l.scopes[at] != rule.Storage.Scope {
			return fmt.Errorf("limiter: rule %s counts in the scope %s, and the store has %s: open the store with the settings of the rules, which have the scopes %s",
				rule.Name, rule.Storage.Scope, only(l.scopes), strings.Join(all.Scopes(), ", "))
		}
	}
	if len(all.HoldScopes()) > 0 && l.noEnd {
		return ErrInFlight
	}
	if !rules.used.CompareAndSwap(false, true) {
		return errors.New("limiter: these rules are in use already: read them again")
	}
	for _, scope := range all.HoldScopes() {
		l.streams.Store(true)
		if l.holds != nil {
			l.holds(scope)
		}
	}
	return nil
}

// only returns a list of names as text.
func only(names []string) string {
	if len(names) == 1 {
		return "only " + names[0]
	}
	return strings.Join(names, ", ")
}

// Allow decides a request, and charges it if it is allowed. A request that no rule limits is
// allowed. Allow keeps nothing of req and does not change it.
//
// If the store fails, the rules' on_store_error decides, as in the service:
//
//   - local: this process's part of the limit decides. The memory store has no such part; its rule
//     counts as report.
//   - allow and deny: the request passes, or is denied without a look at its limits.
//   - report: Allow returns the error of the store, and the caller decides.
//
// If a limit of requests in flight applies, the request counts until [Decision.Release], and at most
// until its hold expires. Under a budget it reserves its cost until [Decision.Settle] or Release.
//
// ctx and the time limit of the store bound the wait. If ctx ends first, Allow returns an error, and
// it is unknown whether the request was charged. With an error the decision is zero.
func (l *Limiter) Allow(ctx context.Context, req Request) (d Decision, err error) {
	c := l.calls.Get().(*call)
	err = l.decide(ctx, c, &req, &d)
	l.calls.Put(c)
	return d, err
}

// decide decides one request in the memory of c. d is zero.
func (l *Limiter) decide(ctx context.Context, c *call, req *Request, d *Decision) error {
	rules := l.active.Load()
	err := c.read(req, rules)
	if err == nil {
		r := l.decider.Start(&c.core)
		var stream window.StreamID
		if l.streams.Load() { // after Start: a Swap may come between
			stream = max(1, window.StreamID(rand.Uint64())) //nolint:gosec // no client chooses or learns it
		}
		r.Domain, r.Descriptors, r.Stream = req.Domain, c.descriptors, stream
		if _, err = c.core.Decide(ctx, window.MayWait); err == nil {
			v := c.core.Verdict()
			d.set(v, rules.headers)
			if stream != 0 && v.Allowed && slices.ContainsFunc(v.Limits, holds) {
				d.limiter, d.stream = l, stream
			}
		}
	}
	c.forget()
	return err
}

// holds reports whether the stream of an allowed request holds something under a limit.
func holds(s decide.LimitStatus) bool {
	return s.Limit.Policy == window.InFlight || s.Limit.Budget != nil
}

// release ends a stream. req says what it has cost under budgets, unless its domain is empty.
func (l *Limiter) release(ctx context.Context, stream window.StreamID, req *Request) (err error) {
	c := l.calls.Get().(*call)
	if req.Domain != "" {
		err = c.read(req, l.active.Load())
	}
	if err == nil {
		c.descriptors = append(c.descriptors, decide.Descriptor{Ends: true})
		l.decider.Begin(&c.core, decide.Request{Domain: req.Domain, Descriptors: c.descriptors, Stream: stream, Ending: inflight.EndedInOrder})
		_, err = c.core.Decide(ctx, window.MayWait)
	}
	c.forget()
	l.calls.Put(c)
	return err
}

// A call is one request on its way. The next request reuses its memory.
type call struct {
	core        decide.Call
	descriptors []decide.Descriptor
	entries     []Entry
}

// read copies the request into c, because the core changes values in place, and replaces API keys by
// their digests.
func (c *call) read(req *Request, rules *Rules) error {
	entries := 0
	for i := range req.Descriptors {
		entries += len(req.Descriptors[i].Entries)
	}
	switch {
	case req.Domain == "":
		return fmt.Errorf("%w: it has no domain", ErrBadRequest)
	case len(req.Descriptors) == 0:
		return fmt.Errorf("%w: it has no descriptors", ErrBadRequest)
	case len(req.Descriptors) > MaxDescriptors:
		return fmt.Errorf("%w: it has %d descriptors, more than %d", ErrBadRequest, len(req.Descriptors), MaxDescriptors)
	case entries > MaxEntries:
		return fmt.Errorf("%w: it has %d entries, more than %d", ErrBadRequest, entries, MaxEntries)
	}
	if cap(c.entries) < entries {
		c.entries = make([]Entry, 0, entries) // it must not grow below: the descriptors point into it
	}
	secrets := rules.generation.Secrets
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		if d.Ask && d.Cost != 0 {
			return fmt.Errorf("%w: descriptor %d asks, and has a cost", ErrBadRequest, i)
		}
		begin := len(c.entries)
		c.entries = append(c.entries, d.Entries...)
		c.descriptors = reuse.Grow(c.descriptors)
		into := &c.descriptors[i]
		into.Entries, into.Cost, into.Refund = c.entries[begin:len(c.entries):len(c.entries)], d.Cost, d.Refund
		if into.Unpriced = d.Cost == 0 && !d.Ask; into.Unpriced {
			into.Cost = 1
		}
		for j := range into.Entries {
			if e := &into.Entries[j]; secrets.Is(e.Key) {
				e.Value = secrets.Fingerprint(e.Value)
			}
		}
	}
	return nil
}

// forget removes the request from c.
func (c *call) forget() {
	c.core.Forget()
	c.descriptors, c.entries = reuse.Slice(c.descriptors), reuse.Slice(c.entries)
}

// ErrNever is wrapped by the error of [Limiter.Wait] for a cost that is larger than a limit, and
// ErrDeadline for one that would wait beyond the deadline of the context.
var (
	ErrNever    = errors.New("limiter: the cost is larger than the limit, so no wait helps")
	ErrDeadline = errors.New("limiter: the wait would exceed the deadline of the context")
)

// shortWait is the least time between two attempts of a Wait.
const shortWait = time.Millisecond

// Wait is [Limiter.Allow], but while the request is denied, it waits and asks again. It returns the
// decision that allows the request. With an error the request was not charged, unless Allow says
// otherwise: [ErrNever], [ErrDeadline], that of ctx, or that of Allow. Those who wait have no order.
func (l *Limiter) Wait(ctx context.Context, req Request) (Decision, error) {
	for {
		d, err := l.Allow(ctx, req)
		if err != nil || d.Allowed {
			return d, err
		}
		limit := d.Limit()
		if limit.Never {
			return Decision{}, fmt.Errorf("%w (rule %s)", ErrNever, limit.Rule)
		}
		wait := max(limit.RetryAfter, shortWait)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return Decision{}, fmt.Errorf("%w (rule %s, %v)", ErrDeadline, limit.Rule, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Decision{}, ctx.Err()
		}
	}
}
