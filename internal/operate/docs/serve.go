package docs

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	pages "github.com/slidegate/slidegate/docs"
)

// Path is where [Handler] serves the pages.
const Path = "/docs/"

const style = `:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem}
pre,code{font:14px/1.4 ui-monospace,monospace}pre{overflow:auto;padding:.5rem;border:1px solid #8886}
table{border-collapse:collapse;display:block;overflow:auto}th,td{border:1px solid #8886;padding:.25rem .5rem;text-align:left;vertical-align:top}`

// contentSecurity allows a page its own style and nothing else.
var contentSecurity = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}()

var frame = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{{.Title}} · Slidegate</title><style>` + style + `</style></head>
<body>
<nav><a href="/">Slidegate</a> · <a href="/docs/">All pages</a></nav>
<main>
{{.Body}}</main>
</body>
</html>
`))

// Handler serves the pages below [Path]: HTML to browsers, and their Markdown to all others. version is
// that of the service. Links to files without a page lead to the repository.
func Handler(version string) http.Handler {
	names := pageNames()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		name, ok := strings.CutPrefix(r.URL.Path, Path)
		if ok && slices.Contains(names, name+".md") {
			http.Redirect(w, r, Path+name+".md", http.StatusFound) //nolint:gosec // a page of ours
			return
		}
		markdown := []byte(index(names))
		if name != "" {
			var err error
			if markdown, err = fs.ReadFile(pages.Pages, name); err != nil || !ok || !strings.HasSuffix(name, ".md") {
				http.Error(w, "There is no such page: "+Path+" lists all.", http.StatusNotFound)
				return
			}
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Vary", "Accept")
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			h.Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write(markdown) //nolint:gosec // plain text of the embedded files; on an error the client has gone
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", contentSecurity)
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(render(version, name, markdown))
	})
}

// pageNames returns the names of all pages.
func pageNames() (names []string) {
	_ = fs.WalkDir(pages.Pages, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	}) // embedded files have no errors
	return names
}

// index returns the page that lists all pages.
func index(names []string) string {
	var b strings.Builder
	b.WriteString("# Pages of this version\n\n")
	for _, name := range names {
		markdown, _ := fs.ReadFile(pages.Pages, name)
		b.WriteString("- [" + title(markdown) + "](" + name + ")\n")
	}
	return b.String()
}

var firstHeading = regexp.MustCompile(`(?m)^# (.*)$`)

func title(markdown []byte) string {
	if m := firstHeading.FindSubmatch(markdown); m != nil {
		return string(m[1])
	}
	return "Documentation"
}

// withoutFrontMatter returns a page without the lines about it at its beginning.
func withoutFrontMatter(markdown []byte) []byte {
	if rest, ok := bytes.CutPrefix(markdown, []byte("---\n")); ok {
		if _, page, ok := bytes.Cut(rest, []byte("\n---\n")); ok {
			return page
		}
	}
	return markdown
}

// render returns a page as HTML. Raw HTML in it is left out.
func render(version, name string, markdown []byte) []byte {
	markdown = withoutFrontMatter(markdown)
	md := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(markdown), parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{used: make(map[string]int)}))))
	var images []*ast.Image
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(target(version, name, string(n.Destination)))
		case *ast.Image:
			if entering {
				images = append(images, n)
			}
		}
		return ast.WalkContinue, nil
	}) // the function has no errors
	for _, image := range images { // a page loads nothing
		link := ast.NewLink()
		link.Destination = []byte(target(version, name, string(image.Destination)))
		for child := image.FirstChild(); child != nil; child = image.FirstChild() {
			link.AppendChild(link, child)
		}
		image.Parent().ReplaceChild(image.Parent(), image, link)
	}
	var body, whole bytes.Buffer
	_ = md.Renderer().Render(&body, markdown, doc) // a buffer has no errors
	_ = frame.Execute(&whole, struct {
		Title string
		Body  template.HTML
	}{title(markdown), template.HTML(body.String())}) //nolint:gosec // goldmark escapes it, and leaves raw HTML out
	return whole.Bytes()
}

// target returns the address that a link of a page leads to.
func target(version, page, link string) string {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
		return link
	}
	file := path.Join(path.Dir(page), u.Path)
	if _, err := fs.Stat(pages.Pages, file); err == nil && strings.HasSuffix(file, ".md") {
		return link
	}
	u.Path = path.Join("/", "docs", file)
	if path.Ext(file) == "" {
		return tree(version) + u.String()
	}
	return repository(version) + u.String()
}

// anchors makes the ids of headings as GitHub does.
type anchors struct{ used map[string]int }

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(string(heading)), ""), " ", "-")
	n := a.used[id]
	a.used[id]++
	if n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return []byte(id)
}

func (a *anchors) Put(id []byte) { a.used[string(id)]++ }
