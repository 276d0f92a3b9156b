package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dictionary has words that no name has, because each has had several meanings, and what to say
// instead. The rule Dictionary of the prose linter, in .vale, does the same for sentences.
var dictionary = map[string]string{
	"beside":   "with, next to",
	"blind":    "denied undecided",
	"crowded":  "queue full, too large",
	"deaf":     "unavailable",
	"debt":     "excess",
	"debts":    "excess",
	"door":     "handler",
	"doors":    "handlers",
	"doubt":    "ambiguous outcome",
	"doubts":   "ambiguous outcomes",
	"ender":    "releaser",
	"endless":  "without end signal",
	"foreign":  "corrupt",
	"hear":     "receive",
	"hears":    "receives",
	"keeper":   "inspector",
	"keepers":  "inspectors",
	"keeping":  "bulk call",
	"lot":      "chunk",
	"lots":     "chunks",
	"meet":     "match, apply",
	"meeting":  "match",
	"meetings": "matches",
	"meets":    "matches, applies",
	"owed":     "unpaid, outstanding",
	"owes":     "unpaid, outstanding",
	"owing":    "unpaid, outstanding",
	"own":      "override, local",
	"parties":  "subjects, callers",
	"party":    "subject, caller",
	"piece":    "sub-request, part",
	"pieces":   "sub-requests, parts",
	"place":    "waiter, position, location, shard",
	"places":   "waiters, positions, locations, shards",
	"receipt":  "idempotency record",
	"receipts": "idempotency records",
	"side":     "participant",
	"sides":    "participants",
	"spot":     "position",
	"spots":    "positions",
	"surplus":  "unused",
	"tell":     "report",
	"tells":    "reports",
	"those":    "which ones",
	"thrown":   "corrupt",
	"told":     "reported",
	"torn":     "corrupt",
	"untold":   "unknown, unreported",
}

// allowed are names that have such a word all the same, by package and name, with the reason.
var allowed = map[string]string{
	"middleware.Tell": "the library has it for its users",
}

var words = regexp.MustCompile(`[A-Z]+(?:[^A-Za-z]|$)|[A-Z]*[a-z]+|[A-Z]+`)

// TestDictionary checks the names that production code declares.
func TestDictionary(t *testing.T) {
	for _, root := range []string{"client", "cmd", "internal", "limiter", "pkg"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (entry.Name() == "testdata" || strings.HasSuffix(entry.Name(), "test") && entry.Name() != "ruletest"):
				return filepath.SkipDir // helpers of tests
			case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, name := range declared(file) {
				for _, word := range words.FindAllString(name, -1) {
					say, bad := dictionary[strings.ToLower(word)]
					if bad && allowed[file.Name.Name+"."+name] == "" {
						t.Errorf("%s: the name %s has the word %s: say %s", path, name, strings.ToLower(word), say)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// declared returns the names that a file declares, local ones too.
func declared(file *ast.File) []string {
	var all []string
	add := func(names ...*ast.Ident) {
		for _, n := range names {
			all = append(all, n.Name)
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(name)
				}
			}
		case *ast.RangeStmt:
			for _, left := range []ast.Expr{n.Key, n.Value} {
				if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(name)
				}
			}
		}
		return true
	})
	return all
}
