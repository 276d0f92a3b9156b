package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/operate/docs"
)

const chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"

// getPage requests a page.
func getPage(t *testing.T, h http.Handler, target, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.Host = "localhost"
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// hostile is a configuration with names that try to inject HTML.
var hostile = Active{
	Generation: "51850eff4944", Loaded: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC),
	Files: []string{`/etc/<script>alert(1)</script>.yaml`, "/etc/b.yaml"}, Notes: []string{"rules.shadow_mode: every rule is only observed"},
	Refused: "/etc/b.yaml:7: name: \"<img src=x onerror=alert(1)>\"\n/etc/b.yaml:8: domain: twice",
	Rules: []Rule{
		{Path: `edge|"</style><script>alert(1)</script>"`, Name: "a", Limits: []string{"free: 100 per 1m", "pro: 500 per 1s and 5 per 1m"}, File: "/etc/b.yaml", Line: 12},
		{Path: "edge|b", Name: "b", Limits: []string{"no limit"}, Traits: []string{"quota", "metadata"}, File: "/etc/b.yaml", Line: 20},
	},
}

func TestRulesPage(t *testing.T) {
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Active: func() Active { return hostile }})
	const text = `# generation 51850eff4944, loaded 2026-07-01T12:00:00Z
# from /etc/<script>alert(1)</script>.yaml
# from /etc/b.yaml
# rules.shadow_mode: every rule is only observed
# BROKEN: a newer configuration was refused:
#   /etc/b.yaml:7: name: "<img src=x onerror=alert(1)>"
#   /etc/b.yaml:8: domain: twice
edge|"</style><script>alert(1)</script>"  name=a  free: 100 per 1m  pro: 500 per 1s and 5 per 1m
edge|b  name=b  no limit  quota  metadata
`
	if diff := cmp.Diff(text, getPage(t, h, "/rlconfig", "").Body.String()); diff != "" {
		t.Errorf("the text (-want +got):\n%s", diff)
	}
}

// TestIndex lists the pages.
func TestIndex(t *testing.T) {
	text := getPage(t, Handler(allPages(t)), "/", "").Body.String()
	for _, want := range []string{"/rlconfig", "/metrics", "/stats", "/v1/tiers/lookup", "/v1/tiers/invalidate", "/debug/pprof/"} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("the index does not have %s:\n%s", want, text)
		}
	}
}

// TestConsoleForBrowsers requests "/" as browsers and scripts do. Only browsers get the console.
func TestConsoleForBrowsers(t *testing.T) {
	h := Handler(Pages{
		Metrics: prometheus.NewRegistry(), Active: func() Active { return hostile }, Access: NewAccess(AccessOptions{FreeReads: true}),
		Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("the console at " + r.URL.Path)) }),
	})
	for _, tt := range []struct{ target, accept, want string }{
		{"/", chromium, "the console at /"},
		{"/?format=html", "", "the console at /"},
		{"/subject?id=acme", "", "the console at /subject"},
		{"/", "", "Slidegate: admin port"},
		{"/", "*/*", "Slidegate: admin port"}, // curl, kube-probe
		{"/?format=text", chromium, "Slidegate: admin port"},
		{"/metrics", chromium, ""},
		{"/v1/nothing", chromium, `{"type"`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.target, nil)
		r.Host, r.RemoteAddr = "localhost", "127.0.0.1:4711"
		r.Header.Set("Accept", tt.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if body := w.Body.String(); !strings.HasPrefix(body, tt.want) || tt.want == "" && strings.Contains(body, "console") {
			t.Errorf("%s with Accept: %s is %d %.80q, want %q", tt.target, tt.accept, w.Code, body, tt.want)
		}
	}
}

// TestRulesPageIsSafe: a terminal obeys nothing in the text form of the active rules.
func TestRulesPageIsSafe(t *testing.T) {
	text := Active{Files: []string{"\x1b[2Ja.yaml"}, Notes: []string{"n\x07"}, Refused: "r\x1b\ns\u202e"}.text()
	if strings.ContainsAny(text, "\x1b\x07\u202e") || !strings.Contains(text, `\x1b[2Ja.yaml`) || !strings.Contains(text, "#   r\\x1b\n#   s\\u202e\n") {
		t.Errorf("got %q", text)
	}
}

// TestDocsPaths asks for what is no page. No path leaves the pages.
func TestDocsPaths(t *testing.T) {
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Active: func() Active { return hostile }, Docs: docs.Handler("0.1.0")})
	for path, want := range map[string]int{
		"/docs/operate.md": 200, "/docs/": 200, "/docs": 307, "/docs/operate": 302, "/docsx": 404, "/docs/../docs/operate": 307, "/docs/../../go.mod": 307, "/docs/none.md": 404, "/docs/%2fetc/passwd": 404,
	} {
		if got := (call{method: "GET", path: path}).send(t, h); got.Code != want {
			t.Errorf("%s: got %d, want %d", path, got.Code, want)
		}
	}
	if got := (call{method: "GET", path: "/docs/operate.md", header: http.Header{"Host": {"evil.example"}}}).send(t, h); got.Code != http.StatusMisdirectedRequest {
		t.Errorf("another Host: got %d", got.Code)
	}
}
