package ruletest

import (
	"maps"
	"slices"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/policy"
)

// A Coverage counts which rules, and which of their tiers, the requests of tests reached.
type Coverage struct {
	parts  []Part
	places map[*policy.Rule]int // where the parts of a rule begin in parts
}

// A Part is a rule with its limits for one tier, or for all tiers that it does not name.
type Part struct {
	Place string // file:line of the rule
	Rule  string
	Tier  string // empty: all that the rule does not name
	// Requests is how many requests reached it.
	Requests int

	of *policy.Rule
}

// NewCoverage returns the coverage of the rules of a generation. No rule is reached yet.
func NewCoverage(g *config.Generation) *Coverage {
	c := &Coverage{places: make(map[*policy.Rule]int)}
	for i, rule := range g.Rules.All() {
		c.places[rule] = len(c.parts)
		add := func(tier string) {
			c.parts = append(c.parts, Part{Place: g.Places[i].String(), Rule: rule.Name, Tier: tier, of: rule})
		}
		if len(rule.ByTier) == 0 || len(rule.Terms.Limits) > 0 || rule.Terms.Unlimited {
			add("")
		}
		for _, tier := range slices.Sorted(maps.Keys(rule.ByTier)) {
			add(tier)
		}
	}
	return c
}

// Parts returns everything that requests can reach, in the order of the rules.
func (c *Coverage) Parts() []Part { return c.parts }

// count counts what a request reached.
func (c *Coverage) count(v *policy.Verdict) {
	counted := -1 // a request that meets several limits of a part counts once
	for i := range v.Limits {
		s := &v.Limits[i]
		if at := c.find(s.Rule, func(p *Part) bool { return p.Tier == s.Tier }); at != counted {
			counted = at
			c.parts[at].Requests++
		}
	}
	for i := range v.Matches {
		m := &v.Matches[i]
		switch {
		case m.Rule == nil || m.ReplacedBy != nil:
		case m.Unlimited:
			c.parts[c.find(m.Rule, func(p *Part) bool { return p.Tier == m.UnlimitedTier })].Requests++
		case len(m.Rule.ByTier) == 0 && len(m.Rule.Terms.Limits) == 0:
			c.parts[c.places[m.Rule]].Requests++ // a rule without a limit
		}
	}
}

// find returns the first part of a rule that fits, or else its first part.
func (c *Coverage) find(rule *policy.Rule, fits func(*Part) bool) int {
	first := c.places[rule]
	for i := first; i < len(c.parts) && c.parts[i].of == rule; i++ {
		if fits(&c.parts[i]) {
			return i
		}
	}
	return first
}
