package daemon

import (
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
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
	write(t, s.Admin.TokenFile, "act a-token-that-may-reset-all-limits\n")
	return s
}
