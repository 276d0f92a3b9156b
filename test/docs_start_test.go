package test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestStart runs the requests that README.md and docs/start.md show, and compares what curl prints.
// docs/start.md asks rls itself with the example's rules, and then Envoy with a rule of the page.
func TestStart(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl here")
	}
	t.Parallel()
	// shows finds the commands with a part of their text, and the output behind them.
	shows := func(page, part string) (commands, output string) {
		t.Helper()
		for _, m := range regexp.MustCompile("(?s)```sh\n([^`]*?)```\n\n```\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], part) {
				return m[1], m[2]
			}
		}
		t.Fatalf("%s shows no output of a command with %s", page, part)
		return "", ""
	}
	asks := func(page, part, address, here string) {
		t.Helper()
		commands, want := shows(page, part)
		if !strings.Contains(commands, address) {
			t.Fatalf("%s: not to %s: %s", page, address, commands)
		}
		out, err := typed(t.Context(), strings.ReplaceAll(commands, address, here)).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %s\nprinted %q, %v; want %q", page, commands, out, err, want)
		}
	}
	example := setup{rules: read(t, "internal/config/example/rules.yaml"), tiers: read(t, "internal/config/example/tiers.yaml")}
	for _, page := range []string{"README.md", "docs/start.md"} {
		asks(page, "/json?[1-101]", "localhost:8080", strings.TrimPrefix(example.serve(t).HTTP(), "http://"))
	}
	m := regexp.MustCompile("(?s)```yaml\n(domain: edge\n.*?)```").FindStringSubmatch(read(t, "docs/start.md"))
	if m == nil {
		t.Fatal("docs/start.md has no rule")
	}
	s := setup{rules: m[1]}.start(t)
	asks("docs/start.md", "/healthcheck?[1-6]", "localhost:10000", s.envoy.Addr())
	s.wantAllDecided()
}
