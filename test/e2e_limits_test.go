package test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// perKey limits every API key to 100 requests. The window is so long that no
// machine is too slow for the tests that count.
const perKey = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 100}
`

// TestExactlyTheLimitPasses sends three times the limit from 50 clients at once.
func TestExactlyTheLimitPasses(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: perKey, env: settings}.start(t)
		passed, denied := sendFromMany(t, "one-key", s)
		if passed != 100 || denied != 200 {
			t.Errorf("of 300 requests: got %d passed and %d denied, want 100 and 200", passed, denied)
		}
		if got := len(s.app.received()); got != 100 {
			t.Errorf("the application got %d requests, want 100", got)
		}
		s.wantAllDecided()
	})
}

// sendFromMany sends 300 requests from 50 clients at once, divided among the stacks.
func sendFromMany(t *testing.T, key string, stacks ...*stack) (passed, denied int) {
	t.Helper()
	var ok, limited atomic.Int64
	clients := make([]*client, 50)
	for i := range clients {
		clients[i] = stacks[i%len(stacks)].from("127.0.0.1")
	}
	concurrently(t, len(clients), func(i int) error {
		for range 6 {
			got, err := clients[i].try(t.Context(), "/", "x-api-key", key)
			if err != nil {
				return err
			}
			switch got.status {
			case http.StatusOK:
				ok.Add(1)
			case http.StatusTooManyRequests:
				limited.Add(1)
			default:
				t.Errorf("got status %d, want 200 or 429", got.status)
			}
		}
		return nil
	})
	return int(ok.Load()), int(limited.Load())
}

const threeKinds = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 3}
  - key: remote_address
    rate_limit: {name: per-address, window: 1h, requests: 8}
  - key: route
    value: search
    descriptors:
      - key: api_key
        rate_limit: {name: search-per-key, window: 1h, requests: 2}
  - key: route
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {name: login-per-address, window: 1h, requests: 2}
`

// TestEachDescriptorLimits uses up every kind of limit of envoy/ratelimit.yaml. Other
// logs must be unchanged. Each part calls from its own addresses.
func TestEachDescriptorLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: threeKinds, env: settings}.start(t)
		deniedBy := func(t *testing.T, c *client, rule, path string, header ...string) {
			t.Helper()
			got := c.get(path, header...)
			if p := problemOf(t, got); got.status != http.StatusTooManyRequests || p.Rule != rule {
				t.Errorf("got %d by rule %q, want 429 by %s", got.status, p.Rule, rule)
			}
		}
		t.Run("two keys do not disturb each other", func(t *testing.T) {
			c := s.from("127.0.0.2")
			c.want(200, 3, "/", "x-api-key", "a")
			deniedBy(t, c, "per-key", "/", "x-api-key", "a")
			c.want(200, 3, "/", "x-api-key", "b")
			deniedBy(t, c, "per-key", "/", "x-api-key", "b")
		})
		t.Run("a route", func(t *testing.T) {
			c := s.from("127.0.0.3")
			c.want(200, 2, "/search", "x-api-key", "c")
			deniedBy(t, c, "search-per-key", "/search?q=x", "x-api-key", "c")
			c.want(200, 1, "/", "x-api-key", "c")
			deniedBy(t, c, "per-key", "/", "x-api-key", "c")
			c.want(200, 2, "/search", "x-api-key", "d")
		})
		t.Run("a route by address", func(t *testing.T) {
			c := s.from("127.0.0.4")
			c.want(200, 2, "/login")
			deniedBy(t, c, "login-per-address", "/login")
			s.from("127.0.0.5").want(200, 2, "/login")
			c.want(200, 1, "/")
		})
		t.Run("addresses", func(t *testing.T) {
			c := s.from("127.0.0.6")
			c.want(200, 8, "/")
			deniedBy(t, c, "per-address", "/", "x-api-key", "e")
			s.from("127.0.0.7").want(200, 8, "/")
		})
		s.wantAllDecided()
	})
}

// TestADenialChargesNothing gets denials by one of three descriptors. The other two
// must not be charged.
func TestADenialChargesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: threeKinds, env: settings}.start(t)
		c := s.from("127.0.0.1")
		// As the route search of envoy/ratelimit.yaml sends them.
		descriptors := []string{"api_key=k", "route=search,api_key=k", "remote_address=127.0.0.1"}

		c.want(200, 2, "/search", "x-api-key", "k")
		before := s.peek(descriptors...)
		if diff := cmp.Diff([]uint32{1, 0, 6}, before); diff != "" {
			t.Fatalf("remaining after two requests (-want +got):\n%s", diff)
		}
		c.want(429, 10, "/search", "x-api-key", "k")
		if diff := cmp.Diff(before, s.peek(descriptors...)); diff != "" {
			t.Errorf("remaining after ten denials (-want +got):\n%s", diff)
		}
		// What the denials left alone can be spent.
		c.want(200, 1, "/", "x-api-key", "k")
		c.want(429, 1, "/", "x-api-key", "k")
		if diff := cmp.Diff([]uint32{0, 0, 5}, s.peek(descriptors...)); diff != "" {
			t.Errorf("remaining at the end (-want +got):\n%s", diff)
		}
		s.wantAllDecided()
	})
}

// TestRetryAfterIsTrue sends a denied request again after Retry-After, and one second
// earlier.
//
// Retry-After is rounded up by less than a second. So the denied request is sent half
// a second after the log was filled. Then both repetitions are half a second away from
// the true moment. If the machine stalls for longer, the clock readings show it, and
// the test tries again.
func TestRetryAfterIsTrue(t *testing.T) {
	const window = 3 * time.Second
	rules := strings.NewReplacer("1h", "3s", "100", "2").Replace(perKey)
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: rules, env: settings}.start(t)
		c := s.from("127.0.0.1")
		for round := range 5 {
			key := []string{"x-api-key", "round-" + strconv.Itoa(round)}
			// The connection is there before the clock matters.
			c.get("/", "x-api-key", "warm-up-"+strconv.Itoa(round))
			first := c.get("/", key...)
			second := c.get("/", key...)
			waitUntil(first.received.Add(500 * time.Millisecond))
			denied := c.get("/", key...)
			if first.status != 200 || second.status != 200 || denied.status != 429 {
				t.Fatalf("filling a limit of 2: got %d, %d, %d, want 200, 200, 429", first.status, second.status, denied.status)
			}
			wait, err := strconv.Atoi(denied.header.Get("Retry-After"))
			if err != nil {
				t.Fatalf("Retry-After: %v", err)
			}
			// The first of the two frees the place. Both decisions fell somewhere
			// between sending and receiving.
			least := ceilSeconds(window - denied.received.Sub(first.sent))
			most := ceilSeconds(window - denied.sent.Sub(first.received))
			if wait < least || wait > most {
				t.Errorf("Retry-After: got %d, want %d to %d", wait, least, most)
			}

			waitUntil(denied.received.Add(time.Duration(wait-1) * time.Second))
			early := c.get("/", key...)
			if early.status != 429 && early.received.Before(first.sent.Add(window)) {
				t.Errorf("one second before the end of Retry-After: got %d, want 429", early.status)
			}
			waitUntil(denied.received.Add(time.Duration(wait) * time.Second))
			if early.status != 429 {
				t.Logf("round %d took too long to be judged", round)
				continue
			}
			if got := c.get("/", key...); got.status != 200 {
				t.Errorf("after Retry-After: got %d, want 200", got.status)
			}
			s.wantAllDecided()
			return
		}
		t.Error("no round was fast enough to be judged")
	})
}

func ceilSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// TestABurstOverASecondsEdge sends twice the limit of one second around a full second
// of the wall clock. A fixed window would allow all of it.
func TestABurstOverASecondsEdge(t *testing.T) {
	const (
		limit  = 10
		window = time.Second
		burst  = 2 * limit
		gap    = 7 * time.Millisecond // so that the burst takes 140 ms
	)
	rules := strings.NewReplacer("1h", "1s", "100", strconv.Itoa(limit)).Replace(perKey)
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: rules, env: settings}.start(t)
		clients := s.clients(burst)
		for _, c := range clients {
			c.get("/", "x-api-key", "warm-up") // so that the burst does not wait for connections
		}
		for round := range 5 {
			key := "round-" + strconv.Itoa(round)
			// The next full second that is far enough away to be ready for it.
			edge := time.Now().Add(time.Second).Truncate(time.Second).Add(time.Second)
			answers := make([]answer, burst)
			concurrently(t, burst, func(i int) error {
				waitUntil(edge.Add(time.Duration(i-burst/2)*gap + gap/2))
				var err error
				answers[i], err = clients[i].try(t.Context(), "/", "x-api-key", key)
				return err
			})
			took := last(answers).Sub(edge.Add(-burst / 2 * gap))
			before := count(answers, func(a answer) bool { return a.received.Before(edge) })
			after := count(answers, func(a answer) bool { return a.sent.After(edge) })
			if took >= window || before < limit/2 || after < limit/2 {
				t.Logf("round %d: %d before and %d after the edge within %v: the machine was too slow to judge it", round, before, after, took)
				continue
			}
			passed := count(answers, func(a answer) bool { return a.status == http.StatusOK })
			denied := count(answers, func(a answer) bool { return a.status == http.StatusTooManyRequests })
			if passed != limit || denied != burst-limit {
				t.Errorf("%d requests within %v over a full second: got %d passed and %d denied, want %d and %d",
					burst, took, passed, denied, limit, burst-limit)
			}
			s.wantAllDecided()
			return
		}
		t.Error("no round was fast enough to be judged")
	})
}

// TestNoWindowHoldsMoreThanTheLimit sends far more than the limit for several windows,
// and checks every interval of a window's length.
func TestNoWindowHoldsMoreThanTheLimit(t *testing.T) {
	const (
		limit  = 10
		window = time.Second
	)
	rules := strings.NewReplacer("1h", "1s", "100", strconv.Itoa(limit)).Replace(perKey)
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: rules, env: settings}.start(t)
		clients := s.clients(4)
		passed := make([][]answer, len(clients))
		start := time.Now()
		end := start.Add(2*window + window/2)
		concurrently(t, len(clients), func(i int) error {
			// A request every 10 ms from each: far more than the limit.
			for at := start; at.Before(end); at = at.Add(10 * time.Millisecond) {
				waitUntil(at)
				got, err := clients[i].try(t.Context(), "/", "x-api-key", "k")
				if err != nil {
					return err
				}
				if got.status == http.StatusOK {
					passed[i] = append(passed[i], got)
				}
			}
			return nil
		})
		all := slices.Concat(passed...)
		slices.SortFunc(all, func(a, b answer) int { return a.sent.Compare(b.sent) })
		for i := range all {
			if i+limit >= len(all) {
				break
			}
			// limit+1 decisions, all within this time, wherever they fell.
			if within := last(all[i : i+limit+1]).Sub(all[i].sent); within < window {
				t.Errorf("%d requests passed within %v, want at most %d", limit+1, within, limit)
			}
		}
		// Two full windows have begun anew after the first.
		if len(all) < 2*limit {
			t.Errorf("got %d passed within %v, want at least %d: the limit must also give back", len(all), time.Since(start), 2*limit)
		}
		s.wantAllDecided()
	})
}

// last returns when the last answer was received.
func last(answers []answer) time.Time {
	return slices.MaxFunc(answers, func(a, b answer) int { return a.received.Compare(b.received) }).received
}

func count(answers []answer, is func(answer) bool) int {
	n := 0
	for _, a := range answers {
		if is(a) {
			n++
		}
	}
	return n
}

const (
	byTier = `
domain: edge
descriptors:
  - key: api_key
    rate_limit:
      name: per-key
      by_tier:
        free: {window: 1h, requests: 3}
        starter: {window: 1h, requests: 6}
`
	tiersFile = `
tiers: [free, starter]
default: free
subjects:
  - id: acme
    tier: TIER
    keys:
      - plain: acme-old-key
      - plain: acme-new-key
  - id: other
    keys: [{plain: other-key}]
`
)

func tiersOf(tier string) string { return strings.ReplaceAll(tiersFile, "TIER", tier) }

// TestATierChangeCountsAtTheNextRequest changes the tier of a subject that has used
// its limit. The used part stays used.
func TestATierChangeCountsAtTheNextRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: byTier, tiers: tiersOf("free"), env: settings}.start(t)
		c := s.from("127.0.0.1")
		move := func(tier string) {
			t.Helper()
			before := generation(t, s.rls)
			if err := s.rls.WriteTiers(tiersOf(tier)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the new tiers", func() bool { return generation(t, s.rls) != before })
		}
		const acme = "acme-old-key"

		c.want(200, 3, "/", "x-api-key", acme)
		c.want(429, 1, "/", "x-api-key", acme)

		move("starter") // 3 of 6 are spent
		got := c.get("/", "x-api-key", acme)
		if r := got.header.Get("RateLimit"); got.status != 200 || !strings.HasPrefix(r, `"per-key";r=2;`) {
			t.Errorf("after the upgrade: got %d, RateLimit %s, want 200 with 2 remaining", got.status, r)
		}

		move("free") // 4 of 3 are spent
		got = c.get("/", "x-api-key", acme)
		if p := problemOf(t, got); got.status != 429 || p.Limit != 3 {
			t.Errorf("after the downgrade: got %d by a limit of %d, want 429 by a limit of 3", got.status, p.Limit)
		}

		move("starter") // the denials cost nothing
		c.want(200, 2, "/", "x-api-key", acme)
		c.want(429, 1, "/", "x-api-key", acme)

		// All keys of a subject share its log; others have theirs.
		c.want(429, 1, "/", "x-api-key", "acme-new-key")
		c.want(200, 3, "/", "x-api-key", "other-key")
		c.want(429, 1, "/", "x-api-key", "other-key")
		s.wantAllDecided()
	})
}
