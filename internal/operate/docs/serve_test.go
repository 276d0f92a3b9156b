package docs

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	pages "github.com/slidegate/slidegate/docs"
)

// get asks for a path as a browser, or as a script.
func get(t *testing.T, method, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost/", nil)
	r.URL.Path = path
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	Handler("0.1.0").ServeHTTP(w, r)
	return w
}

var (
	link = regexp.MustCompile(`href="([^"]*)"`)
	id   = regexp.MustCompile(` id="([^"]*)"`)
)

// TestHandlerLinks follows the links of every page. A link to a page has its heading.
func TestHandlerLinks(t *testing.T) {
	ids := make(map[string]map[string]bool)
	bodies := make(map[string]string)
	for _, name := range append(pageNames(), "") {
		w := get(t, "GET", Path+name, "text/html")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Fatalf("%s: %d, %v", name, w.Code, w.Header())
		}
		bodies[name], ids[name] = w.Body.String(), make(map[string]bool)
		for _, m := range id.FindAllStringSubmatch(w.Body.String(), -1) {
			ids[name][m[1]] = true
		}
	}
	followed := 0
	for name, body := range bodies {
		_, body, _ = strings.Cut(body, "<main>")
		if strings.Contains(body, "<img") || strings.Contains(body, "\n| ") || strings.HasPrefix(strings.TrimSpace(body), "<hr>") {
			t.Errorf("%s has an image, the source of a table, or its front matter", name)
		}
		for _, m := range link.FindAllStringSubmatch(body, -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			switch {
			case strings.HasPrefix(file, "https://") || strings.HasPrefix(file, "http://"):
				if strings.Contains(file, "/slidegate/slidegate/") && !strings.Contains(file, "/v0.1.0/") && file != strings.Split(identifier, "#")[0] {
					t.Errorf("%s links to another version: %s", name, file)
				}
				continue
			case file == "":
				file = name
			default:
				file = path.Join(path.Dir(name), file)
			}
			followed++
			if all, ok := ids[file]; !ok {
				t.Errorf("%s links to %s, which is not served", name, m[1])
			} else if anchor != "" && !all[anchor] {
				t.Errorf("%s links to %s, but the page has no such heading", name, m[1])
			}
		}
	}
	if followed < 50 {
		t.Errorf("only %d links", followed)
	}
}

// TestHandlerText: a script gets the Markdown as it is.
func TestHandlerText(t *testing.T) {
	w := get(t, "GET", "/docs/operate.md", "*/*")
	want, err := fs.ReadFile(pages.Pages, "operate.md")
	if err != nil || w.Code != 200 || w.Body.String() != string(want) || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("got %d, %v, %.100q", w.Code, w.Header(), w.Body)
	}
}

// TestHandlerRefuses asks for what is no page.
func TestHandlerRefuses(t *testing.T) {
	for _, path := range []string{
		"/docs/..", "/docs/../", "/docs/../go.mod", "/docs/../docs/operate.md", "/docs//operate.md", "/docs/./operate.md", "/docs/reference", "/docs/reference/",
		"/docs/embed.go", "/docs/operate/", "/docs//operate", "/docs/../docs/operate", "/docs/operate.md/", "/docs/operate.md\x00", "/docs/\\..\\operate.md", "/docs//etc/passwd", "/docs/C:/operate.md",
	} {
		for _, accept := range []string{"text/html", ""} {
			if w := get(t, "GET", path, accept); w.Code != http.StatusNotFound || len(w.Body.String()) > 100 {
				t.Errorf("%q: got %d, %.200q", path, w.Code, w.Body)
			}
		}
	}
	if w := get(t, "POST", "/docs/operate.md", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: got %d", w.Code)
	}
}

// TestHandlerRedirects asks for addresses that people shorten.
func TestHandlerRedirects(t *testing.T) {
	for path, want := range map[string]string{
		"/docs/operate": "/docs/operate.md", "/docs/reference/alerts": "/docs/reference/alerts.md",
	} {
		if w := get(t, "GET", path, "text/html"); w.Code != http.StatusFound || w.Header().Get("Location") != want {
			t.Errorf("%s: got %d to %q, want %s", path, w.Code, w.Header().Get("Location"), want)
		}
	}
}

// TestHandlerRendersSafely renders a page that would run a script.
func TestHandlerRendersSafely(t *testing.T) {
	got := string(render("0.1.0", "x.md", []byte("# <b>T</b>\n\n<script>alert(1)</script>\n\n[a](javascript:alert%281%29) ![i](img/i.png) [f](../envoy/ratelimit.yaml) [d](../envoy)\n")))
	_, body, _ := strings.Cut(got, "<main>")
	for _, bad := range []string{"<script", "javascript:", "<b>", "<img"} {
		if strings.Contains(body, bad) {
			t.Errorf("%s in %s", bad, body)
		}
	}
	for _, want := range []string{`"https://github.com/slidegate/slidegate/blob/v0.1.0/docs/img/i.png"`, `"https://github.com/slidegate/slidegate/blob/v0.1.0/envoy/ratelimit.yaml"`, `"https://github.com/slidegate/slidegate/tree/v0.1.0/envoy"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}
