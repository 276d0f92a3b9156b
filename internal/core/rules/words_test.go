package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/coretest"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestWords describes a rule of every kind.
func TestWords(t *testing.T) {
	keyed := func(r *rules.Rule) { r.ByTier = map[string]rules.Terms{"starter": per(100, time.Minute)} }
	for _, tt := range []struct {
		rule rules.Rule
		want string // lines
	}{
		{rule("a", per(100, time.Minute), anyOf("api_key")), "100 in any 1m, for each API key"},
		{
			with(rule("a", per(10, time.Minute), anyOf("api_key")), keyed),
			"100 in any 1m, for each API key of tier starter\n10 in any 1m, for each API key of any other tier",
		},
		{
			with(rule("a", rules.Terms{}, anyOf("api_key")), func(r *rules.Rule) {
				r.ByTier = map[string]rules.Terms{"starter": per(100, time.Minute), "free": {Unlimited: true}}
			}),
			"unlimited, for each API key of tier free\n100 in any 1m, for each API key of tier starter",
		},
		{
			with(rule("a", rules.Terms{Unlimited: true}, anyOf("f")), func(r *rules.Rule) { keyed(r); r.Subject = "api_key" }),
			"100 in any 1m, for each value of f, if the caller is of tier starter\nunlimited, for each value of f, if the caller is of any other tier",
		},
		{rule("a", per(9500, time.Hour), one("route", "search"), anyOf("api_key")), "9,500 in any 1h, for each API key, in requests with route=search"},
		{rule("a", per(1, 24*time.Hour), one("route", "search")), "1 in any 1d, for all requests with route=search"},
		{rule("a", per(5, 90*time.Second), anyOf("remote_address")), "5 in any 90s, for each client address"},
		{rule("a", per(5, 250*time.Millisecond), anyOf("masked_remote_address")), "5 in any 250ms, for each client network"},
		{rule("a", per(5, 7*24*time.Hour), fits("path", "/v1/*")), "5 in any 1w, for each value of path that fits /v1/*"},
		{
			with(rule("a", per(5, 15*time.Millisecond), fits("path", "/v1/*")), func(r *rules.Rule) { r.OneLog = []bool{true} }),
			"5 in any 15ms, for all requests with path that fits /v1/*, together",
		},
		{rule("a", per(0, time.Minute), one("api_key", "k1")), "nothing, for all requests with api_key=***"},
		{rule("a", per(window.Unlimited, time.Minute), anyOf("f")), "as many as wanted, for each value of f"},
		{rule("a", rules.Terms{}, anyOf("f")), "no limit, for each value of f"},
		{
			rule("a", rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 10, Window: time.Second}}, {Limit: window.Limit{Hits: 1000000, Window: time.Hour}}}}, anyOf("f"), anyOf("g")),
			"10 in any 1s, and 1,000,000 in any 1h, for each value of f and each value of g",
		},
		{with(rule("a", per(5, time.Minute), anyOf("f")), func(r *rules.Rule) { r.Terms.Observe = 1 }), "5 in any 1m, for each value of f; only observed, so nothing is denied"},
		{with(rule("a", per(5, time.Minute), anyOf("f")), func(r *rules.Rule) { r.Terms.Observe = 0.25 }), "5 in any 1m, for each value of f; only observed for 25% of them"},
	} {
		rs := coretest.Build(t, tt.rule)
		if diff := cmp.Diff(tt.want, strings.Join(rs.All()[0].Words(), "\n")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestOpenToOneCaller: a limit in flight that all callers share needs a smaller one for each caller.
func TestOpenToOneCaller(t *testing.T) {
	places := func(n uint64) rules.Terms {
		return rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: n, Window: time.Minute, Policy: window.InFlight}}}}
	}
	backend := rule("backend", places(20), one("in_flight", "backend"))
	for _, tt := range []struct {
		name  string
		other rules.Rule
		open  bool
	}{
		{"an address", rule("r", places(5), one("in_flight", "address"), anyOf("masked_remote_address")), false},
		{"a subject", with(rule("r", places(5), one("in_flight", "subject")), func(r *rules.Rule) { r.Subject = "api_key" }), false},
		{"a subject that is no key", with(rule("r", places(5), anyOf("subject")), func(r *rules.Rule) { r.Subject = "subject" }), false},
		{"as many", rule("r", places(20), one("in_flight", "address"), anyOf("remote_address")), true},
		{"one address", rule("r", places(5), one("in_flight", "x"), one("remote_address", "192.0.2.1")), true},
		{"an API key", rule("r", places(5), one("in_flight", "key"), anyOf("api_key")), true},
		{"a rate", rule("r", per(5, time.Minute), anyOf("remote_address")), true},
		{"another domain", with(rule("r", places(5), anyOf("remote_address")), func(r *rules.Rule) { r.Domain = "other" }), true},
	} {
		rs := rules.NewRules(rules.Identity{Secrets: secrets})
		for _, r := range []rules.Rule{backend, tt.other} {
			if r.Domain == "" {
				r.Domain = "edge"
			}
			if err := rs.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if got := slices.Contains(rs.OpenToOneCaller(), 0); got != tt.open {
			t.Errorf("beside a rule for %s: open is %v, want %v", tt.name, got, tt.open)
		}
	}
}
