package diff

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// randomRules adds random rules of few keys and values to a set, so that many of them meet.
func randomRules(t *testing.T, rnd *rand.Rand) *rules.Rules {
	t.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	for range rnd.IntN(12) {
		r := rules.Rule{Domain: []string{"d", "e"}[rnd.IntN(8)/7]}
		for range 1 + rnd.IntN(3) {
			r.Path = append(r.Path, randomNode(rnd))
		}
		if rnd.IntN(4) > 0 {
			r.Terms.Limits = []rules.Limit{{Limit: window.Limit{Hits: 1 + uint64(rnd.IntN(3)), Window: window.MaxWindow / 1000}}}
		}
		_ = rs.Add(r) // a second rule for a path is refused
	}
	return rs
}

func randomNode(rnd *rand.Rand) descriptors.Node {
	n := descriptors.Node{Key: []string{"k", "l", "api_key"}[rnd.IntN(7)/3], AnyValue: true}
	if n.Key == "api_key" || rnd.IntN(4) == 0 {
		return n
	}
	n.AnyValue = false
	for range rnd.IntN(4) {
		n.Value += []string{"a", "b", "*"}[rnd.IntN(3)]
	}
	if n.Value == "" {
		n.Value = "a"
	}
	n.Pattern = strings.Contains(n.Value, "*")
	return n
}

func randomDescriptor(rnd *rand.Rand) (d descriptors.Descriptor) {
	for range 1 + rnd.IntN(3) {
		e := descriptors.Entry{Key: []string{"k", "l", "api_key"}[rnd.IntN(7)/3]}
		for range rnd.IntN(5) {
			e.Value += []string{"a", "b", "c"}[rnd.IntN(5)/2]
		}
		d = append(d, e)
	}
	return d
}

// match returns the rule that a domain has for a descriptor. It does not use places.
func match(rs *rules.Rules, domain string, d descriptors.Descriptor) *rules.Rule {
	e, err := explain.Explain(context.Background(), rs, decide.Request{Domain: domain, Descriptors: []decide.Descriptor{{Entries: d}}}, decide.Options{Store: nothing{}}, nil)
	if err != nil {
		return nil // the domain does not exist
	}
	return e.Verdict.Matches[0].Rule
}

// nothing is a store that allows everything.
type nothing struct{ window.Store }

func (nothing) Take(context.Context, bool, []window.Check, []window.Decision) (bool, error) {
	return true, nil
}

// TestEveryDescriptorWithAnotherLimitIsTold: whatever two random sets are, a random descriptor
// that gets another rule, or a rule that means something else, is told.
func TestEveryDescriptorWithAnotherLimitIsTold(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	moved, changed := 0, 0
	sets := random.Steps(t, 400, 3000)
	for range sets {
		old, now := randomRules(t, rnd), randomRules(t, rnd)
		report := Compare(Set{Rules: old}, Set{Rules: now})
		if report.Incomplete != "" || report.MatchesLeftOut > 0 {
			t.Fatalf("seed %d: not complete: %+v", seed, report)
		}
		told := make(map[string]bool)
		for _, m := range report.Matches {
			told[m.Domain+" "+m.OldPath+" -> "+m.NewPath] = true
			confirm(t, old, now, &m)
		}
		for range 100 {
			domain, d := []string{"d", "e"}[rnd.IntN(8)/7], randomDescriptor(rnd)
			was, is := match(old, domain, d), match(now, domain, d)
			switch {
			case pathOf(was) != pathOf(is):
				moved++
				if !told[domain+" "+pathOf(was)+" -> "+pathOf(is)] {
					t.Fatalf("seed %d: %s %v: %s, now %s, but the report has only %v\nold %v\nnew %v", seed, domain, d, pathOf(was), pathOf(is), told, old.All(), now.All())
				}
			case was != nil && rules.FormatLimit(limitOf(was)) != rules.FormatLimit(limitOf(is)):
				changed++
				if !slices.ContainsFunc(report.Rules, func(c RuleChange) bool { return c.What == "changed" && c.Path == is.String() }) {
					t.Fatalf("seed %d: %v has another limit, and the report says nothing of it", seed, is)
				}
			}
		}
	}
	if moved < 3*sets || changed < sets/8 {
		t.Errorf("seed %d: only %d descriptors got another rule, and %d another limit", seed, moved, changed)
	}
}

func pathOf(r *rules.Rule) string {
	if r == nil {
		return ""
	}
	return r.String()
}

func limitOf(r *rules.Rule) window.Limit {
	if len(r.Terms.Limits) == 0 {
		return window.Limit{}
	}
	return r.Terms.Limits[0].Limit
}

// confirm asks both sets for the example of a match.
func confirm(t *testing.T, old, now *rules.Rules, m *MatchChange) {
	t.Helper()
	d, err := descriptors.Parse(m.Example)
	if err != nil {
		t.Fatalf("%q: %v", m.Example, err)
	}
	if was, is := pathOf(match(old, m.Domain, d)), pathOf(match(now, m.Domain, d)); was != m.OldPath || is != m.NewPath {
		t.Fatalf("%s: %q, now %q; the report says %q, now %q", m.Example, was, is, m.OldPath, m.NewPath)
	}
}
