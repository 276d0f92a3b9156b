package decide_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// explainWith explains a request by the active rules of a decider, with an empty store.
func explainWith(t *testing.T, d *decide.Decider, req decide.Request) (*explain.Explanation, error) {
	t.Helper()
	return explainIn(t, memstore.Options{}, d, req)
}

// explainIn explains a request with a store whose clock must agree with that of the Decider.
func explainIn(t *testing.T, o memstore.Options, d *decide.Decider, req decide.Request) (*explain.Explanation, error) {
	t.Helper()
	store := memstore.New(o)
	defer func() { _ = store.Close() }()
	return explain.Explain(t.Context(), d.Trial(d.Rules(), store), req, nil)
}

// TestWhatLooksSecretIsNotShown has a rule for one value of an entry that looks like a
// secret but is not configured as one. The name of the log contains the value, which is
// why validate warns.
func TestWhatLooksSecretIsNotShown(t *testing.T) {
	var now time.Duration
	d, got := decide.NewModes(t, nil, &now,
		with(rule("", per(9, time.Minute), one("my_password", "hunter2"), anyOf("bearer-token")), func(r *rules.Rule) { r.Metric.Detailed = true }),
	)
	e, err := explainWith(t, d, *request("my_password=hunter2 bearer-token=t0ps3cret"))
	if err != nil {
		t.Fatal(err)
	}
	r := d.Rules().All()[0]
	var lines []string
	for _, line := range e.Lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "log ") {
			lines = append(lines, line)
		}
	}
	review := explain.NewReview(d.Rules()).Domains[0].Rules[0]
	text := fmt.Sprintln(r.Name, r, got, lines, review.Path, review.Name)
	for _, secret := range []string{"hunter2", "t0ps3cret"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is shown in\n%s", secret, text)
		}
	}
	if want := "my_password.bearer-token"; r.Name != want {
		t.Errorf("name = %s, want %s", r.Name, want)
	}
}

// TestOnceInAccounts: usage and resets by a descriptor find the log of its other entries.
func TestOnceInAccounts(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	decide.AddOnce(t, rs, with(rule("orders", per(5, time.Hour), anyOf("user")), decide.Once))
	decide.AddOnce(t, rs, rule("search", per(5, time.Hour), one("route", "search"), anyOf("user")))
	logs := func(text string) (all []window.LogID) {
		p := explain.AccountOf(t.Context(), rs, explain.AccountQuery{Domain: "edge", Entries: d(text).Entries})
		limits, _ := p.Rule(0)
		for i := range limits {
			all = append(all, limits[i].Log)
		}
		return all
	}
	for sent, without := range map[string]string{"attempt=1 user=k": "user=k", "route=search attempt=1 user=k": "route=search user=k"} {
		if got, want := logs(sent), logs(without); len(want) != 1 || !slices.Equal(got, want) {
			t.Errorf("%s has the logs %v, want %v", sent, got, want)
		}
	}
}

// TestOnceIsReported: validate and explain tell of charge_once, and not of the key.
func TestOnceIsReported(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	r := with(rule("keys", per(10, time.Second), anyOf("api_key")), decide.Once)
	decide.AddOnce(t, rs, with(r, func(r *rules.Rule) { r.Charge.Once.For = 10 * time.Minute }))
	var text strings.Builder
	fmt.Fprint(&text, explain.NewReview(rs))
	store := memstore.New(memstore.Options{})
	defer store.Close()
	got, err := explain.Explain(t.Context(), decide.NewDecider(rs, decide.Options{Store: store}), decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{d("api_key=k attempt=my-secret-key")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text.WriteString(strings.Join(got.Lines, "\n"))
	for _, want := range []string{
		`charge_once="attempt for 10m, 2 retries"`, "a caller can save up the free retries of all requests that the limit admits",
		"attempt=*** names the attempt, and not the log: attempt for 10m, 2 retries",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "my-secret-key") {
		t.Errorf("the key is in\n%s", text.String())
	}
}

// TestExplainBillingDay: an explanation has the day on which the periods of a subject start.
func TestExplainBillingDay(t *testing.T) {
	const rule = "month from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin), so up to 20 around its end\n    the present period is from"
	for _, tt := range []struct{ key, day, want string }{
		{"acme-key", "15", "month from day 15 at 00:00, Europe/Berlin), so up to 20 around its end; the day is in the label billing_day"},
		{"acme-key", "1", "month from day 1 at 00:00, Europe/Berlin), so up to 20 around its end; the day is in the label billing_day"},
		{"acme-key", "first", rule},
		{"x", "15", rule},
	} {
		m := decide.NewMonthly(t, 10, map[string]string{"billing_day": tt.day})
		e, err := explainIn(t, memstore.Options{Clock: func() time.Duration { return 0 }}, m.Decider(), *request("api_key=" + tt.key))
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, tt.want) {
			t.Errorf("%s, day %s: no %q in\n%s", tt.key, tt.day, tt.want, text)
		}
	}
}

// TestExplainChangesNothing explains by rules that are active, and compares what the decider
// counts and has learned.
func TestExplainChangesNothing(t *testing.T) {
	var now time.Duration
	d, got := decide.NewModes(t, nil, &now, rule("a", per(5, time.Minute), anyOf("f")))
	before := maps.Clone(got)
	req := request("f=1", "f=2", "none=1")
	req.Descriptors[0].Cost = 0
	for range 3 {
		if _, err := explainWith(t, d, *req); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if d.Asked(0) {
		t.Error("an explanation counts as a quota check")
	}
	if _, err := explain.Explain(t.Context(), decide.NewDecider(rules.NewRules(rules.Identity{Secrets: new(tier.Secrets)}), decide.Options{}), decide.Request{Domain: "x", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: "f"}}}}}, nil); err == nil {
		t.Error("an unknown domain was explained")
	}
}

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
			"OK ok:0 shadow r", "OVER over:0 by r in 1m0s", "by an override: 3 per 1m, only observed for this subject",
		},
		"a pilot with a limit of its own": {
			nil, observe(1),
			tier.Override{Observe: tier.ObserveNot, Limits: own},
			"OVER over:0 by r in 1m0s", "OK ok:0 shadow r", "by an override: 3 per 1m, enforced for this subject",
		},
		"a limit alone": {
			nil, observe(1),
			tier.Override{Limits: own},
			"OK ok:0 shadow r", "OK ok:0 shadow r", "by an override: 3 per 1m, only observed",
		},
		"rules.shadow_mode observes the pilot too": {
			(*rules.Rules).ObserveAll, observe(1),
			tier.Override{Observe: tier.ObserveNot},
			"OK ok:0 shadow r", "OK ok:0 shadow r", "1 per 1m, only observed",
		},
		"charge: always is never only observed": {
			nil,
			rules.Rule{Charge: rules.Charge{Always: true}, Terms: one},
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
			e, err := explain.Explain(t.Context(), decide.NewDecider(rs, decide.Options{Store: empty}), *request("api_key=acme-key"), nil)
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
		"charge always":   {nil, rules.Rule{Terms: one, Charge: rules.Charge{Always: true}}, only, "a rule with charge always cannot be observed only: rls ignores observe"},
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
		if strings.Contains(notes, want[tt.override.Observe]) == tt.rule.Charge.Always {
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
