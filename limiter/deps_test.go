package limiter_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies: a program gets only what it imports. Envoy's protos and Prometheus never come with
// the library, gRPC only with grpclimit, and the client of Redis only with redislimit.
func TestDependencies(t *testing.T) {
	never := []string{"github.com/envoyproxy/", "github.com/prometheus/", "go.opentelemetry.io/", "github.com/jackc/", "github.com/spf13/"}
	const module = "github.com/slidegate/slidegate/"
	for _, tt := range []struct {
		packages []string
		without  []string
	}{
		{[]string{"limiter", "pkg/window/memstore", "limiter/httplimit"}, append(never, "google.golang.org/", "github.com/redis/")},
		{[]string{"limiter/redislimit"}, append(never, "google.golang.org/")},
		{[]string{"limiter/grpclimit"}, append(never, "github.com/redis/")},
	} {
		args := []string{"list", "-deps"}
		for _, p := range tt.packages {
			args = append(args, module+p)
		}
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if !strings.Contains(string(out), module+tt.packages[0]+"\n") {
			t.Fatalf("go list did not list %s", tt.packages[0])
		}
		for line := range strings.Lines(string(out)) {
			for _, prefix := range tt.without {
				if strings.HasPrefix(line, prefix) {
					t.Errorf("%v import %s", tt.packages, strings.TrimSpace(line))
				}
			}
		}
	}
}
