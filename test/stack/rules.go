package stack

import (
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
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
