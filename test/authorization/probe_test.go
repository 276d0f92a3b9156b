package authorization

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// TestProbe: one request through Envoy with the key of a probe is denied, charges nothing, and shows what
// arrived, in every set-up and from another instance on the same Redis.
func TestProbe(t *testing.T) {
	t.Parallel()
	const key = "probe-key-0123456789abcdef"
	digest := stack.DigestOf(key)
	for name, tt := range map[string]struct {
		config, service string
		descriptors     []string
	}{
		"rate limits": {stack.EdgeConfig, "ratelimit", []string{"api_key=" + digest, "remote_address=127.0.0.1", "route=search,api_key=" + digest}},
		"one hop":     {stack.OneHopConfig, "ext_authz", []string{"api_key=" + digest, "remote_address=127.0.0.1", "route=search,api_key=" + digest}},
		"two calls":   {stack.AuthorizationConfig, "ext_authz", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := stack.With(stack.TrustOwnTier, stack.OnRedis(servers.StartRedis(t).Addr()))
			setup := stack.Setup{Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Config: tt.config, Env: env}
			s := setup.Start(t)
			other := setup.Serve(t)
			p := startProbe(t, s.RLS, key)
			id := p.ID
			got := s.Get("/search", "x-api-key", key)
			if got.Status != http.StatusTooManyRequests || got.Header.Get("Slidegate-Probe") != id {
				t.Fatalf("%d %v %s", got.Status, got.Header, got.Body)
			}
			if wait, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 || time.Until(p.Until) > time.Duration(wait)*time.Second {
				t.Errorf("Retry-After %q before the end of the probe at %v: %v", got.Header.Get("Retry-After"), p.Until, err)
			}
			if n := len(s.App.Received()); n != 0 {
				t.Errorf("the application got %d requests", n)
			}
			for _, rls := range []*edge.RLSServer{s.RLS, other} {
				if !process.Poll(10*time.Second, func() bool { p = readProbe(t, rls, id); return len(p.Calls) == 1 }) {
					t.Fatalf("%+v, want one call", p)
				}
				c := p.Calls[0]
				all := slices.Sorted(slices.Values(c.Descriptors))
				if c.Service != tt.service || !slices.Equal(all, slices.Sorted(slices.Values(tt.descriptors))) || c.Problem != "" || c.Cut {
					t.Errorf("%+v, want %q", c, tt.descriptors)
				}
				if c.Deadline < 1000 || c.Deadline > 10_000 {
					t.Errorf("the deadline is %d ms, and Envoy has 10 s", c.Deadline)
				}
				if tt.config == stack.OneHopConfig && (c.Domain != "edge" || c.Context["descriptors"] != "api_key;route=search,api_key;remote_address") {
					t.Errorf("the context of the route: %q of %q", c.Context, c.Domain)
				}
			}
			if text := stack.Page(t, s.RLS.Admin()+"/v1/logs"); strings.Contains(text, `"used"`) {
				t.Errorf("the call was charged: %s", text)
			}
			if strings.Contains(s.RLS.Output()+stack.Page(t, s.RLS.Admin()+"/metrics"), key) {
				t.Error("the log or the metrics have the key")
			}
			// A customer passes all the while.
			if got := s.Get("/search", "x-api-key", "acme-old-key"); got.Status != http.StatusOK || len(s.App.Received()) != 1 {
				t.Errorf("a customer: %d %s", got.Status, got.Body)
			}
			if text := stack.Page(t, s.RLS.Admin()+"/v1/logs"); !strings.Contains(text, `"used"`) {
				t.Errorf("the page does not show charges: %s", text)
			}
		})
	}
}

func startProbe(t *testing.T, rls *edge.RLSServer, key string) (p probe.Probe) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, rls.Admin()+"/v1/probe", strings.NewReader(`{"key": "`+key+`", "seconds": 60}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	exchange(t, req, http.StatusUnauthorized)
	req.Body, err = req.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+edge.ActToken)
	if err := json.Unmarshal(exchange(t, req, http.StatusOK), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// exchange sends a request, and returns the body of an answer with a status.
func exchange(t *testing.T, req *http.Request, status int) []byte {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Fatalf("%d %s %v, want %d", res.StatusCode, body, err, status)
	}
	return body
}

func readProbe(t *testing.T, rls *edge.RLSServer, id string) (p probe.Probe) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rls.Admin()+"/v1/probe?id="+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+edge.ActToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_ = json.NewDecoder(res.Body).Decode(&p) // 404 until the instance has it
	return p
}
