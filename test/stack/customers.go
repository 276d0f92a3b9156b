package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

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
