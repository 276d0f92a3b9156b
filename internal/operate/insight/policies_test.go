package insight

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// TestUsageOfPolicies: the usage of a limit of every policy, after three hits or a hold of three at
// second 1004 of the store's clock.
func TestUsageOfPolicies(t *testing.T) {
	const start = 1004 * time.Second
	for _, tt := range []struct {
		l               window.Limit
		amount          string
		used, remaining uint64
		nextFree, empty float64
		history         bool
	}{
		{window.Limit{Hits: 9, Window: 10 * time.Second}, "9 per 10s", 3, 6, 10, 10, true},
		{window.Limit{Hits: 9, Rate: 2, Window: time.Second, Policy: window.TokenBucket}, "2 per 1s, bursts of 9", 3, 6, 0.5, 1.5, false},
		{window.Limit{Hits: 9, Window: 10 * time.Second, Policy: window.Fixed}, "9 per 10s fixed", 3, 6, 6, 6, false},
		{window.Limit{Hits: 9, Window: time.Hour, Policy: window.Calendar}, "9 per hour", 3, 6, 96, 96, false},
		{window.Limit{Hits: 9, Window: 10 * time.Second, Policy: window.SlidingCounter}, "9 per 10s sliding_counter", 3, 6, 9.333334, 16, false},
		{window.Limit{Hits: 9, Window: time.Minute, Policy: window.InFlight}, "9 requests in flight", 3, 6, 60, 60, false},
	} {
		store := memstore.New(memstore.Options{Clock: func() time.Duration { return start }, SweepInterval: -1})
		check := window.Check{Key: "k", Limit: tt.l, Cost: 3}
		switch tt.l.Policy {
		case window.Calendar:
			check.Period = window.Period{Start: 900, End: 1100, Next: 1300}
		case window.InFlight:
			check.Stream = 1
		}
		var d [1]window.Decision
		if _, err := store.Take(t.Context(), window.MayWait, []window.Check{check}, d[:]); err != nil {
			t.Fatal(err)
		}
		readings, err := store.Read(t.Context(), []window.LogID{check.Log()})
		if err != nil {
			t.Fatal(err)
		}
		limit := explain.AccountLimit{Rule: &rules.Rule{Name: "r"}, Limit: rules.Limit{Limit: tt.l}, Log: check.Log()}
		u := limitUsage(&limit, &readings[0])
		if u.Policy != tt.l.Policy.String() || u.Amount() != tt.amount || u.Used != tt.used || u.Remaining != tt.remaining ||
			u.NextFree != tt.nextFree || u.Empty != tt.empty || (len(u.History) > 0) != tt.history {
			t.Errorf("%v: got %q %+v, want %+v", tt.l.Policy, u.Amount(), u, tt)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLimitsOfOneWindow asks for, and resets, limits of several policies with one window, whose logs
// have one name. The store's list finds them, because the rule has a log for each route.
func TestLimitsOfOneWindow(t *testing.T) {
	a := newCounted(t, nil)
	rule := rules.Rule{Domain: "edge", Name: "mixed", Path: pathOf("mixed", "api_key")}
	policies := []window.Policy{window.Sliding, window.Fixed, window.SlidingCounter}
	for _, p := range policies {
		rule.Terms.Limits = append(rule.Terms.Limits, rules.Limit{Limit: window.Limit{Hits: 3, Window: time.Hour, Policy: p}})
	}
	if err := a.rules.Add(rule); err != nil {
		t.Fatal(err)
	}
	a.decider = decide.NewDecider(a.rules, decide.Options{Store: a.store})
	values := []string{"a", "b"}
	for _, v := range values {
		a.ask(3, "mixed="+v+",api_key="+plantedKey)
	}
	seen := make(map[string]int)
	for _, l := range a.pages(Query{Subject: "acme"}).of("mixed") {
		if l.Used == 3 {
			seen[l.Values+" "+l.Policy]++
		}
	}
	for _, v := range values {
		for _, p := range policies {
			if name := "mixed=" + v + " " + p.String(); seen[name] != 1 {
				t.Errorf("the limit %s is there %d times, want once", name, seen[name])
			}
		}
	}
	if r, err := a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme", Rule: "mixed"}, Reason: "r"}); err != nil || r.Logs != len(values)*len(policies) || r.Problem != "" {
		t.Errorf("Reset = %+v, %v, want %d logs", r, err, len(values)*len(policies))
	}
	for _, v := range values {
		if !a.ask(3, "mixed="+v+",api_key="+plantedKey) {
			t.Errorf("%s: denied after the reset", v)
		}
	}
}
