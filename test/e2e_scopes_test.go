package test

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slidegate/slidegate/test/servers"
)

// twoScopes limits API keys for all regions together, and addresses in each region.
const twoScopes = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 20, scope: global}
  - key: remote_address
    rate_limit: {name: per-address, window: 1h, requests: 1000}
  - key: route
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {name: login, window: 1h, requests: 5}
`

// twoRegions starts two regions, each with an Envoy, an rls and a Redis of its own. They share
// the Redis at global.
func twoRegions(t *testing.T, global string, more map[string]string) (regions [2]*stack) {
	t.Helper()
	for i := range regions {
		env := onRedis(servers.Redis(t))
		env[envStoreTimeout] = "700ms"
		env["SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL"] = "redis://" + global
		env["SLIDEGATE_STORE_SCOPES_GLOBAL_TIMEOUT"] = "700ms"
		maps.Copy(env, more)
		regions[i] = setup{rules: twoScopes, env: env}.start(t)
	}
	return regions
}

// remains returns how many hits an address has left in a region.
func remains(s *stack, address string) uint32 {
	return s.peek("remote_address=" + address)[0]
}

// TestTwoRegions: a global limit is exact in both regions together, and a request that it denies
// charges nothing in its region. Limits of the regions are independent.
func TestTwoRegions(t *testing.T) {
	t.Parallel()
	regions := twoRegions(t, servers.Redis(t), nil)
	var passed [2]atomic.Int64
	concurrently(t, 40, func(i int) error {
		s := regions[i%2]
		for range 3 {
			switch got := s.get("/", "x-api-key", "shared"); got.status {
			case 200:
				passed[i%2].Add(1)
			case 429:
				if name := got.header.Get("RateLimit"); !strings.HasPrefix(name, `"per-key"`) {
					return fmt.Errorf("denied by %s, want per-key", name)
				}
			default:
				return fmt.Errorf("got status %d", got.status)
			}
		}
		return nil
	})
	if sum := passed[0].Load() + passed[1].Load(); sum != 20 {
		t.Errorf("%d requests passed in both regions, want 20", sum)
	}
	for i, s := range regions {
		if used := 1000 - int64(remains(s, "127.0.0.1")); used != passed[i].Load() {
			t.Errorf("region %d: %d hits are charged to the address, and %d requests passed", i, used, passed[i].Load())
		}
		c := s.from("127.0.0.2")
		for n := range 8 {
			want := 200
			if n >= 5 {
				want = 429
			}
			c.want(want, 1, "/login", "x-api-key", fmt.Sprintf("key-%d-%d", i, n))
		}
		s.wantAllDecided()
	}
}

// TestGlobalStoreAway: while the global store is away, the limits of the region are exact, and this
// instance's share decides the global one. After a denial by the region nothing of the share is
// used. When the store is back, it decides again.
func TestGlobalStoreAway(t *testing.T) {
	t.Parallel()
	global := servers.StartRedis(t)
	s := twoRegions(t, global.Addr(), nil)[0]
	waitInstances(t, s.rls, "global", 2)
	waitInstances(t, s.rls, "region", 1)
	c := s.from("127.0.0.3")
	c.want(200, 2, "/login", "x-api-key", "k")
	for i, fault := range []struct{ begin, end func() }{{global.Stop, global.Start}, {global.Pause, global.Resume}} {
		key, address := fmt.Sprintf("away-%d", i), fmt.Sprintf("127.0.0.%d", 10+i)
		before := metric(t, s.rls, `slidegate_degraded_answers_total{choice="local"}`)
		fault.begin()
		d := s.from(address)
		d.want(200, 5, "/login", "x-api-key", key)
		d.want(429, 3, "/login", "x-api-key", key) // by the region, exactly
		d.want(200, 5, "/", "x-api-key", key)      // the share is 10: half of 20
		d.want(429, 1, "/", "x-api-key", key)
		if now := metric(t, s.rls, `slidegate_degraded_answers_total{choice="local"}`); now == before {
			t.Error("no answer counts as degraded")
		}
		if got := remains(s, address); got != 990 {
			t.Errorf("%d of the address remain, want 990: what passed is charged, what was denied is not", got)
		}
		fault.end()
		eventually(t, "the global store to decide again", func() bool {
			text := page(t, s.rls.HTTP()+"/healthcheck")
			return strings.Contains(text, "scope global: 1 of 1 nodes decide") && !strings.Contains(text, "degraded")
		})
	}
	s.wantAllDecided()
}

// TestScopeChanges: a reload that gives a rule another scope counts it in the other store from the
// next request on, and no denial of the old log is repeated.
func TestScopeChanges(t *testing.T) {
	t.Parallel()
	regions := twoRegions(t, servers.Redis(t), nil)
	s := regions[0]
	s.from("127.0.0.1").want(200, 20, "/", "x-api-key", "k")
	regions[1].from("127.0.0.1").want(429, 3, "/", "x-api-key", "k")
	s.from("127.0.0.1").want(429, 3, "/", "x-api-key", "k")
	before := generation(t, s.rls)
	if err := s.rls.WriteRules(strings.ReplaceAll(twoScopes, ", scope: global", "")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new rules", func() bool { return generation(t, s.rls) != before })
	s.from("127.0.0.1").want(200, 20, "/", "x-api-key", "k")
	s.from("127.0.0.1").want(429, 2, "/", "x-api-key", "k")
	regions[1].from("127.0.0.1").want(429, 1, "/", "x-api-key", "k")
	now := generation(t, s.rls)
	if err := s.rls.WriteRules(strings.ReplaceAll(twoScopes, "scope: global", "scope: globe")); err != nil {
		t.Fatal(err)
	}
	const refused = `slidegate_config_reloads_total{result="refused"}`
	eventually(t, "an unknown scope to be refused", func() bool { return metric(t, s.rls, refused) != "0" })
	if generation(t, s.rls) != now {
		t.Error("rules with an unknown scope are active")
	}
}
