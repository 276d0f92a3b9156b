package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// movedVerdict compares what two rules admit of the descriptors that go from one to the other. If
// more than their limits is different, the verdict is [Both].
func (c *comparison) movedVerdict(before, after *rules.Rule) Verdict {
	was, is := c.old.Rules.Tiers(), c.new.Rules.Tiers()
	overrides := c.overridden(c.old.Rules, before)
	if overrides != c.overridden(c.new.Rules, after) || before.Name != after.Name && (elsewhere(was) || elsewhere(is)) {
		return Both // subjects have other limits, or may have
	}
	v, limited := Neither, overrides != ""
	same := true // what overrides replace: limits, also those that are only observed
	tiers := (&pair{c, before, after}).contexts()
	if len(tiers) == 0 {
		return Both // no tier of one set is in the other
	}
	for _, t := range tiers {
		was, is := enforcedOf(sample(c.old.Rules, before, t)), enforcedOf(sample(c.new.Rules, after, t)) // none that are only observed
		v = join(v, verdictOf(was, is))
		o, n := before.TermsOf(t), after.TermsOf(t)
		same = same && o.Observe == n.Observe && textOf(sample(c.old.Rules, before, t)) == textOf(sample(c.new.Rules, after, t))
		if len(was) == 0 || len(is) == 0 {
			continue
		}
		limited = true
		if v = join(v, rising(cmp.Compare(o.Observe, n.Observe))); o.Observe == n.Observe && partly(o) {
			return Both // other logs are only observed
		}
	}
	if overrides != "" && !same || limited && !c.alike(before, after) {
		return Both
	}
	return v
}

// alike reports whether two rules are the same except for their limits, and the same descriptors
// share a log under both.
func (c *comparison) alike(before, after *rules.Rule) bool {
	if len(before.Path) != len(after.Path) || !slices.Equal(c.replacersOf(c.old.Rules, before), c.replacersOf(c.new.Rules, after)) {
		return false
	}
	for i := range after.Path {
		was, is := c.apart(before, i), c.apart(after, i)
		if was != is || was == byNothing || was == bySubject && c.fixedKeys { // rules for single keys may take some of a subject's keys away
			return false
		}
	}
	return !slices.ContainsFunc(parts, func(of part) bool {
		return of.verdict != nil && of.text(c, c.old.Rules, before) != of.text(c, c.new.Rules, after)
	})
}

// partly reports whether a fraction of the logs is only observed.
func partly(t *rules.Terms) bool { return t.Observe > 0 && t.Observe < 1 }

// enforcedOf returns the limits that can deny.
func enforcedOf(all []explain.AccountLimit) []explain.AccountLimit {
	return slices.DeleteFunc(all, func(l explain.AccountLimit) bool { return l.Observed || !limits(&l) })
}

// What a level of a path keeps apart.
const (
	byValue = iota
	bySubject
	byNothing
)

func (c *comparison) apart(r *rules.Rule, level int) int {
	switch n := &r.Path[level]; {
	case !n.Open():
		return byValue
	case r.HasOneLog(level):
		return byNothing
	case c.old.Rules.HidesEntry(n.Key):
		return bySubject
	default:
		return byValue
	}
}

// elsewhere reports whether subjects are known only to a customer source.
func elsewhere(d *tier.Directory) bool { return d != nil && d.Subjects() == 0 && len(d.Tiers()) > 0 }

// replacersOf returns the positions of the rules that replace a rule.
func (c *comparison) replacersOf(rs *rules.Rules, r *rules.Rule) []string {
	if r.GivenName() == "" {
		return nil
	}
	return c.replacers[rs][inDomain{r.Domain, r.GivenName()}]
}

// overridden describes the overrides of a rule. Without one it is empty.
func (c *comparison) overridden(rs *rules.Rules, r *rules.Rule) string {
	all := c.overrides[rs]
	if all == nil {
		all = make(map[string]*strings.Builder)
		for s := range orEmpty(rs.Tiers()).All() {
			for _, name := range overridden(s) {
				if all[name] == nil {
					all[name] = new(strings.Builder)
				}
				fmt.Fprintf(all[name], "%q %+v\n", s.ID, s.Extra.Overrides[name])
			}
		}
		c.overrides[rs] = all
	}
	if text := all[r.Name]; text != nil {
		return text.String()
	}
	return ""
}
