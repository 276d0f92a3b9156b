package ruletest

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/test/tree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const someRules = `domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, by_tier: {free: {window: 10s, requests: 2}, pro: {unlimited: true}}}
  - key: in_flight
    rate_limit: {name: busy, policy: in_flight, max: 1, hold: 5s}
  - key: budget
    rate_limit: {name: tokens, unit: hour, requests_per_unit: 1000, budget: {reserve: 300, max: 900, hold: 2s}}
  - key: observed
    shadow_mode: true
    rate_limit: {name: watched, window: 1s, requests: 0}
  - key: never
    rate_limit: {name: never, window: 1s, requests: 1, cost: 2}
  - key: free
  - {key: comma, value: "x,y=z", rate_limit: {name: commas, window: 1s, requests: 1}}
`

const someTiers = `tiers: [free, pro]
default: free
subjects:
  - {id: acme, tier: pro, keys: [{plain: key-of-acme}]}
  - {id: big, keys: [{plain: key-of-big}], overrides: {per-key: {window: 10s, requests: 7}}}
  - {id: free, keys: [{plain: key-of-free}], overrides: {per-key: {unlimited: true}}}
  - {id: seen, keys: [{plain: key-of-seen}], overrides: {per-key: {observe: true}}}
`

// run runs the tests of a text on memory.
func run(t *testing.T, tests string, options ...func(*Runner)) (Report, error) {
	t.Helper()
	dir := t.TempDir()
	path := func(name, text string) string {
		path := filepath.Join(dir, name)
		tree.Write(t, path, text)
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
	r := Runner{Generation: g, Renderer: answer.NewRenderer(rules.StyleRateLimit), Begin: InMemory(g.Rules), Coverage: NewCoverage(g, "tiers.yaml")}
	for _, set := range options {
		set(&r)
	}
	var results []Result
	for i := range f.Tests {
		result, err := r.Run(t.Context(), f, &f.Tests[i])
		if err != nil {
			return Report{}, err
		}
		results = append(results, result)
	}
	var report Report
	report.Add(results, r.Coverage.Parts(), 0)
	return report, nil
}

// TestPasses runs tests that pass: callers at once, requests in flight, shadow, costs above a limit.
func TestPasses(t *testing.T) {
	report, err := run(t, `tests:
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
  - name: budget
    steps:
      - {stream: s1, descriptors: [budget=b], expect: {allowed: true, remaining: 700}}
      - {stream: s2, descriptors: [budget=b], cost: 701, expect: {allowed: false, rule: tokens}}
      - {at: 1s, stream: s1, end: via_upstream, descriptors: [budget=b], cost: 50, expect: {allowed: true}}
      - {at: 1s, stream: s2, descriptors: [budget=b], cost: 701, expect: {allowed: true, remaining: 249}}
      - {at: 3s, descriptors: [budget=b], cost: 0, expect: {allowed: true, remaining: 249}}
      - {at: 4s, stream: s2, end: via_upstream, expect: {allowed: true}}
      - {at: 5s, descriptors: [budget=b], cost: 249, expect: {allowed: true, remaining: 0}}
  - name: observed, never and without a limit
    steps:
      - {descriptors: [observed=1], expect: {allowed: true, shadow: watched}}
      - {descriptors: [never=1], expect: {allowed: false, retry_after: 0s, headers: {Retry-After: "", RateLimit: '"never";r=1'}}}
      - {descriptors: [free=1], expect: {allowed: true, rule: "", shadow: ""}}
  - name: refunds, costs of single descriptors, and limits that come with one
    steps:
      - {descriptors: [{entries: api_key=a, cost: 2}, {entries: comma=other, cost: 5}], expect: {allowed: true, rule: per-key, remaining: 0}}
      - {descriptors: [api_key=a], expect: {allowed: false}}
      - {descriptors: [api_key=a], cost: -1, expect: {allowed: true, rule: ""}}
      - {descriptors: [api_key=a], expect: {allowed: true, remaining: 0}}
      - {descriptors: [api_key=a, {entries: 'comma=x\,y=z', cost: -1}], expect: {allowed: false, rule: per-key}}
      - {times: 4, descriptors: [{entries: api_key=a, limit: {requests: 3, window: 90s}}], expect: {allowed: 3, limit: 3, retry_after: 90s}}
      - {times: 2, descriptors: [{entries: other=1, limit: {requests: 1, window: 1s}}], expect: {allowed: 1, limit: 1}}
  - name: overrides
    request: {descriptors: [api_key=any]}
    steps:
      - {subject: big, times: 8, expect: {allowed: 7, limit: 7}}
      - {subject: free, times: 8, expect: {allowed: 8}}
      - {subject: seen, times: 8, expect: {allowed: 8, shadow: per-key}}
  - name: a value with a comma and an equals sign
    steps:
      - {descriptors: ['comma=x\,y=z'], expect: {allowed: true, rule: commas}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if !r.Passed() {
			t.Errorf("%s: %q", r.Name, r.lines())
		}
	}
	if lines := report.Untested(); len(lines) > 0 {
		t.Errorf("not tested: %q", lines)
	}
}

const failing = `tests:
  - name: everything is wrong # <&>
    steps:
      - {times: 3, descriptors: [api_key=a], expect: {allowed: 3, denied: 0, rule: other, tier: pro, subject: acme, shadow: x, limit: 5, remaining: 1, retry_after: 1s, reset: 1s, headers: {Retry-After: 1, X-None: a}}}
`

// TestFailures compares every difference with what is printed.
func TestFailures(t *testing.T) {
	report, err := run(t, failing)
	if err != nil {
		t.Fatal(err)
	}
	var text, junit strings.Builder
	for _, err := range []error{report.WriteText(&text), report.WriteJUnit(&junit)} {
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
	if !strings.HasPrefix(text.String(), want) || !strings.HasSuffix(text.String(), "rule commas\nnot tested: tiers.yaml: rule per-key, override of the subject big\nnot tested: tiers.yaml: rule per-key, override of the subject free\nnot tested: tiers.yaml: rule per-key, override of the subject seen\n0 passed, 1 failed, 3 requests; 1 of 8 rules and tiers tested, 0 of 3 overrides\n") || !strings.Contains(text.String(), "rules.yaml:3: rule per-key, tier pro\n") {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
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

// TestNoLimitWanted expects figures of a limit for a request that no rule limits.
func TestNoLimitWanted(t *testing.T) {
	report, err := run(t, "tests: [{name: a, steps: [{descriptors: [other=a], expect: {allowed: 1, limit: 60, remaining: 57, reset: 1m}}]}]")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := `FAIL a
    x_test.yaml:1: step 1: limit: got no limit, want 60
    x_test.yaml:1: step 1: remaining: got no limit, want 57
    x_test.yaml:1: step 1: reset: got no limit, want 1m
    the last request of step 1, at 0s, is allowed, no limit
`
	if !strings.HasPrefix(text.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
}

// TestTimesAsInFiles prints times of days as the files of tests have them.
func TestTimesAsInFiles(t *testing.T) {
	report, err := run(t, `tests:
  - name: long
    steps:
      - {at: 13d22h59m59s, times: 3, descriptors: [{entries: in_flight=1, limit: {requests: 2, window: 14d}}], expect: {allowed: 3, retry_after: 14d1h, reset: 1m}}
`, func(r *Runner) { r.Verbose = true })
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"step 1: retry_after: got 14d, want 14d1h\n",
		"step 1: reset: got 14d, want 1m\n",
		"the last request of step 1, at 13d22h59m59s, is denied by the rule busy, limit 2, remaining 0, retry after 14d\n",
		"step 1 at 13d22h59m59s: expect: {allowed: 2, rule: busy, limit: 2, remaining: 0, retry_after: 14d, reset: 14d}\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%s\nwithout %s", text.String(), want)
		}
	}
}

// TestImpossible has requests that the rules cannot decide.
func TestImpossible(t *testing.T) {
	for _, tt := range []struct{ step, want string }{
		{"subject: stranger, descriptors: [api_key=a]", `x_test.yaml:4: subject: the tiers file has no subject "stranger"`},
		{"tier: gold, descriptors: [api_key=a], expect: {allowed: 1}}, {subject: x, tier: free, descriptors: [api_key=a]", "x_test.yaml:4: tier: the tiers file has no tier \"gold\"\nx_test.yaml:4: subject: the tiers file has no subject \"x\""},
		{"tier: gold, descriptors: [api_key=a]", `x_test.yaml:4: tier: the tiers file has no tier "gold"`},
		{"expects nothing", "x_test.yaml:2: no step of the test expects anything, so it cannot fail: write expect, or read the answers with --verbose"},
		{"domain: other, descriptors: [api_key=a]", `x_test.yaml:4: domain: the rules have no domain "other", only edge`},
	} {
		step := tt.step + ", expect: {allowed: 1}"
		if tt.step == "expects nothing" {
			step = "descriptors: [api_key=a]"
		}
		_, err := run(t, "tests:\n  - name: a\n    steps:\n      [{"+step+"}]\n")
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.step, err, tt.want)
		}
	}
}

// TestAnswers reads the answers to steps without expectations, and expects them in a second run.
func TestAnswers(t *testing.T) {
	steps := []string{
		"times: 3, descriptors: [api_key=a]",
		"at: 2s, descriptors: [api_key=a]",
		"descriptors: [api_key=any], subject: big",
		"descriptors: [api_key=any], subject: acme",
		"descriptors: [observed=1]",
		"descriptors: [never=1]",
		"descriptors: [in_flight=1]",
		"descriptors: [nothing=1]",
	}
	text := func(expect func(step int) string) string {
		tests := "tests:\n"
		for i, s := range steps {
			tests += fmt.Sprintf("  - {name: t%d, steps: [{descriptors: [api_key=a], times: 2}, {%s%s}]}\n", i, s, expect(i))
		}
		return tests
	}
	report, err := run(t, text(func(int) string { return "" }), func(r *Runner) { r.Verbose = true })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"x_test.yaml:2: step 2 at 0s: expect: {allowed: 0, rule: per-key, limit: 2, remaining: 0, tier: free, retry_after: 10s, reset: 10s}",
		"x_test.yaml:3: step 2 at 2s: expect: {allowed: false, rule: per-key, limit: 2, remaining: 0, tier: free, retry_after: 8s, reset: 8s}",
		"x_test.yaml:4: step 2 at 0s: expect: {allowed: true, rule: per-key, limit: 7, remaining: 6, tier: free, subject: big, reset: 10s}",
		`x_test.yaml:5: step 2 at 0s: expect: {allowed: true, rule: ""}`,
		`x_test.yaml:6: step 2 at 0s: expect: {allowed: true, rule: "", shadow: watched}`,
		"x_test.yaml:7: step 2 at 0s: expect: {allowed: false, rule: never, limit: 1, remaining: 1, retry_after: 0s, reset: 0s}",
		"x_test.yaml:8: step 2 at 0s: expect: {allowed: true, rule: busy, limit: 1, remaining: 0, reset: 1s}",
		`x_test.yaml:9: step 2 at 0s: expect: {allowed: true, rule: ""}`,
	}
	var got []string
	for i := range report.Results {
		got = append(got, report.Results[i].Answers[1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, err := run(t, text(func(step int) string {
		_, expect, _ := strings.Cut(got[step], "expect: ")
		return ", expect: " + expect
	}))
	if err != nil || again.Failed() > 0 {
		t.Errorf("got %v, %+v", err, again.Results)
	}
	for name, write := range map[string]func(io.Writer) error{"text": report.WriteText, "JUnit": report.WriteJUnit} {
		var out strings.Builder
		if err := write(&out); err != nil || !strings.Contains(out.String(), want[1]) {
			t.Errorf("%s: got %v, %s", name, err, out.String())
		}
	}
}

// TestHostileNames has names with markup and control characters in every form of a report.
func TestHostileNames(t *testing.T) {
	const hostile = "a\x1b[31m\r\nok 2\u202e]]><failure message=\"x\">\x00 # SKIP"
	report := Report{
		Results: []Result{{
			File: hostile, Name: hostile, Problems: []string{hostile}, Answers: []string{hostile},
			Failures: []Failure{{Wrong: []string{hostile}, Got: hostile}},
		}},
		Parts: []Part{{Location: hostile, Rule: hostile, Tier: hostile, Subject: hostile}},
	}
	for name, write := range map[string]func(io.Writer) error{"text": report.WriteText, "JUnit": report.WriteJUnit} {
		var out strings.Builder
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if strings.ContainsAny(got, "\x1b\r\x00\u202e") || strings.Contains(got, "<failure message=\"x\"") && name == "JUnit" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// TestManyOverrides lists only some of many overrides that no test reached.
func TestManyOverrides(t *testing.T) {
	var report Report
	for range 2 { // two files of tests of the same rules
		var parts []Part
		for i := range 1000 {
			parts = append(parts, Part{Location: "tiers.yaml", Rule: "r", Subject: fmt.Sprint(i)})
		}
		parts[0].Requests++
		report.Add(nil, parts, 0)
	}
	lines := report.Untested()
	if len(report.Parts) != 1000 || report.Parts[0].Requests != 2 || len(lines) != mostOverrides+1 || lines[mostOverrides] != "979 more overrides" {
		t.Errorf("got %d parts, %q", len(report.Parts), lines)
	}
}

// TestStoreAway has rules that decide alone when their store does not answer. The test fails.
func TestStoreAway(t *testing.T) {
	_, err := run(t, "tests: [{name: a, steps: [{descriptors: [api_key=a], expect: {allowed: 1}}]}]", func(r *Runner) {
		r.Begin = func() (Decide, func() error, error) {
			return func(context.Context, time.Duration, decide.Request, *tier.Subject) (*decide.Verdict, error) {
				return &decide.Verdict{Allowed: true, Degraded: true, Decisive: -1, Shadowed: -1}, nil
			}, func() error { return nil }, nil
		}
	})
	if err == nil || !strings.Contains(err.Error(), "x_test.yaml:1: step 1 at 0s: the store did not answer") {
		t.Errorf("got %v", err)
	}
}
