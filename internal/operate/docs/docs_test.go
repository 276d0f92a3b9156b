package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	pages "github.com/slidegate/slidegate/docs"
)

func TestURL(t *testing.T) {
	for version, at := range map[string]string{
		"0.1.0":                                "v0.1.0",
		"12.0.34":                              "v12.0.34",
		"0.2.0-rc.1":                           "v0.2.0-rc.1",
		"":                                     "main",
		"dev":                                  "main",
		"b89bc9d0":                             "b89bc9d0",
		"0.1.0-5-gb89bc9d":                     "b89bc9d",
		"0.1.0-dirty":                          "main",
		"0.1.0+dirty":                          "main",
		"0.0.1-snapshot.b89bc9d":               "b89bc9d",
		"0.1.1-0.20261126152244-b89bc9d0e1f2":  "b89bc9d0e1f2",
		"0.1.0/../../../other/project/blob/v1": "main",
	} {
		want := "https://github.com/slidegate/slidegate/blob/" + at + "/docs/operate.md#traces"
		if got := URL(version, "operate.md#traces"); got != want {
			t.Errorf("%q: got %s, want %s", version, got, want)
		}
	}
}

// identifier is a problem type. Clients compare it, so it is the same in every version.
const identifier = "https://github.com/slidegate/slidegate/blob/main/docs/clients.md#cost-above-limit"

// TestPagesInTexts reads the string literals of the code. A text that names a page uses URL, and the
// page and its heading exist.
func TestPagesInTexts(t *testing.T) {
	const root = "../../../"
	page := regexp.MustCompile(`^((?:reference/)?[a-z-]+\.(?:md|schema\.json))(?:#(.*))?$`)
	inText := regexp.MustCompile(`docs/[a-z-]+\.`)
	found := 0
	check := func(file, text string) {
		m := page.FindStringSubmatch(text)
		switch {
		case m != nil:
			found++
			if content, err := os.ReadFile(root + "docs/" + m[1]); err != nil {
				t.Errorf("%s names %s: %v", file, text, err)
			} else if m[2] != "" && !headings(string(content))[m[2]] {
				t.Errorf("%s names %s, but the page has no such heading", file, text)
			}
		case inText.MatchString(text) && text != identifier:
			t.Errorf("%s names a page without URL: %s", file, text)
		}
	}
	for _, dir := range []string{"cmd", "internal", "pkg", "contrib"} {
		err := filepath.WalkDir(root+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == root+"internal/operate/docs/docs.go" {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, _ := strconv.Unquote(literal.Value)
					check(path, text)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 10 {
		t.Errorf("only %d literals name a page", found)
	}
}

// headings returns the anchors that GitHub makes of the headings of a page.
func headings(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

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
