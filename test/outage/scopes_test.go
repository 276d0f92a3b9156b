package outage

import (
	"maps"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// twoScopes limits API keys for all regions together, and addresses in each region.
const twoScopes = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 20, scope: global}}
  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 1000}}
  - {key: route, value: login, descriptors: [{key: remote_address, rate_limit: {name: login, window: 1h, requests: 5}}]}
`

// twoRegions starts two regions, each with an Envoy, an rls and a Redis of its own. They share
// the Redis at global.
func twoRegions(t *testing.T, global string, more map[string]string) (regions [2]*stack.Stack) {
	t.Helper()
	for i := range regions {
		env := stack.OnRedis(servers.Redis(t))
		env[stack.EnvStoreTimeout] = "700ms"
		env["SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL"] = "redis://" + global
		env["SLIDEGATE_STORE_SCOPES_GLOBAL_TIMEOUT"] = "700ms"
		maps.Copy(env, more)
		regions[i] = stack.Setup{Rules: twoScopes, Env: env}.Start(t)
	}
	return regions
}

// TestScopeChanges: a reload that gives a rule another scope counts it in the other store from the
// next request on, and no denial of the old log is repeated.
func TestScopeChanges(t *testing.T) {
	t.Parallel()
	regions := twoRegions(t, servers.Redis(t), nil)
	s := regions[0]
	s.From("127.0.0.1").Want(200, 20, "/", "x-api-key", "k")
	regions[1].From("127.0.0.1").Want(429, 3, "/", "x-api-key", "k")
	s.From("127.0.0.1").Want(429, 3, "/", "x-api-key", "k")
	before := stack.Generation(t, s.RLS)
	if err := s.RLS.WriteRules(strings.ReplaceAll(twoScopes, ", scope: global", "")); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the new rules", func() bool { return stack.Generation(t, s.RLS) != before })
	s.From("127.0.0.1").Want(200, 20, "/", "x-api-key", "k")
	s.From("127.0.0.1").Want(429, 2, "/", "x-api-key", "k")
	regions[1].From("127.0.0.1").Want(429, 1, "/", "x-api-key", "k")
	now := stack.Generation(t, s.RLS)
	if err := s.RLS.WriteRules(strings.ReplaceAll(twoScopes, "scope: global", "scope: globe")); err != nil {
		t.Fatal(err)
	}
	const refused = `slidegate_config_reloads_total{result="refused"}`
	process.Eventually(t, "an unknown scope to be refused", func() bool { return stack.Metric(t, s.RLS, refused) != "0" })
	if stack.Generation(t, s.RLS) != now {
		t.Error("rules with an unknown scope are active")
	}
}
