package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
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

// TestForms requests the health page as browsers, scripts and probes do.
func TestForms(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { WriteHealth(w, r, "", []State{{"store", "memory"}}) })
	const text, html, asJSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
	for _, tt := range []struct{ query, accept, want string }{
		{"", "", text},
		{"", "*/*", text}, // curl, kube-probe
		{"", "text/plain", text},
		{"", "text/plain,*/*;q=0.8", text},
		{"", chromium, html},
		{"", "text/html", html},
		{"", "TEXT/HTML;q=0.9, */*;q=0.8", html},
		{"", "text/html;q=0, */*", text},
		{"", "application/json", asJSON},
		{"", "application/json, text/html;q=0.5", asJSON},
		{"", "application/json;q=0.5, text/html", html},
		{"", "application/json, text/plain, */*", asJSON},                  // axios
		{"", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", text}, // HttpURLConnection
		{"", "text/html;q=x", text},
		{"", ";", text},
		{"?format=html", "", html},
		{"?format=json", chromium, asJSON},
		{"?format=text", chromium, text},
		{"?format=yaml", "", text},
		{"?format=", "application/json", asJSON},
	} {
		got := getPage(t, h, "/healthcheck"+tt.query, tt.accept)
		if kind := got.Header().Get("Content-Type"); got.Code != http.StatusOK || kind != tt.want {
			t.Errorf("%s with Accept: %s is %d %q, want 200 %q", tt.query, tt.accept, got.Code, kind, tt.want)
		}
		body := got.Body.String()
		if tt.want == text && body != "OK\nstore: memory\n" || tt.want == asJSON && body != `{"status":"OK","store":"memory"}`+"\n" || tt.want == html && !strings.Contains(body, "<td>memory</td>") {
			t.Errorf("%s with Accept: %s: %q", tt.query, tt.accept, body)
		}
		if got.Header().Get("X-Content-Type-Options") != "nosniff" || got.Header().Get("Vary") != "Accept" {
			t.Errorf("%s with Accept: %s: %v", tt.query, tt.accept, got.Header())
		}
	}
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
	var got Active
	if err := json.Unmarshal(getPage(t, h, "/rlconfig?format=json", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hostile, got); diff != "" {
		t.Errorf("the JSON (-want +got):\n%s", diff)
	}
	html := getPage(t, h, "/rlconfig", chromium).Body.String()
	for _, want := range []string{"/etc/b.yaml:12", "/etc/b.yaml:20", "free: 100 per 1m<br>pro: 500", "quota<br>metadata", "&lt;img src=x", "only observed"} {
		if !strings.Contains(html, want) {
			t.Errorf("the HTML does not have %q:\n%s", want, html)
		}
	}
	for _, never := range []string{"<script", "<img", "javascript:"} {
		if strings.Contains(html, never) {
			t.Errorf("the HTML has %q:\n%s", never, html)
		}
	}
}

// TestPageMayDoNothing proves that an HTML page has one style, and that its headers allow
// nothing else.
func TestPageMayDoNothing(t *testing.T) {
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Active: func() Active { return hostile }, Tiers: new(fakeTiers)})
	for _, path := range []string{"/", "/rlconfig"} {
		got := getPage(t, h, path, chromium)
		html := got.Body.String()
		_, rest, _ := strings.Cut(html, "<style>")
		style, _, ok := strings.Cut(rest, "</style>")
		if !ok || strings.Count(html, "<style") != 1 || strings.Contains(html, " style=") {
			t.Errorf("%s does not have one style:\n%s", path, html)
		}
		sum := sha256.Sum256([]byte(style))
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
			"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
		} {
			if got.Header().Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got.Header().Get(name), want)
			}
		}
	}
}

// TestIndex follows every link of the index.
func TestIndex(t *testing.T) {
	h := Handler(allPages(t))
	html := getPage(t, h, "/", chromium).Body.String()
	links := 0
	for _, part := range strings.Split(html, `href="/`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		links++
		want := http.StatusOK
		if strings.HasPrefix(path, "debug/pprof") {
			want = http.StatusUnauthorized // profiles need a token that may act
		}
		if got := getPage(t, h, "/"+path, chromium); got.Code != want {
			t.Errorf("/%s is %d, want %d", path, got.Code, want)
		}
	}
	if links != 10 {
		t.Errorf("%d links, want 10:\n%s", links, html)
	}
	text := getPage(t, h, "/", "").Body.String()
	for _, want := range []string{"/rlconfig", "/metrics", "/stats", "/v1/tiers/lookup?digest=", "/v1/tiers/invalidate", "/debug/pprof/"} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("the index does not have %s:\n%s", want, text)
		}
	}
}

// TestHealthOfSeveral has two states of the same subject. Every form shows both.
func TestHealthOfSeveral(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		WriteHealth(w, r, "", []State{{"warning", "first"}, {"store", "redis"}, {"warning", "second"}})
	})
	for _, form := range []string{formText, formJSON, formHTML} {
		if body := getPage(t, h, "/healthcheck?format="+form, "").Body.String(); !strings.Contains(body, "first") || !strings.Contains(body, "second") {
			t.Errorf("as %s:\n%s", form, body)
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
		{"/", "application/json", `{"paths":`},
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
	var b strings.Builder
	Active{Files: []string{"\x1b[2Ja.yaml"}, Notes: []string{"n\x07"}, Refused: "r\x1b\ns\u202e"}.write(&b)
	if text := b.String(); strings.ContainsAny(text, "\x1b\x07\u202e") || !strings.Contains(text, `\x1b[2Ja.yaml`) || !strings.Contains(text, "#   r\\x1b\n#   s\\u202e\n") {
		t.Errorf("got %q", text)
	}
}
