package insight

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestUsageOfBudget shows what is spent, reserved and free of a budget in money, before and after a
// reservation expires. A look leaves nothing in the store.
func TestUsageOfBudget(t *testing.T) {
	a := newCounted(t, nil)
	a.opts.Budgets = a.store
	a.rules = rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	err := a.rules.Add(rules.Rule{Domain: "edge", Name: "dollars", Path: pathOf("customer"), Terms: rules.Terms{Limits: []rules.Limit{{
		Limit: window.Limit{Hits: 500_000_000, Window: 24 * time.Hour, Policy: window.Fixed}, Currency: "usd",
		Budget: &rules.Budget{Budget: window.Budget{Hold: time.Minute}, Reserve: 1_000_000, Max: 1_000_000_000},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	a.decider = decide.NewDecider(a.rules, decide.Options{Store: a.store})
	call := func(stream, ending string, cost uint64) bool {
		t.Helper()
		req := decide.Request{Domain: "edge", Stream: inflight.NewStreamID(stream), Ending: ending}
		if ending != "" {
			req.Descriptors = append(req.Descriptors, identity.EndOfStream())
		}
		req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: descriptors.Descriptor{{Key: "customer", Value: "acme"}}, Cost: cost})
		var c decide.Call
		a.decider.Begin(&c, req)
		if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
			t.Fatal(err)
		}
		return c.Verdict().Allowed
	}
	want := func(when, use string, remaining uint64) {
		t.Helper()
		logs := a.store.Stats().Logs
		u, err := a.Usage(t.Context(), Query{Descriptor: "edge/customer=acme"})
		if err != nil || len(u.Limits) != 1 {
			t.Fatalf("%s: got %+v, %v", when, u, err)
		}
		if l := &u.Limits[0]; l.Use() != use || l.Remaining != remaining || !l.Budget || l.Amount() != "500.00 USD per 1d fixed" {
			t.Errorf("%s: got %q of %s and %d, want %q and %d", when, l.Use(), l.Amount(), l.Remaining, use, remaining)
		}
		if n := a.store.Stats().Logs; n != logs {
			t.Errorf("%s: a look left %d logs in the store", when, n-logs)
		}
	}
	want("before", "0.00 of 500.00 USD used, 0.00 reserved", 500_000_000)
	if !call("one", "", 20_000_000) || !call("one", "via_upstream", 12_400_000) || !call("two", "", 3_100_000) {
		t.Fatal("denied")
	}
	want("with one request active", "12.40 of 500.00 USD used, 3.10 reserved", 484_500_000)
	*a.clock += 2 * time.Minute
	want("after its hold", "15.50 of 500.00 USD used, 0.00 reserved", 484_500_000)
	if !call("three", "", 484_500_000) || call("four", "", 1) {
		t.Fatal("the rest of the budget was not reserved")
	}
	want("all reserved", "15.50 of 500.00 USD used, 484.50 reserved", 0)
	call("three", "via_upstream", 500_000_000)
	// Above the limit, what the log has spent is shown, without the 3.10 of the reservation that has expired.
	want("above the estimate", "512.40 of 500.00 USD used, 0.00 reserved", 0)
}
