package test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/edge"
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
	got, out := postJSON(t, rls.HTTP(), question(cost, "api_key="+key))
	if len(out.GetStatuses()) != 1 {
		t.Fatalf("got %d %s, want one status", got.status, got.body)
	}
	a := decision{got.sent, got.received, out.GetStatuses()[0], make(map[string]string)}
	for _, h := range out.GetResponseHeadersToAdd() {
		a.header[strings.ToLower(h.GetKey())] = h.GetValue()
	}
	return a
}

// TestRetryAfterOfSeveralCosts fills a limit of ten with a hit of one and, two seconds
// later, one of nine. A denial of a cost of one waits for the first of them, a larger
// cost for the second, in any order of requests. Both stores answer alike.
func TestRetryAfterOfSeveralCosts(t *testing.T) {
	rules := strings.ReplaceAll(perKey, "100", "10")
	eachStore(t, func(t *testing.T, settings map[string]string) {
		rls := setup{rules: rules, env: settings}.serve(t)
		first := spend(t, rls, 1, "k")
		waitUntil(first.received.Add(2 * time.Second))
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
  - key: api_key
    value: rounded
    rate_limit: {name: rounded, window: 1m, requests: 20000, precision: 1s}
  - key: api_key
    value: auto
    rate_limit: {name: auto, window: 1m, requests: 20000}
  - key: api_key
    value: leased
    rate_limit: {name: leased, window: 1m, requests: 1000, lease: 1s}
`
	eachStore(t, func(t *testing.T, settings map[string]string) {
		settings[envStyles] = "ratelimit,draft03,x-ratelimit"
		rls := setup{rules: rules, env: settings}.serve(t)
		settings[envStyles] = "x-ratelimit-epoch"
		epoch := setup{rules: rules, env: settings}.serve(t)
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
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: rules, env: settings}.start(t)
		waits := make(map[int]bool)
		for i := range 20 {
			key := "customer-" + strconv.Itoa(i)
			begin := time.Now()
			if got := s.get("/", "x-api-key", key); got.status != http.StatusOK {
				t.Fatalf("%s: got %d", key, got.status)
			}
			charged := time.Now()
			first := 0
			for again := range 4 { // the store forgets nothing for an hour, so the state is the same
				got := s.get("/", "x-api-key", key)
				least, most := ceilSeconds(time.Hour-got.received.Sub(begin)), ceilSeconds((time.Hour-got.sent.Sub(charged)+100*time.Millisecond)*3/2)
				wait, err := strconv.Atoi(got.header.Get("retry-after"))
				if err != nil || got.status != http.StatusTooManyRequests || wait < least || wait > most {
					t.Fatalf("%s: got %d with Retry-After %q, want %d to %d", key, got.status, got.header.Get("retry-after"), least, most)
				}
				if want := `"per-key";r=0;t=` + strconv.Itoa(wait); got.header.Get("ratelimit") != want || !strings.Contains(got.body, `"retry_after":`+strconv.Itoa(wait)+",") {
					t.Errorf("%s: Retry-After %d, RateLimit %s, body %s", key, wait, got.header.Get("ratelimit"), got.body)
				}
				if first = max(first, wait); again > 0 && (wait > first || first-wait > 2*ceilSeconds(got.received.Sub(begin))) {
					t.Errorf("%s: told %d s and then %d s", key, first, wait)
				}
			}
			waits[first] = true
			asked := spend(t, s.rls, 1, key)
			if reset := asked.status.GetDurationUntilReset().GetSeconds(); reset > 3600 {
				t.Errorf("%s: Envoy is told a reset in %d s", key, reset)
			}
		}
		if len(waits) < 15 {
			t.Errorf("20 customers were told %d different waits: %v", len(waits), waits)
		}
		s.wantAllDecided()
	})
}
