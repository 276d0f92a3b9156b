package redislimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/pkg/limiter"
	"github.com/slidegate/slidegate/pkg/limiter/redislimit"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLimiter(t testing.TB, o redislimit.Options) (*limiter.Limiter, *redislimit.Store) {
	t.Helper()
	store, err := redislimit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	rules, err := limiter.MakeRules(limiter.Domain{Name: "shop", Rules: []limiter.Rule{{
		Key: "api_key", RateLimit: &limiter.RateLimit{Name: "per-key", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 10, Window: time.Hour}}}},
	}, {
		Key: "upload", RateLimit: &limiter.RateLimit{Name: "upload", Terms: limiter.Terms{Limits: []limiter.Limit{{Policy: "in_flight", Max: 2, Hold: time.Minute}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(store, rules)
	if err != nil {
		t.Fatal(err)
	}
	return l, store
}

// TestTwoProcesses: two stores on one Redis share a limit, and another prefix has its own.
func TestTwoProcesses(t *testing.T) {
	redis := servers.StartRedis(t)
	o := redislimit.Options{URL: "redis://" + redis.Addr() + "/0", Timeout: 5 * time.Second}
	one, store := newLimiter(t, o)
	two, _ := newLimiter(t, o)
	o.KeyPrefix = "apart:"
	o.Environ = []string{"SLIDEGATE_STORE_REDIS_URL=redis://127.0.0.1:1", "SLIDEGATE_STORE_REDIS_KEY_PREFIX=other:"} // fields override it
	apart, _ := newLimiter(t, o)
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, l := range []*limiter.Limiter{one, two, one, two, apart} {
		d, err := l.Allow(t.Context(), limiter.One("shop", "api_key", "k"))
		if err != nil {
			t.Fatal(err)
		}
		want := uint64(9 - i)
		if l == apart {
			want = 9
		}
		if d.Limit.Remaining != want || d.Degraded {
			t.Errorf("request %d: remaining %d, want %d", i, d.Limit.Remaining, want)
		}
	}
	if keys, err := redis.Do("KEYS", "apart:*"); err != nil || keys == "" || strings.Contains(keys, "slidegate:") {
		t.Errorf("keys %q, %v", keys, err)
	}
}

// TestInFlight: two processes share what is in flight.
func TestInFlight(t *testing.T) {
	redis := servers.StartRedis(t)
	o := redislimit.Options{URL: "redis://" + redis.Addr(), Timeout: 5 * time.Second}
	one, _ := newLimiter(t, o)
	two, _ := newLimiter(t, o)
	upload := limiter.One("shop", "upload", "x")
	allow := func(l *limiter.Limiter) limiter.Decision {
		t.Helper()
		d, err := l.Allow(t.Context(), upload)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, second := allow(one), allow(two)
	if !first.Allowed || !second.Allowed || allow(one).Allowed {
		t.Error("two are in flight, and a third is allowed or one of them is not")
	}
	for range 2 {
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !allow(two).Allowed || allow(one).Allowed {
		t.Error("a release does not free one place for the other process")
	}
}

// TestCloseTwice: a second Close does nothing.
func TestCloseTwice(t *testing.T) {
	store, err := redislimit.Open(redislimit.Options{URL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestChanged: the program hears that Redis is away, and that it is back.
func TestChanged(t *testing.T) {
	redis := servers.StartRedis(t)
	heard := make(chan error, 100)
	l, _ := newLimiter(t, redislimit.Options{
		URL: "redis://" + redis.Addr(), Environ: []string{"SLIDEGATE_STORE_REDIS_BREAKER_FAILURES=1", "SLIDEGATE_STORE_REDIS_BREAKER_PROBE_INTERVAL=10ms"},
		Timeout: time.Second, Replicas: 2, Changed: func(_ string, err error) { heard <- err },
	})
	redis.Stop()
	admitted := 0
	for range 10 {
		d, err := l.Allow(t.Context(), limiter.One("shop", "api_key", "k"))
		if err != nil || !d.Degraded {
			t.Errorf("without Redis: %v, degraded %v", err, d.Degraded)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("without Redis %d pass, want 5, the half", admitted)
	}
	if err := <-heard; err == nil {
		t.Error("the program heard no reason")
	}
	redis.Start()
	for err := range heard {
		if err == nil {
			return
		}
	}
}

// TestOptions: every mistake at once, and no password in a message.
func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		o    redislimit.Options
		want []string
	}{
		{redislimit.Options{URL: "redis://:hunter2@", Timeout: time.Hour}, []string{"SLIDEGATE_STORE_REDIS_URL", "SLIDEGATE_STORE_TIMEOUT"}},
		{redislimit.Options{Replicas: -1}, []string{"SLIDEGATE_STORE_REPLICAS"}},
		{redislimit.Options{Settings: "/nonexistent/settings.yaml"}, []string{"/nonexistent/settings.yaml"}},
		{redislimit.Options{Environ: []string{"SLIDEGATE_STORE_PEERS=rls.example"}}, []string{"store.peers"}},
		{redislimit.Options{Environ: []string{"SLIDEGATE_STORE_REDIS_PASSWORD_FILE=/nonexistent/password"}}, []string{"/nonexistent/password"}},
	} {
		s, err := redislimit.Open(tt.o)
		if err == nil {
			t.Errorf("%v: no error, %v", tt.want, s.Close())
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q is not in %v", want, err)
			}
		}
	}
}

// Without Redis, this process's share of the limit decides: see on_store_error.
func ExampleOpen() {
	store, err := redislimit.Open(redislimit.Options{URL: "redis://127.0.0.1:1", Replicas: 2, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	rules, err := limiter.ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: minute, requests_per_unit: 4}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := limiter.New(store, rules)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d, err := l.Allow(context.Background(), limiter.One("shop", "api_key", "k1"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Allowed, d.Degraded)
	}
	// Output:
	// true true
	// true true
	// false true
}
