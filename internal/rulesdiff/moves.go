package rulesdiff

import (
	"cmp"
	"slices"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
)

// A grouping says which descriptors share a log under a rule, compared with another rule.
type grouping int

const (
	sameGroups   grouping = iota // the same share a log under both rules
	largerGroups                 // more share one under the new rule
	smallerGroups
	otherGroups // neither is certain
)

// maxOwn bounds the subjects whose own limits are compared for one move.
const maxOwn = 1000

// movedVerdict compares what two rules admit of the descriptors that go from one to the other.
func (c *comparison) movedVerdict(before, after *policy.Rule) Verdict {
	groups := c.groupsOf(before, after)
	v, limited := Neither, false
	tiers := (&pair{c, before, after}).contexts()
	if len(tiers) == 0 {
		return Both // no tier of one set is in the other
	}
	for _, t := range tiers {
		was, is := enforcedOf(sample(c.old.Rules, before, t)), enforcedOf(sample(c.new.Rules, after, t)) // none that are only observed
		v = join(v, admitted(was, is, groups))
		if len(was) == 0 || len(is) == 0 {
			continue
		}
		limited = true
		o, n := before.TermsOf(t), after.TermsOf(t)
		if v = join(v, rising(cmp.Compare(o.Observe, n.Observe))); o.Observe == n.Observe && partly(o) {
			return Both // other logs are only observed
		}
	}
	own, owned := c.ownVerdict(before, after, groups)
	if v = join(v, own); !limited && !owned {
		return v
	}
	if !slices.Equal(c.replacersOf(c.old.Rules, before), c.replacersOf(c.new.Rules, after)) {
		return Both
	}
	for i := range parts {
		of := &parts[i]
		if of.verdict == nil || of.what == "share_threshold" || of.what == "subject" { // they are in groups
			continue
		}
		if of.text(c, c.old.Rules, before) != of.text(c, c.new.Rules, after) {
			v = join(v, of.verdict(before, after))
		}
	}
	return v
}

// partly reports whether a share of the logs is only observed.
func partly(t *policy.Terms) bool { return t.Observe > 0 && t.Observe < 1 }

// enforcedOf returns the limits that can deny.
func enforcedOf(all []policy.AccountLimit) []policy.AccountLimit {
	return slices.DeleteFunc(all, func(l policy.AccountLimit) bool { return l.Observed || !limits(&l) })
}

// admitted compares two sets of limits for descriptors that share logs as groups says.
func admitted(before, after []policy.AccountLimit, groups grouping) Verdict {
	if len(before) == 0 || len(after) == 0 {
		groups = sameGroups
	}
	switch {
	case groups == sameGroups:
		return verdictOf(before, after)
	case groups == largerGroups && within(after, before):
		return Stricter
	case groups == smallerGroups && within(before, after):
		return Looser
	default:
		return Both
	}
}

// groupsOf compares which descriptors share a log. A level of the path keeps values apart, or
// the API keys of different subjects, or nothing.
func (c *comparison) groupsOf(before, after *policy.Rule) grouping {
	if before.Subject != after.Subject || len(before.Path) != len(after.Path) {
		return otherGroups
	}
	g := sameGroups
	for i := range after.Path {
		was, is := c.apart(before, i), c.apart(after, i)
		switch {
		case was == byNothing && is == byNothing:
			return otherGroups // their patterns may fit other values
		case was == bySubject && is == bySubject && c.fixedKeys:
			return otherGroups // rules for single keys may take some of a subject's keys away
		case was == is:
		case g == sameGroups && is > was:
			g = largerGroups
		case g == sameGroups:
			g = smallerGroups
		case (g == largerGroups) != (is > was):
			return otherGroups
		}
	}
	return g
}

// What a level of a path keeps apart.
const (
	byValue = iota
	bySubject
	byNothing
)

func (c *comparison) apart(r *policy.Rule, level int) int {
	switch n := &r.Path[level]; {
	case !n.Open():
		return byValue
	case r.Shares(level):
		return byNothing
	case c.old.Rules.HidesEntry(n.Key):
		return bySubject
	default:
		return byValue
	}
}

// ownVerdict compares the limits that subjects have of their own under two rules. It reports false
// if there are none.
func (c *comparison) ownVerdict(before, after *policy.Rule, groups grouping) (v Verdict, owned bool) {
	was, is := c.old.Rules.Tiers(), c.new.Rules.Tiers()
	if before.Name != after.Name && (elsewhere(was) || elsewhere(is)) {
		return Both, true
	}
	ids := sortedUnion(c.owners(c.old.Rules)[before.Name], c.owners(c.new.Rules)[after.Name])
	if len(ids) > maxOwn {
		return Both, true
	}
	v = Neither
	for _, id := range ids {
		old, now := orEmpty(was).ByID(id), orEmpty(is).ByID(id)
		if old == nil || now == nil {
			continue // the report tells of the subject
		}
		if observeOf(old, before.Name) != observeOf(now, after.Name) || partly(before.TermsOf(old.Tier)) || partly(after.TermsOf(now.Tier)) {
			return Both, true
		}
		v = join(v, admitted(enforcedOf(sampleOf(c.old.Rules, before, old)), enforcedOf(sampleOf(c.new.Rules, after, now)), groups))
	}
	return v, len(ids) > 0
}

// ownOf returns the limits that subjects have of their own under a rule, which may be nil.
func (c *comparison) ownOf(rs *policy.Rules, r *policy.Rule) (all []policy.AccountLimit) {
	if r == nil {
		return nil
	}
	ids := c.owners(rs)[r.Name]
	for _, id := range ids[:min(len(ids), maxOwn)] {
		all = append(all, enforcedOf(sampleOf(rs, r, rs.Tiers().ByID(id)))...)
	}
	return all
}

// elsewhere reports whether subjects are known only to a source of tiers.
func elsewhere(d *tier.Directory) bool { return d != nil && d.Subjects() == 0 && len(d.Tiers()) > 0 }

// replacersOf returns the places of the rules that replace a rule.
func (c *comparison) replacersOf(rs *policy.Rules, r *policy.Rule) []string {
	if r.GivenName() == "" {
		return nil
	}
	return c.replacers[rs][inDomain{r.Domain, r.GivenName()}]
}

// owners returns the ids of the subjects that have an override, by the names of rules.
func (c *comparison) owners(rs *policy.Rules) map[string][]string {
	if all, ok := c.overriders[rs]; ok {
		return all
	}
	all := make(map[string][]string)
	for s := range orEmpty(rs.Tiers()).All() {
		for _, name := range overridden(s) {
			all[name] = append(all[name], s.ID)
		}
	}
	c.overriders[rs] = all
	return all
}
