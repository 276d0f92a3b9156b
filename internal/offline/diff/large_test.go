package diff

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// large returns n rules with paths that path returns.
func large(tb testing.TB, n int, hits uint64, path func(i int) []descriptors.Node) Set {
	tb.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	for i := range n {
		err := rs.Add(rules.Rule{Domain: "d", Path: path(i), Terms: rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: time.Minute}}}}})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return Set{Rules: rs}
}

// paths are shapes of large sets.
var paths = map[string]func(side string) func(i int) []descriptors.Node{
	"values": func(string) func(int) []descriptors.Node {
		return func(i int) []descriptors.Node {
			return []descriptors.Node{{Key: "route", Value: fmt.Sprintf("r%d", i)}, {Key: "api_key", AnyValue: true}}
		}
	},
	"prefixes, all others": func(side string) func(int) []descriptors.Node {
		return func(i int) []descriptors.Node {
			return []descriptors.Node{{Key: "path", Value: fmt.Sprintf("/%s/%d/*", side, i), Pattern: true}}
		}
	},
	"suffixes, all others": func(side string) func(int) []descriptors.Node {
		return func(i int) []descriptors.Node {
			return []descriptors.Node{{Key: "path", Value: fmt.Sprintf("*/%s/%d", side, i), Pattern: true}}
		}
	},
	"below a wildcard that values take over": func(side string) func(int) []descriptors.Node {
		return func(i int) []descriptors.Node {
			n := descriptors.Node{Key: "route", AnyValue: true}
			if side == "new" && i < 5000 {
				n = descriptors.Node{Key: "route", Value: fmt.Sprintf("r%d", i)}
			}
			return []descriptors.Node{n, {Key: "k", Value: fmt.Sprint(i)}}
		}
	},
}

// TestLargeSetsAreBounded: however many ways there are to match, the report has a bound, and says
// what it leaves out.
func TestLargeSetsAreBounded(t *testing.T) {
	for name, path := range paths {
		r := Compare(large(t, 700, 5, path("old")), large(t, 700, 6, path("new")))
		if len(r.Matches) > MaxMatches || len(r.Matches) < MaxMatches && r.MatchesLeftOut > 0 {
			t.Errorf("%s: %d matches, %d left out", name, len(r.Matches), r.MatchesLeftOut)
		}
		if got, want := r.Incomplete != "", name == "below a wildcard that values take over" || name == "suffixes, all others"; got && !want {
			t.Errorf("%s: not complete", name)
		}
	}
}
