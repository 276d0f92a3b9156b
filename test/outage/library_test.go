package outage

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	lib "github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/redislimit"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

const (
	libraryRules = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, by_tier: {pro: {window: 1h, requests: 10}, default: {policy: token_bucket, rate: 6/h, burst: 6}}}}
  - {key: route, value: /search/*, descriptors: [{key: remote_address, rate_limit: {name: search, limits: [{window: 1h, requests: 8}, {policy: fixed, window: 24h, requests: 100}], charge: allowed}}]}
`
	libraryTiers = `
tiers: [free, pro]
default: free
subjects:
  - {id: acme, tier: pro, keys: [{plain: acme-key}]}
`
)

// A library is a program that uses limiter, in the process of the test.
type library struct {
	t *testing.T
	*lib.Limiter
}

// startLibrary starts it on the Redis, the rules and the tiers of an rls.
func startLibrary(t *testing.T, rls *edge.RLSServer, env map[string]string) library {
	t.Helper()
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	store, err := redislimit.Open(redislimit.Options{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	rules, err := lib.Source{Paths: []string{rls.RulesFile(), rls.TiersFile()}, Environ: environ}.Read()
	if err != nil {
		t.Fatal(err)
	}
	l, err := lib.New(store, rules)
	if err != nil {
		t.Fatal(err)
	}
	return library{t, l}
}

// ask decides one request.
func (l library) ask(d lib.Descriptor) lib.Decision {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), process.Patience)
	defer cancel()
	got, err := l.Allow(ctx, lib.Request{Domain: "edge", Descriptors: []lib.Descriptor{d}})
	if err != nil {
		l.t.Fatal(err)
	}
	return got
}

// header returns the value of one field.
func headerOf(d lib.Decision, name string) string {
	for _, h := range d.AppendHeaders(nil) {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// askRLS asks rls the same.
func askRLS(t *testing.T, rls *edge.RLSServer, d lib.Descriptor) stack.Answer {
	t.Helper()
	sent := new(ratelimitcommonv3.RateLimitDescriptor)
	for _, e := range d.Entries {
		sent.Entries = append(sent.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
	}
	got, _ := stack.PostJSON(t, rls.HTTP(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{sent}})
	return got
}

// TestLibrarySharesLimits asks a program with the library and rls in turn, on one Redis. Each sees
// what the other has spent, under every policy and spelling, and both say the same.
func TestLibrarySharesLimits(t *testing.T) {
	redis := servers.StartRedis(t)
	env := map[string]string{
		"SLIDEGATE_STORE_TYPE": "redis", "SLIDEGATE_STORE_REDIS_URL": "redis://" + redis.Addr() + "/0",
		"SLIDEGATE_STORE_REDIS_KEY_PREFIX": "shared:", "SLIDEGATE_SECRETS_KEY": "0123456789abcdef", "SLIDEGATE_STORE_TIMEOUT": "5s",
	}
	rls := edge.RLS(t, edge.RLSOptions{Rules: libraryRules, Tiers: libraryTiers, Env: env})
	l := startLibrary(t, rls, env)
	for name, tt := range map[string]struct {
		entries []lib.Entry
		spelled []lib.Entry // the same, as rls is asked
		limit   int
	}{
		"key with a tier": {[]lib.Entry{{Key: "api_key", Value: "acme-key"}}, []lib.Entry{{Key: "api_key", Value: "Bearer acme-key"}}, 10},
		"unknown key":     {[]lib.Entry{{Key: "api_key", Value: "other"}}, nil, 6},
		"address":         {[]lib.Entry{{Key: "route", Value: "/search/x"}, {Key: "remote_address", Value: "192.0.2.7"}}, []lib.Entry{{Key: "route", Value: "/search/x"}, {Key: "remote_address", Value: "::ffff:192.0.2.7"}}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.spelled == nil {
				tt.spelled = tt.entries
			}
			for i := range tt.limit {
				remaining := fmt.Sprintf(";r=%d", tt.limit-1-i)
				var got string
				if i%2 == 0 {
					got = headerOf(l.ask(lib.Descriptor{Entries: tt.entries}), "ratelimit")
				} else {
					got = askRLS(t, rls, lib.Descriptor{Entries: tt.spelled}).Header.Get("ratelimit")
				}
				if !strings.Contains(got, remaining) {
					t.Errorf("request %d: %q, want %s", i, got, remaining)
				}
			}
			if d := l.ask(lib.Descriptor{Entries: tt.entries}); d.Allowed || d.Degraded {
				t.Errorf("the library admits one more: %+v", d.Limit())
			}
			if got := askRLS(t, rls, lib.Descriptor{Entries: tt.spelled}); got.Status != http.StatusTooManyRequests {
				t.Errorf("rls admits one more: %d", got.Status)
			}
			// rls remembers the denial, until the library gives one hit back.
			l.ask(lib.Descriptor{Entries: tt.entries, Refund: true})
			process.Eventually(t, "rls hears of the refund", func() bool {
				return askRLS(t, rls, lib.Descriptor{Entries: tt.spelled}).Status == http.StatusOK
			})
		})
	}
	keys, err := redis.Do("KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(keys, "acme-key") || strings.Contains(keys, "other") {
		t.Errorf("an API key is in a key of Redis: %s", keys)
	}
}

// TestLibrarySharesScopes asks a program in one region and rls in another in turn. They share the
// limit of the scope global, and not that of the region.
func TestLibrarySharesScopes(t *testing.T) {
	t.Parallel()
	env := stack.OnRedis(servers.Redis(t))
	env[stack.EnvStoreTimeout] = "700ms"
	env["SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL"] = "redis://" + servers.Redis(t)
	env["SLIDEGATE_STORE_SCOPES_GLOBAL_TIMEOUT"] = "700ms"
	rls := edge.RLS(t, edge.RLSOptions{Rules: twoScopes, Tiers: libraryTiers, Env: env})
	env["SLIDEGATE_STORE_REDIS_URL"] = "redis://" + servers.Redis(t)
	l := startLibrary(t, rls, env)
	key := lib.Descriptor{Entries: []lib.Entry{{Key: "api_key", Value: "shared"}}}
	address := lib.Descriptor{Entries: []lib.Entry{{Key: "route", Value: "login"}, {Key: "remote_address", Value: "192.0.2.7"}}}
	for i := range 20 {
		var got string
		if i%2 == 0 {
			got = headerOf(l.ask(key), "ratelimit")
		} else {
			got = askRLS(t, rls, key).Header.Get("ratelimit")
		}
		if remaining := fmt.Sprintf(";r=%d", 19-i); !strings.Contains(got, remaining) {
			t.Errorf("request %d of the key: %q, want %s", i, got, remaining)
		}
	}
	if l.ask(key).Allowed || askRLS(t, rls, key).Status != http.StatusTooManyRequests {
		t.Error("the global limit admits more than 20")
	}
	for i := range 5 {
		remaining := fmt.Sprintf(";r=%d", 4-i)
		if lib, service := headerOf(l.ask(address), "ratelimit"), askRLS(t, rls, address).Header.Get("ratelimit"); !strings.Contains(lib, remaining) || !strings.Contains(service, remaining) {
			t.Errorf("request %d of the address: %q and %q, want %s", i, lib, service, remaining)
		}
	}
}

// TestLibraryWithoutRedis stops Redis: the library decides by its share, and exactly again
// afterwards, with what it admitted meanwhile.
func TestLibraryWithoutRedis(t *testing.T) {
	redis := servers.StartRedis(t)
	dir := t.TempDir()
	settings := fileIn(t, dir, "settings.yaml", fmt.Sprintf("store: {type: redis, redis: {url: 'redis://%s/0'}}\nsecrets: {key_file: %s}\n", redis.Addr(), fileIn(t, dir, "secret", "0123456789abcdef")))
	var store *redislimit.Store
	for i := range 2 { // the second one counts both at once
		one, err := redislimit.Open(redislimit.Options{Settings: settings, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := one.Close(); err != nil {
				t.Error(err)
			}
		}()
		process.Eventually(t, "the program has an entry", func() bool {
			n, err := redis.Do("ZCARD", "slidegate:instances")
			return err == nil && n == fmt.Sprint(i+1)
		})
		store = one
	}
	rules, err := lib.ReadRules(settings, fileIn(t, dir, "rules.yaml", libraryRules), fileIn(t, dir, "tiers.yaml", libraryTiers))
	if err != nil {
		t.Fatal(err)
	}
	engine, err := lib.New(store, rules)
	if err != nil {
		t.Fatal(err)
	}
	l := library{t, engine}
	key := lib.Descriptor{Entries: []lib.Entry{{Key: "api_key", Value: "acme-key"}}}
	if d := l.ask(key); !d.Allowed || d.Degraded {
		t.Fatalf("with Redis: %+v", d)
	}
	redis.Pause()
	admitted := 0
	for range 10 {
		d := l.ask(key)
		if !d.Degraded && d.Allowed {
			t.Errorf("without Redis: %+v", d)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted == 0 || admitted > 5 {
		t.Errorf("without Redis %d pass, want some, and no more than half of the limit", admitted)
	}
	redis.Resume()
	process.Eventually(t, "Redis decides again", func() bool {
		d := l.ask(lib.Descriptor{Entries: key.Entries, Ask: true})
		return !d.Degraded
	})
}

func fileIn(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := servers.ReplaceFile(path, text); err != nil {
		t.Fatal(err)
	}
	return path
}
