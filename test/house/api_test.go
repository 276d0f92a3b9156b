package house

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
)

// stable are the packages whose names are stable, as the documentation of package limiter says.
var stable = []string{
	"client", "limiter", "limiter/grpclimit", "limiter/httplimit", "limiter/middleware", "limiter/redislimit",
	"contrib/chilimit", "contrib/echolimit", "contrib/fiberlimit",
}

// TestAPI compares the exported names of the library with testdata/api.txt. A change there is one
// that programs may notice: it belongs in the changelog. Accept it with -update.
func TestAPI(t *testing.T) {
	var got strings.Builder
	for _, dir := range stable {
		got.WriteString("# " + dir + "\n\n" + exported(t, dir) + "\n")
	}
	const golden = "testdata/api.txt"
	if *configtest.Update {
		tree.Write(t, golden, got.String())
	}
	want := tree.Text(t, golden)
	before, after := strings.Split(want, "\n"), strings.Split(got.String(), "\n")
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("not any more, or changed: %s", line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			t.Errorf("new: %s", line)
		}
	}
	if !t.Failed() && want != got.String() {
		t.Errorf("%s has another order: run the test with -update", golden)
	}
}

// exported returns the declarations of a package without bodies, comments and what is not exported.
func exported(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob("../../" + dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var decls []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution) // without comments
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(receiver(d)) {
					continue
				}
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var text bytes.Buffer
			if err := format.Node(&text, files, decl); err != nil {
				t.Fatal(err)
			}
			decls = append(decls, text.String()+"\n")
		}
	}
	slices.Sort(decls)
	return strings.Join(decls, "")
}

// receiver returns the name of the type of a method.
func receiver(d *ast.FuncDecl) string {
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	return typ.(*ast.Ident).Name
}
