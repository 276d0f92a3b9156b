package decide

import (
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/core/rules"
)

// A generation has the state of a Decider for one generation of rules. The numbers of rules and
// domains index its slices, so counting needs no look-up.
type generation struct {
	rules   *rules.Rules
	meters  []meters        // of the rules. Nil: nothing is counted
	asked   []atomic.Uint32 // of the rules, with Options.Log; see Call.noteAsked
	domains []domainState
	beyond  atomic.Int64 // see Call.logBeyond, for requests without a domain
}

// meters count what one rule decides.
type meters struct {
	outcomes Meter
	hits     HitMeter // nil: hits are not counted
}

// domainState has the state of a Decider for a domain.
type domainState struct {
	unruled    Meter        // descriptors that no rule of the domain limits
	override   meters       // of limits that come with a descriptor
	overridden atomic.Bool  // a limit came with a descriptor
	beyond     atomic.Int64 // when logBeyond has logged a request of the domain, in Unix nanoseconds
}

// newGeneration makes the meters of rules if counts is true. It copies from the generation before
// which domains got limits with requests.
func newGeneration(rs *rules.Rules, opts *Options, counts bool, before *generation) *generation {
	g := &generation{rules: rs, domains: make([]domainState, len(rs.AllDomains()))}
	if opts.Log != nil {
		g.asked = make([]atomic.Uint32, len(rs.All()))
	}
	for i, dom := range rs.AllDomains() {
		state := &g.domains[i]
		if counts {
			state.unruled = opts.Meters.Meter(dom.Name, "")
			state.override.outcomes = opts.Meters.Meter(dom.Name, dom.Override.Name)
		}
		if opts.Hits != nil {
			state.override.hits = opts.Hits.Overrides(dom.Name, rs.HidesEntry)
		}
		if before == nil {
			continue
		}
		if was := before.rules.Domain(dom.Name); was != nil && before.domains[was.Number].overridden.Load() {
			state.overridden.Store(true)
		}
	}
	if !counts {
		return g
	}
	g.meters = make([]meters, len(rs.All()))
	for i, r := range rs.All() {
		g.meters[i].outcomes = opts.Meters.Meter(r.Domain, r.Name)
		if opts.Hits != nil {
			g.meters[i].hits = opts.Hits.Rule(r)
		}
	}
	return g
}

// meter counts the outcomes of a rule of the request. Something must count.
func (c *Call) meter(r *rules.Rule) Meter {
	if at := r.Number(); at >= 0 {
		return c.gen.meters[at].outcomes
	}
	return c.state().override.outcomes
}

// state returns the state of the request's domain, which must exist.
func (c *Call) state() *domainState { return &c.gen.domains[c.domain.Number] }
