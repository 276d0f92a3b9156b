package diff

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Bounds of a search for descriptors that get another rule.
const (
	// maxWork bounds the values that are tried, and what they cost: a value that many patterns
	// are tried for costs more.
	maxWork = 2_000_000
	// maxOverlaps bounds the ways in which two patterns fit the same value.
	maxOverlaps = 64
	// patternsPerWork is how many patterns are tried at the cost of one value.
	patternsPerWork = 256
	// pairsPerWork is how many pairs of patterns are compared at the cost of one value.
	pairsPerWork = 16
)

const tooMany = "the rules have more ways to match than rls compares, so descriptors may match other rules although no line says so"

// node is a node of the tree of a domain.
type node = descriptors.Position[*rules.Rule]

// A walker walks the trees of one domain in both sets at once.
type walker struct {
	*comparison
	domain string
	filler string
	work   int
	found  map[[2]*rules.Rule]*MatchChange
	order  []*MatchChange
}

// matches finds the descriptors that get another rule.
func (c *comparison) matches() {
	work, filler := maxWork, fillerOf(c.old.Rules, c.new.Rules)
	var all []*MatchChange
	for _, name := range sortedUnion(c.old.Rules.Domains(), c.new.Rules.Domains()) {
		w := &walker{comparison: c, domain: name, filler: filler, work: work, found: make(map[[2]*rules.Rule]*MatchChange)}
		w.walk(c.old.Rules.Top(name), c.new.Rules.Top(name), nil)
		work = max(w.work, 0)
		all = append(all, w.order...)
	}
	if work == 0 {
		c.report.Incomplete = tooMany
	}
	// What no rule change implies comes first, in case there are too many.
	slices.SortStableFunc(all, func(a, b *MatchChange) int { return cmp.Compare(number(a.implied), number(b.implied)) })
	for i, m := range all {
		c.report.Verdict = join(c.report.Verdict, m.Verdict)
		if i < MaxMatches {
			c.report.Matches = append(c.report.Matches, *m)
		} else {
			c.report.MatchesLeftOut++
		}
	}
}

// fillerOf returns a text for the wildcards of patterns that no pattern has a part of. So a
// pattern fits a filled one only if it fits all values of that.
func fillerOf(sets ...*rules.Rules) string {
	var used [256]bool
	for _, rs := range sets {
		for _, r := range rs.All() {
			for _, n := range r.Path {
				for i := 0; n.Pattern && i < len(n.Value); i++ {
					used[n.Value[i]] = true
				}
			}
		}
	}
	const nice = "xyzwvutsrqponmlkjihgfedcba0123456789XYZWVUTSRQPONMLKJIHGFEDCBA_~!$&'()+;@^|"
	for i := range len(nice) {
		if !used[nice[i]] {
			return nice[i : i+1]
		}
	}
	return "\x01"
}

// A step is one entry on the way to a node.
type step struct {
	key string
	// pattern are the values that go this way, and value is one of them.
	pattern, value string
	hidden         bool
}

// walk compares what is below two nodes. A node that is the zero value has nothing below it.
func (w *walker) walk(before, after node, path []step) {
	was, is := before.Below(), after.Below()
	keys := slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is)))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		l := level{walker: w, before: before, after: after, key: key, path: path, seen: make(map[[2]node]bool)}
		l.compare(was[key], is[key])
	}
}

// A level is one key below two nodes.
type level struct {
	*walker
	before, after node
	key           string
	path          []step
	exact         map[string]bool
	cost          int // of a value
	seen          map[[2]node]bool
}

// compare tries the values that the two nodes distinguish.
func (l *level) compare(was, is []descriptors.Node) {
	l.exact = make(map[string]bool)
	before, after := l.split(was), l.split(is)
	l.cost = 1 + (len(before)+len(after))/patternsPerWork
	l.try(descriptors.Wildcard, true)
	for _, p := range sortedUnion(before, after) {
		l.try(p, true)
	}
	for _, v := range slices.Sorted(maps.Keys(l.exact)) {
		l.try(v, false)
	}
	l.overlaps(before, after)
}

// split returns the patterns of nodes in their order, and notes their values.
func (l *level) split(nodes []descriptors.Node) (patterns []string) {
	for _, n := range nodes {
		switch {
		case n.Pattern:
			patterns = append(patterns, n.Value)
		case !n.AnyValue:
			l.exact[n.Value] = true
		}
	}
	return patterns
}

// try goes on with one value: a value, or one that fits a pattern and no other pattern that does
// not fit all of it.
func (l *level) try(text string, pattern bool) {
	if l.work -= l.cost; l.work <= 0 {
		return
	}
	value := text
	for n := 1; pattern && strings.Contains(text, descriptors.Wildcard); n++ {
		value = strings.ReplaceAll(text, descriptors.Wildcard, strings.Repeat(l.filler, n))
		if !l.exact[value] {
			break
		}
	}
	e := descriptors.Entry{Key: l.key, Value: value}
	next := [2]node{l.before.Next(e), l.after.Next(e)}
	if next == ([2]node{}) || l.seen[next] {
		return
	}
	l.seen[next] = true
	hidden := l.old.Rules.HidesEntry(l.key) && text != descriptors.Wildcard
	path := append(slices.Clip(l.path), step{l.key, text, value, hidden})
	l.add(next, path)
	l.walk(next[0], next[1], path)
}

// overlaps tries values that fit a pattern of each node.
func (l *level) overlaps(before, after []string) {
	if slices.Equal(before, after) {
		return // the same pattern gets each value as before
	}
	var others []descriptors.Pattern
	for _, o := range after {
		others = append(others, descriptors.NewPattern(o))
	}
	for _, p := range before {
		if l.work -= 1 + len(after)/pairsPerWork; l.work <= 0 {
			return
		}
		one := descriptors.NewPattern(p)
		for i, o := range after {
			if o == p || !one.Overlaps(&others[i]) {
				continue
			}
			texts, complete := descriptors.Intersect(p, o, maxOverlaps)
			l.work -= len(texts)
			if !complete {
				l.report.Incomplete = tooMany
			}
			for _, text := range texts {
				l.try(text, true)
			}
		}
	}
}

// add adds the rules of two nodes that the same descriptors lead to.
func (w *walker) add(at [2]node, path []step) {
	before, _ := at[0].Rule()
	after, _ := at[1].Rule()
	if before == nil && after == nil || before != nil && after != nil && before.ID() == after.ID() {
		return
	}
	if m := w.found[[2]*rules.Rule{before, after}]; m != nil {
		m.Kinds++
		return
	}
	m := &MatchChange{Domain: w.domain, Kinds: 1}
	var shown, example []string
	for _, s := range path {
		if s.hidden {
			s.pattern, s.value = hiddenValue, hiddenValue
		}
		shown = append(shown, descriptors.Node{Key: s.key, Value: s.pattern}.String())
		example = append(example, escape.Replace(s.key)+"="+escape.Replace(s.value))
	}
	m.Descriptor, m.Example = strings.Join(shown, ", "), strings.Join(example, ",")
	var was, is []explain.AccountLimit
	if before != nil {
		m.OldRule, m.OldPath = before.Name, before.String()
		was = looks(w.old.Rules, before)
	}
	if after != nil {
		m.NewRule, m.NewPath = after.Name, after.String()
		is = looks(w.new.Rules, after)
	}
	switch {
	case before != nil && after != nil:
		m.Verdict, m.History = Both, historyOf(was, is)
	case before != nil && (verdictOf(was, is) != Neither || w.sets[w.old.Rules].overrides[before.Name]): // subjects may have overrides
		m.Verdict = Looser
	case after != nil && (verdictOf(was, is) != Neither || w.sets[w.new.Rules].overrides[after.Name]):
		m.Verdict = Stricter
	default:
		m.Verdict = Neither
	}
	m.implied = before == nil && w.old.Rules.Rule(after.ID()) == nil || after == nil && w.new.Rules.Rule(before.ID()) == nil
	if before != nil {
		w.lost[before.ID()] = join(w.lost[before.ID()], m.Verdict)
	}
	if after != nil {
		w.taken[after.ID()] = join(w.taken[after.ID()], m.Verdict)
	}
	w.found[[2]*rules.Rule{before, after}] = m
	w.order = append(w.order, m)
}

// looks returns the limits of a rule for all tiers, without those that are only observed.
func looks(rs *rules.Rules, r *rules.Rule) (all []explain.AccountLimit) {
	tiers := []string{""}
	if len(r.ByTier) > 0 {
		tiers = tiersOf(rs)
	}
	for _, t := range tiers {
		all = append(all, enforcedOf(sample(rs, r, t))...)
	}
	return all
}

// enforcedOf returns the limits that can deny.
func enforcedOf(all []explain.AccountLimit) []explain.AccountLimit {
	return slices.DeleteFunc(all, func(l explain.AccountLimit) bool { return l.Observed || !limits(&l) })
}

// hiddenValue stands for values that must not be shown.
const hiddenValue = "***"

// escape writes a key or a value as [descriptors.Parse] reads it.
var escape = strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`)
