package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// Authorized has rules for all that authorization.yaml and one-hop.yaml send.
const Authorized = `
domain: edge
descriptors:
  - {key: subject, rate_limit: {name: per-subject, by_tier: {free: {window: 1h, requests: 3}, starter: {window: 1h, requests: 6}}}}
  - {key: tier, rate_limit: {name: per-tier, window: 1d, requests: 50000}}
  - {key: api_key, rate_limit: {name: per-key, by_tier: {free: {window: 1h, requests: 3}, starter: {window: 1h, requests: 6}}}}
  - {key: remote_address, rate_limit: {name: per-address, window: 1d, requests: 50000}}
  - key: route
    value: search
    descriptors:
      - {key: subject, rate_limit: {name: search-per-subject, subject: subject, window: 1h, requests: 2}}
      - {key: api_key, rate_limit: {name: search-per-key, window: 1h, requests: 2}}
  - {key: route, value: login, descriptors: [{key: remote_address, rate_limit: {name: login-per-address, window: 1h, requests: 2}}]}
`

// PerKey limits every API key to 100 requests. The window is so long that no
// machine is too slow for the tests that count.
const PerKey = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 100}}
`

// ThreeKinds limits keys, addresses and routes.
const ThreeKinds = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 3}}
  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 8}}
  - {key: route, value: search, descriptors: [{key: api_key, rate_limit: {name: search-per-key, window: 1h, requests: 2}}]}
  - {key: route, value: login, descriptors: [{key: remote_address, rate_limit: {name: login-per-address, window: 1h, requests: 2}}]}
`

// RulesIn returns options with a rules file of the given text.
func RulesIn(t *testing.T, rules string) edge.RLSOptions {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	tree.Write(t, path, rules)
	return edge.RLSOptions{Env: map[string]string{EnvRulesPath: path}}
}

// tiersFile has two customers. Their tier is written as TIER.
const tiersFile = `
tiers: [free, starter]
default: free
subjects:
  - id: acme
    tier: TIER
    keys:
      - plain: acme-old-key
      - plain: acme-new-key
  - id: other
    keys: [{plain: other-key}]
`

// customers are those of tiersFile and some more.
const customers = tiersFile + `
  - id: zeta
    tier: starter
    labels: {region: eu-west}
    overrides:
      per-subject: {window: 1h, requests: 1}
      per-key: {window: 1h, requests: 1}
    keys: [{plain: zeta-key}]
  - id: gone
    disabled: true
    keys: [{plain: gone-key}]
`

// CustomersWith returns a tiers file with the customers of TiersOf, one with labels and overrides, and
// one that is disabled.
func CustomersWith(tier string) string { return strings.ReplaceAll(customers, "TIER", tier) }

// TrustOwnTier makes rls believe the tier in its own first answer.
var TrustOwnTier = map[string]string{EnvTrustedEntry: "tier"}

// TierNames is a tiers file without subjects.
const TierNames = `
tiers: [free, starter]
default: free
`

// Execute runs a statement, which must succeed.
func Execute(t *testing.T, pg *servers.PostgresServer, sql string, args ...any) {
	t.Helper()
	if err := pg.Exec(sql, args...); err != nil {
		t.Fatalf("%.60s: %v", sql, err)
	}
}

// Watching waits until rls gets the notifications of changes.
func Watching(t *testing.T, rls *edge.RLSServer) {
	t.Helper()
	process.Eventually(t, "rls to listen for changes", func() bool { return Metric(t, rls, "slidegate_tiers_watching") == "1" })
}

// TiersOf returns a tiers file with the customers acme, of the given tier, and other.
func TiersOf(tier string) string { return strings.ReplaceAll(tiersFile, "TIER", tier) }

// DigestOf returns the digest of an API key.
func DigestOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// RouteForm returns the changes of EdgeConfig or OneHopConfig that give the last route a form.
func RouteForm(config, form string) map[string]string {
	if config == OneHopConfig {
		return map[string]string{`                      descriptors: "api_key;remote_address"`: `                      descriptors: "form=` + form + `;api_key;remote_address"`}
	}
	const rest = "                    - actions:\n                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}\n                    - actions:\n                      - remote_address: {}\n\n          http_filters:\n"
	return map[string]string{rest: "                    - actions:\n                      - generic_key: {descriptor_key: form, descriptor_value: " + form + "}\n" + rest}
}

// NewGRPCApplication serves the health service of gRPC until the test ends. It returns host:port.
func NewGRPCApplication(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := grpc.NewServer()
	healthv1.RegisterHealthServer(app, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- app.Serve(listener) }()
	t.Cleanup(func() {
		app.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}
