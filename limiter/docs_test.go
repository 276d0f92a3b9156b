package limiter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocs builds every program in docs/library.md, and runs the first one.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```")
	programs := 0
	for i := 1; i+2 < len(blocks); i += 2 {
		code, isGo := strings.CutPrefix(blocks[i], "go\n")
		if !isGo || !strings.HasPrefix(code, "package main\n") {
			continue
		}
		file, program := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, file).CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v: %s", code, err, out)
		}
		if programs++; programs > 1 {
			continue // it would serve
		}
		out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
		if want := strings.TrimPrefix(blocks[i+2], "\n"); err != nil || string(out) != want {
			t.Errorf("the first program printed %q (%v), and the page says %q", out, err, want)
		}
	}
	if programs != 2 {
		t.Errorf("built %d programs, want 2", programs)
	}
}

// TestDependencies: a program gets only what it imports. Envoy's protos and Prometheus never come with
// the library, gRPC only with grpclimit, and the client of Redis only with redislimit.
func TestDependencies(t *testing.T) {
	never := []string{"github.com/envoyproxy/", "github.com/prometheus/", "go.opentelemetry.io/", "github.com/jackc/", "github.com/spf13/"}
	const module = "github.com/slidegate/slidegate/"
	for _, tt := range []struct {
		packages []string
		without  []string
	}{
		{[]string{"limiter", "pkg/window/memstore", "limiter/httplimit"}, append(never, "google.golang.org/", "github.com/redis/")},
		{[]string{"limiter/redislimit"}, append(never, "google.golang.org/")},
		{[]string{"limiter/grpclimit"}, append(never, "github.com/redis/")},
	} {
		args := []string{"list", "-deps"}
		for _, p := range tt.packages {
			args = append(args, module+p)
		}
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if !strings.Contains(string(out), module+tt.packages[0]+"\n") {
			t.Fatalf("go list did not list %s", tt.packages[0])
		}
		for line := range strings.Lines(string(out)) {
			for _, prefix := range tt.without {
				if strings.HasPrefix(line, prefix) {
					t.Errorf("%v import %s", tt.packages, strings.TrimSpace(line))
				}
			}
		}
	}
}
