package limits

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// decision is the answer of rls to one request, and the times around it.
type decision struct {
	sent, received time.Time
	status         *rlsv3.RateLimitResponse_DescriptorStatus
	header         map[string]string
}

// spend sends a request for one key with a cost.
func spend(t *testing.T, rls *edge.RLSServer, cost uint64, key string) decision {
	t.Helper()
	got, out := stack.PostJSON(t, rls.HTTP(), stack.Request(cost, "api_key="+key))
	if len(out.GetStatuses()) != 1 {
		t.Fatalf("got %d %s, want one status", got.Status, got.Body)
	}
	a := decision{got.Sent, got.Received, out.GetStatuses()[0], make(map[string]string)}
	for _, h := range out.GetResponseHeadersToAdd() {
		a.header[strings.ToLower(h.GetKey())] = h.GetValue()
	}
	return a
}

// TestRetryAfterOfSeveralCosts fills a limit of ten with a hit of one and, two seconds
// later, one of nine. A denial of a cost of one waits for the first of them, a larger
// cost for the second, in any order of requests. Both stores answer alike.
func TestRetryAfterOfSeveralCosts(t *testing.T) {
	rules := strings.ReplaceAll(stack.PerKey, "100", "10")
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		rls := stack.Setup{Rules: rules, Env: settings}.Serve(t)
		first := spend(t, rls, 1, "k")
		process.WaitUntil(first.received.Add(2 * time.Second))
		second := spend(t, rls, 9, "k")
		for i, cost := range []uint64{1, 4, 1, 2, 10, 4, 9, 1, 4, 2} {
			frees := second
			if cost == 1 {
				frees = first
			}
			got := spend(t, rls, cost, "k")
			wait, err := strconv.Atoi(got.header["retry-after"])
			if err != nil {
				t.Fatalf("request %d, cost %d: got %v, want a denial", i, cost, got.header)
			}
			least := ceilSeconds(time.Hour - got.received.Sub(frees.sent))
			most := ceilSeconds(time.Hour - got.sent.Sub(frees.received) + 100*time.Millisecond) // a round trip, and two clocks
			if wait < least || wait > most {
				t.Errorf("request %d, cost %d: got Retry-After %d, want %d to %d", i, cost, wait, least, most)
			}
		}
	})
}

// TestResetIsWithinTheWindow has a limit that rounds its times up and one with leases.
// No reset may exceed the window, in any style.
func TestResetIsWithinTheWindow(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - {key: api_key, value: rounded, rate_limit: {name: rounded, window: 1m, requests: 20000, precision: 1s}}
  - {key: api_key, value: auto, rate_limit: {name: auto, window: 1m, requests: 20000}}
  - {key: api_key, value: leased, rate_limit: {name: leased, window: 1m, requests: 1000, lease: 1s}}
`
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		settings[stack.EnvStyles] = "ratelimit,draft03,x-ratelimit"
		rls := stack.Setup{Rules: rules, Env: settings}.Serve(t)
		settings[stack.EnvStyles] = "x-ratelimit-epoch"
		epoch := stack.Setup{Rules: rules, Env: settings}.Serve(t)
		for _, key := range []string{"rounded", "auto", "leased"} {
			for i := range 20 {
				got := spend(t, rls, 1, key)
				_, reset, _ := strings.Cut(got.header["ratelimit"], ";t=")
				for name, value := range map[string]string{
					"ratelimit": reset, "ratelimit-reset": got.header["ratelimit-reset"], "x-ratelimit-reset": got.header["x-ratelimit-reset"],
					"duration_until_reset": strconv.FormatInt(got.status.GetDurationUntilReset().GetSeconds(), 10),
				} {
					if n, err := strconv.Atoi(value); err != nil || n < 1 || n > 60 {
						t.Errorf("%s, request %d: got %s %q, want 1 to 60", key, i, name, value)
					}
				}
				got = spend(t, epoch, 1, key)
				end, err := strconv.ParseInt(got.header["x-ratelimit-reset"], 10, 64)
				if latest := got.received.Add(time.Minute + time.Second); err != nil || end > latest.Unix() {
					t.Errorf("%s, request %d: got x-ratelimit-reset %q, want %d at most", key, i, got.header["x-ratelimit-reset"], latest.Unix())
				}
			}
		}
	})
}

// TestRetryJitter: through Envoy, 20 customers who are denied together are told different waits:
// all are true, none is longer than the share allows, and each customer is told its own again, also
// if the denial is remembered. Envoy is told the true wait.
func TestRetryJitter(t *testing.T) {
	const rules = "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1h, requests: 1, retry_jitter: 50%}\n"
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: rules, Env: settings}.Start(t)
		waits := make(map[int]bool)
		for i := range 20 {
			key := "customer-" + strconv.Itoa(i)
			begin := time.Now()
			if got := s.Get("/", "x-api-key", key); got.Status != http.StatusOK {
				t.Fatalf("%s: got %d", key, got.Status)
			}
			charged := time.Now()
			first := 0
			for again := range 4 { // the store forgets nothing for an hour, so the state is the same
				got := s.Get("/", "x-api-key", key)
				least, most := ceilSeconds(time.Hour-got.Received.Sub(begin)), ceilSeconds((time.Hour-got.Sent.Sub(charged)+100*time.Millisecond)*3/2)
				wait, err := strconv.Atoi(got.Header.Get("retry-after"))
				if err != nil || got.Status != http.StatusTooManyRequests || wait < least || wait > most {
					t.Fatalf("%s: got %d with Retry-After %q, want %d to %d", key, got.Status, got.Header.Get("retry-after"), least, most)
				}
				if want := `"per-key";r=0;t=` + strconv.Itoa(wait); got.Header.Get("ratelimit") != want || !strings.Contains(got.Body, `"retry_after":`+strconv.Itoa(wait)+",") {
					t.Errorf("%s: Retry-After %d, RateLimit %s, body %s", key, wait, got.Header.Get("ratelimit"), got.Body)
				}
				if first = max(first, wait); again > 0 && (wait > first || first-wait > 2*ceilSeconds(got.Received.Sub(begin))) {
					t.Errorf("%s: told %d s and then %d s", key, first, wait)
				}
			}
			waits[first] = true
			asked := spend(t, s.RLS, 1, key)
			if reset := asked.status.GetDurationUntilReset().GetSeconds(); reset > 3600 {
				t.Errorf("%s: Envoy is told a reset in %d s", key, reset)
			}
		}
		if len(waits) < 15 {
			t.Errorf("20 customers were told %d different waits: %v", len(waits), waits)
		}
		s.WantAllDecided()
	})
}
