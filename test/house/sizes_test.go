package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// The most of everything in production code. More is a reason to divide, by meaning.
const (
	mostFolderLines   = 3000
	mostCoreLines     = 2000 // of a folder of internal/core
	mostFileLines     = 500
	mostFunctionLines = 70
	mostFields        = 15 // of a type, outside the settings: what a user writes has no groups
)

// TestSizes holds the code to these numbers.
func TestSizes(t *testing.T) {
	folders := make(map[string]int)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "test" || name == "bench" || name == "contrib" || strings.HasPrefix(name, ".") && name != "."):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		lines := files.File(f.Pos()).LineCount()
		folders[filepath.Dir(name)] += lines
		if lines > mostFileLines {
			t.Errorf("%s has %d lines, more than %d", name, lines, mostFileLines)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if l := files.Position(n.End()).Line - files.Position(n.Pos()).Line + 1; l > mostFunctionLines {
					t.Errorf("%s: %s has %d lines, more than %d", name, n.Name.Name, l, mostFunctionLines)
				}
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && s.Fields.NumFields() > mostFields && filepath.Dir(name) != "internal/config/settings" {
					t.Errorf("%s: %s has %d fields, more than %d", name, n.Name.Name, s.Fields.NumFields(), mostFields)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, lines := range folders {
		most := mostFolderLines
		if strings.HasPrefix(folder, "internal/core") {
			most = mostCoreLines
		}
		if lines > most {
			t.Errorf("%s has %d lines, more than %d", folder, lines, most)
		}
	}
}
