package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// tiers compares the tiers and the subjects.
func (c *comparison) tiers() {
	was, is := c.old.Rules.Tiers(), c.new.Rules.Tiers()
	for _, name := range tiersOf(c.new.Rules) {
		if was == nil || !was.HasTier(name) {
			c.tier(TierChange{What: "added", New: name}, "", name)
		}
	}
	for _, name := range tiersOf(c.old.Rules) {
		if is == nil || !is.HasTier(name) {
			c.tier(TierChange{What: "removed", Old: name}, name, "")
		}
	}
	if was != nil && is != nil && was.DefaultTier() != is.DefaultTier() {
		c.tier(TierChange{What: "default", Old: was.DefaultTier(), New: is.DefaultTier()}, was.DefaultTier(), is.DefaultTier())
	}
	c.subjects(orEmpty(was), orEmpty(is))
}

// orEmpty returns a directory, or one without subjects.
func orEmpty(d *tier.Directory) *tier.Directory {
	if d == nil {
		d = new(tier.Directory)
	}
	return d
}

// tier adds a change of tiers, with the limits of each. An empty tier has none.
func (c *comparison) tier(t TierChange, before, after string) {
	var all move
	switch t.What {
	case "default":
		all = c.moved(before, after, nil)
	case "added":
		all = limitsOfTier(c.new.Rules, after)
	default:
		all = limitsOfTier(c.old.Rules, before)
		for i := range all.changes {
			one := &all.changes[i]
			one.Old, one.New = one.New, ""
		}
	}
	t.Verdict, t.Changes, t.LeftOut = all.verdict, all.changes, all.leftOut
	c.report.Tiers = append(c.report.Tiers, t)
	c.report.Verdict = join(c.report.Verdict, t.Verdict)
}

// A move is what a subject gets whose tier is another one.
type move struct {
	verdict Verdict
	changes []Change
	leftOut int
}

// moved compares the limits of two tiers under all rules that both sets have, except those with
// some names.
func (c *comparison) moved(before, after string, except []string) move {
	m := move{verdict: Neither, changes: []Change{}}
	for _, r := range c.new.Rules.All() {
		old := c.old.Rules.Rule(r.ID())
		if old == nil || len(old.ByTier)+len(r.ByTier) == 0 || slices.Contains(except, r.Name) || slices.Contains(except, old.Name) {
			continue
		}
		was, is := sample(c.old.Rules, old, before), sample(c.new.Rules, r, after)
		all := changesOf(was, is)
		if o, ok := observe(fractionOf(was, old.TermsOf(before)), fractionOf(is, r.TermsOf(after))); ok {
			all = append(all, o)
		}
		m.ofOne(r, all)
	}
	return m
}

// limitsOfTier returns the limits of a tier under the rules that name it, as new ones.
func limitsOfTier(rs *rules.Rules, name string) move {
	m := move{verdict: Neither, changes: []Change{}}
	for _, r := range rs.All() {
		if _, ok := r.ByTier[name]; ok {
			limits := sample(rs, r, name)
			m.add(r, []Change{{What: "limits", New: textOf(limits), Verdict: Neither, Worst: worst(limits)}})
		}
	}
	return m
}

// ofOne adds the changes of one subject under a rule. If others share its log, they get less where
// the subject gets more, so no change is only stricter or only looser.
func (m *move) ofOne(r *rules.Rule, all []Change) {
	if slices.Contains(r.OneLog, true) {
		for i := range all {
			all[i].Verdict = Both
		}
	}
	m.add(r, all)
}

// add adds the changes of a rule, up to the bound of the list.
func (m *move) add(r *rules.Rule, all []Change) {
	for _, one := range all {
		one.Rule = r.Name
		m.verdict = join(m.verdict, one.Verdict)
		if len(m.changes) < MaxChanges {
			m.changes = append(m.changes, one)
		} else {
			m.leftOut++
		}
	}
}

// groups are the changes of subjects, by what they are.
type groups struct {
	byKey map[string]*SubjectChange
}

func (g *groups) add(id string, change SubjectChange) {
	key := fmt.Sprintf("%q %q %q %q", change.What, change.Old, change.New, change.Changes)
	at := g.byKey[key]
	if at == nil {
		if change.Changes == nil {
			change.Changes = []Change{}
		}
		change.Subjects = []string{}
		change.Verdict = cmp.Or(change.Verdict, Neither)
		at = &change
		g.byKey[key] = at
	}
	if at.Count++; len(at.Subjects) < MaxSubjects {
		at.Subjects = append(at.Subjects, id)
	}
}

// subjects compares the subjects of two directories.
func (c *comparison) subjects(was, is *tier.Directory) {
	g := groups{make(map[string]*SubjectChange)}
	added, removed := is.NewKeys(was), was.NewKeys(is)
	moves := make(map[string]move)
	var ids []string
	for s := range was.All() {
		ids = append(ids, s.ID)
	}
	for s := range is.All() {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		before, after := was.ByID(id), is.ByID(id)
		switch {
		case before == nil:
			g.add(id, SubjectChange{What: "added", New: after.Tier, Verdict: Neither})
			continue
		case after == nil:
			g.add(id, SubjectChange{What: "removed", Old: before.Tier, Verdict: Both})
			continue
		}
		c.subject(&g, before, after, moves)
		if a, r := added[id], removed[id]; a+r > 0 {
			g.add(id, SubjectChange{What: "keys", Old: fmt.Sprintf("%d removed", r), New: fmt.Sprintf("%d added", a), Verdict: keysVerdict(r)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(g.byKey)) {
		c.report.Subjects = append(c.report.Subjects, *g.byKey[key])
	}
	slices.SortStableFunc(c.report.Subjects, func(a, b SubjectChange) int {
		return cmp.Or(cmp.Compare(slices.Index(subjectWhats, a.What), slices.Index(subjectWhats, b.What)),
			cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New), cmp.Compare(a.Subjects[0], b.Subjects[0]))
	})
	for i := range c.report.Subjects {
		c.report.Verdict = join(c.report.Verdict, c.report.Subjects[i].Verdict)
	}
}

// subjectWhats are the values of [SubjectChange.What] in their order.
var subjectWhats = []string{"removed", "added", "tier", "disabled", "enabled", "limits", "keys", "labels"}

// keysVerdict: requests with a removed key count as those of an unknown one.
func keysVerdict(removed int) Verdict {
	if removed > 0 {
		return Both
	}
	return Neither
}

// subject compares a subject that both directories have.
func (c *comparison) subject(g *groups, before, after *tier.Subject, moves map[string]move) {
	if before.Disabled != after.Disabled {
		what := "enabled"
		if after.Disabled {
			what = "disabled"
		}
		g.add(before.ID, SubjectChange{What: what, Old: before.Tier, New: after.Tier, Verdict: Both})
	}
	if before.Tier != after.Tier {
		// Under the rules for which the subject has an override, the override says what changes.
		names := sortedUnion(overridden(before), overridden(after))
		key := fmt.Sprintf("%q %q %q", before.Tier, after.Tier, names)
		m, ok := moves[key]
		if !ok {
			m = c.moved(before.Tier, after.Tier, names)
			moves[key] = m
		}
		g.add(before.ID, SubjectChange{What: "tier", Old: before.Tier, New: after.Tier, Verdict: m.verdict, Changes: m.changes, LeftOut: m.leftOut})
	}
	if names := differentLabels(before.Labels(), after.Labels()); names != "" {
		g.add(before.ID, SubjectChange{What: "labels", New: names, Verdict: c.labelsVerdict(before, after)})
	}
	if before.Extra == nil && after.Extra == nil {
		return
	}
	if m := c.overrideChanges(before, after); len(m.changes) > 0 {
		g.add(before.ID, SubjectChange{What: "limits", Verdict: m.verdict, Changes: m.changes, LeftOut: m.leftOut})
	}
}

// overridden returns the names of the rules for which a subject has an override.
func overridden(s *tier.Subject) (names []string) {
	if s.Extra == nil {
		return nil
	}
	return slices.Collect(maps.Keys(s.Extra.Overrides))
}

// written compares the overrides of a subject as the files write them, because there are no rules.
func written(before, after *tier.Subject) move {
	m := move{verdict: Neither}
	for _, name := range sortedUnion(overridden(before), overridden(after)) {
		was, is := writtenText(before, name), writtenText(after, name)
		if was != is {
			m.verdict = Both
			m.changes = append(m.changes, Change{What: "limits", Rule: name, Old: was, New: is, Verdict: Both})
		}
	}
	return m
}

// writtenText describes an override.
func writtenText(s *tier.Subject, rule string) string {
	o, ok := s.Override(rule)
	if !ok {
		return ""
	}
	all := []explain.AccountLimit{}
	for _, l := range o.Limits {
		all = append(all, explain.AccountLimit{Limit: rules.Limit{Limit: l}})
	}
	if o.Unlimited {
		all = append(all, explain.AccountLimit{Unlimited: true})
	}
	text := textOf(all)
	if o.Observe != tier.ObserveByRule {
		text = strings.TrimPrefix(text+", "+observeText(o.Observe), ", ")
	}
	if !o.Until.IsZero() {
		text += " until " + o.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// overrideChanges compares the limits of a subject under the rules for which it has an override.
func (c *comparison) overrideChanges(before, after *tier.Subject) move {
	if len(c.old.Rules.All())+len(c.new.Rules.All()) == 0 {
		return written(before, after)
	}
	m := move{verdict: Neither}
	var ids []descriptors.RuleID
	for _, of := range []struct {
		s     *tier.Subject
		names map[string][]*rules.Rule
	}{{before, c.byName(c.old.Rules)}, {after, c.byName(c.new.Rules)}} {
		for _, name := range overridden(of.s) {
			for _, r := range of.names[name] {
				ids = append(ids, r.ID())
			}
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		was, is := c.old.Rules.Rule(id), c.new.Rules.Rule(id)
		if was == nil || is == nil {
			continue
		}
		old, now := sampleOf(c.old.Rules, was, before), sampleOf(c.new.Rules, is, after)
		m.ofOne(is, changesOf(old, now))
		if c, ok := overrideObserve(was.TermsOf(before.Tier), is.TermsOf(after.Tier), observeOf(before, was.Name), observeOf(after, is.Name)); ok {
			m.add(is, []Change{c})
		}
		if old, now := untilOf(before, was.Name), untilOf(after, is.Name); old != now {
			m.add(is, []Change{{What: "until", Old: old, New: now, Verdict: Both}})
		}
	}
	return m
}

// untilOf says when the override of a subject ends.
func untilOf(s *tier.Subject, rule string) string {
	if o, _ := s.Override(rule); !o.Until.IsZero() {
		return o.Until.UTC().Format(time.RFC3339)
	}
	return "no end"
}

// observeOf returns what the override of a subject says of observing.
func observeOf(s *tier.Subject, rule string) tier.Observe {
	o, _ := s.Override(rule)
	return o.Observe
}

// overrideObserve compares what the overrides of a subject say of observing, under a rule with these terms.
func overrideObserve(termsBefore, termsAfter *rules.Terms, before, after tier.Observe) (c Change, changed bool) {
	if before == after {
		return c, false
	}
	fraction := func(o tier.Observe, of *rules.Terms) float64 {
		switch o {
		case tier.ObserveOnly:
			return 1
		case tier.ObserveNot:
			return 0
		default:
			return of.Observe
		}
	}
	return Change{
		What: "observe", Old: observeText(before), New: observeText(after),
		Verdict: rising(cmp.Compare(fraction(before, termsBefore), fraction(after, termsAfter))),
	}, true
}

// observeText describes what an override says of observing.
func observeText(o tier.Observe) string {
	switch o {
	case tier.ObserveOnly:
		return "only observed"
	case tier.ObserveNot:
		return "enforced"
	default:
		return "as the rule says"
	}
}

// byName returns the rules of a set by their names, as overrides name them.
func (c *comparison) byName(rs *rules.Rules) map[string][]*rules.Rule {
	if c.names == nil {
		c.names = make(map[*rules.Rules]map[string][]*rules.Rule)
	}
	if c.names[rs] == nil {
		c.names[rs] = make(map[string][]*rules.Rule)
		for _, r := range rs.All() {
			c.names[rs][r.Name] = append(c.names[rs][r.Name], r)
		}
	}
	return c.names[rs]
}

// differentLabels names the labels that are different. Their values may be private.
func differentLabels(before, after map[string]string) string {
	var names []string
	for name, value := range before {
		if now, ok := after[name]; !ok || now != value {
			names = append(names, name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// labelsVerdict: a label may say on which day the periods of a calendar start.
func (c *comparison) labelsVerdict(before, after *tier.Subject) Verdict {
	if c.starts == nil {
		c.starts = make(map[string]bool)
		for _, r := range slices.Concat(c.old.Rules.All(), c.new.Rules.All()) {
			for _, t := range append(slices.Collect(maps.Values(r.ByTier)), r.Terms) {
				for i := range t.Limits {
					c.starts[t.Limits[i].StartsLabel] = true
				}
			}
		}
		delete(c.starts, "")
	}
	for label := range c.starts {
		if before.Labels()[label] != after.Labels()[label] {
			return Both
		}
	}
	return Neither
}
