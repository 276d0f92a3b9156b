package ruletest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// A Coverage counts which rules, which of their tiers, and which overrides of subjects the requests
// of tests reached.
type Coverage struct {
	parts     []Part
	at        map[Part]int           // where a part is, by the part that nothing has reached
	locations map[*rules.Rule]string // of rules
	tiers     string                 // the location of overrides
}

// A Part is a rule with its limits for one tier, for all tiers that it does not name, or for one
// subject.
type Part struct {
	Location string // file:line of the rule, or the tiers file of the subject
	Rule     string
	Tier     string // empty: all that the rule does not name
	// Subject has an override of the rule. Empty: the part is not about one subject.
	Subject string
	// Requests is how many requests reached it.
	Requests int
}

// NewCoverage returns the coverage of the rules of a generation, and of the overrides in a tiers
// file. Nothing is reached yet.
func NewCoverage(g *config.Generation, tiersFile string) *Coverage {
	c := &Coverage{at: make(map[Part]int), locations: make(map[*rules.Rule]string), tiers: cmp.Or(tiersFile, "built-in tiers.yaml")}
	names := make(map[string]bool)
	for i, rule := range g.Rules.All() {
		c.locations[rule], names[rule.Name] = g.Locations[i].String(), true
		if len(rule.ByTier) == 0 || len(rule.Terms.Limits) > 0 || rule.Terms.Unlimited {
			c.add(Part{Location: c.locations[rule], Rule: rule.Name})
		}
		for _, tier := range slices.Sorted(maps.Keys(rule.ByTier)) {
			c.add(Part{Location: c.locations[rule], Rule: rule.Name, Tier: tier})
		}
	}
	var overrides []Part
	for s := range cmp.Or(g.Rules.Tiers(), new(tier.Directory)).All() {
		for rule := range cmp.Or(s.Extra, new(tier.Extra)).Overrides {
			if names[rule] { // loading the tiers warns of all others
				overrides = append(overrides, Part{Location: c.tiers, Rule: rule, Subject: s.ID})
			}
		}
	}
	slices.SortFunc(overrides, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Rule, b.Rule))
	})
	for _, p := range overrides {
		c.add(p)
	}
	return c
}

func (c *Coverage) add(p Part) {
	if _, known := c.at[p]; !known {
		c.at[p] = len(c.parts)
		c.parts = append(c.parts, p)
	}
}

// Parts returns everything that requests can reach, in the order of the rules. Overrides follow.
func (c *Coverage) Parts() []Part { return c.parts }

// count counts what a request reached. A request under several limits of a part counts once
// for each descriptor.
func (c *Coverage) count(v *decide.Verdict) {
	rule, tier, descriptor := (*rules.Rule)(nil), "", -1
	for i := range v.Limits {
		s := &v.Limits[i]
		if s.Rule == rule && s.Tier == tier && s.Descriptor == descriptor {
			continue
		}
		rule, tier, descriptor = s.Rule, s.Tier, s.Descriptor
		if s.Source == verdict.SourceOverride || s.Enforcement.Overridden() {
			c.reachOverride(s.Subject, s.Rule)
		}
		if s.Source != verdict.SourceOverride && !v.Matches[descriptor].Overridden {
			c.reach(s.Rule, s.Tier)
		}
	}
	for i := range v.Matches {
		m := &v.Matches[i]
		switch {
		case m.Rule == nil || m.ReplacedBy != nil || m.Overridden:
		case m.UnlimitedSubject != "":
			c.reachOverride(m.UnlimitedSubject, m.Rule)
		case m.Unlimited:
			c.reach(m.Rule, m.UnlimitedTier)
		case len(m.Rule.ByTier) == 0 && len(m.Rule.Terms.Limits) == 0:
			c.reach(m.Rule, "") // a rule without a limit
		}
	}
}

// reachOverride counts a request that reached a subject's override of a rule.
func (c *Coverage) reachOverride(subject string, rule *rules.Rule) {
	c.reachPart(Part{Location: c.tiers, Rule: rule.Name, Subject: subject})
}

// reach counts a request that reached the limits of a rule for a tier, or for all tiers that the
// rule does not name.
func (c *Coverage) reach(rule *rules.Rule, tier string) {
	p := Part{Location: c.locations[rule], Rule: rule.Name}
	ofTier := p
	if ofTier.Tier = tier; !c.reachPart(ofTier) {
		c.reachPart(p)
	}
}

func (c *Coverage) reachPart(p Part) (known bool) {
	at, known := c.at[p]
	if known {
		c.parts[at].Requests++
	}
	return known
}

// A Report is how all tests went.
type Report struct {
	Results []Result
	// Parts are what the requests could reach.
	Parts []Part
	// Chosen is true if tests were chosen by their names. The report then says how many were not
	// run, and not what no test reached.
	Chosen bool
	NotRun int
}

// Add adds the results of a file of tests, and the parts that its requests could reach. Parts that
// other files reach too are counted together.
func (r *Report) Add(results []Result, parts []Part, notRun int) {
	all := Coverage{at: make(map[Part]int)}
	for _, p := range slices.Concat(r.Parts, parts) {
		requests := p.Requests
		p.Requests = 0
		all.add(p)
		all.parts[all.at[p]].Requests += requests
	}
	r.Parts = all.parts
	r.Results = append(r.Results, results...)
	r.NotRun += notRun
}

// mostOverrides bounds how many overrides that no test reached are listed.
const mostOverrides = 20

// Untested returns a line for each part that no test reached, and none if tests were chosen by their
// names.
func (r *Report) Untested() (lines []string) {
	overrides := 0
	for i := range r.Parts {
		p := &r.Parts[i]
		if p.Requests > 0 || r.Chosen {
			continue
		}
		if p.Subject != "" {
			if overrides++; overrides > mostOverrides {
				continue
			}
		}
		lines = append(lines, p.String())
	}
	if more := overrides - mostOverrides; more > 0 {
		lines = append(lines, fmt.Sprintf("%d more overrides", more))
	}
	return lines
}

// String names a part with its location.
func (p *Part) String() string {
	text := p.Location + ": rule " + p.Rule
	if p.Tier != "" {
		text += ", tier " + p.Tier
	}
	if p.Subject != "" {
		text += ", override of the subject " + p.Subject
	}
	return safetext.Text(text)
}

// counts says how many parts tests reached.
func (r *Report) counts() string {
	var reached, all [2]int // rules and tiers, overrides
	for i := range r.Parts {
		kind := 0
		if r.Parts[i].Subject != "" {
			kind = 1
		}
		all[kind]++
		if r.Parts[i].Requests > 0 {
			reached[kind]++
		}
	}
	text := fmt.Sprintf("%d of %d rules and tiers tested", reached[0], all[0])
	if all[1] > 0 {
		text += fmt.Sprintf(", %d of %d overrides", reached[1], all[1])
	}
	return text
}
