package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

const (
	rulesConfig  = "testdata/envoy-rules.yaml"
	refundConfig = "testdata/envoy-refund.yaml"
	envEnvoy     = "SLIDEGATE_TEST_ENVOY"
)

// everyKind are rules of every kind that an Envoy has a part in.
const everyKind = `
domain: edge
descriptors:
  - key: cost
    rate_limit: {name: cost, unit: hour, requests_per_unit: 10}
  - key: budget
    rate_limit: {name: budget, unit: hour, requests_per_unit: 20, charge: always}
  - key: model
    value: large
    descriptors:
      - key: user
        quota_mode: true
        metadata: {backend: large-pool}
        rate_limit: {name: large, unit: hour, requests_per_unit: 1}
  - key: model
    value: small
    descriptors:
      - key: user
        quota_mode: true
        metadata: {backend: small-pool}
        rate_limit: {name: small, unit: hour, requests_per_unit: 2}
  - key: path
    value: /shadow*
    share_threshold: true
    descriptors:
      - key: user
        shadow_mode: true
        rate_limit: {name: shadowed, unit: hour, requests_per_unit: 1}
  - key: path
    value: /words*
    descriptors:
      - key: user
        rate_limit: {name: words, unit: hour, requests_per_unit: 0, body: "Not today.\n", content_type: text/x-words}
---
domain: partners
headers: [draft03]
descriptors:
  - key: user
    rate_limit: {name: partner, unit: hour, requests_per_unit: 1}
`

// meteredApp is an application that copies the request header x-spend, the cost of the
// request, to the response header x-tokens.
func meteredApp(t *testing.T) *stack.Application {
	t.Helper()
	a := new(stack.Application)
	a.Addr = stack.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := r.Header.Get("x-spend"); n != "" {
			w.Header().Set("x-tokens", n)
		}
		a.ServeHTTP(w, r)
	}))
	return a
}

// startMetered is start with a metered application.
func startMetered(t *testing.T, s stack.Setup) *stack.Stack {
	t.Helper()
	app := meteredApp(t)
	s.Upstream = app.Addr
	st := s.Start(t)
	st.App = app
	return st
}

// TestRulesThroughEnvoy has every kind of rule in which Envoy takes part.
func TestRulesThroughEnvoy(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := startMetered(t, stack.Setup{Rules: everyKind, Env: settings, Config: rulesConfig})
		c := s.From("127.0.0.1")

		// No rule is for these descriptors; the limit of 2 an hour comes from Envoy's
		// dynamic metadata.
		t.Run("limit from dynamic metadata", func(t *testing.T) {
			for i, want := range []int{200, 200, 429} {
				got := c.Get("/override", "x-user", "ann")
				if got.Status != want {
					t.Errorf("request %d: got %d, want %d", i+1, got.Status, want)
				}
				if policy := got.Header.Get("RateLimit-Policy"); policy != `"override";q=2;w=3600` {
					t.Errorf("request %d: RateLimit-Policy: got %s, want 2 per hour", i+1, policy)
				}
			}
			c.Want(200, 1, "/override", "x-user", "bob")
		})

		t.Run("cost from dynamic metadata", func(t *testing.T) {
			for _, step := range []struct {
				cost   []string
				status int
				left   uint32
			}{
				{[]string{"x-cost", "4"}, 200, 6},
				{nil, 200, 5},
				{[]string{"x-cost", "6"}, 429, 5},
				{[]string{"x-cost", "5"}, 200, 0},
				{nil, 429, 0},
			} {
				c.Want(step.status, 1, "/cost", append([]string{"x-user", "ann"}, step.cost...)...)
				if left := s.Peek("cost=ann")[0]; left != step.left {
					t.Errorf("after a cost of %q: %d left, want %d", step.cost, left, step.left)
				}
			}
		})

		// A budget of 20, and calls that turn out to cost 9: the third finds 2 left and
		// passes, and its 9 are debt. The reports come after the responses, so each
		// step waits for its own.
		t.Run("true cost after the response", func(t *testing.T) {
			for _, left := range []uint32{11, 2, 0} {
				c.Want(200, 1, "/budget", "x-user", "ann", "x-spend", "9")
				process.Eventually(t, fmt.Sprintf("%d to be left of the budget", left), func() bool { return s.Peek("budget=ann")[0] == left })
			}
			before := len(s.App.Received())
			c.Want(429, 2, "/budget", "x-user", "ann", "x-spend", "9")
			if n := len(s.App.Received()) - before; n != 0 {
				t.Errorf("%d requests without budget have reached the application, want none", n)
			}
			// All of 27 were recorded: with 8 given back, 19 are used and 1 is left.
			if _, out := stack.PostJSON(t, s.RLS.HTTP(), stack.Refund(8, "budget=ann")); stack.Remaining(out) != 1 {
				t.Errorf("with 8 of the debt given back: %d left, want 1", stack.Remaining(out))
			}
			c.Want(200, 1, "/budget", "x-user", "bob") // which does not say what it cost
		})

		t.Run("shadow", func(t *testing.T) {
			for i, want := range []any{nil, "shadowed", "shadowed"} {
				path := "/shadow/" + strconv.Itoa(i)
				c.Want(200, 1, path, "x-user", "ann")
				entry, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["path"] == path })
				if err != nil {
					t.Fatal(err)
				}
				if entry["shadow"] != want {
					t.Errorf("request %d: the access log has shadow %v, want %v", i+1, entry["shadow"], want)
				}
			}
			for outcome, want := range map[string]string{"allowed": "1", "denied": "2"} {
				name := `slidegate_shadow_decisions_total{domain="edge",outcome="` + outcome + `",rule="shadowed"}`
				if got := stack.Metric(t, s.RLS, name); got != want {
					t.Errorf("%s: got %q, want %s", name, got, want)
				}
			}
		})

		t.Run("alternatives", func(t *testing.T) {
			for i, want := range []struct {
				status  int
				backend string
			}{{200, "large-pool"}, {200, "small-pool"}, {429, ""}} {
				before := len(s.App.Received())
				path := "/model/" + strconv.Itoa(i)
				c.Want(want.status, 1, path, "x-user", "ann", "x-backend", "forged")
				entry, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["path"] == path })
				if err != nil {
					t.Fatal(err)
				}
				if want.status != http.StatusOK {
					if entry["backend"] != nil {
						t.Errorf("request %d: the access log has backend %v, want none", i+1, entry["backend"])
					}
					if n := len(s.App.Received()) - before; n != 0 {
						t.Errorf("request %d has reached the application", i+1)
					}
					continue
				}
				if got := s.App.Last(t).Header.Values("x-backend"); len(got) != 1 || got[0] != want.backend {
					t.Errorf("request %d: a later filter read backend %q, want %q", i+1, got, want.backend)
				}
				if entry["backend"] != want.backend {
					t.Errorf("request %d: the access log has backend %v, want %s", i+1, entry["backend"], want.backend)
				}
			}
		})

		t.Run("a rule's own words", func(t *testing.T) {
			got := c.Get("/words", "x-user", "ann")
			want := []string{"429", "Not today.\n", "text/x-words", ""} // a limit of 0: no wait helps
			if diff := cmp.Diff(want, []string{strconv.Itoa(got.Status), got.Body, got.Header.Get("Content-Type"), got.Header.Get("Retry-After")}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})

		t.Run("headers of a domain", func(t *testing.T) {
			for i, status := range []int{200, 429} {
				got := c.Get("/partner", "x-user", "ann")
				if got.Status != status {
					t.Errorf("request %d: got %d, want %d", i+1, got.Status, status)
				}
				if limit := got.Header.Get("RateLimit-Limit"); limit != "1, 1;w=3600" {
					t.Errorf("request %d: RateLimit-Limit: got %q, want that of draft 03", i+1, limit)
				}
				if policy := got.Header.Get("RateLimit-Policy"); policy != "" {
					t.Errorf("request %d: RateLimit-Policy: got %q, want none", i+1, policy)
				}
			}
		})
		s.WantAllDecided()
	})
}

// TestRefundThroughEnvoy reserves 5 before the response and gives the unused part back
// after it. Envoy knows is_negative_hits from 1.38 on. An older one must refuse the
// configuration.
func TestRefundThroughEnvoy(t *testing.T) {
	if version := stack.EnvoyVersion(t); version[0] == 1 && version[1] < 38 {
		out, err := exec.CommandContext(t.Context(), edge.EnvoyProgram(), "--mode", "validate", "--disable-hot-restart", "-c", refundConfig).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is_negative_hits") {
			t.Errorf("Envoy %v on a refund: %v\n%s\nwant it to refuse is_negative_hits", version, err, out)
		}
		return
	}
	const rules = "domain: edge\ndescriptors:\n  - {key: reserved, rate_limit: {name: reserved, unit: hour, requests_per_unit: 10}}\n"
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := startMetered(t, stack.Setup{Rules: rules, Env: settings, Config: refundConfig})
		c := s.From("127.0.0.1")
		// Here x-spend is what is given back.
		for _, step := range []struct {
			back   []string
			status int
			left   uint32
		}{
			{[]string{"x-spend", "3"}, 200, 8},
			{[]string{"x-spend", "5"}, 200, 8},
			{nil, 200, 3},
			{nil, 429, 3}, // 5 do not fit, so nothing was reserved
			// 2 used and 1000 given back: never below zero. A 429 has no response of the
			// application, so it gives nothing back.
		} {
			c.Want(step.status, 1, "/", append([]string{"x-user", "ann"}, step.back...)...)
			process.Eventually(t, fmt.Sprintf("%d to be left after giving back %q", step.left, step.back), func() bool { return s.Peek("reserved=ann")[0] == step.left })
		}
		c.Want(200, 1, "/", "x-user", "bob", "x-spend", "1000")
		process.Eventually(t, "all to be left", func() bool { return s.Peek("reserved=bob")[0] == 10 })
		s.WantAllDecided()
	})
}

// Of the directories that TestDirectoriesSwapUnderLoad swaps.
const (
	swapFiles = 50
	swapRules = 2000
	swapKinds = 40 // rules that the load asks for, spread over the files
)

// swapHits is the limit of every rule of a generation.
func swapHits(generation int) int { return 1_000_000 + generation }

// swapWindow returns the window of a rule in a generation, in hours. Every seventh
// rule alternates between two windows.
func swapWindow(rule, generation int) int {
	if rule%7 == 0 && generation%2 == 1 {
		return 2
	}
	return 1
}

// writeGeneration writes the rules of a generation in random order. Every limit and
// every name contains the generation. With shuffled, each rule is in a random file.
// Without, files of two generations together are valid.
func writeGeneration(dir string, generation int, shuffled bool) error {
	files := make([]strings.Builder, swapFiles)
	for i := range files {
		files[i].WriteString("domain: edge\ndescriptors:\n")
	}
	for i, rule := range rand.Perm(swapRules) {
		file := rule % swapFiles
		if shuffled {
			file = i % swapFiles
		}
		fmt.Fprintf(&files[file], "  - {key: k%d, rate_limit: {name: g%d.%d, window: %dh, requests: %d}}\n",
			rule, generation, rule, swapWindow(rule, generation), swapHits(generation))
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), []byte(files[i].String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// swapLoad sends requests for two rules at a time and checks each answer.
type swapLoad struct {
	ask func(descriptors ...string) (*rlsv3.RateLimitResponse, error)
	who int
	// charged is what this caller has spent, by rule and window: it alone asks for
	// its values.
	charged map[[2]int]int
}

// once sends one request, and returns the generation that answered.
func (l *swapLoad) once() (generation int, err error) {
	// As far apart in the files as two rules can be; which files, chance decides.
	asked := [2]int{rand.IntN(swapKinds), swapRules - 1 - rand.IntN(swapKinds)}
	out, err := l.ask(fmt.Sprintf("k%d=%d", asked[0], l.who), fmt.Sprintf("k%d=%d", asked[1], l.who))
	if err != nil {
		return 0, err
	}
	if out.GetOverallCode() != rlsv3.RateLimitResponse_OK || len(out.GetStatuses()) != 2 {
		return 0, fmt.Errorf("answer %v, want two that are OK", out)
	}
	for i, s := range out.GetStatuses() {
		limit := s.GetCurrentLimit()
		of, rule, _ := strings.Cut(strings.TrimPrefix(limit.GetName(), "g"), ".")
		g, err := strconv.Atoi(of)
		if err != nil || rule != strconv.Itoa(asked[i]) {
			return 0, fmt.Errorf("rule %q answered for k%d", limit.GetName(), asked[i])
		}
		if i > 0 && g != generation {
			return 0, fmt.Errorf("one answer is of generations %d and %d", generation, g)
		}
		generation = g
		hours := int(max(1, limit.GetUnitMultiplier().GetValue()))
		if int(limit.GetRequestsPerUnit()) != swapHits(g) || hours != swapWindow(asked[i], g) {
			return 0, fmt.Errorf("generation %d: k%d has a limit of %d per %d h", g, asked[i], limit.GetRequestsPerUnit(), hours)
		}
		log := [2]int{asked[i], hours}
		l.charged[log]++
		if left := swapHits(g) - l.charged[log]; int(s.GetLimitRemaining()) != left {
			return 0, fmt.Errorf("generation %d: %d of k%d left, want %d: its history was lost", g, s.GetLimitRemaining(), asked[i], left)
		}
	}
	return generation, nil
}

// TestDirectoriesSwapUnderLoad swaps directories of 2,000 rules in 50 files under a
// load of 1,000 requests a second, as Kubernetes swaps a ConfigMap. An answer must be
// of one generation, an older generation must not come back, and no log may be lost.
func TestDirectoriesSwapUnderLoad(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	rules, data := filepath.Join(base, "rules"), filepath.Join(base, "rules", "..data")
	if err := os.Mkdir(rules, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(generation int, shuffled bool) {
		t.Helper()
		if err := writeGeneration(filepath.Join(rules, fmt.Sprintf("..%d", generation)), generation, shuffled); err != nil {
			t.Fatal(err)
		}
	}
	point := func(generation int) error {
		fresh := data + "_tmp"
		return errors.Join(os.Symlink(fmt.Sprintf("..%d", generation), fresh), os.Rename(fresh, data))
	}
	swap := func(generation int) {
		t.Helper()
		if err := point(generation); err != nil {
			t.Fatal(err)
		}
	}
	write(0, true)
	swap(0)
	for i := range swapFiles {
		name := fmt.Sprintf("%02d.yaml", i)
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(rules, name)); err != nil {
			t.Fatal(err)
		}
	}
	rls := stack.Setup{Env: map[string]string{stack.EnvRulesPath: rules, "SLIDEGATE_RULES_MERGE_DOMAINS": "true"}}.Serve(t)

	var newest, calls atomic.Int64
	var inOrder atomic.Bool
	inOrder.Store(true)
	const callers = 4
	errs, seen := make([]error, callers), make([]int, callers)
	var load []swapLoad
	for i := range errs {
		load = append(load, swapLoad{ask: stack.Limiter(t, rls), who: i, charged: make(map[[2]int]int)})
	}
	stop := process.Workers(t, callers, callers*time.Millisecond, func(i, _ int) bool {
		g, err := load[i].once()
		if err == nil && inOrder.Load() && g < seen[i] {
			err = fmt.Errorf("generation %d after %d", g, seen[i])
		}
		if errs[i] = err; err != nil {
			newest.Store(-1) // ends the waits below
			return false
		}
		seen[i] = g
		calls.Add(1)
		if int64(g) > newest.Load() {
			newest.Store(int64(g))
		}
		return true
	})
	reached := func(generation int) func() bool {
		return func() bool { n := newest.Load(); return n < 0 || n >= int64(generation) }
	}
	// One after the other: each is seen, and none is older than the last.
	for g := 1; g <= 3; g++ {
		write(g, true)
		swap(g)
		process.Eventually(t, fmt.Sprintf("generation %d", g), reached(g))
	}
	// The files change far faster than rls can read them. In the end rls has the last ones, and
	// never a mixture.
	inOrder.Store(false)
	const last = 8
	for g := 4; g <= last; g++ {
		write(g, false)
	}
	before, swaps := loads(t, rls), 0
	swapping, enough := context.WithCancel(t.Context())
	var swapper sync.WaitGroup
	defer func() { enough(); swapper.Wait() }()
	swapper.Go(func() {
		for ; swapping.Err() == nil; swaps++ {
			if err := point(4 + swaps%4); err != nil {
				t.Errorf("swapping: %v", err)
				return
			}
		}
	})
	process.Eventually(t, "the files to be read three times while they are swapped", func() bool {
		return newest.Load() < 0 || loads(t, rls) >= before+3
	})
	enough()
	swapper.Wait()
	swap(last)
	process.Eventually(t, fmt.Sprintf("generation %d", last), reached(last))
	sofar := calls.Load()
	process.Eventually(t, "calls under the last generation", func() bool { return newest.Load() < 0 || calls.Load() > sofar+100 })
	stop()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("%v\n%s", err, rls.Output())
	}
	t.Logf("%d calls, %d swaps in a row", calls.Load(), swaps)
}

// loads returns how often rls has read the files.
func loads(t *testing.T, rls *edge.RLSServer) int {
	t.Helper()
	sum := 0
	for _, result := range []string{"loaded", "refused"} {
		n, err := strconv.Atoi(stack.Metric(t, rls, `slidegate_config_reloads_total{result="`+result+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
