package config

import (
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestScopeWarnings: the leases of a scope are longer than a reservation may take.
func TestScopeWarnings(t *testing.T) {
	with := func(timeout time.Duration) settings.Settings {
		s := settings.Default()
		s.Tiers.Source = settings.TiersNone
		s.Store.Type = settings.StoreRedis
		s.Store.Scopes = settings.Scopes{{Name: "global", ScopeStore: settings.ScopeStore{Timeout: timeout}}}
		s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: d
descriptors:
  - {key: a, rate_limit: {window: 10s, requests: 1000, scope: global, lease: 50ms}}
  - {key: b, rate_limit: {window: 10s, requests: 1000, scope: global, lease: 5%}}
  - {key: c, rate_limit: {window: 10s, requests: 1000, scope: global, lease: 1s}}
  - {key: e, rate_limit: {window: 10s, requests: 1000, lease: 5ms}}
  - {key: f, rate_limit: {limits: [{window: 10s, requests: 1000}, {window: 1m, requests: 5000}], scope: global, lease: 90ms}}
`)
		return s
	}
	texts := func(s settings.Settings) []string {
		t.Helper()
		return configtest.Texts(mustLoad(t, s).Warnings, s.Rules.Path)
	}
	short := func(line, lease string) string {
		return ":" + line + ".rate_limit.lease: the lease lasts " + lease + ", and a reservation in the scope global may take 100ms (store.scopes.global.timeout): a lease that has ended before it arrives has no effect; write a lease much longer than the round trip, such as 1s, or none"
	}
	configtest.Diff(t, []string{
		short("3: descriptors[a]", "50ms"),
		short("4: descriptors[b]", "50ms"),
		short("7: descriptors[f]", "90ms"),
	}, texts(with(100*time.Millisecond)), "warnings")
	if got := texts(with(50 * time.Millisecond)); len(got) != 0 {
		t.Errorf("got the warnings %q, want none", got)
	}
}

// TestRulesOnSeveralServers: charge_once beside other rules of its domain needs logs on one server,
// and in_flight on a Cluster needs rules of one scope.
func TestRulesOnSeveralServers(t *testing.T) {
	const once, other, unlimited = "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5, charge_once: {entry: idem}}}\n", "  - {key: b, rate_limit: {unit: hour, requests_per_unit: 5}}\n", "  - {key: c, rate_limit: {unlimited: true}}\n"
	const inFlight = "  - {key: h, rate_limit: {policy: in_flight, max: 5, hold: 1m}}\n"
	scoped := func(rule string) string {
		return strings.Replace(rule, "rate_limit: {", "rate_limit: {scope: global, ", 1)
	}
	single := settings.RedisURL{RedisServers: settings.RedisServers{Topology: settings.RedisSingle}}
	cluster := settings.RedisURL{RedisServers: settings.RedisServers{Topology: settings.RedisCluster}}
	for _, tt := range []struct {
		name, rules    string
		region, global settings.RedisURL
		want           string
	}{
		{"one Redis", once + other, single, single, ""},
		{"one Redis, all in a scope", scoped(once) + scoped(other), single, single, ""},
		{"several limits of one rule on a Cluster", strings.Replace(once, "unit: hour, requests_per_unit: 5", "limits: [{window: 1m, requests: 1}, {window: 1h, requests: 5}]", 1) + unlimited, cluster, single, ""},
		{"another domain on a Cluster", once + "---\ndomain: e\ndescriptors:\n" + other, cluster, single, ""},
		{"a Cluster that is not used", once + other, single, cluster, ""},
		{"a Cluster", other + once, cluster, single, "store.redis.url is a Redis Cluster"},
		{"a Cluster of a scope", scoped(once) + scoped(other), single, cluster, "store.scopes.global.redis.url is a Redis Cluster"},
		{"two scopes", scoped(once) + other, single, single, "count in several scopes"},
		{"two scopes, the other way", once + scoped(other), single, single, "count in several scopes"},
		{"in flight in two scopes", inFlight + scoped(strings.Replace(inFlight, "key: h", "key: i", 1)), single, single, ""},
		{"in flight on a Cluster", inFlight + other, cluster, single, ""},
		{"in flight on a Cluster of a scope", scoped(inFlight) + scoped(other), single, cluster, ""},
		{"in flight beside a Cluster", inFlight + scoped(other), single, cluster, ""},
		{"in flight on a Cluster in two scopes", scoped(inFlight) + other, single, cluster, "in_flight: the rules of the domain count in several scopes, and store.scopes.global.redis.url is a Redis Cluster"},
		{"in flight on a Cluster of the region in two scopes", inFlight + scoped(other), cluster, single, "and store.redis.url is a Redis Cluster"},
	} {
		s := settings.Default()
		s.Tiers.Source, s.Store.Type, s.Store.Redis.URL = settings.TiersNone, settings.StoreRedis, tt.region
		global := settings.Scope{Name: "global"}
		global.Redis.URL = tt.global
		s.Store.Scopes = settings.Scopes{global}
		s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\ndescriptors:\n"+tt.rules)
		_, err := Load(s)
		if got := configtest.ProblemsOf(t, err); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		s.Store.Type, s.Store.Scopes = settings.StoreMemory, nil
		if _, err := Load(s); err != nil && !strings.Contains(tt.rules, "scope") {
			t.Errorf("%s, in memory: %v", tt.name, err)
		}
	}
}
