package policy

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Request is the question of an adapter: which limits of these descriptors have room?
type Request struct {
	Domain string
	// Descriptors are decided together. The Decider trims the values of their entries
	// in place and writes each address in one form.
	Descriptors []Descriptor
	// Tier, unless empty, replaces the tier of every subject. "rls explain" sets it.
	Tier string
	// Caller is the subject that the adapter has found already. Nil: it has found none.
	Caller *Caller
	// Plain has the API keys themselves, for a source that needs them. Nil for all
	// other sources.
	Plain []PlainKey
	// Stream names the client's stream, for limits of requests in flight. Zero: it is unknown.
	Stream window.StreamID
	// Ending says how the stream has ended. It is empty while the stream is open. Every cost of
	// a stream that has ended is a usage report, whatever its rule says.
	Ending string
	// Exceeds says which bound the message of the request exceeds, and what to do, so that
	// Descriptors has only a part of it. Then Domain may be empty. Empty: none.
	Exceeds string
	// Endless is true if the adapter never hears of the ends of streams.
	Endless bool
	// ID is the id of the client's request, if Envoy sends it, and Route the route that an
	// adapter knows. Both are only shown, and empty if they are unknown.
	ID, Route string
}

// A Caller is the answer that an adapter got for one API key.
type Caller struct {
	Fingerprint string
	Answer      tier.Answer
}

// A PlainKey is an API key with the fingerprint that stands for it in descriptors.
type PlainKey struct{ Fingerprint, Key string }

// A Descriptor is one descriptor of a request with its cost.
type Descriptor struct {
	Entries descriptors.Descriptor
	// Cost is the number of hits to spend. Zero spends nothing: it asks what remains.
	Cost uint64
	// Override replaces the limits of the matching rule, and is a limit if no rule
	// matches. All entries name its log.
	Override *window.Limit
	// Refund gives the cost back, the newest hits first, never below zero. It is always
	// allowed.
	Refund bool
	// Ends says that the stream of the request has ended. If the request has an Ending, no rule
	// matches the descriptor, and the other descriptors are charged only if the stream held
	// something.
	Ends bool
}

// EndOfStream returns the descriptor that says that the stream of the request has ended. Envoy's
// configuration has its key and its value, so no client can send them.
func EndOfStream() Descriptor {
	return Descriptor{Entries: descriptors.Descriptor{{Key: endKey, Value: endValue}}, Ends: true}
}

// IsEndOfStream reports whether entries are those of [EndOfStream].
func IsEndOfStream(entries descriptors.Descriptor) bool {
	return len(entries) == 1 && entries[0].Key == endKey && entries[0].Value == endValue
}

const (
	endKey   = "slidegate"
	endValue = "end"
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
	// StoreSeconds observes how long each store call took. A denial that is repeated from memory
	// is no store call. Nil disables it.
	StoreSeconds func(seconds float64)
	// Failed is called with each error of Store. Nil disables it.
	Failed func(error)
	// Tracer describes decisions in traces. Nil disables it.
	Tracer Tracer
	// Local decides for rules with StoreErrorLocal while Store cannot. It must not
	// block. Nil: these rules count as StoreErrorReported. It may be a [Learner].
	Local window.Store
	// Subjects finds the subject of an API key. Nil: the directory of the rules does.
	Subjects tier.Resolver
	// Wait is how long one request waits for Subjects at most.
	Wait time.Duration
	// DenyUnresolved denies a request if Subjects cannot answer for its key. Otherwise
	// the limits of unknown keys apply.
	DenyUnresolved bool
	// NearLimit is the share of a limit, from 0 to 1, above which hits are near it.
	NearLimit float32
	// Hits counts in hits what Meters counts in requests. Nil disables it.
	Hits HitMeters
	// Patience is how long a request waits at most because limits of requests in flight are
	// full. Zero: it does not wait. See DefaultPatience.
	Patience time.Duration
	// Recorder keeps decisions that people ask about. Nil: they are not kept.
	Recorder Recorder
	// Clock returns the time since 1970-01-01 UTC by Store's clock, or by one that agrees with
	// it. Periods of calendars follow it. Nil: the time of day.
	Clock func() time.Duration
	// Log gets warnings about requests, such as those that name no domain of the rules. Any client can
	// cause them: wrap it to sample them. Nil disables them.
	Log *zap.Logger
}

// A Tracer describes decisions in the trace of a call. It keeps no argument, and no text of the
// request without a copy. It is safe for concurrent use.
type Tracer interface {
	// Stored is called after a store call that took so long, with the context of
	// [Call.Decide] and the error of the store.
	Stored(ctx context.Context, begin time.Time, took time.Duration, err error)
	// Decided is called once for each request that is decided, with the context and the error
	// of [Call.Decide]. With an error, v is not a verdict.
	Decided(ctx context.Context, req *Request, v *Verdict, err error)
}

// A Learner is a local store that follows the decisions of Options.Store, so that it
// can take over.
type Learner interface {
	// Learn is called for each check that Options.Store has decided and whose rule has
	// StoreErrorLocal. It keeps neither argument.
	Learn(*window.Check, *window.Decision)
}

// Decider decides requests by the active generation of rules. It is safe for
// concurrent use.
type Decider struct {
	opts    Options
	learner Learner // nil if Options.Local is not one
	counts  bool    // something counts decisions
	// ender and localEnder hear of the ends of streams. Nil if Options.Store and Options.Local
	// do not count what streams hold.
	ender, localEnder window.Ender
	places            places
	rules             atomic.Pointer[Rules]
}

// NewDecider returns a Decider with rules as its first generation.
func NewDecider(rules *Rules, opts Options) *Decider {
	d := &Decider{opts: opts, counts: opts.Meters != nil || opts.Hits != nil}
	if opts.Meters == nil {
		d.opts.Meters = uncounted{}
	}
	d.learner, _ = opts.Local.(Learner)
	d.ender, _ = opts.Store.(window.Ender)
	d.localEnder, _ = opts.Local.(window.Ender)
	d.Swap(rules)
	return d
}

// Swap makes rules the active generation. A [Call] that has begun keeps its own.
func (d *Decider) Swap(rules *Rules) {
	for _, r := range rules.rules {
		r.meter = d.opts.Meters.Meter(r.Domain, r.Name)
	}
	for name, dom := range rules.domains {
		dom.unruled = d.opts.Meters.Meter(name, "")
		dom.override.meter = d.opts.Meters.Meter(name, dom.override.Name)
	}
	if d.opts.Hits != nil {
		rules.meterHits(d.opts.Hits)
	}
	rules.keepOverridden(d.rules.Load())
	d.rules.Store(rules)
}

func (d *Decider) failed(err error) {
	if d.opts.Failed != nil {
		d.opts.Failed(err)
	}
}

// Rules returns the active generation.
func (d *Decider) Rules() *Rules { return d.rules.Load() }

// Begin puts a request into c, to be decided by the rules that are active now. It
// forgets the request that c had. The slices of req belong to c until [Call.Forget].
func (d *Decider) Begin(c *Call, req Request) { *d.Start(c) = req }

// Start is Begin for a caller that then fills the request in, so that it is not copied.
func (d *Decider) Start(c *Call) *Request {
	if c.decider != nil {
		c.Forget()
	}
	c.decider, c.rules = d, d.rules.Load()
	return &c.req
}
