package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// observeRules returns rules with one rule r for each API key, and a directory in which acme has an
// override for it, and hobby has none.
func observeRules(t *testing.T, prepare func(*rules.Rules), r rules.Rule, o tier.Override) *rules.Rules {
	t.Helper()
	dir, err := tier.NewDirectory([]string{"free"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []tier.Subject{{ID: "acme", Extra: &tier.Extra{Overrides: map[string]tier.Override{"r": o}}}, {ID: "hobby"}} {
		if err := dir.Add(s, secrets.Digest(s.ID+"-key")); err != nil {
			t.Fatal(err)
		}
	}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	if prepare != nil {
		prepare(rs)
	}
	r.Domain, r.Name, r.Path = "edge", "r", []descriptors.Node{anyOf("api_key")}
	if err := rs.Add(r); err != nil {
		t.Fatal(err)
	}
	return rs
}

// TestObserveOfASubject: an override says for one subject whether a rule denies it. All others
// are as the rule says.
func TestObserveOfASubject(t *testing.T) {
	const minute = time.Minute
	one, own := per(1, minute), []window.Limit{{Hits: 3, Window: minute}}
	observe := func(share float64) rules.Rule {
		return rules.Rule{Terms: rules.Terms{Limits: one.Limits, Observe: share}}
	}
	for name, tt := range map[string]struct {
		prepare     func(*rules.Rules)
		rule        rules.Rule
		override    tier.Override
		acme, hobby string // after four requests
		explained   string
	}{
		"counted, not denied": {
			nil, observe(0),
			tier.Override{Observe: tier.ObserveOnly},
			"OK ok:0 shadow r", "OVER over:0 by r in 1m0s", "1 per 1m, only observed for this subject",
		},
		"a pilot": {
			nil, observe(1),
			tier.Override{Observe: tier.ObserveNot},
			"OVER over:0 by r in 1m0s", "OK ok:0 shadow r", "1 per 1m, enforced for this subject",
		},
		"a pilot beside a share": {
			nil, observe(0.999999),
			tier.Override{Observe: tier.ObserveNot},
			"OVER over:0 by r in 1m0s", "OK ok:0 shadow r", "1 per 1m, enforced for this subject",
		},
		"counted beside a share": {
			nil, observe(0.000001),
			tier.Override{Observe: tier.ObserveOnly},
			"OK ok:0 shadow r", "OVER over:0 by r in 1m0s", "1 per 1m, only observed for this subject",
		},
		"with a limit of its own": {
			nil, observe(0),
			tier.Override{Observe: tier.ObserveOnly, Limits: own},
			"OK ok:0 shadow r", "OVER over:0 by r in 1m0s", "whose own limit it is: 3 per 1m, only observed for this subject",
		},
		"a pilot with a limit of its own": {
			nil, observe(1),
			tier.Override{Observe: tier.ObserveNot, Limits: own},
			"OVER over:0 by r in 1m0s", "OK ok:0 shadow r", "whose own limit it is: 3 per 1m, enforced for this subject",
		},
		"a limit alone": {
			nil, observe(1),
			tier.Override{Limits: own},
			"OK ok:0 shadow r", "OK ok:0 shadow r", "whose own limit it is: 3 per 1m, only observed",
		},
		"rules.shadow_mode observes the pilot too": {
			(*rules.Rules).ObserveAll, observe(1),
			tier.Override{Observe: tier.ObserveNot},
			"OK ok:0 shadow r", "OK ok:0 shadow r", "1 per 1m, only observed",
		},
		"charge: always is never only observed": {
			nil,
			rules.Rule{Always: true, Terms: one},
			tier.Override{Observe: tier.ObserveOnly},
			"OVER over:0 by r in 1m0s", "OVER over:0 by r in 1m0s", "1 per 1m, charged even if the request is denied",
		},
		"nothing to observe": {
			nil,
			rules.Rule{Terms: rules.Terms{Unlimited: true}},
			tier.Override{Observe: tier.ObserveOnly},
			"OK unlimited", "OK unlimited", "unlimited",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rs := observeRules(t, tt.prepare, tt.rule, tt.override)
			now := time.Hour
			store := memstore.New(memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1})
			t.Cleanup(func() { store.Close() })
			d, _ := decide.NewCounted(t, rs, store)
			for key, want := range map[string]string{"api_key=acme-key": tt.acme, "api_key=hobby-key": tt.hobby} {
				var v decide.Verdict
				for range 4 {
					v = decide.Decided(t, d, request(key))
				}
				if got := decide.Say(&v); got != want {
					t.Errorf("%s: %s, want %s", key, got, want)
				}
			}
			empty := memstore.New(memstore.Options{SweepInterval: -1})
			t.Cleanup(func() { empty.Close() })
			e, err := explain.Explain(t.Context(), rs, *request("api_key=acme-key"), decide.Options{Store: empty}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(e.Lines, "\n"); !strings.Contains(text+"\n", tt.explained+"\n") {
				t.Errorf("explained as:\n%s\nwant %s", text, tt.explained)
			}
			testObserveAccount(t, rs, tt.acme)
		})
	}
}

// testObserveAccount: what operators read agrees with what acme got.
func testObserveAccount(t *testing.T, rs *rules.Rules, got string) {
	t.Helper()
	p := explain.AccountOf(t.Context(), rs, explain.AccountQuery{Digest: secrets.Digest("acme-key")})
	limits, _ := p.Rule(0)
	if len(limits) != 1 || limits[0].Observed != strings.Contains(got, "shadow") {
		t.Errorf("the account has %+v, and the request got %s", limits, got)
	}
}

// TestObserveNotes: what an override says of observing and has no effect is told.
func TestObserveNotes(t *testing.T) {
	only, not := tier.Override{Observe: tier.ObserveOnly}, tier.Override{Observe: tier.ObserveNot}
	one := per(1, time.Minute)
	for name, tt := range map[string]struct {
		prepare  func(*rules.Rules)
		rule     rules.Rule
		override tier.Override
		want     string
	}{
		"observed":        {nil, rules.Rule{Terms: one}, only, ""},
		"a pilot":         {nil, rules.Rule{Terms: one}, not, ""},
		"charge always":   {nil, rules.Rule{Terms: one, Always: true}, only, "a rule with charge always cannot be observed only: rls ignores observe"},
		"no limit":        {nil, rules.Rule{Terms: rules.Terms{Unlimited: true}}, only, "the rule does not limit this tier: observe has no effect"},
		"all are shadows": {(*rules.Rules).ObserveAll, rules.Rule{Terms: one}, not, "rules.shadow_mode observes every rule for all: observe false has no effect"},
		"quota":           {nil, rules.Rule{Terms: one, Quota: true}, only, ""},
	} {
		rs := observeRules(t, tt.prepare, tt.rule, tt.override)
		if got := rs.OverrideNote(rs.All()[0], "free", &tt.override); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		review := explain.NewReview(rs)
		notes := strings.Join(review.Domains[0].Rules[0].Notes, "\n")
		want := map[tier.Observe]string{tier.ObserveOnly: "only observed for 1 subject, by its override", tier.ObserveNot: "enforced for 1 subject, by its override"}
		if strings.Contains(notes, want[tt.override.Observe]) == tt.rule.Always {
			t.Errorf("%s: the review has the notes %q", name, notes)
		}
	}
}

// TestSharesOfSubjects: of 3,000 subjects, observe: 99% enforces about 30, and every smaller
// share enforces the same ones and more. All logs of a subject under a rule are enforced, or none.
// The hashes have no random part, so the test always gives the same result.
func TestSharesOfSubjects(t *testing.T) {
	const subjects = 3000
	enforced := func(share float64, limit uint64, path ...descriptors.Node) (who []string) {
		rs := rules.NewRules(rules.Identity{Secrets: secrets})
		terms := per(limit, time.Hour)
		terms.Observe = share
		if err := rs.Add(rules.Rule{Domain: "edge", Path: path, Subject: "customer", Terms: terms}); err != nil {
			t.Fatal(err)
		}
		d, _ := decide.NewCounted(t, rs, new(decide.RecordingStore))
		for i := range subjects {
			name := fmt.Sprintf("customer=c-%d", i)
			for _, more := range []string{" route=a", " route=b", " route=c"}[:2*len(path)-1] {
				text := name
				if len(path) > 1 {
					text += more
				}
				v := decide.Decided(t, d, request(text))
				switch at := slices.Index(who, name); {
				case more != " route=a" && v.Limits[0].Observed() == (at >= 0):
					t.Fatalf("%s under %v%%: some logs are enforced and others not", name, 100*share)
				case more == " route=a" && !v.Limits[0].Observed():
					who = append(who, name)
				}
			}
		}
		return who
	}
	for _, path := range [][]descriptors.Node{{anyOf("customer")}, {anyOf("customer"), anyOf("route")}} {
		var before []string
		for _, tt := range []struct {
			share       float64
			least, most int
		}{{1, 0, 0}, {0.99, 15, 45}, {0.9, 250, 350}, {0.5, 1400, 1600}, {0, subjects, subjects}} {
			got := enforced(tt.share, 5, path...)
			if len(got) < tt.least || len(got) > tt.most {
				t.Errorf("observe: %v%% enforces %d of %d subjects, want %d to %d", 100*tt.share, len(got), subjects, tt.least, tt.most)
			}
			has := make(map[string]bool, len(got))
			for _, name := range got {
				has[name] = true
			}
			for _, name := range before {
				if !has[name] {
					t.Fatalf("observe: %v%% does not enforce %s, which a larger share did", 100*tt.share, name)
				}
			}
			before = got
		}
		// Another limit enforces the same ones.
		if one, two := enforced(0.99, 5, path...), enforced(0.99, 7, path...); !slices.Equal(one, two) {
			t.Errorf("with another limit, others are enforced: %v, %v", one, two)
		}
	}
}
