package decide

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// A call of an adapter.
type (
	// A Request has descriptors that are decided together.
	Request = identity.Request
	// A Descriptor is one descriptor of a request with its cost.
	Descriptor = identity.Descriptor
)

// The answer of a Decider.
type (
	// A Verdict is the decision on a request; see [Call.Verdict].
	Verdict = verdict.Verdict
	// A LimitStatus is one limit that a request was checked against.
	LimitStatus = verdict.LimitStatus
	// A Match is what one descriptor of a request matched.
	Match = verdict.Match
	// Hits are what a request did to a limit, as envoyproxy/ratelimit counts it.
	Hits = verdict.Hits
)

// Options of a [Decider]. Store is required.
type Options struct {
	// Store bounds its calls by itself, in addition to the deadline of the caller.
	Store window.Store
	// Meters counts what the rules decide. Nil: nothing is counted.
	Meters Meters
	// CopiesNames says that Store keeps no name of a log without a copy, and that there is no Local.
	// The next request then reuses the memory of names.
	CopiesNames bool
	// Observer observes the calls of Store, and the decisions.
	Observer Observer
	// Local decides for rules with rules.StoreErrorLocal while Store cannot. It must not
	// block. Nil: these rules count as rules.StoreErrorReported. It may be a [Learner].
	Local window.Store
	// Subjects finds the subject of an API key. Nil: the directory of the rules does.
	Subjects tier.Resolver
	// Wait is how long one request waits for Subjects at most.
	Wait time.Duration
	// DenyUnresolved denies a request if Subjects cannot answer for its key. Otherwise
	// the limits of unknown keys apply.
	DenyUnresolved bool
	// NearLimit is the fraction of a limit, from 0 to 1, above which hits are near it.
	NearLimit float32
	// Hits counts in hits what Meters counts in requests. Nil disables it.
	Hits HitMeters
	// Patience is how long a request waits at most because limits of requests in flight are
	// full. Zero: it does not wait. See inflight.DefaultPatience.
	Patience time.Duration
	// Recorder keeps decisions for operators. Nil: it keeps none.
	Recorder Recorder
	// Grants raise limits for a time. Nil: there are none.
	Grants *grant.Active
	// Clock returns the time since 1970-01-01 UTC by Store's clock, or by a clock that agrees with
	// it. Periods of calendars and the ends of grants and overrides follow it. Nil: the time of day.
	Clock func() time.Duration
	// Log gets warnings about requests, such as those that name no domain of the rules. Any client can
	// cause them, so Log should drop lines that are frequent. Nil disables them.
	Log Log
}

// A Log begins a line with a warning, and returns what writes the line with its fields. It returns nil
// if it drops the line, so that a dropped line needs no fields. It is safe for concurrent use.
type Log func(message string) (write func(fields ...slog.Attr))

// An Observer observes the calls of a store, and the decisions. Each field may be nil.
type Observer struct {
	// Seconds gets how long each store call took. A denial that is repeated from memory is no store
	// call.
	Seconds func(seconds float64)
	// Failed gets each error of the store.
	Failed func(error)
	// Tracer describes decisions in traces.
	Tracer Tracer
}

// A Tracer describes decisions in the trace of a call. It keeps no argument, and no text of the
// request without a copy. It is safe for concurrent use.
type Tracer interface {
	// Stored is called after each store call with its begin and duration, the context of [Call.Decide]
	// and the error of the store.
	Stored(ctx context.Context, begin time.Time, took time.Duration, err error)
	// Decided is called once for each request that is decided, with the context and the error
	// of [Call.Decide]. With an error, v is not a verdict.
	Decided(ctx context.Context, req *Request, v *Verdict, err error)
}

// A Learner is a local store that follows the decisions of Options.Store, so that it
// can take over.
type Learner interface {
	// Learn is called for each check that Options.Store has decided and whose rule has
	// rules.StoreErrorLocal. It keeps neither argument.
	Learn(*window.Check, *window.Decision)
}

// Decider decides requests by the active generation of rules. It is safe for
// concurrent use.
type Decider struct {
	opts     Options
	learner  Learner           // nil if Options.Local is not one
	counts   bool              // something counts decisions
	releases inflight.Releases // for stores that count what streams hold
	waiters  inflight.Waiters
	active   atomic.Pointer[generation]
}

// NewDecider returns a Decider with rules as its first generation.
func NewDecider(rs *rules.Rules, opts Options) *Decider {
	d := &Decider{opts: opts, counts: opts.Meters != nil || opts.Hits != nil}
	if opts.Meters == nil {
		d.opts.Meters = uncounted{}
	}
	d.learner, _ = opts.Local.(Learner)
	d.releases.Store, _ = opts.Store.(window.Releaser)
	d.releases.Local, _ = opts.Local.(window.Releaser)
	d.Swap(rs)
	return d
}

// Trial returns a Decider that decides by rules like d, but in another store. It counts nothing, and
// d does not learn from it.
func (d *Decider) Trial(rs *rules.Rules, store window.Store) *Decider {
	o := &d.opts
	t := NewDecider(rs, Options{Store: store, Subjects: o.Subjects, Wait: o.Wait, DenyUnresolved: o.DenyUnresolved, Grants: o.Grants, Clock: o.Clock})
	t.active.Store(newGeneration(rs, &t.opts, false, d.active.Load()))
	return t
}

// Swap makes rules the active generation. A [Call] that has begun keeps its own.
func (d *Decider) Swap(rs *rules.Rules) {
	d.active.Store(newGeneration(rs, &d.opts, d.counts, d.active.Load()))
}

// warn writes a warning that is cheap to make.
func (d *Decider) warn(message string, fields ...slog.Attr) {
	if write := d.line(message); write != nil {
		write(fields...)
	}
}

// line is Options.Log, which may be nil.
func (d *Decider) line(message string) func(...slog.Attr) {
	if d.opts.Log == nil {
		return nil
	}
	return d.opts.Log(message)
}

func (d *Decider) failed(err error) {
	if d.opts.Observer.Failed != nil {
		d.opts.Observer.Failed(err)
	}
}

// Rules returns the active generation.
func (d *Decider) Rules() *rules.Rules { return d.active.Load().rules }

// Overridden reports whether limits came with requests for a domain of the active generation.
func (d *Decider) Overridden(domain string) bool {
	g := d.active.Load()
	dom := g.rules.Domain(domain)
	return dom != nil && g.domains[dom.Number].overridden.Load()
}

// Begin puts a request into c, to be decided by the rules that are active now. It
// forgets the request that c had. The slices of req belong to c until [Call.Forget].
func (d *Decider) Begin(c *Call, req Request) { *d.Start(c) = req }

// Start is Begin without a copy of the request: the caller fills in the request that Start returns.
func (d *Decider) Start(c *Call) *Request {
	if c.decider != nil {
		c.Forget()
	}
	c.decider, c.gen = d, d.active.Load()
	return &c.req
}
