package limits

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

const onceRules = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 5, charge_once: {entry: idempotency_key, for: 10m, retries: 3}}}
  - {key: remote_address, value: 127.0.0.9, rate_limit: {name: address, window: 1h, requests: 3}}
`

// onceChange puts the actions of docs/advanced.md into the routes of envoy/ratelimit.yaml.
func onceChange(t *testing.T) map[string]string {
	t.Helper()
	actions := regexp.MustCompile("(?s)```yaml\nactions:\n(.*?)```").FindStringSubmatch(tree.Read(t, "docs/advanced.md"))
	if actions == nil {
		t.Fatal("docs/advanced.md has no actions")
	}
	const indent = "                    "
	const plain = indent + "- actions:\n" + indent + "  - request_headers: {header_name: x-api-key, descriptor_key: api_key}\n"
	own := indent + "- actions:\n"
	for line := range strings.Lines(actions[1]) {
		own += indent + line
	}
	// The limit of an address gets the entry too, and first.
	const address = indent + "- actions:\n" + indent + "  - remote_address: {}\n"
	lines := strings.SplitAfter(actions[1], "\n")
	return map[string]string{plain: own, address: indent + "- actions:\n" + indent + lines[1] + indent + "  - remote_address: {}\n"}
}

// TestChargeOnce: through Envoy, a client that retries with the same Idempotency-Key is charged
// once, also when the limit is used up. Another key, another caller and no key are charged.
func TestChargeOnce(t *testing.T) {
	const secret = "9f1c-attempt-of-a-client"
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: onceRules, Env: settings, Change: onceChange(t)}.Start(t)
		left := func(step, key string, want uint32) {
			t.Helper()
			if got := s.Peek("api_key=" + key)[0]; got != want {
				t.Fatalf("%s: %d of 5 remain, want %d", step, got, want)
			}
		}
		send := func(step, key, attempt string, want int) stack.Answer {
			t.Helper()
			header := []string{"x-api-key", key}
			if attempt != "-" {
				header = append(header, "Idempotency-Key", attempt)
			}
			got := s.Get("/", header...)
			if got.Status != want {
				t.Fatalf("%s: got %d, want %d", step, got.Status, want)
			}
			return got
		}
		send("first", "k", secret, 200)
		if got := send("its retry", "k", secret, 200).Header.Get("ratelimit"); !strings.Contains(got, "r=4") {
			t.Errorf("the retry has RateLimit %q, want what remains now: 4", got)
		}
		left("a retry is free", "k", 4)
		if got := s.Get("/", "x-api-key", "k", "Idempotency-Key", secret, "Idempotency-Key", "second").Header.Get("ratelimit"); !strings.Contains(got, "r=4") {
			t.Errorf("with a second value of the header, the retry has RateLimit %q, want 4", got)
		}
		send("another caller", "other", secret, 200)
		left("it has keys of its own", "other", 4)
		send("another key", "k", "two", 200)
		send("no key", "k", "-", 200)
		send("an empty key", "k", "", 200)
		left("each of them is charged", "k", 1)
		send("a long key", "k", strings.Repeat("x", 8000), 200)
		left("used up", "k", 0)
		send("no key", "k", "-", 429)
		send("a new key", "k", "three", 429)
		send("it has no idempotency record", "k", "three", 429)
		send("the third retry", "k", secret, 200)
		send("the fourth would be charged", "k", secret, 429)
		send("the long key", "k", strings.Repeat("x", 8000), 200)

		// A limit without charge_once counts each request, whatever the client does with its key.
		client := s.From("127.0.0.9")
		for i, header := range [][]string{{"Idempotency-Key", "a"}, {"Idempotency-Key", "a", "Idempotency-Key", "b"}, {"Idempotency-Key", ""}} {
			if got := client.Get("/", header...); got.Status != 200 {
				t.Errorf("request %d of the address: got %d, want 200", i, got.Status)
			}
		}
		denied := func(when string) {
			t.Helper()
			for _, header := range [][]string{{"Idempotency-Key", "c"}, {"Idempotency-Key", "a,b"}, {"X-Idempotency-Key", "c", "Idempotency-Key", "d"}, nil} {
				if got := client.Get("/", header...); got.Status != 429 {
					t.Errorf("%s, a request of the address with %q: got %d, want 429", when, header, got.Status)
				}
			}
		}
		denied("used up")
		// A second name of the entry is refused, and the old rules stay.
		if err := s.RLS.WriteRules(onceRules + "  - {key: user, rate_limit: {window: 1h, requests: 5, charge_once: {entry: idempotency-key}}}\n"); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, "the second name to be refused", func() bool { return stack.Metric(t, s.RLS, "slidegate_config_broken") == "1" })
		process.Eventually(t, "rls to say why", func() bool { return strings.Contains(s.RLS.Output(), "use one entry in all rules of a domain") })
		denied("with the old rules")
		s.WantAllDecided()

		if n := stack.Metric(t, s.RLS, `slidegate_decisions_total{domain="edge",outcome="repeated",rule="per-key"}`); n != "4" {
			t.Errorf("metrics count %s repeats, want 4", n)
		}
		places := map[string]string{"the output": s.RLS.Output(), "/metrics": stack.Page(t, s.RLS.Admin()+"/metrics")}
		if url := settings[stack.EnvRedisURL]; url != "" {
			places["Redis"] = dump(t, strings.TrimPrefix(url, "redis://"))
		}
		for where, text := range places {
			if strings.Contains(text, secret) || strings.Contains(text, "xxxxxxxx") {
				t.Errorf("%s has an idempotency key", where)
			}
		}
	})
}

// dump returns all names and values of a Redis.
func dump(t *testing.T, address string) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: address})
	defer c.Close()
	names, err := c.Keys(t.Context(), "*").Result()
	if err != nil || len(names) == 0 {
		t.Fatalf("got the keys %q, error %v", names, err)
	}
	var b strings.Builder
	for _, name := range names {
		b.WriteString(name + " " + c.Get(t.Context(), name).Val() + "\n")
	}
	return b.String()
}

// TestChargeOnceAndEnvoyRetries: Envoy's retries are charged once with and without a key, and an
// internal redirect is with a key. Retries of the client on top of them are free.
func TestChargeOnceAndEnvoyRetries(t *testing.T) {
	for _, tt := range []struct {
		name, route string
		answer      func(w http.ResponseWriter, r *http.Request)
		status      int
		sent        int64 // to the application, with two requests of the client
	}{
		{"retry on 5xx", `, retry_policy: {retry_on: 5xx, num_retries: 3}`, answering(503), 503, 8},
		{"internal redirect", `, internal_redirect_policy: {max_internal_redirects: 2}`, redirect, 200, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			upstream, sent := counted(t, tt.answer)
			change := onceChange(t)
			change[plainRoute] = plainRoute + tt.route
			s := stack.Setup{Rules: onceRules, Upstream: upstream, Change: change}.Start(t)
			for range 2 {
				if got := s.Get("/", "x-api-key", "k", "Idempotency-Key", "one"); got.Status != tt.status {
					t.Errorf("got status %d, want %d", got.Status, tt.status)
				}
			}
			if charged := 5 - s.Peek("api_key=k")[0]; sent.Load() != tt.sent || charged != 1 {
				t.Errorf("the application got %d requests and %d were charged, want %d and 1", sent.Load(), charged, tt.sent)
			}
			s.WantAllDecided()
		})
	}
}

// TestChargeOnceAtOnce: of many requests with one key at the same moment, through Envoy, one is
// charged, and three are free.
func TestChargeOnceAtOnce(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: strings.Replace(onceRules, "requests: 5", "requests: 100", 1), Env: settings, Change: onceChange(t)}.Start(t)
		var all sync.WaitGroup
		for _, c := range s.Clients(20) {
			all.Go(func() { c.Want(200, 1, "/", "x-api-key", "k", "Idempotency-Key", "one") })
		}
		all.Wait()
		if charged := 100 - s.Peek("api_key=k")[0]; charged != 17 {
			t.Errorf("%d of 20 requests were charged, want 17", charged)
		}
		s.WantAllDecided()
	})
}
