package replay

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// TestReplayInterrupted ends with the report of what was read.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	rules := configtest.Write(t, "rules.yaml", "domain: edge\ndescriptors: [{key: remote_address, rate_limit: {name: per-address, unit: minute, requests_per_unit: 10}}]\n")
	cmd, err := edge.RLSOptions{}.Command(t.Context(), "replay", "--json", "--rules", rules, "--envoy", "../../envoy/ratelimit.yaml", "-")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs process.Output
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: once it is written, the command reads, and so it catches signals.
	const line = `{"client":"192.0.2.7","details":"via_upstream","method":"GET","path":"/items","subject":null,"time":"2026-03-01T12:00:00.000Z"}` + "\n"
	if _, err := io.WriteString(in, strings.Repeat(line, 20_000)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("got %v: %s", err, errs.String())
	}
	var report struct {
		Requests int
		Partial  bool
	}
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil || !report.Partial || report.Requests > 20_000 {
		t.Errorf("%v: %+v; it says %s", err, report, errs.String())
	}
}

const (
	// servedRules have limits by address, by route, by generic key and by API key. The windows of
	// limits that one request can exceed together differ by more than a burst takes. So their waits
	// differ too, and the rule that a denial names does not depend on milliseconds.
	servedRules = `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {name: per-address, limits: [{window: 20s, requests: 16}, {window: 1h, requests: 30}]}
  - key: remote_address
    value: 127.0.0.3
    rate_limit: {name: office, limits: [{window: 20s, requests: 12}, {window: 1h, requests: 25}]}
  - key: api_key
    rate_limit:
      name: per-key
      limits: [{window: 30s, requests: 7}, {window: 2h, requests: 12}]
  - key: route
    value: search
    descriptors:
      - key: api_key
        rate_limit: {name: search, policy: calendar, unit: year, requests_per_unit: 9, cost: 2}
  - key: route
    value: login
    descriptors:
      - key: remote_address
        value: 127.*
        share_threshold: true
        rate_limit: {name: login, limits: [{window: 40s, requests: 10}, {window: 3h, requests: 18}]}
  - key: generic_key
    value: rest
    rate_limit: {name: rest, window: 4h, requests: 25}
    descriptors:
      - key: api_key
        rate_limit: {name: watched, observe: true, window: 1h, requests: 5}
`
	servedTiers = `
tiers: [free, pro, staff]
default: free
subjects:
  - {id: hobby, tier: free, keys: [{plain: example-hobby}, {plain: example-hobby-new}]}
  - {id: shop, tier: free, keys: [{plain: example-shop}]}
  - {id: bank, tier: pro, keys: [{plain: example-bank}]}
  - {id: crew, tier: staff, keys: [{plain: example-crew}]}
`
	// servedByTier replaces the terms of per-key, if there are tiers.
	servedByTier = `
      by_tier:
        free: {limits: [{window: 30s, requests: 7}, {window: 2h, requests: 12}]}
        pro: {policy: token_bucket, rate: 1/d, burst: 15}
        staff: {unlimited: true}
`
)

var (
	servedKeys  = []string{"example-hobby", "example-hobby-new", "example-shop", "example-bank", "example-crew", "made-up", "other"}
	servedPaths = []string{"/search", "/search?q=x", "/login", "/", "/orders/7"}
	servedFrom  = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
)

// TestReplayGivesTheDecisionsThatWereServed sends requests through a real Envoy with a shipped
// file to a real rls. "rls replay" of Envoy's log must decide every line as it was served. No
// log of the rules becomes free between two requests but where the test waits for it: the log has
// milliseconds, and rls decides a moment after Envoy's start of the request.
func TestReplayGivesTheDecisionsThatWereServed(t *testing.T) {
	t.Parallel()
	byTier := strings.Replace(servedRules, "\n      limits: [{window: 30s, requests: 7}, {window: 2h, requests: 12}]\n", servedByTier, 1)
	each := map[string]string{"SLIDEGATE_TIERS_UNKNOWN_KEY": "each"}
	none := map[string]string{stack.EnvTiersSource: "none"}
	every := []string{"login", "office", "per-address", "per-key", "rest", "search"}
	for name, v := range map[string]served{
		"tiers":                       {Setup: stack.Setup{Rules: byTier, Tiers: servedTiers, Change: restIsGeneric(t)}, denied: every},
		"unknown keys for themselves": {Setup: stack.Setup{Rules: byTier, Tiers: servedTiers, Change: restIsGeneric(t), Env: each}, denied: every},
		"no tiers":                    {Setup: stack.Setup{Rules: servedRules, Change: restIsGeneric(t), Env: none}, denied: every},
		"one hop": {
			Setup: stack.Setup{Rules: byTier, Tiers: servedTiers, Config: stack.OneHopConfig}, denied: []string{"login", "office", "per-address", "per-key", "search"},
			by: []string{"--map", "../../docs/examples/replay-one-hop.yaml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v.replay(t)
		})
	}
}

// restIsGeneric returns a change of envoy/ratelimit.yaml: the last route sends descriptors with a
// generic key.
func restIsGeneric(t *testing.T) map[string]string {
	t.Helper()
	before, route, ok := strings.Cut(tree.Read(t, "envoy/ratelimit.yaml"), "              - name: everything-else\n")
	route, _, more := strings.Cut(route, "                    - actions:\n")
	if !ok || !more || strings.Contains(before, route) {
		t.Fatal("envoy/ratelimit.yaml has no such route")
	}
	return map[string]string{route: route +
		"                    - actions: [{generic_key: {descriptor_value: rest}}]\n" +
		"                    - actions: [{generic_key: {descriptor_value: rest}}, {request_headers: {header_name: x-api-key, descriptor_key: api_key}}]\n"}
}

// served is a stack whose log is replayed.
type served struct {
	stack.Setup
	by     []string // the flags that say how descriptors are made; empty: Envoy's file
	denied []string // the rules that deny
}

// replay serves requests, and replays their log.
func (v served) replay(t *testing.T) {
	s := v.Start(t)
	requests := v.serveAll(s)
	s.WantAllDecided()
	process.Eventually(t, "the whole log", func() bool { return len(jsonLines(s.Envoy.Output())) >= requests })
	s.Envoy.Stop()

	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		tree.Write(t, path, text)
		return path
	}
	log, decisions := file("access.log", strings.Join(jsonLines(s.Envoy.Output()), "")), filepath.Join(dir, "decisions.ndjson")
	args := []string{"replay", "--what-if", "none", "--decisions", decisions, "--rules", file("rules.yaml", v.Rules)}
	if v.Tiers != "" {
		args = append(args, "--tiers", file("tiers.yaml", v.Tiers))
	}
	if v.by == nil {
		text := tree.Read(t, "envoy/ratelimit.yaml")
		for from, to := range v.Change {
			text = strings.ReplaceAll(text, from, to)
		}
		v.by = []string{"--envoy", file("envoy.yaml", text)}
	}
	got := edge.Run(t, edge.RLSOptions{Env: v.Env}, "", append(append(args, v.by...), log)...)
	if got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	v.compare(t, log, decisions, requests)
}

// serveAll sends two bursts of requests. Between them the windows of seconds pass. It returns
// the number of requests.
func (v served) serveAll(s *stack.Stack) (requests int) {
	s.T.Helper()
	random := rand.New(rand.NewPCG(21, 1))
	clients := make([]*stack.Client, len(servedFrom))
	for i, address := range servedFrom {
		clients[i] = s.From(address)
	}
	for burst := range 2 {
		if burst > 0 {
			process.WaitUntil(time.Now().Add(41 * time.Second))
		}
		for range 120 {
			var header []string
			if random.IntN(6) > 0 {
				header = []string{"X-Api-Key", servedKeys[random.IntN(len(servedKeys))]}
			}
			clients[random.IntN(len(clients))].Get(servedPaths[random.IntN(len(servedPaths))], header...)
			requests++
		}
	}
	return requests
}

// jsonLines returns the lines of an access log among what Envoy wrote.
func jsonLines(output string) (lines []string) {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "{") {
			lines = append(lines, line)
		}
	}
	return lines
}

// compare compares each line of a log with its decision.
func (v served) compare(t *testing.T, log, decisions string, requests int) {
	t.Helper()
	lines := make(map[int]edge.AccessLogEntry)
	eachLine(t, log, func(n int, line []byte) {
		var e edge.AccessLogEntry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		lines[n] = e
	})
	decided, denied := 0, make(map[string]bool)
	eachLine(t, decisions, func(n int, line []byte) {
		var d struct {
			Line    int
			Allowed bool
			Rule    string
		}
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatalf("decision %d: %v", n, err)
		}
		decided++
		e := lines[d.Line]
		was := e["status"] != 429.0
		if was != d.Allowed || !was && e["rule"] != d.Rule {
			t.Errorf("line %d was served as %+v, replayed as %s", d.Line, e, line)
		}
		if !was {
			denied[d.Rule] = true
		}
	})
	if decided != requests || len(lines) != requests {
		t.Errorf("%d lines, %d decisions, want %d", len(lines), decided, requests)
	}
	if got := slices.Sorted(maps.Keys(denied)); !slices.Equal(got, v.denied) {
		t.Errorf("denied by %q, want by %q: the requests test too little", got, v.denied)
	}
}

// eachLine calls f with each line of a file; lines count from 1.
func eachLine(t *testing.T, name string, f func(n int, line []byte)) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	for n := 1; s.Scan(); n++ {
		f(n, s.Bytes())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}
