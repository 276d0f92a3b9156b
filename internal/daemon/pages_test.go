package daemon

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// TestReferencePages has the admin port of envoyproxy/ratelimit: its pages, the rules as they
// change, and nothing that changes a thing.
func TestReferencePages(t *testing.T) { onEachTransport(t, testReferencePages) }

func testReferencePages(t *testing.T, s settings.Settings) {
	s.Rules.Path, s.Tiers.Source = filepath.Join(t.TempDir(), "rules.yaml"), settings.TiersNone
	s.DropIn.Pages = true
	write(t, s.Rules.Path, "domain: a\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
	r := start(t, s)
	page := func(path string) string {
		t.Helper()
		code, body := get(t, "http://"+r.Admin+path)
		if code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
		return body
	}
	if got, want := page("/rlconfig"), "a.k: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false\n"; got != want {
		t.Errorf("/rlconfig: %q, want %q", got, want)
	}
	if got := page("/metrics"); got != page("/") || !strings.HasPrefix(got, "/debug/pprof/: ") {
		t.Errorf("/metrics: %q, want the list of pages", got)
	}
	write(t, s.Rules.Path, "domain: b\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 2}}]\n")
	waitFor(t, "the new rules", func() bool { return strings.HasPrefix(page("/rlconfig"), "b.k: unit=HOUR") })

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Admin+"/rlconfig", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "envoy-ratelimit.envoy-gateway-system.svc:6070"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for site, want := range map[string]int{"": http.StatusOK, "cross-site": http.StatusForbidden} {
		request.Header.Set("Sec-Fetch-Site", site)
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("from site %q: %d, want %d", site, answer.StatusCode, want)
		}
	}

	// The port does not serve gRPC.
	conn, err := grpc.NewClient(r.Admin, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), new(healthv1.HealthCheckRequest)); err == nil {
		t.Error("the admin port answers a gRPC call")
	}
}
