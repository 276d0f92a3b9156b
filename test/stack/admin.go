package stack

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
)

// Page returns a page of an rls or of Envoy.
func Page(t *testing.T, url string) string {
	t.Helper()
	base, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	got := NewClient(t, "http://"+base, "127.0.0.1").Get("/"+path, "Authorization", "Bearer "+edge.ActToken)
	if got.Status != http.StatusOK {
		t.Fatalf("GET %s: got %d, want 200", url, got.Status)
	}
	return got.Body
}

// Metric returns the value of one line of the metrics page.
func Metric(t *testing.T, rls *edge.RLSServer, name string) string {
	t.Helper()
	for line := range strings.Lines(Page(t, rls.Metrics())) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Number returns the value of a metric.
func Number(t *testing.T, rls *edge.RLSServer, name string) int {
	t.Helper()
	text := Metric(t, rls, name)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("the metric %s is %q, want a number", name, text)
	}
	return int(n)
}

// Generation returns the digest of the active rules and tiers.
func Generation(t *testing.T, rls *edge.RLSServer) string {
	t.Helper()
	_, rest, ok := strings.Cut(Page(t, rls.Admin()+"/rlconfig"), "# generation ")
	digest, _, ok2 := strings.Cut(rest, ",")
	if !ok || !ok2 {
		t.Fatal("/rlconfig does not say which generation is active")
	}
	return digest
}

// WaitInstances waits until an rls counts the instances that share the store of a scope. Empty: there
// is one scope.
func WaitInstances(t *testing.T, rls *edge.RLSServer, scope string, n int) {
	t.Helper()
	name := "slidegate_store_replicas"
	if scope != "" {
		name += `{scope="` + scope + `"}`
	}
	process.Eventually(t, fmt.Sprintf("%s %d", name, n), func() bool { return Metric(t, rls, name) == fmt.Sprint(n) })
}
