package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

func fits(key, value string) descriptors.Node {
	return descriptors.Node{Key: key, Value: value, Pattern: true}
}

func TestReview(t *testing.T) {
	limits := func(all ...window.Limit) Terms {
		var terms Terms
		for _, l := range all {
			terms.Limits = append(terms.Limits, Limit{Limit: l, Precision: window.Precision(l)})
		}
		return terms
	}
	perSecond := func(hits uint64) window.Limit { return window.Limit{Hits: hits, Window: time.Second} }
	perMinute := func(hits uint64) window.Limit { return window.Limit{Hits: hits, Window: time.Minute} }
	var now time.Duration
	d, _ := newModes(t, nil, &now,
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
		with(rule("debt", limits(perSecond(2), perMinute(120)), anyOf("d")), func(r *Rule) { r.Always = true }),
		rule("coarse", Terms{Limits: []Limit{{Limit: perSecond(2)}, {Limit: perMinute(120), Precision: time.Second}}}, anyOf("co")),
		rule("leased", Terms{Limits: []Limit{{Limit: perSecond(200), Lease: window.Lease{Length: 50 * time.Millisecond, Hits: 10}}}}, anyOf("le")),
		with(rule("later", limits(perSecond(2)), anyOf("la")), func(r *Rule) { r.OnStoreError = StoreErrorDeny }),
		rule("week", limits(window.Limit{Hits: 5, Window: 7 * 24 * time.Hour}), anyOf("w")),
		with(rule("traits", limits(perSecond(2)), anyOf("t")), func(r *Rule) { r.Quota, r.Factor, r.Replaces, r.OnStoreError = true, 3, []string{"a"}, StoreErrorAllow }),
		with(rule("costly", limits(perSecond(10), perMinute(20)), anyOf("ex")), func(r *Rule) {
			r.Factor = 11
			r.ByTier = map[string]Terms{"starter": limits(perSecond(11))}
		}),
		with(rule("watched", Terms{Limits: limits(perSecond(10)).Limits, Observe: 1}, anyOf("ob")), func(r *Rule) { r.Factor = 11 }),
		Rule{Name: "tiers", Path: []descriptors.Node{anyOf("api_key")}, Terms: limits(perMinute(1_000_000)), ByTier: map[string]Terms{"starter": {Unlimited: true, Observe: 0.5}}},
	)
	review := d.Rules().Review()
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

// TestExplainTheLargestLimit proves that the explanation describes the special limit of
// 4294967295.
func TestExplainTheLargestLimit(t *testing.T) {
	var now time.Duration
	l := window.Limit{Hits: window.MaxHits, Window: time.Minute}
	d, _ := newModes(t, nil, &now, rule("endless", Terms{Limits: []Limit{{Limit: l, Precision: window.Precision(l)}}}, anyOf("f")))
	for range 2 {
		e, err := explainWith(t, d, *request("f=1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := `  rule endless: 4294967295 per 1m
    log   none: a limit of 4294967295 keeps no log, denies nothing, and always shows all of it remaining
    while the store cannot decide: report
    cost  1, has room, 4294967295 remain
`
		if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant\n%s", text, want)
		}
	}
}

func TestExplain(t *testing.T) {
	var now time.Duration
	d, _ := newModes(t, nil, &now,
		Rule{Name: "per-key", Path: []descriptors.Node{anyOf("api_key")}, Terms: per(1, time.Minute), ByTier: map[string]Terms{"starter": per(2, time.Minute)}},
		rule("files", Terms{Limits: []Limit{{Limit: window.Limit{Hits: 1, Window: time.Minute}, Precision: time.Second, Lease: window.Lease{Length: 50 * time.Millisecond}}}}, fits("f", "a*"), anyOf("u")),
		with(rule("later", per(5, time.Minute), fits("f", "b*")), func(r *Rule) { r.Terms.Observe = 1 }),
	)
	req := request("api_key=acme-key", "f=b1", "f=b1 u=1", "f=a1 u=1", "f=a1", "other=1")
	req.Descriptors[1].Cost = 6
	e, err := explainWith(t, d, *req, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(`
descriptor 1
  api_key=*** matches the key with any value
  rule per-key for tier starter of subject acme: 2 per 1m
    log   {id.acme}:edge|api_key:id.acme
    while the store cannot decide: report
    cost  1, has room, 1 remain
descriptor 2
  f=b1 does not fit f=a*
  f=b1 matches the wildcard f=b*
  rule later: 5 per 1m, only observed
    log   {b1}:edge|f*=b%2A:b1
    while the store cannot decide: report
    cost  6, more than the limit: it is denied however long the caller waits
descriptor 3
  f=b1 does not fit f=a*
  f=b1 matches the wildcard f=b*
  u=1: no rule here has this key with this value, or the key alone
descriptor 4
  f=a1 matches the wildcard f=a*
  u=1 matches the key with any value
  rule files: 1 per 1m
    a hit counts up to 1s longer than the window
    lease for 50ms, where a key is asked for often
    log   {1}:edge|f*=a%2A/u:a1,1
    while the store cannot decide: report
    cost  1, has room, 0 remain
descriptor 5
  f=a1 matches the wildcard f=a*
  no rule ends here: a descriptor that is longer or shorter than a rule is not limited by it
descriptor 6
  other=1: no rule here has this key with this value, or the key alone
answer, with an empty store: OK
  headers and metadata describe the rule files
  the rule later would have denied it if it were not only observed
`)
	if diff := cmp.Diff(want, strings.Join(e.Lines, "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	req = request("api_key=made-up")
	req.Tier = "starter"
	e, err = explainWith(t, d, *req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, "for tier starter: 2 per 1m") || strings.Contains(text, "made-up") {
		t.Errorf("with a tier that is asked for:\n%s", text)
	}
	e, err = explainWith(t, d, *req, func(id window.LogID) string { return fmt.Sprintf("prefix:%s:%v", id.Key, id.Window) })
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, "\n    in Redis: prefix:{") || !strings.Contains(text, ":1m0s\n") {
		t.Errorf("with names in Redis:\n%s", text)
	}
	req = request("f=a1")
	req.Domain = "other"
	if e, err = explainWith(t, d, *req, nil); err == nil || !strings.Contains(err.Error(), `no domain "other"`) {
		t.Errorf("unknown domain: %v, %v", e, err)
	}
}

// explainWith explains a request by the active rules of a decider, with an empty store.
func explainWith(t *testing.T, d *Decider, req Request, inRedis func(window.LogID) string) (*Explanation, error) {
	t.Helper()
	store := memstore.New(memstore.Options{})
	defer func() { _ = store.Close() }()
	return d.Rules().Explain(t.Context(), req, Options{Store: store}, inRedis)
}

// TestOpenToOneCaller: a limit in flight that all callers share needs a smaller one for each caller.
func TestOpenToOneCaller(t *testing.T) {
	places := func(n uint64) Terms {
		return Terms{Limits: []Limit{{Limit: window.Limit{Hits: n, Window: time.Minute, Policy: window.InFlight}}}}
	}
	backend := rule("backend", places(20), one("in_flight", "backend"))
	for _, tt := range []struct {
		name  string
		other Rule
		open  bool
	}{
		{"an address", rule("r", places(5), one("in_flight", "address"), anyOf("masked_remote_address")), false},
		{"a subject", with(rule("r", places(5), one("in_flight", "subject")), func(r *Rule) { r.Subject = "api_key" }), false},
		{"a subject that is no key", with(rule("r", places(5), anyOf("subject")), func(r *Rule) { r.Subject = "subject" }), false},
		{"as many", rule("r", places(20), one("in_flight", "address"), anyOf("remote_address")), true},
		{"one address", rule("r", places(5), one("in_flight", "x"), one("remote_address", "192.0.2.1")), true},
		{"an API key", rule("r", places(5), one("in_flight", "key"), anyOf("api_key")), true},
		{"a rate", rule("r", per(5, time.Minute), anyOf("remote_address")), true},
		{"another domain", with(rule("r", places(5), anyOf("remote_address")), func(r *Rule) { r.Domain = "other" }), true},
	} {
		rs := NewRules(Identity{Secrets: secrets})
		for _, r := range []Rule{backend, tt.other} {
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

// TestReviewOfManyWildcards: the review says what many wildcards cost, once for each level.
func TestReviewOfManyWildcards(t *testing.T) {
	var now time.Duration
	all := []Rule{rule("few", per(1, time.Hour), one("a", "b"), fits("path", "*x*y*"))}
	for i := range 1200 {
		all = append(all, rule(fmt.Sprint("w", i), per(1, time.Hour), fits("path", fmt.Sprintf("*x%d-*y*", i))))
	}
	d, _ := newModes(t, nil, &now, all...)
	notes := make(map[string][]string)
	for _, r := range d.Rules().Review().Domains[0].Rules {
		notes[r.Name] = r.Notes
	}
	for name, want := range map[string][]string{
		"few": nil,
		"w0":  {"path has 1,200 wildcards here, which are tried one after the other: a value of 1 KiB may take 1.23ms; text between two * is searched in the whole value, so on_store_error decides requests with more than 3,494 bytes"},
		"w1":  nil,
	} {
		if diff := cmp.Diff(want, notes[name]); diff != "" {
			t.Errorf("rule %s: (-want +got)\n%s", name, diff)
		}
	}
}
