package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	usageKey   = "sk_planted_in_the_walk"
	usageRules = `domain: edge
descriptors:
  - key: api_key
    rate_limit:
      by_tier:
        free: {requests: 2, window: 1h}
        pro: {requests: 3, window: 1h}
  - key: route
    descriptors:
      - key: api_key
        rate_limit:
          limits: [{requests: 2, window: 1h}, {requests: 100, window: 1d}]
`
	usageTiers = `tiers: [free, pro]
default: free
subjects:
  - {id: acme, tier: pro, keys: [{plain: ` + usageKey + `}]}
`
)

// usageSettings are settings with the rules of this test, and a token that may reset.
func usageSettings(t *testing.T) settings.Settings {
	t.Helper()
	dir, s := t.TempDir(), testSettings(t)
	s.Rules.Path, s.Tiers.Path, s.Admin.TokenFile = filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "tiers.yaml"), filepath.Join(dir, "tokens")
	s.Tiers.Source = settings.TiersFile
	write(t, s.Rules.Path, usageRules)
	write(t, s.Tiers.Path, usageTiers)
	write(t, s.Admin.TokenFile, "act a-token-that-may-reset-limits\n")
	return s
}

// TestWhyAndLetThrough answers the question "why is acme denied, and let it through" on every
// store, with two instances where they share one.
func TestWhyAndLetThrough(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		one := start(t, usageSettings(t))
		letThrough(t, one, one)
	})
	t.Run("redis", func(t *testing.T) {
		server := servers.StartRedis(t)
		s := usageSettings(t)
		onRedis(t, &s, server.Addr())
		one, other := start(t, s), start(t, s)
		before := keysOf(t, server.Addr())
		one.usage("subject=acme")
		if after := keysOf(t, server.Addr()); len(after) != len(before) {
			t.Errorf("a question made keys: %v, before %v", after, before)
		}
		letThrough(t, one, other)
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := servers.StartCluster(t)
		s := usageSettings(t)
		s.Store.Type, s.Store.Redis.URL = settings.StoreRedis, redisURL(t, "redis-cluster://"+strings.Join(cluster.Addrs()[:2], ","))
		letThrough(t, start(t, s), start(t, s))
	})
}

func keysOf(t *testing.T, address string) []string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func letThrough(t *testing.T, one, other *testRun) {
	request := func(route string) string {
		return fmt.Sprintf(`{"domain":"edge","descriptors":[{"entries":[{"key":"api_key","value":%q}]},{"entries":[{"key":"route","value":%q},{"key":"api_key","value":%q}]}]}`, usageKey, route, usageKey)
	}
	passes := func(r *testRun, route string) bool {
		t.Helper()
		out, err := r.ask(request(route))
		if err != nil {
			t.Fatal(err)
		}
		return out.GetOverallCode() == rlsv3.RateLimitResponse_OK
	}
	for n, r := range []*testRun{one, other, one} {
		waitFor(t, "a decision of the store", func() bool {
			_, err := r.ask(strings.ReplaceAll(request("warm"), usageKey, fmt.Sprint("warm-", n)))
			return err == nil
		})
		if !passes(r, []string{"search", "search", "sell"}[n]) {
			t.Fatalf("request %d is denied", n)
		}
	}
	for _, r := range []*testRun{one, other, one, other} {
		if passes(r, "other") {
			t.Fatal("acme is not denied")
		}
	}

	u := one.usage("subject=acme")
	used := make(map[string]uint64)
	for _, l := range u.Limits {
		if !l.NoLog {
			used[fmt.Sprintf("%s %s %v", l.Rule, l.Values, l.Window)] = l.Used
		}
		if l.Rule == "api_key" && (l.Remaining != 0 || l.NextFree <= 3500 || l.Tier != "pro") {
			t.Errorf("the limit of acme: %+v", l)
		}
	}
	want := map[string]uint64{
		"api_key  3600":                   3,
		"route.api_key route=search 3600": 2, "route.api_key route=search 86400": 2,
		"route.api_key route=sell 3600": 1, "route.api_key route=sell 86400": 1,
	}
	if fmt.Sprint(used) != fmt.Sprint(want) {
		t.Errorf("used %v, want %v", used, want)
	}

	done := one.reset(`{"subject": "acme", "reason": "ticket 4711"}`)
	if done.Logs != 5 || done.Problem != "" {
		t.Errorf("the reset: %+v", done)
	}
	waitFor(t, "both instances to let acme through", func() bool { return passes(other, "search") })
	if !passes(one, "search") || passes(one, "search") {
		t.Error("after the reset the limits do not begin anew")
	}
	for _, r := range []*testRun{one, other} {
		for _, l := range r.logs.All() {
			if line := fmt.Sprint(l.Message, l.ContextMap()); strings.Contains(line, usageKey) {
				t.Errorf("the log has the key: %s", line)
			}
		}
	}
	one.waitLog("an operator has reset limits")
	one.wantMetrics("slidegate_resets_total 1")
}

// explain has a request explained over the admin port.
func (r *testRun) explain(request string) (code int, body string) {
	r.t.Helper()
	code, _, body = exchange(r.t, http.MethodPost, "http://"+r.Admin+"/v1/explain", request, "Content-Type", "application/json",
		"Authorization", "Bearer a-token-that-may-reset-limits")
	return code, body
}

// usage asks the admin port for usage.
func (r *testRun) usage(query string) (u insight.Usage) {
	r.t.Helper()
	code, body := get(r.t, "http://"+r.Admin+"/v1/usage?"+query)
	if err := json.Unmarshal([]byte(body), &u); err != nil || code != http.StatusOK || u.Problem != "" {
		r.t.Fatalf("usage: %d, %v\n%s", code, err, body)
	}
	return u
}

// reset resets limits over the admin port.
func (r *testRun) reset(request string) (done insight.Reset) {
	r.t.Helper()
	code, _, body := exchange(r.t, http.MethodPost, "http://"+r.Admin+"/v1/reset", request,
		"Authorization", "Bearer a-token-that-may-reset-limits", "Content-Type", "application/json")
	if code != http.StatusOK {
		r.t.Fatalf("reset: %d\n%s", code, body)
	}
	if err := json.Unmarshal([]byte(body), &done); err != nil {
		r.t.Fatal(err)
	}
	return done
}
