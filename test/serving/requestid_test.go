package serving

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// TestRequestIDs: a denial has the id of the request in Envoy's access log, with the files that
// Slidegate ships. The address has one request.
func TestRequestIDs(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 1}}
  - {key: subject, rate_limit: {name: per-subject, window: 1h, requests: 1}}
  - {key: in_flight, value: backend, rate_limit: {name: backend, window: 1h, requests: 1}}
`
	for _, config := range []string{stack.EdgeConfig, stack.SidecarConfig, stack.TLSConfig, stack.AuthorizationConfig, stack.InFlightConfig} {
		t.Run(filepath.Base(config), func(t *testing.T) {
			tiers := ""
			if config == stack.AuthorizationConfig {
				tiers = stack.CustomersWith("starter")
			}
			st := stack.FileSetup(t, config, rules, tiers, nil).Start(t)
			c := st.From("127.0.0.9")
			c.Get("/", "x-api-key", "zeta-key")
			if got := c.Get("/", "x-api-key", "zeta-key"); got.Status != http.StatusTooManyRequests {
				t.Fatalf("got %d %s, want 429", got.Status, got.Body)
			}
			entry, err := st.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["status"] == float64(http.StatusTooManyRequests) })
			if err != nil {
				t.Fatal(err)
			}
			var got insight.Denials
			if err := json.Unmarshal([]byte(stack.Page(t, st.RLS.Admin()+"/v1/denials")), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Denials) != 1 || got.Denials[0].RequestID == "" || got.Denials[0].RequestID != entry["request_id"] {
				t.Errorf("got %+v, want one denial of the request %v", got.Denials, entry["request_id"])
			}
		})
	}
}

// TestRequestIDsEverywhere: every shipped file that asks rls for limits sends the request's id with
// the calls that can be denied.
func TestRequestIDsEverywhere(t *testing.T) {
	files := 0
	for _, root := range []string{"../../envoy", "../../deploy"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text := tree.Read(t, strings.TrimPrefix(path, "../../"))
			_, calls, asks := strings.Cut(text, "rate_limit_service:")
			if !asks {
				return nil
			}
			if files++; !strings.Contains(calls, `x-request-id`) || !strings.Contains(calls, `"%REQ(x-request-id)%"`) {
				t.Errorf("%s does not send x-request-id to rls", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 8 {
		t.Errorf("%d files ask for limits, want all", files)
	}
}
