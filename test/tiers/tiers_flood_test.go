package tiers

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// TestManyCustomersAtOnce has all customers call at once after a start, while a client
// sends a new invented key with each request. No first call is denied, though the source
// may answer late: such a key has a log by itself. All customers have their tier at the
// second call.
func TestManyCustomersAtOnce(t *testing.T) {
	const (
		customers = 1000
		at        = 32 // callers at once
	)
	rules := strings.Replace(tiersApart, "1000001", "3", 1) // of the default tier
	eachSource(t, func(t *testing.T, h *customerSource) {
		all := make([]customer, customers)
		for i := range all {
			all[i] = customer{id: fmt.Sprintf("c%d", i), tier: "pro", keys: []string{fmt.Sprintf("k-%d", i)}}
		}
		h.writeAll(all)
		rls := h.serve(rules, map[string]string{envTiersWait: "5ms"})
		ask, ways := stack.Limiter(t, rls), waysToAsk(t, rls)
		each := func(call func(c customer)) {
			var next atomic.Int64
			var callers sync.WaitGroup
			for range at {
				callers.Go(func() {
					for n := next.Add(1); n <= customers; n = next.Add(1) {
						call(all[n-1])
					}
				})
			}
			callers.Wait()
		}
		stop := process.Workers(t, 30, 5*time.Millisecond, func(int, int) bool {
			_, err := ask("api_key="+rand.Text(), "remote_address=192.0.2.1")
			return err == nil || t.Context().Err() != nil || !t.Failed()
		})
		defer stop()

		began := time.Now()
		var late atomic.Int64
		each(func(c customer) {
			out, err := ask("api_key="+c.keys[0], "remote_address=192.0.2.1")
			switch {
			case err != nil:
				t.Errorf("%s: %v", c.id, err)
			case out.GetOverallCode() != rlsv3.RateLimitResponse_OK:
				t.Errorf("the first call of %s is denied", c.id)
			case out.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == 3:
				late.Add(1)
			}
		})
		first := time.Since(began)
		const known = `slidegate_tiers_lookups_total{outcome="found"}`
		process.Eventually(t, "all customers to be known", func() bool { return stack.Number(t, rls, known) >= customers })
		found := time.Since(began)
		each(func(c customer) {
			for path, ask := range ways {
				if got := ask(c.keys[0]); got != "pro" {
					t.Errorf("%s: the second call of %s: got %q, want pro", path, c.id, got)
				}
			}
		})
		t.Logf("first calls in %v, %d of them before the answer of the source; all known after %v; look-ups: %d of customers, %d of invented keys, %d dropped",
			first, late.Load(), found, stack.Number(t, rls, `slidegate_tiers_lookups_total{outcome="found"}`),
			stack.Number(t, rls, `slidegate_tiers_lookups_total{outcome="unknown"}`), stack.Number(t, rls, `slidegate_tiers_lookups_total{outcome="limited"}`))
	})
}
