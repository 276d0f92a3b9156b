package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/offline/envoyconfig"
	"github.com/slidegate/slidegate/test/tree"
)

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

// TestKubernetesEvents checks that each event of test/kubernetes/README.md names its tests, and that
// each test of when_test.go is there.
func TestKubernetesEvents(t *testing.T) {
	const page, header = "test/kubernetes/README.md", "| event | test |\n|---|---|\n"
	_, table, ok := strings.Cut(tree.Read(t, page), header)
	if !ok {
		t.Fatalf("%s has no table of events", page)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	have := tests(t)
	for row := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		namesTests(t, page, row, have)
	}
	made := regexp.MustCompile(`(?m)^func (TestWhen\w+)`).FindAllStringSubmatch(tree.Read(t, "test/kubernetes/when_test.go"), -1)
	if len(made) < 8 {
		t.Errorf("test/kubernetes/when_test.go makes %d events", len(made))
	}
	for _, m := range made {
		if !strings.Contains(table, "`"+m[1]+"`") {
			t.Errorf("%s: no event for %s", page, m[1])
		}
	}
}
