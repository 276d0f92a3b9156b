package diff

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A Set is one of the sets to compare.
type Set struct {
	// Path is what the operator compares.
	Path  string
	Rules *rules.Rules
	// Locations are the locations of the rules, in the order of Rules.All.
	Locations []string
}

// A comparison is the work of one [Compare].
type comparison struct {
	old, new  Set
	locations map[*rules.Rule]string
	sets      map[*rules.Rules]index
	// lost and taken have the verdicts of all matches by their old and their new rule.
	lost, taken map[descriptors.RuleID]Verdict
	starts      map[string]bool // labels that say when the periods of a subject start
	report      Report
}

// An index is what a comparison looks up in a set.
type index struct {
	given     map[inDomain][]string    // paths of rules by their names in the file
	names     map[string][]*rules.Rule // as overrides name them
	overrides map[string]bool          // the names of rules for which subjects have overrides
}

// inDomain is the name of a rule in a domain.
type inDomain struct{ domain, name string }

// Compare says what changes from the rules and tiers of old to those of now. Both must be made
// with the same settings of API keys. Compare is safe for concurrent use.
func Compare(old, now Set) *Report {
	c := &comparison{
		old: old, new: now, locations: make(map[*rules.Rule]string), sets: make(map[*rules.Rules]index), starts: make(map[string]bool),
		lost: make(map[descriptors.RuleID]Verdict), taken: make(map[descriptors.RuleID]Verdict),
		report: Report{Verdict: Neither, Domains: []DomainChange{}, Rules: []RuleChange{}, Matches: []MatchChange{}, Tiers: []TierChange{}, Subjects: []SubjectChange{}},
	}
	r := &c.report
	r.Old, r.New = c.begin(old), c.begin(now)
	c.domains()
	c.matches()
	c.rules()
	c.tiers()
	r.Changed = len(r.Domains)+len(r.Rules)+len(r.Matches)+len(r.Tiers)+len(r.Subjects) > 0 || r.Incomplete != ""
	return r
}

// begin notes the names and the locations of a set.
func (c *comparison) begin(s Set) SetSummary {
	in := index{make(map[inDomain][]string), make(map[string][]*rules.Rule), make(map[string]bool)}
	all := s.Rules.All()
	for i, r := range all {
		if i < len(s.Locations) {
			c.locations[r] = s.Locations[i]
		}
		if name := r.GivenName(); name != "" {
			in.given[inDomain{r.Domain, name}] = append(in.given[inDomain{r.Domain, name}], r.String())
		}
		in.names[r.Name] = append(in.names[r.Name], r)
		for _, t := range append(slices.Collect(maps.Values(r.ByTier)), r.Terms) {
			for _, l := range t.Limits {
				c.starts[l.StartsLabel] = true
			}
		}
	}
	for subject := range orEmpty(s.Rules.Tiers()).All() {
		for _, name := range overridden(subject) {
			in.overrides[name] = true
		}
	}
	c.sets[s.Rules] = in
	summary := SetSummary{Path: s.Path, Rules: len(all)}
	if d := s.Rules.Tiers(); d != nil {
		summary.Subjects = d.Subjects()
	}
	return summary
}

// domains compares the domains and their headers.
func (c *comparison) domains() {
	for _, name := range sortedUnion(c.old.Rules.Domains(), c.new.Rules.Domains()) {
		was, is := strings.Join(c.old.Rules.Headers(name), ", "), strings.Join(c.new.Rules.Headers(name), ", ")
		switch {
		case !c.old.Rules.HasDomain(name):
			c.report.Domains = append(c.report.Domains, DomainChange{Domain: name, What: "added"})
		case !c.new.Rules.HasDomain(name):
			c.report.Domains = append(c.report.Domains, DomainChange{Domain: name, What: "removed"})
		case was != is:
			c.report.Domains = append(c.report.Domains, DomainChange{Domain: name, What: "headers", Old: was, New: is})
		}
	}
}

func sortedUnion(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// rules compares the rules of each position.
func (c *comparison) rules() {
	for _, r := range c.old.Rules.All() {
		if c.new.Rules.Rule(r.ID()) == nil {
			c.one("removed", r, nil)
		}
	}
	for _, r := range c.new.Rules.All() {
		before := c.old.Rules.Rule(r.ID())
		if before == nil {
			c.one("added", nil, r)
			continue
		}
		c.one("changed", before, r)
	}
	slices.SortStableFunc(c.report.Rules, func(a, b RuleChange) int {
		return strings.Compare(a.Domain+"\x00"+a.Path, b.Domain+"\x00"+b.Path)
	})
	for i := range c.report.Rules {
		c.report.Verdict = join(c.report.Verdict, c.report.Rules[i].Verdict)
	}
}

// one adds the change of the rules of one position, if there is one.
func (c *comparison) one(what string, before, after *rules.Rule) {
	of := after
	if of == nil {
		of = before
	}
	change := RuleChange{
		What: what, Domain: of.Domain, Path: of.String(), Name: of.Name, OldLocation: c.locations[before], NewLocation: c.locations[after],
		Verdict: Neither, Changes: []Change{},
	}
	switch what {
	case "changed":
		p := pair{c, before, after}
		if change.Changes = p.compare(); len(change.Changes) == 0 {
			return
		}
		for i := range change.Changes {
			change.Verdict = join(change.Verdict, change.Changes[i].Verdict)
		}
	default:
		c.whole(&change, before, after)
	}
	c.report.Rules = append(c.report.Rules, change)
}

// whole describes a rule that is new or gone.
func (c *comparison) whole(change *RuleChange, before, after *rules.Rule) {
	of, rs := after, c.new.Rules
	if of == nil {
		of, rs = before, c.old.Rules
	}
	var g grouped
	tiers := []string{""}
	if len(of.ByTier) > 0 {
		tiers = tiersOf(rs)
	}
	for _, t := range tiers {
		limits := sample(rs, of, t)
		one := Change{What: "limits", Verdict: Neither, Worst: worst(limits)}
		text := textOf(limits)
		if fraction := of.TermsOf(t).Observe; fraction > 0 {
			text += ", " + observedText(fraction)
		}
		if after == nil {
			one.Old = text
		} else {
			one.New = text
		}
		g.add(one, t)
	}
	for i := range g.all {
		if len(g.all[i].Tiers) == len(tiers) {
			g.all[i].Tiers = nil
		}
	}
	if traits := strings.Join(of.Traits(), ", "); traits != "" {
		one := Change{What: "options", New: short(traits), Verdict: Neither}
		if after == nil {
			one.Old, one.New = one.New, ""
		}
		g.all = append(g.all, one)
	}
	change.Changes = g.all
	verdicts := c.taken
	if after == nil {
		verdicts = c.lost
	}
	v, ok := verdicts[of.ID()]
	if change.Verdict = cmp.Or(v, Neither); !ok {
		change.Note = "no request matches it"
	}
}
