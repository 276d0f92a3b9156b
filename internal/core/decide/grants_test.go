package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/coretest"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A granted is a decider with grants, on a virtual clock.
type granted struct {
	*decide.Decider
	t     *testing.T
	now   time.Time
	all   []*grant.Grant
	store *memstore.Store
	live  grant.Active
}

func newGranted(t *testing.T, rs *rules.Rules) *granted {
	t.Helper()
	g := &granted{t: t, now: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)}
	g.store = memstore.New(memstore.Options{Clock: func() time.Duration { return time.Duration(g.now.UnixNano()) }, SweepInterval: -1})
	t.Cleanup(func() { _ = g.store.Close() })
	g.Decider = decide.NewDecider(rs, decide.Options{Store: g.store, Clock: g.store.Now, Grants: &g.live})
	return g
}

// grant grants something for an hour.
func (g *granted) grant(rule string, to grant.Caller, amount grant.Amount) {
	g.all = append(g.all, &grant.Grant{ID: grant.NewID(), Rule: rule, Caller: to, Amount: amount, Until: g.now.Add(time.Hour), Reason: "a launch", By: "kim", At: g.now})
	g.live.Store(g.all)
}

// passes returns how many of n requests pass.
func (g *granted) passes(n int, text string) (passed int) {
	g.t.Helper()
	for range n {
		var c decide.Call
		g.Begin(&c, *request(text))
		if _, err := c.Decide(g.t.Context(), window.MayWait); err != nil {
			g.t.Fatal(err)
		}
		if c.Verdict().Allowed {
			passed++
		}
	}
	return passed
}

// TestGrant: a grant raises the limits of one rule for one caller at once. It ends by itself, and the
// hits that it admitted count in the same log.
func TestGrant(t *testing.T) {
	rs := coretest.Rules(t, rules.Identity{Secrets: secrets, Tiers: coretest.Directory(t)})
	g := newGranted(t, rs)
	key := "api_key=hobby-key" // 100 a minute by its tier
	if n := g.passes(150, key); n != 100 {
		t.Fatalf("%d pass", n)
	}
	g.grant("per-key", grant.Caller{Subject: "hobby"}, grant.Amount{Factor: 2})
	if n := g.passes(150, key); n != 100 {
		t.Errorf("after the grant %d more pass, want 100", n)
	}
	if n := g.passes(10, "route=search api_key=hobby-key"); n != 10 {
		t.Errorf("%d of another rule pass", n)
	}
	if n := g.passes(4000, "api_key=acme-key"); n != 500 { // two limits: 500 a second, 3,000 a minute
		t.Errorf("%d of another customer pass", n)
	}
	g.now = g.now.Add(time.Hour - 30*time.Second)
	if n := g.passes(300, key); n != 200 {
		t.Errorf("before the end %d pass", n)
	}
	g.now = g.now.Add(30 * time.Second)
	if n := g.passes(1, key); n != 0 {
		t.Error("the history is gone: 200 hits of the last minute fill the old limit")
	}
	g.now = g.now.Add(time.Minute)
	if n := g.passes(150, key); n != 100 {
		t.Errorf("after the end %d pass", n)
	}
}

// TestGrantsOfCallers: whom a grant can be for, and what it does not raise.
func TestGrantsOfCallers(t *testing.T) {
	const minute = time.Minute
	for name, tt := range map[string]struct {
		rule    rules.Rule
		to      grant.Caller
		amount  grant.Amount
		request string
		want    int // of 20
	}{
		"an address":               {rule("r", per(3, minute), anyOf("remote_address")), grant.Caller{Address: "192.0.2.7"}, grant.Amount{Factor: 2}, "remote_address=192.0.2.7", 6},
		"another address":          {rule("r", per(3, minute), anyOf("remote_address")), grant.Caller{Address: "192.0.2.7"}, grant.Amount{Factor: 2}, "remote_address=192.0.2.8", 3},
		"a network":                {rule("r", per(3, minute), anyOf("masked_remote_address")), grant.Caller{Address: "192.0.2.0/24"}, grant.Amount{Factor: 2}, "masked_remote_address=192.0.2.0/24", 6},
		"an address beside a path": {rule("r", per(3, minute), one("path", "login"), anyOf("remote_address")), grant.Caller{Address: "2001:db8::1"}, grant.Amount{Factor: 3}, "path=login remote_address=2001:DB8::1", 9},
		"a key":                    {rule("r", per(3, minute), anyOf("api_key")), grant.Caller{Digest: secrets.Digest("unknown")}, grant.Amount{Limit: "5/minute"}, "api_key=unknown", 5},
		"a subject of an entry":    {rule("r", per(3, minute), anyOf("tenant")), grant.Caller{Subject: "t1"}, grant.Amount{Factor: 2}, "tenant=t1", 3}, // no rule's subject
		"the second of two limits": {rule("r", rules.Terms{Limits: []rules.Limit{limitPer(10, minute), limitPer(4, time.Hour)}}, anyOf("api_key")), grant.Caller{Subject: "hobby"}, grant.Amount{Limit: "7/hour"}, "api_key=hobby-key", 7},
		"unlimited":                {rule("r", rules.Terms{Unlimited: true}, anyOf("api_key")), grant.Caller{Subject: "hobby"}, grant.Amount{Factor: 2}, "api_key=hobby-key", 20},
	} {
		tt.rule.Domain = "edge"
		rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: coretest.Directory(t), EachUnknownKey: true})
		if err := rs.Add(tt.rule); err != nil {
			t.Fatal(err)
		}
		g := newGranted(t, rs)
		g.grant("r", tt.to, tt.amount)
		if n := g.passes(20, tt.request); n != tt.want {
			t.Errorf("%s: %d pass, want %d", name, n, tt.want)
		}
	}
}

func limitPer(hits uint64, w time.Duration) rules.Limit {
	return rules.Limit{Limit: window.Limit{Hits: hits, Window: w}}
}

// TestGrantOverAnOverride: a factor is of the limit that applies, which can be an override with an end.
func TestGrantOverAnOverride(t *testing.T) {
	until := time.Date(2026, 11, 27, 12, 30, 0, 0, time.UTC)
	rs := observeRules(t, nil, rules.Rule{Terms: per(3, time.Minute)}, tier.Override{Limits: []window.Limit{{Hits: 5, Window: time.Minute}}, Until: until})
	g := newGranted(t, rs)
	g.grant("r", grant.Caller{Subject: "acme"}, grant.Amount{Factor: 2})
	wants := []struct {
		after time.Duration
		want  int
	}{{0, 10}, {29 * time.Minute, 10}, {2 * time.Minute, 6}, {30 * time.Minute, 3}}
	for _, w := range wants {
		g.now = g.now.Add(w.after)
		if n := g.passes(20, "api_key=acme-key"); n != w.want {
			t.Errorf("at %v %d pass, want %d", g.now, n, w.want)
		}
	}
}

// TestGrantIsExplained: an explanation and an account say that a grant applies, until when, by whom and
// why.
func TestGrantIsExplained(t *testing.T) {
	g := newGranted(t, coretest.Rules(t, rules.Identity{Secrets: secrets, Tiers: coretest.Directory(t)}))
	g.grant("per-key", grant.Caller{Subject: "hobby"}, grant.Amount{Factor: 2})
	empty := memstore.New(memstore.Options{SweepInterval: -1})
	defer empty.Close()
	e, err := explain.Explain(t.Context(), g.Trial(g.Rules(), empty), *request("api_key=hobby-key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("rule per-key for tier free of subject hobby, raised by a grant: 200 per 1m\n    granted: ×2 until 2026-11-27T13:00:00Z, by kim: a launch (grant %s)", g.all[0].ID)
	if got := strings.Join(e.Lines, "\n"); !strings.Contains(got, want) || e.Verdict.Limits[0].Source != verdict.SourceGrant {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for range 2 { // before and after its end
		p := explain.AccountOf(t.Context(), g.Rules(), explain.AccountQuery{Subject: "hobby", Grants: &g.live, Now: func() time.Time { return g.now }})
		limits, _ := p.Rule(g.Rules().All()[1].Number())
		ended := g.all[0].Ended(g.now)
		if hits := limits[0].Limit.Hits; hits == 200 == ended || (limits[0].Grant == g.all[0]) == ended {
			t.Errorf("ended %v: %+v", ended, limits)
		}
		g.now = g.now.Add(time.Hour)
	}
}
