package guides

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
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
		for _, m := range regexp.MustCompile("(?s)```sh\n([^`]*?)```\n\n```\n(.*?)```").FindAllStringSubmatch(tree.Read(t, page), -1) {
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
	example := stack.Setup{Rules: tree.Read(t, "internal/config/example/rules.yaml"), Tiers: tree.Read(t, "internal/config/example/tiers.yaml")}
	for _, page := range []string{"README.md", "docs/start.md"} {
		asks(page, "/json?[1-101]", "localhost:8080", strings.TrimPrefix(example.Serve(t).HTTP(), "http://"))
	}
	m := regexp.MustCompile("(?s)```yaml\n(domain: edge\n.*?)```").FindStringSubmatch(tree.Read(t, "docs/start.md"))
	if m == nil {
		t.Fatal("docs/start.md has no rule")
	}
	s := stack.Setup{Rules: m[1]}.Start(t)
	asks("docs/start.md", "/healthcheck?[1-6]", "localhost:10000", s.Envoy.Addr())
	s.WantAllDecided()
}
