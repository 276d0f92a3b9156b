package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/tree"
)

// root is the folder of the repository.
const root = "../.."

// A stay is one function on a way through the code.
type stay struct {
	file, function string
	name           string // by which the function above calls it; empty: its own
}

// stays reads the ways of docs/architecture.md: a heading, then a line for each stay in a code block.
func stays(t *testing.T) (ways map[string][]stay) {
	t.Helper()
	_, text, _ := strings.Cut(tree.Read(t, "docs/architecture.md"), "\n## Ways")
	text, _, _ = strings.Cut(text, "\n## ")
	ways = make(map[string][]stay)
	way := ""
	line := regexp.MustCompile(`^(\S+\.go)\s+([\w.]+)(?: as (\w+))?`)
	for l := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(l, "### "); ok {
			way = strings.TrimSpace(name)
		}
		if m := line.FindStringSubmatch(l); m != nil {
			ways[way] = append(ways[way], stay{m[1], m[2], m[3]})
		}
	}
	return ways
}

// TestWays follows the ways of docs/architecture.md: each function exists, and mentions the next.
func TestWays(t *testing.T) {
	ways := stays(t)
	if len(ways) != 6 {
		t.Errorf("got %d ways, want 6", len(ways))
	}
	for way, all := range ways {
		for i, s := range all {
			body := bodyOf(t, s)
			if body == nil {
				t.Errorf("%s: %s has no function %s", way, s.file, s.function)
				continue
			}
			if i+1 == len(all) {
				continue
			}
			next := all[i+1].name
			if next == "" {
				next = all[i+1].function[strings.LastIndexByte(all[i+1].function, '.')+1:]
			}
			if !mentions(body, next) {
				t.Errorf("%s: %s does not call %s", way, s.function, all[i+1].function)
			}
		}
	}
}

// bodyOf returns the body of a function, or nil.
func bodyOf(t *testing.T, s stay) ast.Node {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, s.file), nil, 0)
	if err != nil {
		t.Error(err)
		return nil
	}
	receiver, name, isMethod := strings.Cut(s.function, ".")
	if !isMethod {
		receiver, name = "", receiver
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == name && receiverOf(fn) == receiver {
			return fn.Body
		}
	}
	return nil
}

// receiverOf returns the name of the type that a method belongs to, or an empty text.
func receiverOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// mentions reports whether a body calls a function of this name, or hands it on.
func mentions(body ast.Node, name string) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}
