package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// TestDenialsByPolicy has a rule whose tiers have limits of several policies. A denial counts for
// the limit that denied longest, and the number of series does not depend on who asks.
func TestDenialsByPolicy(t *testing.T) {
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	subjects := map[string]string{"acme": "pro"}
	for i := range 100 {
		subjects[fmt.Sprint("free-", i)] = "free"
	}
	dir, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	for id, tierOf := range subjects {
		if err := dir.Add(tier.Subject{ID: id, Tier: tierOf}, secrets.Digest(id)); err != nil {
			t.Fatal(err)
		}
	}
	year, err := calendar.New(calendar.Spec{Unit: "year"})
	if err != nil {
		t.Fatal(err)
	}
	limit := func(p window.Policy, hits uint64, win time.Duration) rules.Limit {
		return rules.Limit{Limit: window.Limit{Policy: p, Hits: hits, Window: win}}
	}
	bucket, annual := limit(window.TokenBucket, 3, time.Minute), limit(window.Calendar, 5, year.Unit().Nominal())
	bucket.Rate, annual.Calendar = 1, year
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	if err := rs.Add(rules.Rule{
		Domain: "edge", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}}, Name: "mixed",
		ByTier: map[string]rules.Terms{
			"free": {Limits: []rules.Limit{bucket, annual, limit(window.SlidingCounter, 7, time.Hour)}},
			"pro":  {Limits: []rules.Limit{limit(window.Fixed, 4, 24*time.Hour), limit(window.Sliding, 2, time.Hour)}},
		},
	}); err != nil {
		t.Fatal(err)
	}

	now := time.Duration(time.Date(2030, 3, 4, 5, 0, 0, 0, time.UTC).UnixNano())
	clock := func() time.Duration { return now }
	store := memstore.New(memstore.Options{Clock: clock, SweepInterval: -1})
	t.Cleanup(func() { store.Close() })
	registry := prometheus.NewRegistry()
	decider := decide.NewDecider(rs, decide.Options{Store: store, Meters: New(registry, Options{}), Clock: clock})
	ask := func(key string, cost uint64, allowed bool) {
		t.Helper()
		req := decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{{
			Entries: descriptors.Descriptor{{Key: "api_key", Value: secrets.Value("api_key", key)}}, Cost: cost,
		}}}
		var c decide.Call
		decider.Begin(&c, req)
		if _, err := c.Decide(t.Context(), window.MayWait); err != nil || c.Verdict().Allowed != allowed {
			t.Fatalf("%s, cost %d: got %+v, error %v, want allowed %t", key, cost, c.Verdict(), err, allowed)
		}
	}
	for key, tierOf := range subjects {
		if tierOf != "free" {
			continue
		}
		ask(key, 3, true)
		ask(key, 3, false) // the bucket waits 3 minutes, the year until it ends
		ask(key, 1, false) // the bucket
	}
	ask("acme", 2, true)
	ask("acme", 1, false) // the hour
	now += time.Hour
	ask("acme", 2, true)
	ask("acme", 1, false) // the hour, and the day until midnight
	now += time.Hour
	ask("acme", 1, false) // the day
	expect(t, registry, `
limit_denials_total{domain="edge",rule="mixed",tier="free",window="bucket-1m"} 100
limit_denials_total{domain="edge",rule="mixed",tier="free",window="year"} 100
limit_denials_total{domain="edge",rule="mixed",tier="pro",window="1h"} 1
limit_denials_total{domain="edge",rule="mixed",tier="pro",window="fixed-1d"} 2`, denialsName)
}

// TestDenialWindows counts a denial by each policy with the same window: each has series of its
// own, which end with the rule.
func TestDenialWindows(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{})
	meter := m.Meter("edge", "r")
	m.Loaded()
	month := calendar.Month.Nominal()
	for p := window.Sliding; p <= window.InFlight; p++ {
		meter.Denied("free", p, month)
		meter.Denied("free", p, month)
	}
	expect(t, registry, `
limit_denials_total{domain="edge",rule="r",tier="free",window="30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="bucket-30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="counter-30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="fixed-30d"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="in_flight"} 2
limit_denials_total{domain="edge",rule="r",tier="free",window="month"} 2`, denialsName)
	m.Loaded()
	if n, err := testutil.GatherAndCount(registry, denialsName); err != nil || n != 0 {
		t.Errorf("the rule is gone: got %d series and %v, want none", n, err)
	}
}
