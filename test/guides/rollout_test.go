package guides

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// rollout runs the live steps of docs/rollout.md against a real rls behind a real Envoy.
type rollout struct {
	*stack.Stack
	dir     string
	env     []string
	exports string            // of the first block of these steps
	tiers   map[string]string // lines of the tiers file by the id of the subject
	ids     []string          // of all subjects
	last    string            // output of the last commands
	pace    <-chan time.Time  // of requests beyond the limit: of more than 100 a second some are not recorded
}

const (
	rolloutLimit     = 20
	rolloutCustomers = 180 // with the three of the page fewer than a list counts exactly
)

// TestRollout runs every command of docs/rollout.md from shadow mode on, in its order, and sends requests of 203
// customers in between. What the page shows is what comes out, and what it says of the customers
// who are denied at each step is so.
func TestRollout(t *testing.T) {
	t.Parallel()
	r := startRollout(t)
	denied := map[string]map[string]bool{}
	hooks := map[string]func(){
		"rls top --order shadow": r.traffic,
		"%{http_code}": func() {
			if !strings.Contains(r.last, "note: enforced for 1 subject, by its override") {
				t.Errorf("rls validate says of the pilot:\n%s", r.last)
			}
		},
		"rls top --minutes 5":     func() { denied["1%"] = r.denied() },
		"/observe: 90%/' rules":   func() { r.prints("acme", "initech") },
		"/observe: 50%/' rules":   func() { denied["10%"] = r.denied() },
		"/, observe: 50%//'":      func() { denied["50%"] = r.denied() },
		"rls usage acme | grep":   func() { denied["all"] = r.denied() },
		"requests_per_unit: 20/r": func() { r.endOfPilot(); denied["all but acme"] = r.denied() },
	}
	_, page, _ := strings.Cut(tree.Read(t, "docs/rollout.md"), liveSteps)
	blocks := regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```\n").FindAllStringSubmatch(page, -1)
	for _, b := range blocks {
		for text, hook := range hooks {
			if strings.Contains(b[2], text) {
				hook()
				delete(hooks, text)
			}
		}
		r.block(b[1], b[2])
	}
	for text := range hooks {
		t.Errorf("the page has no block with %q", text)
	}
	denied["none"] = r.denied()
	steps := []struct {
		name        string
		least, most int
	}{{"none", 0, 0}, {"1%", 2, 8}, {"10%", 10, 40}, {"50%", 75, 130}, {"all", len(r.ids), len(r.ids)}}
	for i, s := range steps {
		if n := len(denied[s.name]); n < s.least || n > s.most {
			t.Errorf("%s: %d customers are denied, want %d to %d", s.name, n, s.least, s.most)
		}
		for id := range denied[steps[max(i-1, 0)].name] {
			if !denied[s.name][id] {
				t.Errorf("%s is denied at %s, and not at %s", id, steps[i-1].name, s.name)
			}
		}
	}
	if !denied["1%"]["initech"] {
		t.Error("the pilot is not denied at 1%")
	}
	want := maps.Clone(denied["all"])
	if delete(want, "acme"); !maps.Equal(denied["all but acme"], want) {
		t.Errorf("with an override for acme: %d customers are denied, want %d; acme: %v", len(denied["all but acme"]), len(want), denied["all but acme"]["acme"])
	}
	r.WantAllDecided()
}

// startRollout starts rls with the first rules of the page, and Envoy.
func startRollout(t *testing.T) *rollout {
	t.Helper()
	r := &rollout{dir: t.TempDir(), pace: time.Tick(13 * time.Millisecond), tiers: map[string]string{}, ids: []string{"acme", "globex", "initech"}}
	for i := range rolloutCustomers {
		r.ids = append(r.ids, fmt.Sprintf("customer-%03d", i))
	}
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	for _, id := range r.ids {
		r.tiers[id] = fmt.Sprintf("  - {id: %s, keys: [{sha256: %s}]}\n", id, secrets.Digest(id+"-key"))
	}
	r.write(t, "rules.yaml", "domain: edge\ndescriptors: [{key: unused}]\n")
	r.write(t, "tokens", "act 0123456789abcdef0123456789abcdef\n")
	r.writeTiers(t)
	file := func(name string) string { return filepath.Join(r.dir, name) }
	env := map[string]string{
		stack.EnvTiersSource: "file", stack.EnvRulesPath: file("rules.yaml"), stack.EnvTiersPath: file("tiers.yaml"), "SLIDEGATE_ADMIN_TOKEN_FILE": file("tokens"),
	}
	r.Stack = stack.Setup{Env: env}.Start(t)
	cmd, err := edge.RLSOptions{}.Command(t.Context(), "version")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cmd.Path, file("rls")); err != nil {
		t.Fatal(err)
	}
	r.env = append(edge.UserEnviron(), "PATH="+r.dir+":"+os.Getenv("PATH"), "COLUMNS=100", stack.EnvAdminAddress+"="+strings.TrimPrefix(r.RLS.Admin(), "http://"))
	return r
}

func (r *rollout) write(t *testing.T, name, text string) {
	t.Helper()
	tree.Write(t, filepath.Join(r.dir, name), text)
}

func (r *rollout) writeTiers(t *testing.T) {
	t.Helper()
	var b strings.Builder
	b.WriteString("tiers: [standard]\ndefault: standard\nsubjects:\n")
	for _, id := range r.ids {
		b.WriteString(r.tiers[id])
	}
	r.write(t, "tiers.yaml", b.String())
}

// block does what a block of the page says: it writes a file, runs commands, or compares what they
// print.
func (r *rollout) block(language, text string) {
	r.T.Helper()
	name, rest, _ := strings.Cut(text, "\n")
	switch {
	case language == "sh" && r.exports == "":
		r.exports = text
	case language == "sh":
		r.last = r.run(text)
	case language == "console":
		for _, one := range strings.Split(text, "$ ")[1:] {
			command, want, _ := strings.Cut(one, "\n")
			if got := r.run(command); steady(got) != steady(want) {
				r.T.Errorf("%s:\n%s\nwant\n%s", command, got, want)
			}
		}
	case name == "# rules.yaml":
		r.write(r.T, "rules.yaml", rest)
	case name == "# tiers.yaml":
		id := regexp.MustCompile(`id: (\w+)`).FindStringSubmatch(rest)[1]
		if digest := regexp.MustCompile(`sha256: \w+`).FindString(r.tiers[id]); !strings.Contains(rest, digest) {
			r.T.Errorf("the page has another digest of %s-key, want %s", id, digest)
		}
		r.tiers[id] = rest
		r.writeTiers(r.T)
	case !strings.Contains(r.last, text):
		r.T.Errorf("the commands print\n%s\nwant\n%s", r.last, text)
	}
}

// run runs commands of the page.
func (r *rollout) run(commands string) string {
	r.T.Helper()
	ours := strings.NewReplacer("http://", "", "localhost:6070", strings.TrimPrefix(r.RLS.Admin(), "http://"), "localhost:10000", r.Envoy.Addr())
	cmd := exec.CommandContext(r.T.Context(), "bash", "-euc", ours.Replace(r.exports+commands))
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.T.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return strings.ReplaceAll(string(out), strings.TrimPrefix(r.RLS.Admin(), "http://"), "127.0.0.1:6070")
}

// steady replaces what differs from run to run: waits, and when hits were used.
func steady(text string) string {
	text = regexp.MustCompile(`\d+m\d\ds`).ReplaceAllString(text, "TIME")
	return regexp.MustCompile(`(?m)[·▁▂▃▄▅▆▇█]{22}$`).ReplaceAllString(text, "HISTORY")
}

// traffic sends the requests of a first day. All pass.
func (r *rollout) traffic() {
	r.T.Helper()
	var status sync.Map
	process.Concurrently(r.T, 8, func(worker int) error {
		c := r.From("127.0.0.1")
		for i := worker; i < len(r.ids); i += 8 {
			n := map[string]int{"acme": 45, "globex": 30, "initech": 25}[r.ids[i]]
			for k := range max(n, rolloutLimit+1) {
				if k >= rolloutLimit {
					<-r.pace
				}
				got, err := c.Try(r.T.Context(), "/", "x-api-key", r.ids[i]+"-key")
				if err != nil {
					return err
				}
				if got.Status != http.StatusOK || got.Header.Get("ratelimit") != "" {
					status.Store(r.ids[i], fmt.Sprint(got.Status, got.Header))
				}
			}
		}
		return nil
	})
	status.Range(func(id, got any) bool {
		r.T.Errorf("%s is observed and got %s", id, got)
		return true
	})
}

// denied sends a request of each customer, who all have used up the limit, and returns those who
// are denied. The others see nothing of the limit.
func (r *rollout) denied() map[string]bool {
	r.T.Helper()
	c := r.From("127.0.0.1")
	denied := make(map[string]bool)
	for _, id := range r.ids {
		<-r.pace
		got := c.Get("/", "x-api-key", id+"-key")
		switch limit := got.Header.Get("ratelimit"); {
		case got.Status == http.StatusTooManyRequests && strings.HasPrefix(limit, `"per-key";r=0;t=`):
			denied[id] = true
		case got.Status != http.StatusOK || limit != "":
			r.T.Errorf("%s got %d with %q", id, got.Status, limit)
		}
	}
	return denied
}

// prints checks that operators see which subjects are enforced.
func (r *rollout) prints(observed, enforced string) {
	r.T.Helper()
	if out := r.run("rls usage " + observed); !strings.Contains(out, "shadow: only observed\n") {
		r.T.Errorf("rls usage %s:\n%s", observed, out)
	}
	if out := r.run("rls usage " + enforced); !strings.Contains(out, "enforced for this subject\n") {
		r.T.Errorf("rls usage %s:\n%s", enforced, out)
	}
	if !strings.Contains(r.last, enforced) || !strings.Contains(r.last, "per-key") {
		r.T.Errorf("rls top and rls denials print\n%s", r.last)
	}
}

// endOfPilot removes the override of the pilot.
func (r *rollout) endOfPilot() {
	r.T.Helper()
	before, _, _ := strings.Cut(r.tiers["initech"], "    overrides:")
	r.tiers["initech"] = before
	r.writeTiers(r.T)
	r.run("reload")
}

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
