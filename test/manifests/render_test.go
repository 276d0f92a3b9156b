package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v4"
)

const (
	envKustomize = "SLIDEGATE_TEST_KUSTOMIZE"
	envHelm      = "SLIDEGATE_TEST_HELM"
	envSchemas   = "SLIDEGATE_TEST_SCHEMAS"

	root = "../.."
)

// A toolbox is what make k8s-validate gets.
type toolbox struct {
	kustomize, helm string
	schemas         *schemas
}

var loaded = sync.OnceValue(func() *toolbox {
	return &toolbox{kustomize: os.Getenv(envKustomize), helm: os.Getenv(envHelm)}
})

// tools returns the programs and the schemas. Without them the test ends here.
func tools(t *testing.T) *toolbox {
	t.Helper()
	b := loaded()
	dir := os.Getenv(envSchemas)
	if b.kustomize == "" || b.helm == "" || dir == "" {
		t.Fatalf("%s, %s and %s must be set: run make k8s-validate", envKustomize, envHelm, envSchemas)
	}
	if b.schemas == nil {
		b.schemas = newSchemas(t, dir)
	}
	return b
}

// output runs a program and returns what it prints.
func output(t *testing.T, program string, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}

// A rendering is a set of objects that an operator applies together.
type rendering struct {
	name   string
	render func(t *testing.T) []byte
	// whole says that the set has all objects that it refers to, but for Secrets.
	whole bool
	// values are those of a chart. They may name ConfigMaps that the operator has.
	values string
}

// A kustomization is what rendering needs of a kustomization.yaml.
type kustomization struct {
	Kind       string   `yaml:"kind"`
	Resources  []string `yaml:"resources"`
	Components []string `yaml:"components"`
}

// A chart is what rendering needs of a Chart.yaml.
type chart struct {
	Name         string `yaml:"name"`
	Type         string `yaml:"type"`
	Dependencies []any  `yaml:"dependencies"`
}

// A tree is what deploy/ has. Directories are relative to the root of the repository.
type tree struct {
	kustomizations map[string]kustomization
	charts         map[string]chart
	// files are those that belong to neither.
	files []string
}

// find reads deploy/, so that nothing there has to be listed. The node has more charts, which use those of deploy/.
func find(t *testing.T) tree {
	t.Helper()
	found := tree{kustomizations: make(map[string]kustomization), charts: make(map[string]chart)}
	var files []string
	for _, top := range []string{"deploy", "test/kubernetes"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			dir := filepath.Dir(name)
			switch filepath.Base(name) {
			case "kustomization.yaml":
				var k kustomization
				decode(t, path, &k)
				found.kustomizations[dir] = k
			case "Chart.yaml":
				var c chart
				decode(t, path, &c)
				found.charts[dir] = c
			default:
				if top == "deploy" && filepath.Ext(name) == ".yaml" {
					files = append(files, name)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		if !inside(name, found.kustomizations) && !inside(name, found.charts) {
			found.files = append(found.files, name)
		}
	}
	return found
}

// inside reports whether a directory above the file is in dirs.
func inside[T any](name string, dirs map[string]T) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if _, ok := dirs[dir]; ok {
			return true
		}
	}
	return false
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// renderings returns all sets of objects of deploy/.
func renderings(t *testing.T, b *toolbox) []rendering {
	t.Helper()
	found := find(t)
	var out []rendering
	for _, dir := range sorted(found.kustomizations) {
		if found.kustomizations[dir].Kind != "Component" {
			out = append(out, rendering{dir, func(t *testing.T) []byte { return b.build(t, filepath.Join(root, dir)) }, true, ""})
		}
	}
	out = append(out, b.components(t, found)...)
	for _, dir := range sorted(found.charts) {
		if found.charts[dir].Type != "library" {
			out = append(out, b.chart(t, dir, found.charts[dir])...)
		}
	}
	for _, name := range found.files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		// Files of rules, settings and values are no objects; other tests read them.
		if _, err := parse(text); !errors.Is(err, errNoObject) {
			out = append(out, rendering{name, func(*testing.T) []byte { return text }, false, ""})
		}
	}
	return out
}

func sorted[T any](m map[string]T) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// build renders a kustomization.
func (b *toolbox) build(t *testing.T, dir string) []byte {
	t.Helper()
	out, err := output(t, b.kustomize, "build", dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// base returns the kustomization that a component is for: the one in the nearest directory above, or beside such a
// directory as an example. It returns "" if the component is part of that already, or if there is none.
func (f tree) base(component string) string {
	for d := filepath.Dir(component); d != "deploy" && d != "."; d = filepath.Dir(d) {
		for _, dir := range sorted(f.kustomizations) {
			k := f.kustomizations[dir]
			if k.Kind == "Component" || dir != d && filepath.Dir(dir) != d {
				continue
			}
			if slices.ContainsFunc(k.Components, func(c string) bool { return filepath.Join(dir, c) == component }) {
				return ""
			}
			return dir
		}
	}
	return ""
}

// components returns a rendering for each component with its base. A component without must be part of another
// kustomization.
func (b *toolbox) components(t *testing.T, found tree) []rendering {
	t.Helper()
	used := make(map[string]bool)
	for dir, k := range found.kustomizations {
		for _, c := range k.Components {
			used[filepath.Join(dir, c)] = true
		}
	}
	var out []rendering
	for _, dir := range sorted(found.kustomizations) {
		if found.kustomizations[dir].Kind != "Component" {
			continue
		}
		base := found.base(dir)
		switch {
		case base != "":
			out = append(out, rendering{dir + " with " + base, func(t *testing.T) []byte { return b.component(t, base, dir) }, true, ""})
		case !used[dir]:
			t.Errorf("%s is a component that no kustomization uses: add an example that does", dir)
		}
	}
	return out
}

// component renders a kustomization with a component.
func (b *toolbox) component(t *testing.T, base, component string) []byte {
	t.Helper()
	// kustomize wants relative paths.
	dir := t.TempDir()
	relative := func(path string) string {
		absolute, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		r, err := filepath.Rel(dir, absolute)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents: [%s]\n", relative(base), relative(component))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return b.build(t, dir)
}

// chart returns the renderings of a chart: with its own values, and with each file of values in its directory ci. Each
// with the oldest and the newest Kubernetes, because templates may ask for the version.
func (b *toolbox) chart(t *testing.T, dir string, c chart) []rendering {
	t.Helper()
	values, err := filepath.Glob(filepath.Join(root, dir, "ci", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []rendering
	for _, file := range append([]string{""}, values...) {
		var text []byte
		if file != "" {
			if text, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		for _, version := range []string{b.schemas.versions[0], b.schemas.versions[len(b.schemas.versions)-1]} {
			name := fmt.Sprintf("%s %s %s", dir, filepath.Base(file), version)
			out = append(out, rendering{name, func(t *testing.T) []byte { return b.template(t, dir, c, version, file) }, true, string(text)})
		}
	}
	return out
}

// template renders a chart.
func (b *toolbox) template(t *testing.T, dir string, c chart, version, values string) []byte {
	t.Helper()
	args := []string{"template", "slidegate", b.ready(t, dir, c), "--namespace", "test", "--kube-version", version}
	if values != "" {
		args = append(args, "--values", values)
	}
	out, err := output(t, b.helm, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ready returns the directory of a chart with its dependencies. They are beside it in the repository, and helm wants a
// copy in the chart.
func (b *toolbox) ready(t *testing.T, dir string, c chart) string {
	t.Helper()
	path := filepath.Join(root, dir)
	if len(c.Dependencies) == 0 {
		return path
	}
	top := t.TempDir()
	for _, name := range []string{"deploy/helm", dir} {
		if inside(filepath.Join(name, "x"), map[string]bool{"deploy/helm": true}) && name != "deploy/helm" {
			continue // copied with deploy/helm
		}
		if err := os.CopyFS(filepath.Join(top, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := output(t, b.helm, "dependency", "update", "--skip-refresh", filepath.Join(top, dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(top, dir)
}
