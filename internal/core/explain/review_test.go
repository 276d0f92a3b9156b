package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/coretest"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

func TestReview(t *testing.T) {
	limits := func(all ...window.Limit) rules.Terms {
		var terms rules.Terms
		for _, l := range all {
			terms.Limits = append(terms.Limits, rules.Limit{Limit: l, Precision: window.Precision(l)})
		}
		return terms
	}
	perSecond := func(hits uint64) window.Limit { return window.Limit{Hits: hits, Window: time.Second} }
	perMinute := func(hits uint64) window.Limit { return window.Limit{Hits: hits, Window: time.Minute} }
	rs := coretest.Build(t,
		rule("a", limits(perSecond(1)), fits("f", "img/*")),
		rule("b", limits(perSecond(1)), fits("f", "img/*.png")),
		rule("c", limits(perSecond(1)), fits("f", "*.png")),
		rule("d", limits(perSecond(1)), fits("f", "css/*")),
		rule("e", limits(perSecond(1)), fits("f", "*")),
		rule("f", limits(perSecond(1)), anyOf("f")),
		rule("g", limits(perSecond(1)), fits("f", "img/*.png"), anyOf("user")),
		rule("h", limits(perSecond(1)), one("f", "img/a.png")),
		rule("useless long", limits(perSecond(2), perMinute(120)), anyOf("x")),
		rule("useless short", limits(perSecond(2), perMinute(2)), anyOf("y")),
		rule("both count", limits(perSecond(2), perMinute(119)), anyOf("z")),
		rule("both none", limits(perSecond(0), perMinute(0)), anyOf("zz")),
		with(rule("debt", limits(perSecond(2), perMinute(120)), anyOf("d")), func(r *rules.Rule) { r.Charge.Always = true }),
		rule("coarse", rules.Terms{Limits: []rules.Limit{{Limit: perSecond(2)}, {Limit: perMinute(120), Precision: time.Second}}}, anyOf("co")),
		rule("leased", rules.Terms{Limits: []rules.Limit{{Limit: perSecond(200), Lease: window.Lease{Length: 50 * time.Millisecond, Hits: 10}}}}, anyOf("le")),
		with(rule("later", limits(perSecond(2)), anyOf("la")), func(r *rules.Rule) { r.Storage.OnError = rules.StoreErrorDeny }),
		rule("week", limits(window.Limit{Hits: 5, Window: 7 * 24 * time.Hour}), anyOf("w")),
		with(rule("traits", limits(perSecond(2)), anyOf("t")), func(r *rules.Rule) {
			r.Quota, r.Charge.Factor, r.Replaces, r.Storage.OnError = true, 3, []string{"a"}, rules.StoreErrorAllow
		}),
		with(rule("costly", limits(perSecond(10), perMinute(20)), anyOf("ex")), func(r *rules.Rule) {
			r.Charge.Factor = 11
			r.ByTier = map[string]rules.Terms{"starter": limits(perSecond(11))}
		}),
		with(rule("watched", rules.Terms{Limits: limits(perSecond(10)).Limits, Observe: 1}, anyOf("ob")), func(r *rules.Rule) { r.Charge.Factor = 11 }),
		rules.Rule{Name: "tiers", Path: []descriptors.Node{anyOf("api_key")}, Terms: limits(perMinute(1_000_000)), ByTier: map[string]rules.Terms{"starter": {Unlimited: true, Observe: 0.5}}},
	)
	review := NewReview(rs)
	got := make(map[string]RuleReview)
	for _, r := range review.Domains[0].Rules {
		r.ID = ""
		got[r.Name] = r
	}
	for name, want := range map[string][]string{ // unreachable, then notes
		"a":       {""},
		"b":       {"f=img/* comes before f=img/*.png and matches all of its values"},
		"c":       {""},
		"d":       {""},
		"f":       {"f=* matches every value before f"},
		"g":       {"f=img/* comes before f=img/*.png and matches all of its values"},
		"h":       {""},
		"traits":  {"", "a request costs 3, above the limit of 2 per 1s: each is denied, however long its caller waits"},
		"costly":  {"", "a request costs 11, above the limit of 10 per 1s: each is denied, however long its caller waits", "by_tier does not list free: the limit for other tiers applies"},
		"watched": {""},
	} {
		if diff := cmp.Diff(want, append([]string{got[name].Unreachable}, got[name].Notes...)); diff != "" {
			t.Errorf("rule %s: (-want +got)\n%s", name, diff)
		}
	}
	for name, want := range map[string][]string{
		"useless-long":  {"", "2 per 1s never lets more than 120 through in 1m"},
		"useless-short": {"2 per 1m never lets more than 2 through in 1s", ""},
		"both-count":    {"", ""},
		"both-none":     {"", "0 per 1s never lets more than 0 through in 1m"},
		"debt":          {"", ""},
		"coarse":        {"", ""},
	} {
		var is []string
		for _, l := range got[name].Terms[0].Limits {
			is = append(is, l.Pointless)
		}
		if diff := cmp.Diff(want, is); diff != "" {
			t.Errorf("rule %s: (-want +got)\n%s", name, diff)
		}
	}
	if got := got["week"].Terms[0].Limits[0].Precision; got != "1ms" {
		t.Errorf("a week is kept in times of %q, want 1ms", got)
	}
	if got := got["leased"].Terms[0].Limits[0].Lease; got != "up to 10 for 50ms" {
		t.Errorf("a lease is reviewed as %q", got)
	}
	if diff := cmp.Diff([]string{"on_store_error=deny"}, got["later"].Traits); diff != "" {
		t.Errorf("traits: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"quota", "cost=3", `replaces=["a"]`, "on_store_error=allow"}, got["traits"].Traits); diff != "" {
		t.Errorf("traits: (-want +got)\n%s", diff)
	}
	want := RuleReview{Name: "tiers", Path: "api_key", Notes: []string{"by_tier does not list free: the limit for other tiers applies"}, Terms: []TermsReview{
		{Limits: []LimitReview{{Requests: 1_000_000, Window: "1m", Limit: "1000000 per 1m", Policy: "sliding", Precision: "6ms", Bytes: 131 + 9*10_001}}},
		{Tier: "starter", Unlimited: true, Observe: 0.5},
	}}
	if diff := cmp.Diff(want, got["tiers"]); diff != "" {
		t.Errorf("the rule with tiers: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"free"}, review.TiersWithoutRule); diff != "" {
		t.Errorf("tiers without a rule: (-want +got)\n%s", diff)
	}
	if review.TiersWithoutSubject != nil {
		t.Errorf("tiers without a subject = %v, want none", review.TiersWithoutSubject)
	}
}

// TestReviewOfManyWildcards: the review says what many wildcards cost, once for each level, and an
// explanation lists only some of them.
func TestReviewOfManyWildcards(t *testing.T) {
	all := []rules.Rule{rule("few", per(1, time.Hour), one("a", "b"), fits("path", "*x*y*"))}
	for i := range 1200 {
		all = append(all, rule(fmt.Sprint("w", i), per(1, time.Hour), fits("path", fmt.Sprintf("*x%d-*y*", i))))
	}
	rs := coretest.Build(t, all...)
	e, err := explainWith(t, rs, *request("path=other"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(e.Lines, "\n"); strings.Count(text, "does not fit") != 11 || !strings.Contains(text, "path=other does not fit 1,190 more wildcards") {
		t.Errorf("the explanation of a value that no wildcard fits:\n%.3000s", text)
	}
	notes := make(map[string][]string)
	for _, r := range NewReview(rs).Domains[0].Rules {
		notes[r.Name] = r.Notes
	}
	for name, want := range map[string][]string{
		"few": nil,
		"w0":  {"path has 1,200 wildcards here with text between two *, which is searched in the whole value: a value of 1 KiB may take 1.23ms, and on_store_error decides requests with more than 3,494 bytes"},
		"w1":  nil,
	} {
		if diff := cmp.Diff(want, notes[name]); diff != "" {
			t.Errorf("rule %s: (-want +got)\n%s", name, diff)
		}
	}
}
