package guides

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
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
