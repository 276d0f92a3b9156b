package diff

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	carried "github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// tiers compares the tiers and the subjects.
func (c *comparison) tiers() {
	was, is := c.old.Rules.Tiers(), c.new.Rules.Tiers()
	for _, name := range tiersOf(c.new.Rules) {
		if was == nil || !was.HasTier(name) {
			c.tier(TierChange{What: "added", New: name})
		} else if !was.Limits(name).Equal(is.Limits(name)) {
			c.tier(TierChange{What: "limits", Old: name, New: name})
		}
	}
	for _, name := range tiersOf(c.old.Rules) {
		if is == nil || !is.HasTier(name) {
			c.tier(TierChange{What: "removed", Old: name})
		}
	}
	if was != nil && is != nil && was.DefaultTier() != is.DefaultTier() {
		c.tier(TierChange{What: "default", Old: was.DefaultTier(), New: is.DefaultTier()})
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

// tier adds a change of tiers, with its limits.
func (c *comparison) tier(t TierChange) {
	all := move{verdict: Neither, changes: []Change{}}
	switch t.What {
	case "limits":
		all.ofCarried(c.old.Rules.Tiers().Limits(t.Old).All(), c.new.Rules.Tiers().Limits(t.New).All())
	case "default":
		all = c.moved(t.Old, t.New, nil)
	case "added":
		all.ofTier(c.new.Rules, t.New)
	default:
		all.ofTier(c.old.Rules, t.Old)
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
		for _, one := range all {
			if slices.Contains(r.OneLog, true) {
				one.Verdict = Both // others share its log: they get less where the subject gets more
			}
			m.add(r.Name, one)
		}
	}
	return m
}

// ofCarried compares the limits that a tier carries for Envoy. Without one, the limit of a rule counts.
func (m *move) ofCarried(before, after []carried.Limit) {
	was, is := make(map[string]carried.Limit), make(map[string]carried.Limit)
	for _, l := range before {
		was[l.Key()] = l
	}
	for _, l := range after {
		is[l.Key()] = l
	}
	for _, key := range sortedUnion(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is))) {
		change := Change{What: key, Verdict: Both}
		old, had := was[key]
		now, has := is[key]
		if had {
			change.Old = old.String()
		}
		if has {
			change.New = now.String()
		}
		if old.Unit == now.Unit {
			change.Verdict = rising(cmp.Compare(old.Requests, now.Requests))
		}
		if old != now {
			m.add("", change)
		}
	}
}

// ofTier adds the limits of a tier under the rules that name it, as new ones.
func (m *move) ofTier(rs *rules.Rules, name string) {
	for _, r := range rs.All() {
		if _, ok := r.ByTier[name]; ok {
			limits := sample(rs, r, name)
			m.add(r.Name, Change{What: "limits", New: textOf(limits), Verdict: Neither, Worst: worst(limits)})
		}
	}
}

// add adds a change of a rule, up to the bound of the list.
func (m *move) add(rule string, one Change) {
	one.Rule = rule
	m.verdict = join(m.verdict, one.Verdict)
	if len(m.changes) < MaxChanges {
		m.changes = append(m.changes, one)
	} else {
		m.leftOut++
	}
}

// groups are the changes of subjects, by what they are.
type groups map[string]*SubjectChange

func (g groups) add(id string, change SubjectChange) {
	key := fmt.Sprintf("%q %q %q %q", change.What, change.Old, change.New, change.Changes)
	at := g[key]
	if at == nil {
		if change.Changes == nil {
			change.Changes = []Change{}
		}
		change.Subjects = []string{}
		change.Verdict = cmp.Or(change.Verdict, Neither)
		at = &change
		g[key] = at
	}
	if at.Count++; len(at.Subjects) < MaxSubjects {
		at.Subjects = append(at.Subjects, id)
	}
}

// subjects compares the subjects of two directories.
func (c *comparison) subjects(was, is *tier.Directory) {
	g := make(groups)
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
		c.subject(g, before, after, moves)
		if a, r := added[id], removed[id]; a+r > 0 {
			g.add(id, SubjectChange{What: "keys", Old: fmt.Sprintf("%d removed", r), New: fmt.Sprintf("%d added", a), Verdict: map[bool]Verdict{true: Both, false: Neither}[r > 0]}) // requests with a removed key count as those of an unknown one
		}
	}
	for _, key := range slices.Sorted(maps.Keys(g)) {
		c.report.Subjects = append(c.report.Subjects, *g[key])
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

// subject compares a subject that both directories have.
func (c *comparison) subject(g groups, before, after *tier.Subject, moves map[string]move) {
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

// writtenText describes an override as files write it.
func writtenText(o tier.Override) string {
	all := []explain.AccountLimit{}
	for _, l := range o.Limits {
		all = append(all, explain.AccountLimit{Limit: rules.Limit{Limit: l}})
	}
	if o.Unlimited {
		all = append(all, explain.AccountLimit{Unlimited: true})
	}
	text := textOf(all)
	switch o.Observe {
	case tier.ObserveOnly:
		text += ", only observed"
	case tier.ObserveNot:
		text += ", enforced"
	}
	if !o.Until.IsZero() {
		text += " until " + o.Until.UTC().Format(time.RFC3339)
	}
	return strings.TrimPrefix(text, "no limit, ")
}

// overrideChanges compares the overrides of a subject, under the rules that have their names.
func (c *comparison) overrideChanges(before, after *tier.Subject) move {
	m := move{verdict: Neither}
	var ids []descriptors.RuleID
	for _, name := range sortedUnion(overridden(before), overridden(after)) {
		all := slices.Concat(c.sets[c.old.Rules].names[name], c.sets[c.new.Rules].names[name])
		for _, r := range all {
			ids = append(ids, r.ID())
		}
		if change, ok := overrideChange(before, after, name, name); ok && len(all) == 0 {
			m.add(name, change)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		was, is := c.old.Rules.Rule(id), c.new.Rules.Rule(id)
		if was == nil || is == nil {
			continue
		}
		change, ok := overrideChange(before, after, was.Name, is.Name)
		old, now := sampleOf(c.old.Rules, was, before), sampleOf(c.new.Rules, is, after)
		if ok || textOf(old) != textOf(now) { // limits of an override take the policy of the rule
			change.Old, change.New = cmp.Or(change.Old, textOf(old)), cmp.Or(change.New, textOf(now))
			change.History, change.Worst = historyOf(old, now), worstOf(old, now)
			had, _ := before.Override(was.Name)
			has, _ := after.Override(is.Name)
			one, two := observed(had, was.TermsOf(before.Tier)), observed(has, is.TermsOf(after.Tier))
			if !slices.Contains(is.OneLog, true) && had.Until.Equal(has.Until) {
				change.Verdict = rising(cmp.Compare(one, two))
			}
			if max(one, two) < 1 {
				change.Verdict = join(change.Verdict, verdictOf(old, now))
			}
			m.add(is.Name, change)
		}
	}
	return m
}

// overrideChange compares the overrides that a subject has of a rule with two names.
func overrideChange(before, after *tier.Subject, oldName, newName string) (change Change, ok bool) {
	was, had := before.Override(oldName)
	is, has := after.Override(newName)
	change = Change{What: "limits", Verdict: Both}
	if had {
		change.Old = writtenText(was)
	}
	if has {
		change.New = writtenText(is)
	}
	return change, had != has || !reflect.DeepEqual(was, is)
}

// observed returns the fraction of the logs that an override leaves only observed.
func observed(o tier.Override, of *rules.Terms) float64 {
	switch o.Observe {
	case tier.ObserveOnly:
		return 1
	case tier.ObserveNot:
		return 0
	default:
		return of.Observe
	}
}

// differentLabels names the labels that are different. Their values may be private.
func differentLabels(before, after map[string]string) string {
	names := sortedUnion(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
	return strings.Join(slices.DeleteFunc(names, func(name string) bool {
		was, had := before[name]
		is, has := after[name]
		return had == has && was == is
	}), ", ")
}

// labelsVerdict: a label may say on which day the periods of a calendar start.
func (c *comparison) labelsVerdict(before, after *tier.Subject) Verdict {
	for label := range c.starts {
		if before.Labels()[label] != after.Labels()[label] {
			return Both
		}
	}
	return Neither
}
