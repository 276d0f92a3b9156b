package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
			if path == root+"internal/docgen" {
				return fs.SkipDir // its texts are pages
			}
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
