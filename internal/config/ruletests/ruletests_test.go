package ruletests

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/strict"
)

func TestDocumentedTests(t *testing.T) {
	configtest.Documented(t, "../../../docs/testing.md", 30, reflect.TypeFor[document](), reflect.TypeFor[test](), reflect.TypeFor[step](), reflect.TypeFor[expect]())
}

// TestBad compares the problems of every file of testdata/bad with those that are wanted.
func TestBad(t *testing.T) {
	configtest.BadFiles(t, 4, func(t *testing.T, file string) error {
		t.Helper()
		f, err := Read(file)
		if err != nil && f != nil {
			t.Errorf("%s: got tests beside the error", file)
		}
		return err
	})
}

// TestRead reads a list of steps and a table.
func TestRead(t *testing.T) {
	f, err := parse("dir/x_test.yaml", []byte(`rules: rules.yaml
tiers: /etc/tiers.yaml
domain: edge
start: 2026-03-29T00:00:00+01:00
tests:
  - name: steps
    request: {descriptors: ["a=1", "b=2"], cost: 3, tier: pro}
    steps:
      - {at: 1m, every: 100ms, for: 1s, expect: {allowed: true, retry_after: 0s}}
      - {subject: acme, cost: 0, expect: {denied: 1, headers: {Retry-After: 5}}}
  - name: table
    request: {descriptors: [a=1]}
    columns: [at, times, allowed, shadow]
    rows:
      - [0s, 4, false, x]
      - [1d, ~, 1]
`), &strict.Report{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := []string{f.Rules, f.Tiers, f.Start.UTC().String()}, []string{"dir/rules.yaml", "/etc/tiers.yaml", "2026-03-28 23:00:00 +0000 UTC"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	steps := append(f.Tests[0].Steps, f.Tests[1].Steps...)
	if len(f.Tests) != 2 || len(steps) != 4 {
		t.Fatalf("got %+v", f.Tests)
	}
	for i, want := range []struct {
		line      int
		at, every time.Duration
		times     int
		cost      uint64
		subject   string
		allowed   uint64
	}{
		{line: 9, at: time.Minute, every: 100 * time.Millisecond, times: 10, cost: 3, allowed: 10},
		{line: 10, times: 1, cost: 0, subject: "acme"},
		{line: 15, times: 4, cost: 1},
		{line: 16, at: 24 * time.Hour, times: 1, cost: 1, allowed: 1},
	} {
		s := steps[i]
		var allowed uint64
		if s.Expect.Allowed != nil {
			allowed = s.Expect.Allowed.Of(s.Times)
		}
		if s.Line != want.line || s.At != want.at || s.Every != want.every || s.Times != want.times || s.Request.Cost != want.cost || s.Request.Subject != want.subject || allowed != want.allowed {
			t.Errorf("step %d: got %+v, want %+v", i, s, want)
		}
	}
	if s := steps[0]; s.Request.Domain != "edge" || s.Request.Tier != "pro" || len(s.Request.Descriptors) != 2 || *s.Expect.RetryAfter != 0 {
		t.Errorf("got %+v", s)
	}
	if s := steps[1]; s.Expect.Allowed != nil || s.Expect.Denied.Of(1) != 1 || s.Expect.Headers[0] != (Header{"retry-after", "5"}) {
		t.Errorf("got %+v", s)
	}
	if s := steps[2]; *s.Expect.Shadow != "x" || s.Expect.Allowed.Of(4) != 0 {
		t.Errorf("got %+v", s)
	}
}

// FuzzRead reads any text. A file that is read has tests, with requests below the bound.
func FuzzRead(f *testing.F) {
	configtest.Seed(f, "testdata/bad/*.yaml")
	configtest.Seed(f, "../../../docs/examples/*_test.yaml")
	f.Add([]byte("tests: [{name: a, request: {descriptors: [a=1]}, steps: [{at: 1s, every: 1ns, for: 1h, expect: {allowed: 1}}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parse("x", data, &strict.Report{})
		if err != nil {
			return
		}
		for _, test := range file.Tests {
			requests := 0
			for _, s := range test.Steps {
				requests += s.Times
			}
			if requests < 1 || requests > MaxRequests {
				t.Errorf("test %q has %d requests", test.Name, requests)
			}
		}
	})
}

// TestSchema compares the schema in docs with that of the types.
func TestSchema(t *testing.T) {
	const file = "../../../docs/tests.schema.json"
	count := configtest.Object{"anyOf": []any{configtest.Object{"type": "boolean"}, configtest.Object{"type": "integer", "minimum": 0, "maximum": MaxRequests}}}
	s := configtest.Schemas{
		Fields: map[string]configtest.Object{
			"allowed": count, "denied": count,
			"times": {"type": "integer", "minimum": 1, "maximum": MaxRequests},
			"rows":  {"type": "array", "minItems": 1, "items": configtest.Object{"type": "array"}},
			"start": {"type": "string", "format": "date-time"},
			"tests": {"minItems": 1},
		},
		Special: func(_ *configtest.Schemas, t reflect.Type) configtest.Object {
			if t == reflect.TypeFor[strict.List]() {
				return configtest.Object{"type": "array"}
			}
			return nil
		},
		Definitions: configtest.Object{},
	}
	root := s.Struc(reflect.TypeFor[document]())
	root["$schema"], root["title"] = configtest.Draft, "Tests of Slidegate's rules"
	root["definitions"] = s.Definitions
	configtest.CompareSchema(t, file, root)
	for _, example := range glob(t, "../../../docs/examples/*_test.yaml") {
		configtest.Valid(t, file, example, true)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	return names
}
