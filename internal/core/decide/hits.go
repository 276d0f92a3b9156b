package decide

import (
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// Hits is what one request did to one limit, counted in hits as envoyproxy/ratelimit counts
// them. The zero value counts nothing.
type Hits struct {
	// Total is the cost of the request.
	Total uint64
	// Within is the cost if it had room, and Over the cost if it had none. If usage was
	// recorded that did not fit, Over is the part beyond the limit.
	Within, Over uint64
	// Near is the part up to the limit that is above Options.NearLimit of it.
	Near uint64
	// Shadowed is the part of Over that passed because the rule itself is only observed.
	Shadowed uint64
	// Remembered is true if the process repeated a denial without asking the store.
	Remembered bool
	// Decided is true if the store has decided the limit.
	Decided bool
}

// A HitMeter counts the hits of one rule. It is safe for concurrent use.
type HitMeter interface {
	// Count counts what one request did. entries are those of its descriptor, and belong to
	// the caller.
	Count(entries descriptors.Descriptor, h Hits)
}

// HitMeters makes the meters of hits. It is safe for concurrent use.
type HitMeters interface {
	// Rule returns the meter of a rule. The Decider calls it when a generation becomes
	// active.
	Rule(*rules.Rule) HitMeter
	// Overrides returns the meter of limits that come with the descriptors of a domain.
	// hidden reports whether the values of a key must not be shown.
	Overrides(domain string, hidden func(key string) bool) HitMeter
	// UnknownDomain counts descriptors of a request for a domain that has no rules. A client
	// can make the name up. The callee does not keep it.
	UnknownDomain(domain string, descriptors int)
	// StoreFailed counts a request that the store could not decide.
	StoreFailed()
	// Shadowed counts a request that passed only because all rules are only observed.
	Shadowed()
}

// countHits counts the hits of a limit that the store has decided.
func (c *Call) countHits(s *LimitStatus) {
	h := hitsOf(s, c.verdict.Allowed, c.decider.opts.NearLimit)
	if h.Near > 0 && !c.verdict.Degraded {
		c.meter(s.Rule).Near(h.Near)
	}
	if c.decider.opts.Hits != nil {
		if c.verdict.Degraded {
			h.Near = 0 // the store has not reported what remains
		}
		h.Decided = true
		c.addHits(s, h)
	}
}

// countUndecided counts the cost of each descriptor that has a limit, although the store has
// not decided it. failed is why; nil: the store was not asked.
func (c *Call) countUndecided(failed error) {
	if c.decider.opts.Hits == nil {
		return
	}
	if failed != nil {
		c.decider.opts.Hits.StoreFailed()
	}
	for s := range c.verdict.Undecided {
		c.addHits(s, Hits{Total: s.Cost})
	}
}

// countDegraded counts what the process has decided without the store.
func (c *Call) countDegraded() {
	if c.decider.opts.Hits == nil {
		return
	}
	c.countShadowed()
	for _, at := range c.verdict.Strictest {
		if at < 0 || c.verdict.Limits[at].DecidedBy == verdict.ByStore {
			continue
		}
		s := &c.verdict.Limits[at]
		h := hitsOf(s, c.verdict.Allowed, c.decider.opts.NearLimit)
		h.Total, h.Near = 0, 0 // countUndecided has counted the total
		c.addHits(s, h)
	}
}

// addHits counts hits in the meter of a limit. Refunds count nothing.
func (c *Call) addHits(s *LimitStatus, h Hits) {
	if s.Mode == window.Refund {
		return
	}
	desc := &c.req.Descriptors[s.Descriptor]
	var meter HitMeter
	if desc.Override != nil {
		meter = c.state().override.hits
	} else {
		meter = c.gen.meters[s.Rule.Number()].hits
	}
	if meter != nil {
		meter.Count(c.verdict.Matches[s.Descriptor].Limited(desc.Entries), h)
	}
}

// countShadowed counts the request if it passed only because all rules are only observed.
func (c *Call) countShadowed() {
	if !c.gen.rules.ObservesAll() {
		return
	}
	for i := range c.verdict.Limits {
		s := &c.verdict.Limits[i]
		if s.Enforcement == verdict.ObservedForAll && !s.Decision.Allowed && !s.Unknown() && s.Mode != window.Refund {
			c.decider.opts.Hits.Shadowed()
			return
		}
	}
}

// hitsOf returns what the request did to the limit. allowed reports whether the request passes. near
// is the fraction of a limit above which hits are near it.
//
// The use before the request follows from what remains. The decision reports what remains after the
// charge, if there was one.
func hitsOf(s *LimitStatus, allowed bool, near float32) Hits {
	d, limit := &s.Decision, s.Limit.Hits
	h := Hits{Total: s.Cost, Remembered: d.Remembered}
	if s.Mode == window.Refund || s.Cost == 0 {
		return Hits{Remembered: d.Remembered}
	}
	// envoyproxy/ratelimit multiplies as float32 too, so both have the same threshold.
	threshold := uint64(float32(limit) * near)
	if !d.Allowed {
		h.Over = s.Cost
		if s.Update.Recorded {
			// The part that fitted has used up the limit.
			h.Over -= min(s.Update.Room, s.Cost)
			h.Near = min(s.Update.Room, limit-min(threshold, limit))
		}
		if s.Observed() && s.Enforcement != verdict.ObservedForAll {
			h.Shadowed = h.Over
		}
		return h
	}
	h.Within = s.Cost
	if d.Repeated {
		return h // it has used nothing up
	}
	after := limit - min(d.Remaining, limit)
	if !s.Update.Recorded && !s.Mode.Charged(allowed, true) {
		after = window.AddSaturating(after, s.Cost)
	}
	if after > threshold {
		h.Near = min(s.Cost, after-threshold)
	}
	return h
}
