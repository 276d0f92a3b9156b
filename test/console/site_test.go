package console

import (
	"flag"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var site = flag.String("site", "", "the `directory` of the site that make docs-site has made; empty: none")

// TestSite reads the site of the documentation: make docs-site-check.
func TestSite(t *testing.T) {
	if *site == "" {
		return // make docs-site-check names the directory
	}
	checkSiteLinks(t)
	server := httptest.NewServer(http.FileServer(http.Dir(*site)))
	t.Cleanup(server.Close)
	b := open(t, server.URL)
	for _, theme := range []string{"light", "dark"} {
		b.look(theme, 390)
		for _, page := range []string{"/", "/docs/start.html", "/docs/operate.html", "/docs/reference/settings.html", "/docs/reference/cli.html"} {
			b.page(page)
			if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > 390 {
				t.Errorf("%s: scrolls sideways: the page is %d px wide", page, wide)
			}
			// The size of a text that is read, and whether it is light on dark.
			if size := eval[string](b, `getComputedStyle(document.querySelector("article p")).fontSize`); size < "14px" || len(size) != len("14px") {
				t.Errorf("%s: text has %s", page, size)
			}
			dark := eval[bool](b, `(([r, g, b]) => Number(r) + Number(g) + Number(b) < 384)(getComputedStyle(document.body).backgroundColor.match(/\d+/g))`)
			if dark != (theme == "dark") {
				t.Errorf("%s: a dark page is %v in the theme %s", page, dark, theme)
			}
		}
	}
	b.page("/")
	b.fill("input.sidebar-search", "Retry-After")
	eval[chromedp.Void](b, `document.querySelector("form.sidebar-search-container").requestSubmit()`)
	b.until(`document.querySelector("#search-results a[href*='docs/clients.html']")`)
}

// checkSiteLinks follows each link of each page of the site that leads into the site.
func checkSiteLinks(t *testing.T) {
	href := regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	ids := make(map[string]string) // the text of each page
	err := filepath.WalkDir(*site, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".html" {
			return err
		}
		text, err := os.ReadFile(file)
		name, _ := filepath.Rel(*site, file)
		ids[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil || len(ids) < 30 {
		t.Fatalf("the site has %d pages: %v", len(ids), err)
	}
	for name, text := range ids {
		for _, m := range href.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			if err != nil || u.Scheme != "" || u.Host != "" {
				continue
			}
			target := name
			if u.Path != "" {
				target = path.Join(path.Dir(name), u.Path)
			}
			if _, err := os.Stat(filepath.Join(*site, target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
			if page, ok := ids[target]; ok && u.Fragment != "" && !strings.Contains(page, `id="`+u.Fragment+`"`) {
				t.Errorf("%s links to %s, but that page has no such anchor", name, m[1])
			}
		}
	}
}
