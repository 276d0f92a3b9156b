package ruletests

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestBad compares the problems of every file of testdata/bad with those that are wanted.
func TestBad(t *testing.T) {
	configtest.BadFiles(t, 3, func(t *testing.T, file string) error {
		t.Helper()
		f, err := Read(file)
		if err != nil && f != nil {
			t.Errorf("%s: got tests beside the error", file)
		}
		return err
	})
}

// TestRead reads lists of steps.
func TestRead(t *testing.T) {
	f, err := Parse("dir/x_test.yaml", []byte(`rules: rules.yaml
tiers: /etc/tiers.yaml
domain: edge
start: 2026-03-29T00:00:00+01:00
tests:
  - name: steps
    request: {descriptors: ["a=1", "b=2"], cost: 3, tier: pro}
    steps:
      - {at: 1m, every: 100ms, for: 1s, expect: {allowed: true, retry_after: 0s}}
      - {subject: acme, cost: 0, expect: {denied: 1, headers: {Retry-After: 5}}}
  - name: more
    request: {descriptors: [a=1]}
    steps:
      - {times: 4, expect: {allowed: false, shadow: x}}
      - {at: 1d, expect: {allowed: 1}}
`))
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
		{line: 14, times: 4, cost: 1},
		{line: 15, at: 24 * time.Hour, times: 1, cost: 1, allowed: 1},
	} {
		s := steps[i]
		var allowed uint64
		if s.Expect.Allowed != nil {
			allowed = s.Expect.Allowed.Of(s.Times)
		}
		if s.Line != want.line || s.At != want.at || s.Every != want.every || s.Times != want.times || s.Request.Descriptors[0].Cost != want.cost || s.Request.Subject != want.subject || allowed != want.allowed {
			t.Errorf("step %d: got %+v, want %+v", i, s, want)
		}
	}
	if !f.Tests[0].Checked || !f.Tests[1].Checked {
		t.Errorf("the tests have expectations: got %+v", f.Tests)
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
	f.Add([]byte("tests: [{name: a, steps: [{descriptors: [{entries: 'a=\\,', cost: -1, limit: {requests: 1, window: 400d}}]}]}]"))
	f.Add([]byte("tests: [{name: a, request: {descriptors: [a=1]}, steps: [{at: 1s, every: 1ns, for: 1h, expect: {allowed: 1}}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("x", data)
		if err != nil {
			return
		}
		for _, test := range file.Tests {
			requests := 0
			for _, s := range test.Steps {
				requests += s.Times
				for _, d := range s.Request.Descriptors {
					if len(d.Entries) == 0 || d.Limit != nil && d.Limit.Valid() != nil {
						t.Errorf("test %q has the descriptor %+v", test.Name, d)
					}
				}
			}
			if requests < 1 || requests > MaxRequests {
				t.Errorf("test %q has %d requests", test.Name, requests)
			}
		}
	})
}

// TestDescriptors reads costs, refunds, limits that come with a descriptor, and values with a comma
// or an equals sign. A step may have no expectation.
func TestDescriptors(t *testing.T) {
	f, err := Parse("x_test.yaml", []byte(`tests:
  - name: all forms
    request: {cost: 7}
    steps:
      - descriptors:
          - 'route=a\,b,q=x=y'
          - {entries: a=1, cost: 18446744073709551615}
          - {entries: a=2, cost: -3, limit: {requests: 4294967295, window: 90s}}
      - {cost: 0, descriptors: ["a=1", {entries: a=2, cost: 2}]}
      - {cost: -5, descriptors: [a=1]}
  - name: without expectations
    request: {descriptors: [a=1]}
    steps: [{}, {at: 1s, tier: pro}]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Descriptor{
		{
			{Entries: descriptors.Descriptor{{Key: "route", Value: "a,b"}, {Key: "q", Value: "x=y"}}, Cost: 7},
			{Entries: descriptors.Descriptor{{Key: "a", Value: "1"}}, Cost: math.MaxUint64},
			{Entries: descriptors.Descriptor{{Key: "a", Value: "2"}}, Cost: 3, Refund: true, Limit: &window.Limit{Hits: math.MaxUint32, Window: 90 * time.Second}},
		},
		{{Entries: descriptors.Descriptor{{Key: "a", Value: "1"}}}, {Entries: descriptors.Descriptor{{Key: "a", Value: "2"}}, Cost: 2}},
		{{Entries: descriptors.Descriptor{{Key: "a", Value: "1"}}, Cost: 5, Refund: true}},
	}
	for i, want := range want {
		configtest.Diff(t, want, f.Tests[0].Steps[i].Request.Descriptors, "step %d", i)
	}
	if f.Tests[0].Checked || f.Tests[1].Checked || len(f.Tests[1].Steps) != 2 || f.Tests[1].Steps[1].Request.Tier != "pro" {
		t.Errorf("got %+v", f.Tests)
	}
}

const schemaFile = "../../../docs/tests.schema.json"

// mistakes are texts with one mistake each. The schema finds all of them but those beyond it.
var mistakes = []struct {
	text   string // of a document, or of one test
	want   string // a part of the problem
	beyond bool
}{
	{text: "tests: ~", want: "at least one test is needed"},
	{text: "{}", want: `"tests" is missing`},
	{text: "tests: {a: b}", want: "expected a list"},
	{text: "tests: [{name: a, request: {descriptors: [a=1]}, steps: [{expect: {allowed: 1}}]}]\nstart: 2100-01-01T00:00:00Z", want: "from 1970 to 2099"},
	{text: "tests: [{name: a, request: {descriptors: [a=1]}, steps: [{expect: {allowed: 1}}]}]\nstart: 12:00", want: "expected a time like"},
	{text: "tests: [{name: a, request: {descriptors: [a=1]}, steps: [{expect: {allowed: 1}}]}]\nrules: [a]", want: "expected a text"},
	{text: `name: ""
steps: [{descriptors: [a=1], expect: {allowed: 1}}]`, want: "a test needs a name"},
	{text: `steps: [{descriptors: [a=1], expect: {allowed: 1}}]`, want: `"name" is missing`},
	{text: "name: a", want: `"steps" is missing`},
	{text: "name: a\nsteps: []", want: "at least one step is needed"},
	{text: "name: a\nsteps: ~", want: "at least one step is needed"},
	{text: "name: a\nsteps: [{expect: {allowed: 1}}]", want: "the request needs descriptors", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [], expect: {allowed: 1}}]", want: "the request needs descriptors"},
	{text: "name: a\nsteps: [{descriptors: a=1, expect: {allowed: 1}}]", want: "expected a list"},
	{text: "name: a\nsteps: [{descriptors: [[a=1]], expect: {allowed: 1}}]", want: "expected a text"},
	{text: "name: a\nsteps: [{descriptors: [5], expect: {allowed: 1}}]", want: "entry 1 has no ="},
	{text: "name: a\nsteps: [{descriptors: ['a=1,b'], expect: {allowed: 1}}]", want: `entry 2 has no =: write key=value,key=value, and \, for a comma in a value`},
	{text: "name: a\nsteps: [{descriptors: ['a=1,'], expect: {allowed: 1}}]", want: "entry 2 has no ="},
	{text: "name: a\nsteps: [{descriptors: ['=1'], expect: {allowed: 1}}]", want: "entry 1 has no key"},
	{text: `name: a
steps: [{descriptors: ['a\=1'], expect: {allowed: 1}}]`, want: "entry 1 has no ="},
	{text: "name: a\nsteps: [{descriptors: [{cost: 1}], expect: {allowed: 1}}]", want: `"entries" is missing`},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, b: 1}], expect: {allowed: 1}}]", want: `unknown key "b"`},
	{text: "name: a\nsteps: [{descriptors: [{entries: a}], expect: {allowed: 1}}]", want: "descriptors[0].entries: entry 1 has no ="},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, cost: 1.5}], expect: {allowed: 1}}]", want: "expected a whole number"},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, limit: 5}], expect: {allowed: 1}}]", want: "expected a mapping"},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, limit: {requests: 5}}], expect: {allowed: 1}}]", want: `"window" is missing`},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, limit: {window: 5s}}], expect: {allowed: 1}}]", want: `"requests" is missing`},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, limit: {requests: 4294967296, window: 5s}}], expect: {allowed: 1}}]", want: "at most 4294967295"},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, limit: {requests: 5, window: 1500ms}}], expect: {allowed: 1}}]", want: "whole seconds", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [{entries: a=1, limit: {requests: 5, window: 401d}}], expect: {allowed: 1}}]", want: "whole seconds", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], cost: many, expect: {allowed: 1}}]", want: `a whole number, or a negative one for a refund, got "many"`},
	{text: "name: a\nsteps: [{descriptors: [a=1], cost: 18446744073709551616, expect: {allowed: 1}}]", want: "a whole number"},
	{text: "name: a\nsteps: [{descriptors: [a=1], at: -1s, expect: {allowed: 1}}]", want: "at least 0"},
	{text: "name: a\nsteps: [{descriptors: [a=1], at: 1, expect: {allowed: 1}}]", want: "no unit"},
	{text: "name: a\nsteps: [{descriptors: [a=1], at: 3651d, expect: {allowed: 1}}]", want: "more than 10 years", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], times: 0, expect: {allowed: 1}}]", want: "from 1 to 10000000"},
	{text: "name: a\nsteps: [{descriptors: [a=1], times: 10000001, expect: {allowed: 1}}]", want: "from 1 to 10000000"},
	{text: "name: a\nsteps: [{descriptors: [a=1], times: 2, for: 1s, every: 1s, expect: {allowed: 1}}]", want: "not both"},
	{text: "name: a\nsteps: [{descriptors: [a=1], every: 1s, expect: {allowed: 1}}]", want: "every with for, or every with times"},
	{text: "name: a\nsteps: [{descriptors: [a=1], for: 1s, expect: {allowed: 1}}]", want: "every with for, or every with times"},
	{text: "name: a\nsteps: [{descriptors: [a=1], for: -1s, every: 1s, expect: {allowed: 1}}]", want: "at least 0"},
	{text: "name: a\nsteps: [{descriptors: [a=1], every: -1s, times: 2, expect: {allowed: 1}}]", want: "at least 0"},
	{text: "name: a\nsteps: [{descriptors: [a=1], every: 0s, for: 1s, expect: {allowed: 1}}]", want: "above 0", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], every: 1ns, for: 1000h, expect: {allowed: 1}}]", want: "more than 10000000 requests", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], end: done, expect: {allowed: 1}}]", want: "end needs stream", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {}}]", want: "the step expects nothing"},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: ~}]", want: "the step expects nothing"},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {allowed: maybe}}]", want: "expected true, false or"},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {allowed: 2}}]", want: "fewer requests", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {remainin: 1}}]", want: `did you mean "remaining"`},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {remaining: -1}}]", want: "is negative"},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {limit: 1.5}}]", want: "is not a whole number"},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {retry_after: -1s}}]", want: "whole seconds"},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {reset: 1500ms}}]", want: "whole seconds", beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {headers: [a]}}]", want: "expected a mapping"},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {headers: {a: [b]}}}]", want: "expected a text"},
	{text: "name: a\nsteps: [{descriptors: [a=1], at: 0s, at: 1s, expect: {allowed: 1}}]", want: `duplicate key "at"`, beyond: true},
	{text: "name: a\nsteps: [{descriptors: [a=1], expect: {allowed: 1}}]\nname: b", want: `duplicate key "name"`, beyond: true},
}

// TestMistakes feeds each mistake to the reader and to the schema. Each has one clear problem.
func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		text := m.text + "\n"
		if !strings.Contains(text, "tests:") && text != "{}\n" {
			text = "tests:\n  - " + strings.ReplaceAll(m.text, "\n", "\n    ") + "\n"
		}
		_, err := Parse("x_test.yaml", []byte(text))
		if got := configtest.ProblemsOf(t, err); !strings.Contains(got, m.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got %q, want one problem with %q", text, got, m.want)
		}
		if !strings.Contains(m.want, "duplicate key") { // which a decoder of YAML refuses before the schema
			configtest.Valid(t, schemaFile, configtest.Write(t, "x_test.yaml", text), m.beyond)
		}
	}
}

// TestBounds reads files that want too much.
func TestBounds(t *testing.T) {
	var many strings.Builder
	many.WriteString("tests:\n")
	for i := range maxOfFile/MaxRequests + 1 {
		fmt.Fprintf(&many, "  - {name: t%d, request: {descriptors: [a=1]}, steps: [{times: %d, expect: {allowed: 1}}]}\n", i, MaxRequests)
	}
	laughs := "tests:\n  - name: &a0 [a=1]\n"
	for i := 1; i < 9; i++ {
		laughs += fmt.Sprintf("  - name: &a%d [%s]\n", i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	steps := "tests:\n  - {name: a, request: {descriptors: [a=1]}, steps: &s [" + strings.Repeat("{expect: {allowed: 1}},", 1000) + "]}\n"
	for i := range 100 {
		steps += fmt.Sprintf("  - {name: b%d, request: {descriptors: [a=1]}, steps: *s}\n", i)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"requests of a file":        {many.String(), "the tests of this file have more than 100000000 requests"},
		"a billion laughs":          {laughs, "expected a text, got a list"},
		"steps by alias":            {steps, "aliases stand for more than 100000 values"},
		"an anchor in itself":       {"tests: &a [*a]\n", "expected a mapping, got a list"},
		"deep":                      {"tests: " + strings.Repeat("[", 1000), "nested too deeply"},
		"a mapping for a test name": {"tests: [{name: {hush: hush}, steps: [{descriptors: [a=1], expect: {allowed: 1}}]}]\n", "expected a text, got a mapping"},
	} {
		_, err := Parse("x_test.yaml", []byte(tt.text))
		if got := configtest.ProblemsOf(t, err); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %.500q, want %q", name, got, tt.want)
		}
	}
	large := configtest.Write(t, "x_test.yaml", "")
	if err := os.Truncate(large, 100<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(large); !strings.Contains(configtest.ProblemsOf(t, err), "1 MiB: spread its tests over several files") {
		t.Errorf("a file of 100 MiB: got %v", err)
	}
}

// TestSchema compares the schema in docs with that of the types.
func TestSchema(t *testing.T) {
	configtest.Described(t, makeSchema())
	configtest.CompareSchema(t, schemaFile, makeSchema())
	for _, example := range glob(t, "../../../docs/examples/*_test.yaml") {
		configtest.Valid(t, schemaFile, example, true)
	}
}

func makeSchema() configtest.Object {
	type object = configtest.Object
	whole := func(least, most any) object { return object{"type": "integer", "minimum": least, "maximum": most} }
	count := object{"anyOf": []any{object{"type": "boolean"}, whole(0, MaxRequests)}}
	const units = "ns|us|µs|ms|s|m|h|d|w"
	positive := object{"anyOf": []any{object{"type": "string", "pattern": `^\+?(0|([0-9.]+(` + units + `))+)$`}, object{"const": 0}}}
	const key, value = `([^,=\\]|\\[\s\S])+`, `([^,\\]|\\[\s\S])*`
	entries := object{"type": "string", "pattern": "^" + key + "=" + value + "(," + key + "=" + value + `)*\\?$`}
	s := configtest.Schemas{
		Fields: map[string]configtest.Object{
			"name":    {"type": configtest.Text, "not": object{"const": ""}},
			"allowed": count, "denied": count, "retry_after": positive, "expect.reset": positive,
			"at": positive, "every": positive, "for": positive, "limit.window": positive,
			"times":          whole(1, MaxRequests),
			"limit.requests": whole(0, uint32(math.MaxUint32)),
			"descriptors":    {"type": "array", "minItems": 1, "items": object{"$ref": "#/definitions/descriptor"}},
			"entries":        entries,
			"start":          {"type": "string", "format": "date-time", "pattern": "^(19[7-9]|20[0-9])[0-9]-"},
			"steps":          {"type": "array", "minItems": 1, "items": object{"$ref": "#/definitions/step"}},
			"tests":          {"type": "array", "minItems": 1, "items": object{"$ref": "#/definitions/test"}},
		},
		Special: func(_ *configtest.Schemas, t reflect.Type) configtest.Object {
			if t == reflect.TypeFor[cost]() {
				return object{"type": "integer", "minimum": json.Number("-18446744073709551615"), "maximum": uint64(math.MaxUint64)}
			}
			return nil
		},
		Definitions: configtest.Object{},
	}
	root := s.Struc(reflect.TypeFor[document]())
	describe := func(t reflect.Type, more object) object {
		d := s.Struc(t)
		maps.Copy(d, more)
		return d
	}
	s.Definitions["test"] = describe(reflect.TypeFor[test](), nil)
	s.Definitions["step"] = describe(reflect.TypeFor[step](), object{
		"dependencies": object{"for": []any{"every"}, "every": object{"anyOf": []any{object{"required": []any{"for"}}, object{"required": []any{"times"}}}}},
		"not":          object{"required": []any{"times", "for"}},
	})
	s.Definitions["expect"] = describe(reflect.TypeFor[expect](), object{"minProperties": 1})
	s.Definitions["descriptor"] = object{"anyOf": []any{entries, describe(reflect.TypeFor[descriptor](), nil)}}
	root["$schema"], root["title"] = configtest.Draft, "Tests of Slidegate's rules"
	root["definitions"] = s.Definitions
	return root
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	return names
}
