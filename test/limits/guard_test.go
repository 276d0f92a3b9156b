package limits

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// TestGuard: the filter of rls envoy-config --guard takes most calls of a flood away from rls, and each
// caller still gets exactly its limit.
func TestGuard(t *testing.T) {
	t.Parallel()
	const limit, flood = 50, 150
	rls := edge.RLS(t, edge.RLSOptions{
		Rules: "domain: edge\ndescriptors:\n  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 50}}\n",
		Env:   map[string]string{stack.EnvTiersSource: "none"}, Way: edge.Way{Listen: edge.TCP},
	})
	for _, tt := range []struct {
		flags   []string
		callers []string
		least   uint64 // calls to rls for each caller
		most    uint64
	}{
		{nil, []string{"127.0.4.1", "127.0.4.2"}, flood, flood},
		// 1.1 times 50 in an hour: the next one comes back after more than a minute.
		{[]string{"--guard"}, []string{"127.0.4.3", "127.0.4.4"}, limit, limit + 5},
	} {
		got := rls.Run(t, append([]string{"envoy-config", "--rls", rls.GRPC()}, tt.flags...)...)
		if got.Code != 0 {
			t.Fatalf("envoy-config %v: %d, %s", tt.flags, got.Code, got.Stderr)
		}
		file := filepath.Join(t.TempDir(), "envoy.yaml")
		tree.Write(t, file, got.Stdout)
		envoy := edge.Envoy(t, edge.EnvoyOptions{Config: file, Upstream: stack.NewApplication(t).Addr, Replace: map[string]string{"timeout: 0.05s": "timeout: 10s"}})
		for _, caller := range tt.callers {
			passed := 0
			client := stack.NewClient(t, envoy.URL(), caller)
			for range flood {
				switch got := client.Get("/"); got.Status {
				case http.StatusOK:
					passed++
				case http.StatusTooManyRequests:
				default:
					t.Fatalf("got status %d, want 200 or 429", got.Status)
				}
			}
			if passed != limit {
				t.Errorf("%v: %d of %d requests of %s passed, want %d", tt.flags, passed, flood, caller, limit)
			}
		}
		calls, err := envoy.Stat("cluster.rls.upstream_rq_total")
		if each := calls / uint64(len(tt.callers)); err != nil || each < tt.least || each > tt.most {
			t.Errorf("%v: Envoy has called rls %d times for each caller, want %d to %d: %v", tt.flags, each, tt.least, tt.most, err)
		}
	}
}
