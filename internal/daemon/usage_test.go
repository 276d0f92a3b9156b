package daemon

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/insight"
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
