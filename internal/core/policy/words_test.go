package policy

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestWords describes a rule of every kind.
func TestWords(t *testing.T) {
	keyed := func(r *Rule) { r.ByTier = map[string]Terms{"starter": per(100, time.Minute)} }
	for _, tt := range []struct {
		rule Rule
		want string // lines
	}{
		{rule("a", per(100, time.Minute), anyOf("api_key")), "100 in any 1m, for each API key"},
		{
			with(rule("a", per(10, time.Minute), anyOf("api_key")), keyed),
			"100 in any 1m, for each API key of tier starter\n10 in any 1m, for each API key of any other tier",
		},
		{
			with(rule("a", Terms{}, anyOf("api_key")), func(r *Rule) {
				r.ByTier = map[string]Terms{"starter": per(100, time.Minute), "free": {Unlimited: true}}
			}),
			"unlimited, for each API key of tier free\n100 in any 1m, for each API key of tier starter",
		},
		{
			with(rule("a", Terms{Unlimited: true}, anyOf("f")), func(r *Rule) { keyed(r); r.Subject = "api_key" }),
			"100 in any 1m, for each value of f, if the caller is of tier starter\nunlimited, for each value of f, if the caller is of any other tier",
		},
		{rule("a", per(9500, time.Hour), one("route", "search"), anyOf("api_key")), "9,500 in any 1h, for each API key, in requests with route=search"},
		{rule("a", per(1, 24*time.Hour), one("route", "search")), "1 in any 1d, for all requests with route=search"},
		{rule("a", per(5, 90*time.Second), anyOf("remote_address")), "5 in any 90s, for each client address"},
		{rule("a", per(5, 250*time.Millisecond), anyOf("masked_remote_address")), "5 in any 250ms, for each client network"},
		{rule("a", per(5, 7*24*time.Hour), fits("path", "/v1/*")), "5 in any 1w, for each value of path that fits /v1/*"},
		{
			with(rule("a", per(5, 15*time.Millisecond), fits("path", "/v1/*")), func(r *Rule) { r.Share = []bool{true} }),
			"5 in any 15ms, for all requests with path that fits /v1/*, together",
		},
		{rule("a", per(0, time.Minute), one("api_key", "k1")), "nothing, for all requests with api_key=***"},
		{rule("a", per(window.MaxHits, time.Minute), anyOf("f")), "as many as wanted, for each value of f"},
		{rule("a", Terms{}, anyOf("f")), "no limit, for each value of f"},
		{
			rule("a", Terms{Limits: []Limit{{Limit: window.Limit{Hits: 10, Window: time.Second}}, {Limit: window.Limit{Hits: 1000000, Window: time.Hour}}}}, anyOf("f"), anyOf("g")),
			"10 in any 1s, and 1,000,000 in any 1h, for each value of f and each value of g",
		},
		{with(rule("a", per(5, time.Minute), anyOf("f")), func(r *Rule) { r.Terms.Observe = 1 }), "5 in any 1m, for each value of f; only observed, so nothing is denied"},
		{with(rule("a", per(5, time.Minute), anyOf("f")), func(r *Rule) { r.Terms.Observe = 0.25 }), "5 in any 1m, for each value of f; only observed for 25% of them"},
	} {
		var now time.Duration
		d, _ := newModes(t, nil, &now, tt.rule)
		if diff := cmp.Diff(tt.want, strings.Join(d.Rules().All()[0].Words(), "\n")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestExplainChangesNothing explains by rules that are active, and compares what the decider
// counts and has learned.
func TestExplainChangesNothing(t *testing.T) {
	var now time.Duration
	d, got := newModes(t, nil, &now, rule("a", per(5, time.Minute), anyOf("f")))
	before := maps.Clone(got)
	req := request("f=1", "f=2", "none=1")
	req.Descriptors[0].Cost = 0
	for range 3 {
		if _, err := explainWith(t, d, *req, nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if d.Rules().All()[0].asked.Load() != askedCosts {
		t.Error("an explanation counts as a quota check")
	}
	if _, err := NewRules(Identity{Secrets: new(tier.Secrets)}).Explain(t.Context(), Request{Domain: "x", Descriptors: []Descriptor{{Entries: descriptors.Descriptor{{Key: "f"}}}}}, Options{}, nil); err == nil {
		t.Error("an unknown domain was explained")
	}
}
