package guides

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// limitOf returns rules with one limit for each API key.
func limitOf(requests int, window time.Duration) string {
	return fmt.Sprintf("domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: %v, requests: %d}\n", window, requests)
}

// TestClientRecipes runs the recipes of docs/clients.md: one in a shell, one in Python. Each
// waits as it is told, and passes. Each gives up at once if the wait is too long.
func TestClientRecipes(t *testing.T) {
	t.Parallel()
	for _, recipe := range []struct {
		name, hint string
		command    func(url string) []string
		tooLong    int // the exit code
	}{
		{"curl", "apt-get install curl", func(url string) []string { return []string{"../../docs/examples/get.sh", url, "-H", "x-api-key: k"} }, 75},
		{"python3", "apt-get install python3", func(url string) []string { return []string{"python3", "../../docs/examples/get.py", url, "k"} }, 1},
	} {
		t.Run(recipe.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(recipe.name); err != nil {
				process.Missing(t, recipe.name, recipe.hint)
			}
			start := func(command []string) (string, string, int) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
				cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
				var stdout, stderr strings.Builder
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
					t.Fatal(err)
				}
				return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
			}
			whole := recipe.command("URL")
			if out, errs, code := start(whole[:slices.Index(whole, "URL")]); out != "" || !strings.Contains(errs, "usage: ") || strings.Count(errs, "\n") != 1 || code == 0 {
				t.Errorf("without a URL: got %q, %q and code %d", out, errs, code)
			}
			run := func(s *stack.Stack) (string, string, int) { return start(recipe.command(s.Envoy.URL() + "/")) }
			passes := func(s *stack.Stack) {
				t.Helper()
				if out, errs, code := run(s); out != stack.AppBody || errs != "" || code != 0 {
					t.Errorf("got %q, %q and code %d, want %q", out, errs, code, stack.AppBody)
				}
			}
			short := stack.Setup{Rules: limitOf(1, 3*time.Second)}.Start(t)
			for range 2 {
				passes(short)
			}
			if short.Stat("cluster.upstream.ratelimit.over_limit") == 0 {
				t.Error("no request was denied")
			}
			long := stack.Setup{Rules: limitOf(1, time.Hour)}.Start(t)
			passes(long)
			if out, errs, code := run(long); out != "" || !strings.Contains(errs, "too long to wait") || code != recipe.tooLong {
				t.Errorf("too long: got %q, %q and code %d, want %d", out, errs, code, recipe.tooLong)
			}
			if n := long.Stat("cluster.upstream.ratelimit.over_limit"); n != 1 {
				t.Errorf("too long: denied %d times, want once", n)
			}
			above := stack.Setup{Rules: "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {window: 1m, requests: 5, cost: 10}\n"}.Start(t)
			if _, errs, code := run(above); !strings.Contains(errs, "429") || code == 0 {
				t.Errorf("cost above the limit: got %q and code %d", errs, code)
			}
			if n := above.Stat("cluster.upstream.ratelimit.over_limit"); n != 1 {
				t.Errorf("cost above the limit: denied %d times, want once", n)
			}
		})
	}
}

// TestShellRecipeReadsDates answers docs/examples/get.sh with dates in Retry-After, by the clock of
// the server.
func TestShellRecipeReadsDates(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]int{
		"Thu, 29 Feb 2024 00:00:00 GMT": 0, "Sun, 06 Nov 1994 08:49:37 GMT": 0, "Fri, 01 Mar 2024 00:00:00 GMT": 75, "Fri, 31 Dec 9999 23:59:59 GMT": 75,
		"soon": 22, "Thu, 29 Xyz 2024 00:00:00 GMT": 22, "-5": 22,
	} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) == 1 {
					w.Header().Set("Date", "Wed, 28 Feb 2024 23:59:59 GMT")
					w.Header().Set("Retry-After", after)
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			defer s.Close()
			cmd := exec.CommandContext(t.Context(), "sh", "../../docs/examples/get.sh", s.URL)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
				t.Errorf("got %v %s, want exit code %d", err, out, want)
			}
		})
	}
}
