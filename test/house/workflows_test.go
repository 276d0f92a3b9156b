package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/envoyconfig"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
)

// TestWorkflows: every action is named by the digest of a commit, with its version behind it, and
// every target of make is in the Makefile.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	var (
		uses    = regexp.MustCompile(`(?m)^[\s-]*uses: *(.*)$`)
		pinned  = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
		own     = regexp.MustCompile(`^\./\.github/workflows/[\w-]+\.yml$`)
		targets = regexp.MustCompile(`(?m)run: make ([a-z0-9-]+)|target: \[(.*)\]`)
		rules   = tree.Read(t, "Makefile")
		count   = map[string]int{}
	)
	for _, file := range files {
		data := tree.Text(t, file)
		for _, m := range uses.FindAllStringSubmatch(data, -1) {
			if count["actions"]++; !pinned.MatchString(m[1]) && !own.MatchString(m[1]) {
				t.Errorf("%s uses %s: write name@digest # v1.2.3, with the 40 digits of the commit", file, m[1])
			}
		}
		for _, m := range targets.FindAllStringSubmatch(data, -1) {
			for target := range strings.SplitSeq(m[1]+m[2], ", ") {
				if count["targets"]++; !strings.Contains(rules, "\n"+target+":") {
					t.Errorf("%s runs make %s, which the Makefile does not have", file, target)
				}
			}
		}
	}
	if count["actions"] < 5 || count["targets"] < 5 {
		t.Errorf("found %v", count)
	}
}

// TestReleaseImages: a release packs its own binaries into images. They must be those that the
// Dockerfile builds from the sources: the stages after the build are equal.
func TestReleaseImages(t *testing.T) {
	stages := func(path string) string {
		text := tree.Text(t, path)
		_, after, found := strings.Cut(text, "\nFROM gcr.io/distroless/static-debian12:nonroot AS base\n")
		if !found {
			t.Fatalf("%s has no stage named base", path)
		}
		return after
	}
	if release, source := stages("../../deploy/release/Dockerfile"), stages("../../Dockerfile"); release != source {
		t.Errorf("deploy/release/Dockerfile has from the stage base on:\n%s\nthe Dockerfile has:\n%s", release, source)
	}
}

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

const kubernetesPage = "docs/kubernetes.md"

// TestKubernetesEnvoy compares the Envoy of deploy/kubernetes/try with rls envoy-config.
// Kustomize reads no file outside of its folder, so there are two.
func TestKubernetesEnvoy(t *testing.T) {
	const path = "deploy/kubernetes/try/envoy/envoy.yaml"
	want, err := envoyconfig.Render(envoyconfig.Options{RLS: "slidegate:8081"})
	if err != nil {
		t.Fatal(err)
	}
	if tree.Read(t, path) == want {
		return
	}
	if !*configtest.Update {
		t.Fatalf("%s differs from rls envoy-config --rls slidegate:8081; run: go test ./test/house -run TestKubernetesEnvoy -update", path)
	}
	tree.Write(t, filepath.Join("../..", path), want)
}

// TestKubernetesCommands checks that what the commands of docs/kubernetes.md name is there: folders and
// files of the project, and targets of make.
func TestKubernetesCommands(t *testing.T) {
	makefile := tree.Read(t, "Makefile")
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(tree.Read(t, kubernetesPage), -1) {
		commands += strings.Count(block[1], "\n")
		for _, path := range regexp.MustCompile(`\b(?:deploy|envoy|docs|test)/[A-Za-z0-9_./-]+`).FindAllString(block[1], -1) {
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s: a command names %s: %v", kubernetesPage, path, err)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^make ([a-z0-9-]+)`).FindAllStringSubmatch(block[1], -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: make %s: the Makefile has no such target", kubernetesPage, m[1])
			}
		}
	}
	if commands < 20 {
		t.Errorf("%s has %d lines of commands", kubernetesPage, commands)
	}
}
