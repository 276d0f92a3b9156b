package budgets

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// TestChargeOnceAndBudgets: a request limit charges retries with one idempotency key once, and a budget charges what each
// try has cost. A denial by one of them charges neither.
func TestChargeOnceAndBudgets(t *testing.T) {
	const (
		rules = `
domain: edge
descriptors:
  - {key: budget, value: tokens, descriptors: [{key: api_key, rate_limit: {name: tokens, window: 1h, requests: 1000, budget: {reserve: 100, hold: 10m}}}]}
  - {key: api_key, rate_limit: {name: requests, window: 1h, requests: 2, charge_once: {entry: idempotency_key}}}
`
		indent = "                    "
		tokens = indent + "- actions: &tokens\n"
		once   = indent + "- actions: [{request_headers: {header_name: x-api-key, descriptor_key: api_key}}, {request_headers: {header_name: idempotency-key, descriptor_key: idempotency_key, skip_if_absent: true}}]\n"
		cost   = 18
	)
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		upstream := new(provider)
		s := stack.Setup{
			Rules: rules, Env: settings, Config: "../../envoy/" + ofHeader, Upstream: stack.ServeHTTP(t, upstream),
			Change: map[string]string{tokens: once + tokens},
		}.Start(t)
		tr := &trial{t: t, rls: []*edge.RLSServer{s.RLS}}
		try := func(attempt string, more ...string) request {
			return request{key: key, in: 11, out: 7, max: 50, header: append(more, "idempotency-key", attempt)}
		}
		spent := 0
		want := func(step string, q request, status int, requests uint32, costs int) {
			t.Helper()
			if got, _ := q.send(t, s.Envoy.URL()); got != status {
				t.Errorf("%s: got status %d, want %d", step, got, status)
			}
			spent += costs
			if got := s.Peek("api_key=" + key)[0]; got != requests {
				t.Errorf("%s: %d requests remain, want %d", step, got, requests)
			}
			if free := tr.rest("tokens", key); free != 1000-spent {
				t.Errorf("%s: %d tokens are free, want %d", step, free, 1000-spent)
			}
		}
		want("first", try("one"), http.StatusOK, 1, cost)
		want("its retry", try("one"), http.StatusOK, 1, cost)
		want("a retry that breaks costs its estimate", try("one", "x-does", "reset"), http.StatusServiceUnavailable, 1, 50)
		for _, attempt := range []string{"one", "two"} {
			big := try(attempt)
			big.max = 999
			want("the budget denies", big, http.StatusTooManyRequests, 1, 0)
		}
		want("its retry is charged", try("two"), http.StatusOK, 0, cost)
		want("the request limit denies", try("three"), http.StatusTooManyRequests, 0, 0)
		want("the last retry", try("one"), http.StatusOK, 0, cost)
		want("one too many", try("one"), http.StatusTooManyRequests, 0, 0)

		_, _, before := upstream.ledger(key)
		ctx, cancel := context.WithCancel(t.Context())
		var tries sync.WaitGroup
		for range 2 {
			r, _ := try("two", "x-does", "hang").new(ctx, t, s.Envoy.URL())
			tries.Go(func() {
				if resp, err := http.DefaultClient.Do(r); err == nil {
					t.Errorf("got status %d", resp.StatusCode)
					_ = resp.Body.Close()
				}
			})
		}
		// A try that has not reached the upstream costs nothing.
		process.Eventually(t, "each of two retries to reserve its estimate and to reach the upstream", func() bool {
			_, reserved := tr.state("tokens", key)
			_, _, requests := upstream.ledger(key)
			return reserved == 2*50 && requests == before+2
		})
		cancel()
		tries.Wait()
		want("one retry remains", try("two"), http.StatusOK, 0, 2*50+cost)
		s.WantAllDecided()
	})
}
