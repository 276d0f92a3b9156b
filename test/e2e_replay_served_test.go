package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
)

const (
	servedRules = `
domain: edge
descriptors:
  - key: api_key
    rate_limit:
      name: per-key
      by_tier:
        free: {window: 8s, requests: 9}
        pro: {policy: token_bucket, rate: 1/h, burst: 15}
  - key: route
    value: search
    descriptors:
      - key: api_key
        rate_limit: {name: search, policy: calendar, unit: year, requests_per_unit: 30, cost: 2}
`
	servedTiers = `
tiers: [free, pro]
default: free
subjects:
  - {id: hobby, tier: free, keys: [{plain: example-hobby}]}
  - {id: shop, tier: free, keys: [{plain: example-shop}]}
  - {id: bank, tier: pro, keys: [{plain: example-bank}]}
`
)

// TestReplayGivesTheDecisionsThatWereServed sends requests through a real Envoy with the shipped
// file to a real rls. "rls replay" of Envoy's log must decide every line as it was served. No
// log of the rules becomes free between two requests but where the test waits for it: the log has
// milliseconds, and rls decides a moment after Envoy's start of the request. All rules are by key:
// the shipped file logs the subject of the limit that decides, so a limit by address would hide it.
func TestReplayGivesTheDecisionsThatWereServed(t *testing.T) {
	t.Parallel()
	s := setup{rules: servedRules, tiers: servedTiers}.start(t)
	random := rand.New(rand.NewPCG(21, 1))
	keys := []string{"example-hobby", "example-shop", "example-bank"}
	requests, served := 0, make(map[int]int)
	for range 3 {
		for range 60 {
			var header []string
			if random.IntN(5) > 0 {
				header = []string{"X-Api-Key", keys[random.IntN(len(keys))]}
			}
			path := []string{"/search", "/search?q=x", "/login", "/", "/orders/7"}[random.IntN(5)]
			from := s.from(fmt.Sprintf("127.0.0.%d", 1+random.IntN(3)))
			served[from.get(path, header...).status]++
			requests++
		}
		eventually(t, "the window of eight seconds to be empty", func() bool {
			return s.peek("api_key=" + keys[0])[0] == 9 && s.peek("api_key=" + keys[1])[0] == 9
		})
	}
	s.wantAllDecided()
	s.envoy.Stop()

	log := fileOf(t, "access.log", strings.Join(jsonLines(s.envoy.Output()), ""))
	dir := filepath.Dir(log)
	rules, tiers := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "tiers.yaml")
	writeFile(t, rules, servedRules)
	writeFile(t, tiers, servedTiers)
	decisions := filepath.Join(dir, "decisions.ndjson")
	got := run(t, edge.RLSOptions{}, "", "replay", "--rules", rules, "--tiers", tiers, "--envoy", edgeConfig, "--decisions", decisions, log)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	compareServed(t, log, decisions, requests)
	if served[429] < 50 || served[200] < 50 {
		t.Errorf("served %v: the requests test little", served)
	}
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

// compareServed compares each line of a log with its decision.
func compareServed(t *testing.T, log, decisions string, requests int) {
	t.Helper()
	lines := make(map[int]edge.AccessLogEntry)
	eachLine(t, log, func(n int, line []byte) {
		var e edge.AccessLogEntry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		lines[n] = e
	})
	decided := 0
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
		if was := e["status"] != 429.0; was != d.Allowed || !was && e["rule"] != d.Rule {
			t.Errorf("line %d was served as %+v, replayed as %s", d.Line, e, line)
		}
	})
	if decided != requests || len(lines) != requests {
		t.Errorf("%d lines, %d decisions, want %d", len(lines), decided, requests)
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
