package outage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// startEnvoys starts three regions with an Envoy in each.
func startEnvoys(t *testing.T, rules string) (*stack.Regions, []*stack.Stack) {
	t.Helper()
	r := stack.StartRegions(t, rules, nil)
	var stacks []*stack.Stack
	for _, one := range r.All {
		s := &stack.Stack{T: t, App: stack.NewApplication(t), RLS: one.RLS}
		stack.Setup{}.StartEnvoy(s)
		stacks = append(stacks, s)
	}
	return r, stacks
}

// TestDenialsOfAGlobalLimit: a region that is denied by a global limit repeats the denial from
// memory, and asks the global store again when another region has given hits back.
func TestDenialsOfAGlobalLimit(t *testing.T) {
	t.Parallel()
	_, stacks := startEnvoys(t, `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: contract, scope: global, window: 1h, requests: 30}}
`)
	const key, remembered = "acme", "slidegate_local_denials_total"
	stacks[0].From("127.0.0.1").Want(200, 30, "/", "x-api-key", key)
	for i, s := range stacks {
		// The first denial is from the store, unless the region has admitted the last hit.
		before := stack.Number(t, s.RLS, remembered)
		s.From("127.0.0.1").Want(429, 21, "/", "x-api-key", key)
		if n := stack.Number(t, s.RLS, remembered) - before; n < 20 {
			t.Errorf("region %d: %d of 21 denials are from memory, want at least 20", i, n)
		}
	}
	// The message of the refund comes to each region over its line to the global store.
	stack.PostJSON(t, stacks[1].RLS.HTTP(), stack.Refund(3, "api_key="+key))
	for i, s := range stacks {
		process.Eventually(t, fmt.Sprintf("region %d to admit what was given back", i), func() bool {
			return s.From("127.0.0.1").Get("/", "x-api-key", key).Status == http.StatusOK
		})
	}
	for _, s := range stacks {
		s.From("127.0.0.1").Want(429, 1, "/", "x-api-key", key)
		s.WantAllDecided()
	}
}

// TestLeasesOfAGlobalLimit: with leases in three regions, all together never admit more than the
// limit. What one region has reserved and not spent is admitted later, so in the end it is exactly
// the limit.
func TestLeasesOfAGlobalLimit(t *testing.T) {
	t.Parallel()
	const limit, key = 1500, "acme"
	r, stacks := startEnvoys(t, fmt.Sprintf(`
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: contract, scope: global, window: 1h, requests: %d, lease: 1s}}
`, limit))
	var admitted atomic.Int64
	process.Concurrently(t, 12, func(i int) error {
		c := stacks[i%len(stacks)].From("127.0.0.1")
		for range limit / 3 {
			switch got := c.Get("/", "x-api-key", key); got.Status {
			case http.StatusOK:
				admitted.Add(1)
			case http.StatusTooManyRequests:
			default:
				return fmt.Errorf("got status %d", got.Status)
			}
		}
		return nil
	})
	leased, degraded := 0, 0
	check := func() {
		t.Helper()
		leased, degraded = 0, 0
		for _, s := range stacks {
			var state struct{ Leases struct{ Admitted int } }
			if err := json.Unmarshal([]byte(stack.Page(t, s.RLS.Admin()+"/v1/state")), &state); err != nil {
				t.Fatal(err)
			}
			leased += state.Leases.Admitted
			degraded += stack.Number(t, s.RLS, `slidegate_degraded_answers_total{choice="local"}`)
		}
		if n := int(admitted.Load()); n > limit+degraded {
			t.Fatalf("%d were admitted, %d of them without the global store; the limit is %d", n, degraded, limit)
		}
	}
	check()
	if leased == 0 {
		t.Error("no request was admitted by a lease")
	}
	process.Eventually(t, "the rest of the limit to be admitted", func() bool {
		for _, s := range stacks {
			if s.From("127.0.0.1").Get("/", "x-api-key", key).Status == http.StatusOK {
				admitted.Add(1)
			}
		}
		return int(admitted.Load()) >= limit
	})
	check()
	for _, s := range stacks {
		s.From("127.0.0.1").Want(429, 1, "/", "x-api-key", key)
		s.WantAllDecided()
	}
	if left := r.All[2].Ask(0, "api_key="+key).Remaining; degraded == 0 && (len(left) != 1 || left[0] != 0) {
		t.Errorf("%v remain in the global log, want none", left)
	}
}
