package redislimit_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/redislimit"
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
		if d.Limit().Remaining != want || d.Degraded {
			t.Errorf("request %d: remaining %d, want %d", i, d.Limit().Remaining, want)
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

// openScoped returns a limiter of a region with the Redis of that region and a global one.
func openScoped(t testing.TB, rules string, settings ...string) (*limiter.Limiter, error) {
	t.Helper()
	settings = append(settings, "SLIDEGATE_STORE_TYPE=redis", "SLIDEGATE_STORE_TIMEOUT=700ms", "SLIDEGATE_STORE_SCOPES_GLOBAL_TIMEOUT=700ms")
	store, err := redislimit.Open(redislimit.Options{Environ: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	read, err := limiter.Source{Texts: []limiter.Text{{Name: "rules.yaml", Data: []byte(rules)}}, Environ: settings}.Read()
	if err != nil {
		t.Fatal(err)
	}
	return limiter.New(store, read)
}

const scopedRules = `
domain: shop
descriptors:
  - key: api_key
    rate_limit: {name: contract, scope: global, unit: hour, requests_per_unit: 3}
  - key: route
    rate_limit: {name: search, unit: hour, requests_per_unit: 2}
  - key: upload
    rate_limit: {name: upload, scope: global, policy: in_flight, max: 1, hold: 1m}
`

// TestScopes: a limit of the scope global is one for the programs of two regions, and a limit of the
// region is not. A request that one of them denies is charged to neither.
func TestScopes(t *testing.T) {
	global := servers.StartRedis(t)
	var regions [2]*limiter.Limiter
	for i := range regions {
		l, err := openScoped(t, scopedRules, "SLIDEGATE_STORE_REDIS_URL=redis://"+servers.StartRedis(t).Addr(), "SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL=redis://"+global.Addr())
		if err != nil {
			t.Fatal(err)
		}
		regions[i] = l
	}
	allow := func(region int, req limiter.Request) limiter.Decision {
		t.Helper()
		d, err := regions[region].Allow(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if d.Degraded {
			t.Errorf("%+v: degraded", req)
		}
		return d
	}
	key, route := limiter.One("shop", "api_key", "k"), limiter.One("shop", "route", "search")
	both := limiter.Request{Domain: "shop", Descriptors: append(slices.Clone(key.Descriptors), route.Descriptors...)}
	for _, tt := range []struct {
		region    int
		req       limiter.Request
		remaining uint64
		denies    string
	}{
		{0, route, 1, ""},
		{0, both, 0, ""},
		{0, both, 0, "search"}, // and is not charged to contract
		{1, route, 1, ""},
		{1, key, 1, ""},
		{0, key, 0, ""},
		{1, both, 0, "contract"}, // and is not charged to search
		{1, route, 0, ""},
	} {
		d := allow(tt.region, tt.req)
		if d.Allowed != (tt.denies == "") || d.Limit().Remaining != tt.remaining || !d.Allowed && d.Limit().Rule != tt.denies {
			t.Errorf("region %d, %+v: allowed %v, %+v", tt.region, tt.req, d.Allowed, d.Limit())
		}
	}
	upload := limiter.One("shop", "upload", "x")
	first := allow(0, upload)
	if !first.Allowed || allow(1, upload).Allowed {
		t.Error("two are in flight, or none")
	}
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if !allow(1, upload).Allowed {
		t.Error("what one region has released, the other one cannot use")
	}
	if keys, err := global.Do("KEYS", "*route*"); err != nil || keys != "" {
		t.Errorf("logs of a region in the global store: %q, %v", keys, err)
	}
}

// TestScopeAway: while the Redis of a scope is away, this process's share decides its limits, and the
// program hears which scope it is. Those of the region stay exact.
func TestScopeAway(t *testing.T) {
	redis := servers.StartRedis(t)
	settings := []string{
		"SLIDEGATE_STORE_TYPE=redis", "SLIDEGATE_STORE_REDIS_URL=redis://" + redis.Addr(), "SLIDEGATE_STORE_TIMEOUT=700ms",
		"SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL=redis://127.0.0.1:1",
	}
	heard := make(chan string, 100)
	store, err := redislimit.Open(redislimit.Options{Environ: settings, Changed: func(server string, _ error) { heard <- server }})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "scope global: ") || strings.Contains(err.Error(), "scope region") {
		t.Errorf("ping: %v", err)
	}
	rules, err := limiter.Source{Texts: []limiter.Text{{Name: "rules.yaml", Data: []byte(scopedRules)}}, Environ: settings}.Read()
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(store, rules)
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct{ key, want string }{{"api_key", "true true"}, {"api_key", "true true"}, {"api_key", "true true"}, {"api_key", "false true"}, {"route", "true false"}, {"route", "true false"}, {"route", "false false"}} {
		d, err := l.Allow(t.Context(), limiter.One("shop", tt.key, "k"))
		if got := fmt.Sprint(d.Allowed, d.Degraded); err != nil || got != tt.want {
			t.Errorf("request %d, %s: allowed and degraded %s, want %s: %v", i, tt.key, got, tt.want, err)
		}
	}
	for range 5 { // as many failures open the breaker
		if _, err := l.Allow(t.Context(), limiter.One("shop", "api_key", "k")); err != nil {
			t.Error(err)
		}
	}
	if server := <-heard; server != "global 127.0.0.1:1" {
		t.Errorf("the program heard of %q", server)
	}
}

// TestScopesMissing: a store without the scopes of the rules is refused, as are other scopes under
// the same numbers.
func TestScopesMissing(t *testing.T) {
	redis := servers.StartRedis(t)
	store, err := redislimit.Open(redislimit.Options{URL: "redis://" + redis.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	scope := func(name string, n int) string {
		return fmt.Sprintf("SLIDEGATE_STORE_SCOPES_%s_REDIS_URL=redis://%s/%d", strings.ToUpper(name), redis.Addr(), n)
	}
	other, err := redislimit.Open(redislimit.Options{URL: "redis://" + redis.Addr(), Environ: []string{scope("global", 1), scope("sales", 2)}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	read := func(rules string) *limiter.Rules {
		t.Helper()
		r, err := limiter.Source{
			Texts: []limiter.Text{{Name: "rules.yaml", Data: []byte(rules)}}, Environ: []string{"SLIDEGATE_STORE_TYPE=redis", scope("eu", 1), scope("global", 2), scope("sales", 3)},
		}.Read()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const want = `limiter: rule contract counts in the scope global, and the store has`
	if _, err := limiter.New(store, read(scopedRules)); err == nil || !strings.Contains(err.Error(), want+" only region") {
		t.Errorf("New: %v", err)
	}
	if _, err := limiter.New(other, read(scopedRules)); err == nil || !strings.Contains(err.Error(), want+" region, global, sales") {
		t.Errorf("New with other scopes: %v", err)
	}
	for _, s := range []*redislimit.Store{store, other} {
		l, err := limiter.New(s, read(strings.ReplaceAll(scopedRules, "scope: global, ", "")))
		if err != nil {
			t.Fatalf("rules that name no scope: %v", err)
		}
		if err := l.Swap(read(scopedRules)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Swap: %v", err)
		}
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
		URL:     "redis://" + redis.Addr(),
		Timeout: time.Second, Changed: func(_ string, err error) { heard <- err },
	})
	redis.Stop()
	admitted := 0
	for range 12 {
		d, err := l.Allow(t.Context(), limiter.One("shop", "api_key", "k"))
		if err != nil || !d.Degraded {
			t.Errorf("without Redis: %v, degraded %v", err, d.Degraded)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("without Redis %d pass, want 10, the limit for one program", admitted)
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
		{redislimit.Options{URL: "redis://:hunter2@", Timeout: time.Hour}, []string{"redislimit: Options.Timeout: 1h0m0s is not", "\nOptions.URL: the URL has no host"}},
		{redislimit.Options{Timeout: time.Hour, Environ: []string{"SLIDEGATE_STORE_TIMEOUT=5x"}}, []string{"redislimit: Options.Timeout: 1h0m0s is not"}},
		{redislimit.Options{Environ: []string{"SLIDEGATE_STORE_SCOPES_GLOBL_TIMEOUT=50ms"}}, []string{"SLIDEGATE_STORE_SCOPES_GLOBL_REDIS_URL: a scope needs"}},
		{redislimit.Options{Settings: "/nonexistent/settings.yaml"}, []string{"/nonexistent/settings.yaml"}},
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
	store, err := redislimit.Open(redislimit.Options{URL: "redis://127.0.0.1:1", Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	rules, err := limiter.ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: minute, requests_per_unit: 2}
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
