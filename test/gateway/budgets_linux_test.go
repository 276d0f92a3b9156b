package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	teststack "github.com/slidegate/slidegate/test/stack"
)

// budgetFile patches the filters of a Gateway.
const budgetFile = "../../deploy/integrations/envoy-gateway/budgets.yaml"

// startBudgets starts a stack with a rule of Envoy Gateway, and Slidegate next to it, with a budget for each customer.
func startBudgets(t *testing.T, limit int) (stack, *edge.RLSServer) {
	t.Helper()
	var tiers strings.Builder
	tiers.WriteString("tiers: [free]\ndefault: free\nsubjects:\n")
	for _, key := range []string{"probe", "k1", "k3", "k4"} {
		fmt.Fprintf(&tiers, "- {id: %s, keys: [{plain: %[1]s}]}\n", key)
	}
	rls := edge.StartRLS(t, edge.RLSOptions{Rules: fmt.Sprintf(`domain: edge
descriptors:
- {key: budget, value: tokens, descriptors: [{key: api_key, rate_limit: {name: tokens, window: 1h, requests: %d, budget: {reserve: 4096, hold: 10m}}}]}
`, limit), Tiers: tiers.String()})
	text, err := os.ReadFile(budgetFile)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(rls.GRPC(), ":")
	patch := strings.ReplaceAll(string(text), "{address: slidegate.slidegate.svc.cluster.local, port_value: 8081}", fmt.Sprintf("{address: %s, port_value: %s}", host, port))
	patch = strings.ReplaceAll(patch, "timeout: 0.2s", "timeout: 20s") // of a busy machine
	s := start(t, perUser(3), func(e *controlPlane, _ *pod) { e.write("resources/budgets.yaml", patch) })
	s.wait(func() error {
		if status := s.spend(t.Context(), "probe", 10, "3"); status != http.StatusOK {
			return fmt.Errorf("got status %d", status)
		}
		if spent, _ := budgetOf(t, rls, "probe", limit); spent == 0 {
			return errors.New("nothing is spent")
		}
		return nil
	})
	return s, rls
}

// spend asks for at most so many tokens. The application answers with the cost. It returns 0 if there is no answer.
func (s stack) spend(ctx context.Context, key string, tokens any, cost string, change ...func(http.Header)) int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener, strings.NewReader(fmt.Sprintf(`{"prompt": %q, "max_tokens": %v}`, strings.Repeat("x", 900<<10), tokens)))
	s.must(err)
	r.Host = "www.example.com"
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {key}, "X-Spends": {cost}}
	for _, do := range change {
		do(r.Header)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if resp.Header.Get("X-Cost") != "" {
		s.t.Error("the client sees the cost")
	}
	return resp.StatusCode
}

// budgetOf asks rls what is spent and what is reserved.
func budgetOf(t *testing.T, rls *edge.RLSServer, key string, limit int) (spent, reserved int) {
	t.Helper()
	_, out := teststack.PostJSON(t, rls.HTTP(), teststack.Request(0, "budget=tokens,api_key="+key))
	reserved = int(out.GetDynamicMetadata().GetFields()["reserved"].GetNumberValue())
	return limit - reserved - int(out.GetStatuses()[0].GetLimitRemaining()), reserved
}

// TestBudgets proves that the patch of deploy/integrations reserves estimates and settles costs, next to a limit of Envoy
// Gateway: a budget is never exceeded, and what ends without a cost is its estimate.
func TestBudgets(t *testing.T) {
	const limit = 10_000
	s, rls := startBudgets(t, limit)
	want := func(key string, spent, reserved int) {
		t.Helper()
		process.Eventually(t, fmt.Sprintf("%s to have spent %d, and reserved %d", key, spent, reserved), func() bool {
			is, held := budgetOf(t, rls, key, limit)
			return is == spent && held == reserved
		})
	}
	for i := range 7 {
		if got := s.spend(t.Context(), "k1", 4000, "1000"); got != ok {
			t.Errorf("request %d: got %d", i+1, got)
		}
		want("k1", 1000*(i+1), 0)
	}
	if got := s.spend(t.Context(), "k1", 4000, "1000"); got != denied {
		t.Errorf("got %d, want 429: 7000 are spent, and 4000 asked for", got)
	}
	want("k1", 7000, 0)
	another := func(h http.Header) { h.Add("X-Api-Key", "k3"); h.Set("X.Api.Key", "k3") }
	if got := s.spend(t.Context(), "k1", 3000, "2000", another); got != ok {
		t.Errorf("a repeated header: got %d", got)
	}
	want("k1", 9000, 0) // the application has got the first value alone

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan int)
	go func() { left <- s.spend(ctx, "k3", 6000, "unknown") }()
	want("k3", 0, 6000)
	if got := s.spend(t.Context(), "k3", 4001, "1"); got != denied {
		t.Errorf("got %d, want 429: 6000 are reserved", got)
	}
	leave()
	if got := <-left; got != 0 {
		t.Errorf("got %d, want no answer", got)
	}
	want("k3", 6000, 0)

	asAlice := func(h http.Header) { h.Set("X-User-Id", "alice") }
	for i, want := range []int{ok, ok, ok, denied} {
		if got := s.spend(t.Context(), "k4", 10, "1", asAlice); got != want {
			t.Errorf("request %d of alice: got %d, want %d", i+1, got, want)
		}
	}
	want("k4", 3, 0)

	if got := s.spend(t.Context(), "k4", "1e30", "1"); got != denied {
		t.Errorf("an estimate without a bound: got %d, want 429", got)
	}
	if _, err := rls.Stop(); err != nil {
		t.Error(err)
	}
	if got := s.spend(t.Context(), "k4", 10, "1"); got != http.StatusInternalServerError {
		t.Errorf("without rls: got %d, want 500", got)
	}
}
