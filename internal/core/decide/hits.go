package decide

import (
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

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
	h := s.Hits(c.verdict.Allowed, c.decider.opts.NearLimit)
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
		h := s.Hits(c.verdict.Allowed, c.decider.opts.NearLimit)
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
