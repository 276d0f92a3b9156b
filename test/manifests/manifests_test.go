package manifests

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManifests renders all that deploy/ has. Each object fits its schema in every version of Kubernetes, and each pod
// keeps the policies.
func TestManifests(t *testing.T) {
	b := tools(t)
	for _, r := range renderings(t, b) {
		t.Run(r.name, func(t *testing.T) {
			objects, err := parse(r.render(t))
			if err != nil {
				t.Fatal(err)
			}
			if len(objects) == 0 {
				t.Fatal("nothing was rendered")
			}
			for _, o := range objects {
				for _, path := range empty(o.value, "") {
					t.Errorf("%s: %s has no value", o, path)
				}
				for _, problem := range misfits(b.schemas, o) {
					t.Errorf("%s: %s", o, problem)
				}
				for _, problem := range violations(t, o) {
					t.Errorf("%s: %s", o, problem)
				}
			}
			if r.whole {
				for _, problem := range dangling(t, objects, r.values) {
					t.Error(problem)
				}
			}
			if err := checkConfig(t, objects); err != nil {
				t.Errorf("the files of the ConfigMaps: %v", err)
			}
		})
	}
}

// checkConfig checks rules and tiers in ConfigMaps, as rls validate does.
func checkConfig(t *testing.T, objects []*object) error {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, o := range objects {
		var files struct {
			Data map[string]string `json:"data"`
		}
		if o.Kind != "ConfigMap" || !strings.Contains(o.Metadata.Name, "slidegate") {
			continue
		}
		if err := json.Unmarshal(o.text, &files); err != nil {
			t.Fatal(err)
		}
		for name, text := range files.Data {
			if name != "envoy.yaml" && filepath.Ext(name) == ".yaml" {
				path := filepath.Join(dir, o.Metadata.Name+"-"+name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				paths = append(paths, path)
			}
		}
	}
	if paths == nil {
		return nil
	}
	_, err := load(paths...)
	return err
}

// misfits returns how an object differs from its schemas. Versions of Kubernetes with the same problem are one line.
func misfits(s *schemas, o *object) []string {
	var problems []string
	versions := make(map[string][]string)
	for _, version := range s.versions {
		if err := s.check(o, version); err != nil {
			text := err.Error()
			if versions[text] == nil {
				problems = append(problems, text)
			}
			versions[text] = append(versions[text], version)
		}
	}
	for i, text := range problems {
		problems[i] = fmt.Sprintf("Kubernetes %s: %s", strings.Join(versions[text], ", "), text)
	}
	return problems
}

// TestCharts lints all charts.
func TestCharts(t *testing.T) {
	b := tools(t)
	charts := find(t).charts
	for _, dir := range sorted(charts) {
		t.Run(dir, func(t *testing.T) {
			path := b.ready(t, dir, charts[dir])
			args := []string{"lint", "--strict", path}
			if _, err := output(t, b.helm, args...); err != nil {
				t.Error(err)
			}
			values, err := filepath.Glob(filepath.Join(root, dir, "ci", "*.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range values {
				if _, err := output(t, b.helm, append(args, "--values", file)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestMain leaves out the tests that need tools. It does not skip them, because a skipped test is a failure in CI, where
// make k8s-validate runs them.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(envSchemas) == "" {
		fmt.Println("manifests: the tests with kustomize, helm and schemas do not run here; run make k8s-validate")
		if err := flag.Set("test.skip", "^(TestManifests|TestCharts|TestSchemasRefuse)$"); err != nil {
			panic(err) // the testing package has the flag
		}
	}
	os.Exit(m.Run())
}
