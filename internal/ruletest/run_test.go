package ruletest

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const someRules = `domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, by_tier: {free: {window: 10s, requests: 2}, pro: {unlimited: true}}}
  - key: in_flight
    rate_limit: {name: busy, policy: in_flight, max: 1, hold: 5s}
  - key: observed
    shadow_mode: true
    rate_limit: {name: watched, window: 1s, requests: 0}
  - key: never
    rate_limit: {name: never, window: 1s, requests: 1, cost: 2}
  - key: free
`

const someTiers = `tiers: [free, pro]
default: free
subjects:
  - {id: acme, tier: pro, keys: [{plain: key-of-acme}]}
`

// run runs the tests of a text on memory.
func run(t *testing.T, tests string) ([]Result, *Coverage, error) {
	t.Helper()
	dir := t.TempDir()
	path := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := settings.Default()
	s.Rules.Path, s.Tiers.Path = path("rules.yaml", someRules), path("tiers.yaml", someTiers)
	g, err := config.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := ruletests.Read(path("x_test.yaml", tests))
	if err != nil {
		t.Fatal(err)
	}
	f.Name = "x_test.yaml"
	r := Runner{Generation: g, Renderer: answer.NewRenderer(settings.StyleRateLimit), Begin: InMemory(g.Rules), Coverage: NewCoverage(g)}
	var results []Result
	for i := range f.Tests {
		result, err := r.Run(t.Context(), f, &f.Tests[i])
		if err != nil {
			return nil, nil, err
		}
		results = append(results, result)
	}
	return results, r.Coverage, nil
}

// TestPasses runs tests that pass: callers at once, requests in flight, shadow, costs above a limit.
func TestPasses(t *testing.T) {
	results, coverage, err := run(t, `tests:
  - name: two callers at once share one log
    request: {descriptors: [api_key=a]}
    steps:
      - {at: 1s, expect: {allowed: false, retry_after: 9s, subject: "", tier: free, limit: 2, remaining: 0}}
      - {at: 0s, every: 500ms, times: 2, expect: {allowed: 2}}
  - name: a subject in place of its key
    steps:
      - {times: 5, subject: acme, descriptors: [api_key=any], expect: {allowed: true, rule: ""}}
      - {times: 3, subject: acme, tier: free, descriptors: [api_key=any], expect: {allowed: 2, denied: 1, subject: acme}}
  - name: in flight
    steps:
      - {stream: s1, descriptors: [in_flight=b], expect: {allowed: true}}
      - {at: 1s, stream: s2, descriptors: [in_flight=b], expect: {allowed: false, rule: busy}}
      - {at: 2s, stream: s1, end: via_upstream, expect: {allowed: true}}
      - {at: 3s, stream: s3, descriptors: [in_flight=b], expect: {allowed: true}}
  - name: observed, never and without a limit
    steps:
      - {descriptors: [observed=1], expect: {allowed: true, shadow: watched}}
      - {descriptors: [never=1], expect: {allowed: false, retry_after: 0s, headers: {Retry-After: "", RateLimit: '"never";r=1'}}}
      - {descriptors: [free=1], expect: {allowed: true, rule: "", shadow: ""}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !r.Passed() {
			t.Errorf("%s: %q", r.Name, r.lines())
		}
	}
	for _, p := range coverage.Parts() {
		if p.Requests == 0 {
			t.Errorf("not tested: %v", &p)
		}
	}
}

const failing = `tests:
  - name: everything is wrong # <&>
    steps:
      - {times: 3, descriptors: [api_key=a], expect: {allowed: 3, denied: 0, rule: other, tier: pro, subject: acme, shadow: x, limit: 5, remaining: 1, retry_after: 1s, reset: 1s, headers: {Retry-After: 1, X-None: a}}}
`

// TestFailures compares every difference with what is printed.
func TestFailures(t *testing.T) {
	results, coverage, err := run(t, failing)
	if err != nil {
		t.Fatal(err)
	}
	var text, tap, junit strings.Builder
	for _, err := range []error{WriteText(&text, results, coverage.Parts()), WriteTAP(&tap, results, coverage.Parts()), WriteJUnit(&junit, results)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := `FAIL everything is wrong
    x_test.yaml:4: step 1: allowed: got 2 of 3, want 3
    x_test.yaml:4: step 1: denied: got 1 of 3, want 0
    x_test.yaml:4: step 1: rule: got per-key, want other
    x_test.yaml:4: step 1: tier: got free, want pro
    x_test.yaml:4: step 1: subject: got none, want acme
    x_test.yaml:4: step 1: shadow: got none, want x
    x_test.yaml:4: step 1: limit: got 2, want 5
    x_test.yaml:4: step 1: remaining: got 0, want 1
    x_test.yaml:4: step 1: retry_after: got 10s, want 1s
    x_test.yaml:4: step 1: reset: got 10s, want 1s
    x_test.yaml:4: step 1: the header retry-after: got 10, want 1
    x_test.yaml:4: step 1: the header x-none: got none, want a
    the last request of step 1, at 0s, is denied by the rule per-key, limit 2, remaining 0, tier free, retry after 10s
`
	if !strings.HasPrefix(text.String(), want) || !strings.HasSuffix(text.String(), "0 passed, 1 failed, 3 requests; 1 of 6 rules and tiers tested\n") || !strings.Contains(text.String(), "rules.yaml:3: rule per-key, tier pro\n") {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	if !strings.HasPrefix(tap.String(), "TAP version 14\n1..1\nnot ok 1 - everything is wrong\n# x_test.yaml:4: step 1: allowed") {
		t.Errorf("TAP: got\n%s", tap.String())
	}
	d := xml.NewDecoder(strings.NewReader(junit.String()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("JUnit: %v in\n%s", err, junit.String())
		}
	}
	if !strings.Contains(junit.String(), `<testsuite name="x_test.yaml" tests="1" failures="1"`) {
		t.Errorf("JUnit: got\n%s", junit.String())
	}
}

// TestImpossible has requests that the rules cannot decide.
func TestImpossible(t *testing.T) {
	for _, tt := range []struct{ step, want string }{
		{"subject: stranger, descriptors: [api_key=a]", `x_test.yaml:4: subject: the tiers file has no subject "stranger"`},
		{"tier: gold, descriptors: [api_key=a]", `x_test.yaml:4: tier: the tiers file has no tier "gold"`},
		{"domain: other, descriptors: [api_key=a]", `x_test.yaml:4: domain: the rules have no domain "other", only edge`},
	} {
		_, _, err := run(t, "tests:\n  - name: a\n    steps:\n      - {"+tt.step+", expect: {allowed: 1}}\n")
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.step, err, tt.want)
		}
	}
}
