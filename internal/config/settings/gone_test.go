package settings

import (
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
)

// goneNames are settings of earlier versions, each with its whole name.
const goneNames = `
compare.max_in_flight compare.timeout
grpc.keepalive_min_time grpc.keepalive_time grpc.keepalive_timeout
grpc.max_concurrent_streams grpc.max_connection_idle grpc.max_message_bytes
insight.denials insight.per_second
reload.interval
store.local_keys store.peers store.peers_interval store.replicas store.scopes.eu_west.replicas
store.redis.breaker.failures store.redis.breaker.probe_interval store.redis.max_log_slots store.redis.max_waiting
store.scopes.eu_west.redis.breaker.failures store.scopes.eu_west.redis.max_waiting
tiers.breaker.failures tiers.breaker.retry tiers.cache.unknown tiers.cache.unknown_ttl
tiers.http.max_bytes tiers.lookups_per_second tiers.timeout
`

// TestGone: the file and the environment refuse each setting that is gone, with its advice.
func TestGone(t *testing.T) {
	for _, name := range strings.Fields(goneNames) {
		advice, ok := adviceFor(name)
		if !ok {
			t.Errorf("%s: no advice", name)
			continue
		}
		parts := strings.Split(name, ".")
		text := "x"
		for _, part := range slices.Backward(parts) {
			text = "{" + part + ": " + text + "}"
		}
		_, _, err := Parse("s.yaml", []byte(text), nil)
		if got := configtest.ProblemsOf(t, err); !strings.HasPrefix(got, "s.yaml:1: ") || !strings.Contains(got, " is "+advice) {
			t.Errorf("%s: got %q, want %q", text, got, advice)
		}
		_, _, err = Parse("", nil, []string{envName(name) + "=x"})
		if got, want := configtest.ProblemsOf(t, err), "environment: "+envName(name)+": "+advice+"\n"; !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", envName(name), got, want)
		}
	}
	for _, g := range gone {
		if !slices.ContainsFunc(strings.Fields(goneNames), func(name string) bool { return name == g.name || strings.HasPrefix(name, g.name+".") }) {
			t.Errorf("%s is gone, and this test does not name it", g.name)
		}
	}
}
