package guides

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/tree"
)

// liveSteps begins the part of docs/rollout.md that needs a running service. [TestRollout] runs it.
const liveSteps = "\n## 4. Shadow mode\n"

// TestFilesOfRollout runs the commands of docs/rollout.md that need only files, from a copy of the
// files that they name, and compares what the page says that a command prints. With -update it
// writes what the commands print.
func TestFilesOfRollout(t *testing.T) {
	dir, environ := replayFolder(t)
	runPage(t, "docs/rollout.md", liveSteps, dir, 5, environ...)
}

// TestReplayExamples replays a log by each file that users copy: the descriptors of one-hop.yaml,
// those of another proxy, and other names of fields.
func TestReplayExamples(t *testing.T) {
	t.Parallel()
	dir, environ := replayFolder(t)
	for name, text := range map[string]string{
		"limits.yaml": "domain: edge\ndescriptors: [{key: remote_address, rate_limit: {name: per-address, unit: minute, requests_per_unit: 3}}]\n",
		"nginx.log":   strings.Repeat(`192.0.2.7 - - [23/Nov/2026:12:00:01 +0000] "GET /search?q=a HTTP/1.1" 200 512 "-" "curl/8"`+"\n", 4),
		"app.log":     `{"@timestamp":"2026-11-23T12:00:00.125Z","http":{"path":"/items"},"source":{"ip":"192.0.2.7"},"customer":"hobby","took":3}` + "\n",
		"default.log": `[2026-11-23T12:00:00.125Z] "GET /items HTTP/1.1" 200 - 0 2 3 2 "192.0.2.7" "curl/8" "3f1c6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10" "localhost" "127.0.0.1:8000"` + "\n",
	} {
		tree.Write(t, filepath.Join(dir, name), text)
	}
	format := regexp.MustCompile(`--format '(.+)'\n`).FindStringSubmatch(tree.Read(t, "docs/examples/replay-fields.yaml"))
	if format == nil {
		t.Fatal("replay-fields.yaml has no --format")
	}
	const ours = "--rules docs/examples/rules.yaml --tiers docs/examples/tiers.yaml "
	for _, tt := range []struct{ command, want string }{
		{"rls replay --rules limits.yaml --map docs/examples/replay-nginx.yaml nginx.log", "denied 1 25 %"},
		{"rls replay " + ours + "--map docs/examples/replay-one-hop.yaml docs/examples/access.log", "denied 29 16.1 %"},
		{"rls replay " + ours + "--envoy envoy/ratelimit.yaml --map docs/examples/replay-fields.yaml app.log", "per-key free 100 per 1m 1 0 "},
		{"rls replay " + ours + "--envoy envoy/ratelimit.yaml --format '" + format[1] + "' default.log", "per-address 20 per 10s 1 0 "},
	} {
		sh := exec.CommandContext(t.Context(), "sh", "-e", "-c", tt.command)
		sh.Dir, sh.Env = dir, append(append(edge.UserEnviron(), "COLUMNS=200"), environ...)
		out, err := sh.CombinedOutput()
		if got := regexp.MustCompile(" +").ReplaceAllString(string(out), " "); err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %v, want %q\n%s", tt.command, err, tt.want, out)
		}
	}
}

// replayFolder returns a copy of the examples and of Envoy's files, and the environment in which rls
// is in the PATH.
func replayFolder(t *testing.T) (string, []string) {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{"docs/examples", "envoy"} {
		if err := os.CopyFS(filepath.Join(dir, from), os.DirFS("../../"+from)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	rls, err := edge.RLSOptions{}.Command(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o700), os.Symlink(rls.Path, filepath.Join(dir, "bin", "rls"))); err != nil {
		t.Fatal(err)
	}
	return dir, []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")}
}

// runPage takes the part of a page before a text. It writes the files whose first lines name them, runs
// the commands in a directory, and compares what they print. There are at least so many commands.
func runPage(t *testing.T, page, before, dir string, least int, environ ...string) {
	t.Helper()
	text, rest, ok := strings.Cut(tree.Read(t, page), before)
	if !ok {
		t.Fatalf("%s has no %q", page, before)
	}
	for _, file := range regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		tree.Write(t, filepath.Join(dir, file[1]), file[2])
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?").FindAllStringSubmatchIndex(text, -1)
	changed, end := "", 0
	for _, at := range blocks {
		command, want := text[at[2]:at[3]], ""
		code := 0
		if m := regexp.MustCompile(`# exits with (\d)`).FindStringSubmatch(command); m != nil {
			code, _ = strconv.Atoi(m[1])
		}
		sh := exec.CommandContext(t.Context(), "sh", "-e", "-c", command)
		sh.Dir, sh.Env = dir, append(append(edge.UserEnviron(), "COLUMNS=80"), environ...)
		var errs strings.Builder
		sh.Stderr = &errs
		out, err := sh.Output()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) || sh.ProcessState.ExitCode() != code {
			t.Errorf("%s ends with %v, want the exit code %d\n%s%s", command, err, code, out, errs.String())
		}
		if at[4] < 0 {
			continue
		}
		want = text[at[4]:at[5]]
		changed += text[end:at[4]] + string(out)
		end = at[5]
		if diff := cmp.Diff(want, string(out)); diff != "" && !*configtest.Update {
			t.Errorf("%s (-page +printed); write it with go test ./test/guides -run TestFilesOfRollout -update\n%s", command, diff)
		}
	}
	if len(blocks) < least {
		t.Errorf("%s has %d commands", page, len(blocks))
	}
	if *configtest.Update {
		tree.Write(t, "../../"+page, changed+text[end:]+before+rest)
	}
}
