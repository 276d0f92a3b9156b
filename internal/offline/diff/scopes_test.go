package diff

import (
	"slices"
	"testing"
)

// TestScopeVerdict: a log in each region admits more than one log for all regions. The other
// changes of the rule are joined with that.
func TestScopeVerdict(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		was, is             uint64 // limits
		scope, rule         Verdict
		words               string
	}{
		{"to all regions", "", "global", 10, 10, Stricter, Stricter, "the limit is now for all regions together, no longer for each"},
		{"the same, named", "region", "global", 10, 10, Stricter, Stricter, "the limit is now for all regions together, no longer for each"},
		{"to each region", "global", "", 10, 10, Looser, Looser, "each region now admits the limit, no longer all regions together"},
		{"between shared scopes", "global", "other", 10, 10, Both, Both, "another log for all regions"},
		{"to all regions, lower", "", "global", 10, 5, Stricter, Stricter, "the limit is now for all regions together, no longer for each"},
		{"to all regions, higher", "", "global", 10, 20, Stricter, Both, "the limit is now for all regions together, no longer for each"},
		{"to each region, lower", "global", "region", 10, 5, Looser, Both, "each region now admits the limit, no longer all regions together"},
		{"to each region, higher", "global", "region", 10, 20, Looser, Looser, "each region now admits the limit, no longer all regions together"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := base(), base()
			before.rule.Storage.Scope, after.rule.Storage.Scope = c.before, c.after
			before.limit.Hits, after.limit.Hits = c.was, c.is
			r := Compare(before.build(t), after.build(t))
			if len(r.Rules) != 1 || r.Rules[0].Verdict != c.rule || r.Verdict != c.rule {
				t.Fatalf("got %+v, want one rule, %s", r, c.rule)
			}
			changes := r.Rules[0].Changes
			i := slices.IndexFunc(changes, func(c Change) bool { return c.What == "scope" })
			if i < 0 || changes[i].Verdict != c.scope || changes[i].Consequences() != c.words {
				t.Errorf("got %+v, want a scope that is %s: %s", changes, c.scope, c.words)
			}
		})
	}
}
