package config

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/settings"
)

// TestScopeWarnings: a scope counts at least the instances of one region, and its leases are longer
// than a reservation may take.
func TestScopeWarnings(t *testing.T) {
	with := func(replicas int, timeout time.Duration) settings.Settings {
		s := settings.Default()
		s.Tiers.Source = settings.TiersNone
		s.Store.Type, s.Store.Replicas = settings.StoreRedis, 3
		s.Store.Scopes = settings.Scopes{{Name: "global", ScopeStore: settings.ScopeStore{Timeout: timeout, Replicas: replicas}}}
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
		"settings: store.scopes.global.replicas: is 2, below store.replicas (3): while the store of the scope is away, each instance admits its limits divided by 2; set the number of instances in all regions",
	}, texts(with(2, 100*time.Millisecond)), "warnings")
	if got := texts(with(3, 50*time.Millisecond)); len(got) != 0 {
		t.Errorf("got the warnings %q, want none", got)
	}
}
