package limits

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// TestExactlyTheLimitPasses sends three times the limit from 50 clients at once.
func TestExactlyTheLimitPasses(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: stack.PerKey, Env: settings}.Start(t)
		passed, denied := stack.SendFromMany(t, "one-key", s)
		if passed != 100 || denied != 200 {
			t.Errorf("of 300 requests: got %d passed and %d denied, want 100 and 200", passed, denied)
		}
		if got := len(s.App.Received()); got != 100 {
			t.Errorf("the application got %d requests, want 100", got)
		}
		s.WantAllDecided()
	})
}

// TestEachDescriptorLimits uses up every kind of limit of envoy/ratelimit.yaml. Other
// logs must be unchanged. Each part calls from its own addresses.
func TestEachDescriptorLimits(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: stack.ThreeKinds, Env: settings}.Start(t)
		deniedBy := func(t *testing.T, c *stack.Client, rule, path string, header ...string) {
			t.Helper()
			got := c.Get(path, header...)
			if p := stack.ProblemOf(t, got); got.Status != http.StatusTooManyRequests || p.Rule != rule {
				t.Errorf("got %d by rule %q, want 429 by %s", got.Status, p.Rule, rule)
			}
		}
		t.Run("two keys do not disturb each other", func(t *testing.T) {
			c := s.From("127.0.0.2")
			c.Want(200, 3, "/", "x-api-key", "a")
			deniedBy(t, c, "per-key", "/", "x-api-key", "a")
			c.Want(200, 3, "/", "x-api-key", "b")
			deniedBy(t, c, "per-key", "/", "x-api-key", "b")
		})
		t.Run("a route", func(t *testing.T) {
			c := s.From("127.0.0.3")
			c.Want(200, 2, "/search", "x-api-key", "c")
			deniedBy(t, c, "search-per-key", "/search?q=x", "x-api-key", "c")
			c.Want(200, 1, "/", "x-api-key", "c")
			deniedBy(t, c, "per-key", "/", "x-api-key", "c")
			c.Want(200, 2, "/search", "x-api-key", "d")
		})
		t.Run("a route by address", func(t *testing.T) {
			c := s.From("127.0.0.4")
			c.Want(200, 2, "/login")
			deniedBy(t, c, "login-per-address", "/login")
			s.From("127.0.0.5").Want(200, 2, "/login")
			c.Want(200, 1, "/")
		})
		t.Run("addresses", func(t *testing.T) {
			c := s.From("127.0.0.6")
			c.Want(200, 8, "/")
			deniedBy(t, c, "per-address", "/", "x-api-key", "e")
			s.From("127.0.0.7").Want(200, 8, "/")
		})
		s.WantAllDecided()
	})
}

// TestADenialChargesNothing gets denials by one of three descriptors. The other two
// must not be charged.
func TestADenialChargesNothing(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: stack.ThreeKinds, Env: settings}.Start(t)
		c := s.From("127.0.0.1")
		// As the route search of envoy/ratelimit.yaml sends them.
		descriptors := []string{"api_key=k", "route=search,api_key=k", "remote_address=127.0.0.1"}

		c.Want(200, 2, "/search", "x-api-key", "k")
		before := s.Peek(descriptors...)
		if diff := cmp.Diff([]uint32{1, 0, 6}, before); diff != "" {
			t.Fatalf("remaining after two requests (-want +got):\n%s", diff)
		}
		c.Want(429, 10, "/search", "x-api-key", "k")
		if diff := cmp.Diff(before, s.Peek(descriptors...)); diff != "" {
			t.Errorf("remaining after ten denials (-want +got):\n%s", diff)
		}
		// What the denials left alone can be spent.
		c.Want(200, 1, "/", "x-api-key", "k")
		c.Want(429, 1, "/", "x-api-key", "k")
		if diff := cmp.Diff([]uint32{0, 0, 5}, s.Peek(descriptors...)); diff != "" {
			t.Errorf("remaining at the end (-want +got):\n%s", diff)
		}
		s.WantAllDecided()
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
	rules := strings.NewReplacer("1h", "3s", "100", "2").Replace(stack.PerKey)
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: rules, Env: settings}.Start(t)
		c := s.From("127.0.0.1")
		for round := range 5 {
			key := []string{"x-api-key", "round-" + strconv.Itoa(round)}
			// The connection is there before the clock matters.
			c.Get("/", "x-api-key", "warm-up-"+strconv.Itoa(round))
			first := c.Get("/", key...)
			second := c.Get("/", key...)
			process.WaitUntil(first.Received.Add(500 * time.Millisecond))
			denied := c.Get("/", key...)
			if first.Status != 200 || second.Status != 200 || denied.Status != 429 {
				t.Fatalf("filling a limit of 2: got %d, %d, %d, want 200, 200, 429", first.Status, second.Status, denied.Status)
			}
			wait, err := strconv.Atoi(denied.Header.Get("Retry-After"))
			if err != nil {
				t.Fatalf("Retry-After: %v", err)
			}
			// The first of the two frees the place. Both decisions fell somewhere
			// between sending and receiving.
			least := ceilSeconds(window - denied.Received.Sub(first.Sent))
			most := ceilSeconds(window - denied.Sent.Sub(first.Received))
			if wait < least || wait > most {
				t.Errorf("Retry-After: got %d, want %d to %d", wait, least, most)
			}

			process.WaitUntil(denied.Received.Add(time.Duration(wait-1) * time.Second))
			early := c.Get("/", key...)
			if early.Status != 429 && early.Received.Before(first.Sent.Add(window)) {
				t.Errorf("one second before the end of Retry-After: got %d, want 429", early.Status)
			}
			process.WaitUntil(denied.Received.Add(time.Duration(wait) * time.Second))
			if early.Status != 429 {
				t.Logf("round %d took too long to be judged", round)
				continue
			}
			if got := c.Get("/", key...); got.Status != 200 {
				t.Errorf("after Retry-After: got %d, want 200", got.Status)
			}
			s.WantAllDecided()
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
	rules := strings.NewReplacer("1h", "1s", "100", strconv.Itoa(limit)).Replace(stack.PerKey)
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: rules, Env: settings}.Start(t)
		clients := s.Clients(burst)
		for _, c := range clients {
			c.Get("/", "x-api-key", "warm-up") // so that the burst does not wait for connections
		}
		for round := range 20 {
			key := "round-" + strconv.Itoa(round)
			// The next full second that is far enough away to be ready for it.
			edge := time.Now().Add(time.Second).Truncate(time.Second).Add(time.Second)
			answers := make([]stack.Answer, burst)
			process.Concurrently(t, burst, func(i int) error {
				process.WaitUntil(edge.Add(time.Duration(i-burst/2)*gap + gap/2))
				var err error
				answers[i], err = clients[i].Try(t.Context(), "/", "x-api-key", key)
				return err
			})
			took := last(answers).Sub(edge.Add(-burst / 2 * gap))
			before := count(answers, func(a stack.Answer) bool { return a.Received.Before(edge) })
			after := count(answers, func(a stack.Answer) bool { return a.Sent.After(edge) })
			if took >= window || before < limit/2 || after < limit/2 {
				t.Logf("round %d: %d before and %d after the edge within %v: the machine was too slow to judge it", round, before, after, took)
				continue
			}
			passed := count(answers, func(a stack.Answer) bool { return a.Status == http.StatusOK })
			denied := count(answers, func(a stack.Answer) bool { return a.Status == http.StatusTooManyRequests })
			if passed != limit || denied != burst-limit {
				t.Errorf("%d requests within %v over a full second: got %d passed and %d denied, want %d and %d",
					burst, took, passed, denied, limit, burst-limit)
			}
			s.WantAllDecided()
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
	rules := strings.NewReplacer("1h", "1s", "100", strconv.Itoa(limit)).Replace(stack.PerKey)
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: rules, Env: settings}.Start(t)
		clients := s.Clients(4)
		passed := make([][]stack.Answer, len(clients))
		start := time.Now()
		end := start.Add(2*window + window/2)
		process.Concurrently(t, len(clients), func(i int) error {
			// A request every 10 ms from each: far more than the limit.
			for at := start; at.Before(end); at = at.Add(10 * time.Millisecond) {
				process.WaitUntil(at)
				got, err := clients[i].Try(t.Context(), "/", "x-api-key", "k")
				if err != nil {
					return err
				}
				if got.Status == http.StatusOK {
					passed[i] = append(passed[i], got)
				}
			}
			return nil
		})
		all := slices.Concat(passed...)
		slices.SortFunc(all, func(a, b stack.Answer) int { return a.Sent.Compare(b.Sent) })
		for i := range all {
			if i+limit >= len(all) {
				break
			}
			// limit+1 decisions, all within this time, wherever they fell.
			if within := last(all[i : i+limit+1]).Sub(all[i].Sent); within < window {
				t.Errorf("%d requests passed within %v, want at most %d", limit+1, within, limit)
			}
		}
		// Two full windows have begun anew after the first.
		if len(all) < 2*limit {
			t.Errorf("got %d passed within %v, want at least %d: the limit must also give back", len(all), time.Since(start), 2*limit)
		}
		s.WantAllDecided()
	})
}

// last returns when the last answer was received.
func last(answers []stack.Answer) time.Time {
	return slices.MaxFunc(answers, func(a, b stack.Answer) int { return a.Received.Compare(b.Received) }).Received
}

func count(answers []stack.Answer, is func(stack.Answer) bool) int {
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
  - {key: api_key, rate_limit: {name: per-key, by_tier: {free: {window: 1h, requests: 3}, starter: {window: 1h, requests: 6}}}}
`
)

// TestATierChangeCountsAtTheNextRequest changes the tier of a subject that has used
// its limit. The used part stays used.
func TestATierChangeCountsAtTheNextRequest(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: byTier, Tiers: stack.TiersOf("free"), Env: settings}.Start(t)
		c := s.From("127.0.0.1")
		move := func(tier string) {
			t.Helper()
			before := stack.Generation(t, s.RLS)
			if err := s.RLS.WriteTiers(stack.TiersOf(tier)); err != nil {
				t.Fatal(err)
			}
			process.Eventually(t, "the new tiers", func() bool { return stack.Generation(t, s.RLS) != before })
		}
		const acme = "acme-old-key"

		c.Want(200, 3, "/", "x-api-key", acme)
		c.Want(429, 1, "/", "x-api-key", acme)

		move("starter") // 3 of 6 are spent
		got := c.Get("/", "x-api-key", acme)
		if r := got.Header.Get("RateLimit"); got.Status != 200 || !strings.HasPrefix(r, `"per-key";r=2;`) {
			t.Errorf("after the upgrade: got %d, RateLimit %s, want 200 with 2 remaining", got.Status, r)
		}

		move("free") // 4 of 3 are spent
		got = c.Get("/", "x-api-key", acme)
		if p := stack.ProblemOf(t, got); got.Status != 429 || p.Limit != 3 {
			t.Errorf("after the downgrade: got %d by a limit of %d, want 429 by a limit of 3", got.Status, p.Limit)
		}

		move("starter") // the denials cost nothing
		c.Want(200, 2, "/", "x-api-key", acme)
		c.Want(429, 1, "/", "x-api-key", acme)

		// All keys of a subject share its log; others have theirs.
		c.Want(429, 1, "/", "x-api-key", "acme-new-key")
		c.Want(200, 3, "/", "x-api-key", "other-key")
		c.Want(429, 1, "/", "x-api-key", "other-key")
		s.WantAllDecided()
	})
}

// billingRules have a month that starts on the subject's own day.
const (
	billingRules = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: quota, policy: calendar, unit: month, requests_per_unit: 3, time_zone: Europe/Berlin, starts_label: billing_day}}
`
	billingTiers = `
tiers: [free]
default: free
subjects:
  - {id: acme, tier: free, labels: {billing_day: "15"}, keys: [{plain: acme-key}]}
`
)

// nextOn returns the next midnight in the time zone that begins this day of a month. It counts
// day by day, unlike the calendar of rls.
func nextOn(day int, zone *time.Location, now time.Time) time.Time {
	y, m, d := now.In(zone).Date()
	for ; ; d++ {
		if at := time.Date(y, m, d, 0, 0, 0, 0, zone); at.After(now) && at.Day() == day {
			return at
		}
	}
}

// TestQuotaOfABillingMonth uses up a month that starts on the customer's billing day, and another
// customer's, which starts on the rule's day. Every wait of the denial ends with the month, to the
// second. explain says which period that is.
func TestQuotaOfABillingMonth(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		env := stack.With(settings, map[string]string{stack.EnvStyles: "ratelimit,x-ratelimit"})
		rls := stack.Setup{Rules: billingRules, Tiers: billingTiers, Env: env}.Serve(t)
		for key, day := range map[string]int{"acme-key": 15, "unknown-key": 1} {
			if end := nextOn(day, berlin, time.Now()); time.Until(end) < 2*process.Patience {
				process.WaitUntil(end.Add(time.Second)) // the month must not end in the test
			}
			end := nextOn(day, berlin, time.Now())
			for i := range 4 {
				got := spend(t, rls, 1, key)
				least, most := ceilSeconds(end.Sub(got.received)), ceilSeconds(end.Sub(got.sent))
				within := func(name, text string) {
					t.Helper()
					if n, err := strconv.Atoi(text); err != nil || n < least || n > most {
						t.Errorf("%s, request %d: %s is %q, want %d to %d", key, i, name, text, least, most)
					}
				}
				_, reset, _ := strings.Cut(got.header["ratelimit"], ";t=")
				within("t of ratelimit", reset)
				within("x-ratelimit-reset", got.header["x-ratelimit-reset"])
				within("duration_until_reset", strconv.Itoa(ceilSeconds(got.status.GetDurationUntilReset().AsDuration())))
				want, code := strconv.Itoa(2-i), rlsv3.RateLimitResponse_OK
				if i == 3 {
					want, code = "0", rlsv3.RateLimitResponse_OVER_LIMIT
					within("retry-after", got.header["retry-after"])
				}
				if got.status.GetCode() != code || got.header["x-ratelimit-remaining"] != want {
					t.Errorf("%s, request %d: got %v with %q remaining, want %v with %s", key, i, got.status.GetCode(), got.header["x-ratelimit-remaining"], code, want)
				}
			}
		}

		o := edge.RLSOptions{Rules: billingRules, Tiers: billingTiers, Env: map[string]string{
			stack.EnvRulesPath: configtest.Write(t, "rules.yaml", billingRules), stack.EnvTiersPath: configtest.Write(t, "tiers.yaml", billingTiers), stack.EnvTiersSource: "file",
		}}
		explained := edge.Run(t, o, "", "explain", "--descriptor", "api_key=unknown-key")
		want := "month from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin"
		if until := " to " + nextOn(1, berlin, time.Now()).Format(time.RFC3339); !strings.Contains(explained.Stdout, want) || !strings.Contains(explained.Stdout, until) {
			t.Errorf("rls explain does not say %q and %q:\n%s%s", want, until, explained.Stdout, explained.Stderr)
		}
	})
}
