package ruletests

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A File is a file of tests. It is immutable.
type File struct {
	Name string
	// Rules and Tiers are the paths of what is tested, with the directory of the file. Empty: the
	// file names none.
	Rules, Tiers string
	// Start is the time of day at which each test starts.
	Start time.Time
	Tests []Test
}

// A Test is a list of steps that start with empty logs.
type Test struct {
	Name  string
	Line  int
	Steps []Step
	// Checked is true if a step has an expectation, so that the test can fail.
	Checked bool
}

// A Step is one request, or the same request several times.
type Step struct {
	Line int
	// At is the time of the first request since the start of the test. Others follow, each Every
	// after the one before, Times in all.
	At, Every time.Duration
	Times     int
	Request   Request
	Expect    Expect
}

// A Request is what Envoy would ask.
type Request struct {
	Domain      string // empty: the only one of the rules
	Descriptors []Descriptor
	Subject     string // the id of the caller, in place of its API key
	Tier        string // in place of the caller's tier
	Stream      string // the id of the stream, for requests in flight and budgets
	End         string // how the stream ended; empty: it is open
}

// A Descriptor is one descriptor of a request.
type Descriptor struct {
	Entries descriptors.Descriptor // may hold API keys
	Cost    uint64
	Unsaid  bool          // the test has no cost, which is then 1, or the reserve of a budget
	Refund  bool          // Cost is given back
	Limit   *window.Limit // in place of those of its rule; nil: none came with the descriptor
}

// Expect is what the answers must be. A nil field is not checked. All but Allowed and Denied
// are about the last request of the step.
type Expect struct {
	Allowed, Denied     *Count
	Rule, Tier, Subject *string
	// Shadow is the rule that would have denied the request, if it were enforced. Empty: none.
	Shadow           *string
	Limit, Remaining *uint64
	// RetryAfter and Reset are in whole seconds, as in headers. Zero: the answer has none.
	RetryAfter, Reset *time.Duration
	// Headers must have these values. Empty: the header is absent.
	Headers []Header
}

// A Header is one header field with its lower-case name.
type Header struct{ Name, Value string }

// A Count is a number of requests of a step.
type Count struct {
	all bool // every one
	n   uint64
}

// Of returns the count for a step of so many requests.
func (c Count) Of(times int) uint64 {
	if c.all {
		return uint64(times)
	}
	return c.n
}

// UnmarshalText reads a number, true for every request, or false for none.
func (c *Count) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "true":
		*c = Count{all: true}
	case "false":
		*c = Count{}
	default:
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("expected true, false or the number of requests, got %s", strict.Quote(s))
		}
		*c = Count{n: n}
	}
	return nil
}

// MaxRequests bounds the requests of one test.
const MaxRequests = 10_000_000

// maxOfFile bounds the requests of all tests of a file: some minutes of work.
const maxOfFile = 10 * MaxRequests

// longest bounds how long a test lasts in virtual time: the clock of a store ends in 2112.
const longest = 10 * 365 * strict.Day

// maxBytes bounds a file of tests: some 10,000 steps. Of hostile YAML, reading it takes a thousand
// times as much memory.
const maxBytes = 1 << 20

// defaultStart is a Thursday, and the start of a month and of a year.
var defaultStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

type document struct {
	Rules  strict.Field[string]               `yaml:"rules" doc:"the rules to test: a file or a directory, relative to this file. Default: rules.path of the settings"`
	Tiers  strict.Field[string]               `yaml:"tiers" doc:"the tiers file, relative to this file. Default: tiers.path of the settings"`
	Domain strict.Field[string]               `yaml:"domain" doc:"the domain of the requests, such as edge. Default: the only one of the rules"`
	Start  strict.Field[timeOfDay]            `yaml:"start" doc:"the time at which each test starts, for the policies fixed and calendar. Default: 2026-01-01T00:00:00Z"`
	Tests  strict.Field[[]strict.Field[test]] `yaml:"tests,required" doc:"the tests; each starts with empty counters. Required"`
}

// timeOfDay is a time with a date.
type timeOfDay struct{ time.Time }

func (t *timeOfDay) UnmarshalText(text []byte) (err error) {
	if t.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("expected a time like 2026-01-31T12:00:00Z, got %s", strict.Quote(string(text)))
	}
	if t.Before(time.Unix(0, 0)) || t.Year() >= 2100 {
		return fmt.Errorf("expected a time from 1970 to 2099, got %s", strict.Quote(string(text)))
	}
	return nil
}

type test struct {
	Name    strict.Field[string]               `yaml:"name,required" doc:"the name, for reports and --run. Required"`
	Request request                            `yaml:"request" doc:"keys of a step; each step without one of them takes it from here"`
	Steps   strict.Field[[]strict.Field[step]] `yaml:"steps,required" doc:"the requests; they are evaluated in the order of their times. Required"`
}

type request struct {
	Domain      strict.Field[string]                     `yaml:"domain" doc:"the domain of the request. Default: domain of the file"`
	Descriptors strict.Field[[]strict.Field[descriptor]] `yaml:"descriptors" doc:"what Envoy sends: a list of descriptors, such as ['route=search,api_key=demo']. Required here or in request"`
	Cost        strict.Field[cost]                       `yaml:"cost" doc:"the cost of each descriptor; 0 is a quota check, and a negative cost a refund. Default: 1, or the reserve of a budget"`
	Subject     strict.Field[string]                     `yaml:"subject" doc:"the id of a customer in the tiers file, to whom the API keys of the request then belong"`
	Tier        strict.Field[string]                     `yaml:"tier" doc:"the tier of the customer, in place of that of its key"`
	Stream      strict.Field[string]                     `yaml:"stream" doc:"the id of a stream, for requests in flight and budgets; all requests of the step share what it holds. Default: a slot for 1 second, and no reservation"`
	End         strict.Field[string]                     `yaml:"end" doc:"the stream ends, and how, such as via_upstream. Needs stream"`
}

// descriptor is a text, which is its entries, or a mapping with what else comes with it.
type descriptor struct {
	Entries strict.Field[string] `yaml:"entries,required" doc:"entries key=value with a comma between two; \\, is a comma in a value. Required"`
	Cost    strict.Field[cost]   `yaml:"cost" doc:"the cost of this descriptor. Default: cost of the step"`
	Limit   strict.Field[limit]  `yaml:"limit" doc:"a limit that Envoy sends, in place of those of the rule, such as {requests: 10, window: 1m}"`
}

// ReadNode reads a node.
func (x *descriptor) ReadNode(d *strict.Decoder, n *yaml.Node, p *strict.Path) {
	if n.Kind == yaml.MappingNode {
		d.Object(n, reflect.ValueOf(x).Elem(), p)
		return
	}
	x.Entries.ReadLocated(d, n, p)
}

// limit is a limit that comes with a descriptor. Envoy sends its window as a unit and a
// multiplier, so it has whole seconds.
type limit struct {
	Requests strict.Field[uint64]        `yaml:"requests,required" doc:"the requests in the window. Required"`
	Window   strict.Field[time.Duration] `yaml:"window,required" doc:"a time in whole seconds, such as 1m. Required"`
}

// cost is a number of hits. A negative one is a refund, as with is_negative_hits.
type cost struct {
	hits         uint64
	said, refund bool
}

// UnmarshalText reads a whole number.
func (c *cost) UnmarshalText(text []byte) (err error) {
	digits, negative := strings.CutPrefix(string(text), "-")
	if c.hits, err = strconv.ParseUint(digits, 10, 64); err != nil {
		return fmt.Errorf("expected a whole number, or a negative one for a refund, got %s", strict.Quote(string(text)))
	}
	c.said, c.refund = true, negative && c.hits > 0
	return nil
}

type step struct {
	request
	At     strict.Field[time.Duration] `yaml:"at" doc:"when the first request comes, since the start of the test, such as 20s. Default: 0s"`
	Times  strict.Field[int]           `yaml:"times" doc:"how many requests come. Default: 1"`
	Every  strict.Field[time.Duration] `yaml:"every" doc:"the time between two requests, such as 100ms. Default: all at once"`
	For    strict.Field[time.Duration] `yaml:"for" doc:"in place of times, how long requests come, the end excluded: every: 100ms, for: 1s are 10"`
	Expect strict.Field[expect]        `yaml:"expect" doc:"what the answers must be; without it the step checks nothing"`
}

type expect struct {
	Allowed    strict.Field[Count]                                `yaml:"allowed" doc:"how many requests are allowed: a number, true for all or false for none"`
	Denied     strict.Field[Count]                                `yaml:"denied" doc:"how many requests are denied, likewise"`
	Rule       strict.Field[string]                               `yaml:"rule" doc:"the rule that headers describe: the one that denied, or the one with the least quota left; \"\" for none"`
	Tier       strict.Field[string]                               `yaml:"tier" doc:"the tier of that limit; \"\" if the key is unknown"`
	Subject    strict.Field[string]                               `yaml:"subject" doc:"the customer of that limit; \"\" if the key is unknown"`
	Shadow     strict.Field[string]                               `yaml:"shadow" doc:"the rule in shadow mode that would have denied; \"\" for none"`
	Limit      strict.Field[uint64]                               `yaml:"limit" doc:"the limit in headers, such as 100"`
	Remaining  strict.Field[uint64]                               `yaml:"remaining" doc:"what remains of it, such as 99"`
	RetryAfter strict.Field[time.Duration]                        `yaml:"retry_after" doc:"Retry-After in whole seconds, such as 40s; 0s if absent"`
	Reset      strict.Field[time.Duration]                        `yaml:"reset" doc:"the time until the limit is free, in whole seconds; 0s if absent"`
	Headers    strict.Field[strict.Ordered[strict.Field[string]]] `yaml:"headers" doc:"header fields with their values, such as {Retry-After: 40}; \"\" if absent"`
}

// Read reads a file of tests. The error is [strict.Problems]: everything that is wrong.
func Read(name string) (*File, error) {
	src, err := files.ReadFile(name, maxBytes)
	switch {
	case errors.Is(err, files.TooLarge(maxBytes)):
		return nil, tooLarge(name)
	case err != nil:
		return nil, strict.Problems{{File: name, Message: err.Error()}}
	}
	return Parse(name, src.Data)
}

// Parse is [Read] for the content of a file.
func Parse(name string, data []byte) (*File, error) {
	if len(data) > maxBytes {
		return nil, tooLarge(name)
	}
	report := &strict.Report{}
	root := strict.Document(name, data, report, "a file of tests", "tests")
	if root == nil {
		return nil, report.Err()
	}
	// A mapping in the place of a text may hold an API key, so no item is named by its value.
	r := reader{d: &strict.Decoder{File: name, Report: report, Hides: func(string) bool { return true }}, names: make(map[string]int)}
	r.d.Decode(root, reflect.ValueOf(&r.doc).Elem(), nil)
	f := &File{Name: name, Rules: pathFrom(name, r.doc.Rules.Value), Tiers: pathFrom(name, r.doc.Tiers.Value), Start: defaultStart}
	if strict.Given(&r.doc.Start) {
		f.Start = r.doc.Start.Value.Time
	}
	for i := range r.doc.Tests.Value {
		f.Tests = append(f.Tests, r.test(&r.doc.Tests.Value[i]))
	}
	if len(f.Tests) == 0 && !r.doc.Tests.Bad && r.doc.Tests.Set {
		r.d.Problem(r.doc.Tests.Position, "at least one test is needed")
	}
	if err := report.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// tooLarge is the error of a file above maxBytes.
func tooLarge(name string) error {
	return strict.Problems{{File: name, Message: fmt.Sprintf("%s: spread its tests over several files", files.TooLarge(maxBytes))}}
}

// pathFrom returns the path of a file that another file names.
func pathFrom(file, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

type reader struct {
	d     *strict.Decoder
	doc   document
	names map[string]int // the lines of the tests by their names
	// requests is how many requests the tests so far have.
	requests int
}

func (r *reader) test(f *strict.Field[test]) Test {
	t := &f.Value
	out := Test{Name: t.Name.Value, Line: f.Line}
	if strict.Given(&t.Name) && t.Name.Value == "" {
		r.d.Problem(t.Name.Position, "a test needs a name")
	}
	if line := r.names[out.Name]; line > 0 && out.Name != "" {
		r.d.Problem(t.Name.Position, "the test in line %d has this name already", line)
	} else {
		r.names[out.Name] = out.Line
	}
	steps := t.Steps.Value
	if len(steps) == 0 && strict.Given(&t.Steps) {
		r.d.Problem(t.Steps.Position, "at least one step is needed")
	}
	requests := 0
	for i := range steps {
		s := r.step(&steps[i], &t.Request)
		if requests += s.Times; requests > MaxRequests {
			r.d.Problem(steps[i].Position, "the test has more than %d requests: make every longer, or for shorter", MaxRequests)
			break
		}
		out.Steps = append(out.Steps, s)
		out.Checked = out.Checked || steps[i].Value.Expect.Set
	}
	if before := r.requests; before <= maxOfFile {
		if r.requests += requests; r.requests > maxOfFile {
			r.d.Problem(f.Position, "with this test, the tests of this file have more than %d requests: put it into another file", maxOfFile)
		}
	}
	return out
}

func (r *reader) step(f *strict.Field[step], common *request) Step {
	s, problems := &f.Value, r.d.Report.Count()
	out := Step{Line: f.Line, At: s.At.Value, Every: s.Every.Value, Times: 1, Request: r.request(f, common)}
	for _, d := range []strict.Field[time.Duration]{s.At, s.Every, s.For} {
		if strict.Given(&d) && d.Value < 0 {
			r.d.Problem(d.Position, "expected a time of at least 0")
			return out
		}
	}
	switch {
	case s.Times.Bad || s.Every.Bad || s.For.Bad:
	case s.Times.Set && s.For.Set:
		r.d.Problem(s.For.Position, "a step has times or for, not both")
	case s.Times.Set && (s.Times.Value < 1 || s.Times.Value > MaxRequests):
		r.d.Problem(s.Times.Position, "expected a number from 1 to %d", MaxRequests)
	case s.Times.Set:
		out.Times = s.Times.Value
	case s.For.Set != s.Every.Set:
		r.d.Problem(s.For.OrElse(s.Every.Position), "a step that repeats has every with for, or every with times")
	case s.For.Set && s.Every.Value == 0:
		r.d.Problem(s.Every.Position, "expected a time above 0; write times for requests at the same time")
	case s.For.Set && s.For.Value/s.Every.Value >= MaxRequests:
		r.d.Problem(s.For.Position, "this step has more than %d requests: make every longer, or for shorter", MaxRequests)
	case s.For.Set:
		// Requests at the start of each interval, so "every: 100ms" and "for: 1s" are 10.
		if out.Times = int((s.For.Value-1)/s.Every.Value) + 1; s.For.Value == 0 {
			r.d.Problem(s.For.Position, "expected a time above 0")
		}
	}
	if float64(out.At)+float64(out.Every)*float64(out.Times) > float64(longest) {
		r.d.Problem(s.At.OrElse(f.Position), "the last request comes more than 10 years after the start of the test")
	}
	out.Expect = r.expect(&s.Expect)
	if r.d.Report.Count() > problems {
		return out
	}
	for _, c := range []strict.Field[Count]{s.Expect.Value.Allowed, s.Expect.Value.Denied} {
		if strict.Given(&c) && c.Value.Of(out.Times) > uint64(out.Times) {
			r.d.Problem(c.Position, "the step has fewer requests, %d in all: set times", out.Times)
		}
	}
	return out
}

// request completes the request of a step by that of its test.
func (r *reader) request(f *strict.Field[step], common *request) Request {
	given := &f.Value.request
	text := func(given, common strict.Field[string]) string {
		if given.Set {
			return given.Value
		}
		return common.Value
	}
	out := Request{
		Domain: text(given.Domain, common.Domain), Subject: text(given.Subject, common.Subject), Tier: text(given.Tier, common.Tier),
		Stream: text(given.Stream, common.Stream), End: text(given.End, common.End),
	}
	if out.Domain == "" {
		out.Domain = r.doc.Domain.Value
	}
	if out.End != "" && out.Stream == "" {
		r.d.Problem(f.Position, "end needs stream: the id of the stream that has ended")
	}
	charged := cost{hits: 1}
	for _, q := range []*request{common, given} {
		if strict.Given(&q.Cost) {
			charged = q.Cost.Value
		}
	}
	list := &given.Descriptors
	if !list.Set {
		list = &common.Descriptors
	}
	if len(list.Value) == 0 && !list.Bad && out.End == "" {
		r.d.Problem(list.OrElse(f.Position), `the request needs descriptors, such as ["route=search,api_key=demo"]`)
	}
	for i := range list.Value {
		if !list.Value[i].Bad {
			out.Descriptors = append(out.Descriptors, r.descriptor(&list.Value[i].Value, charged))
		}
	}
	return out
}

// descriptor makes a descriptor whose cost, unless it has its own, is charged.
func (r *reader) descriptor(f *descriptor, charged cost) (out Descriptor) {
	var err error
	if out.Entries, err = descriptors.Parse(f.Entries.Value); err != nil {
		r.d.Problem(f.Entries.Position, "%v", err)
	}
	if f.Cost.Set {
		charged = f.Cost.Value
	}
	out.Cost, out.Unsaid, out.Refund = charged.hits, !charged.said, charged.refund
	if !f.Limit.Set {
		return out
	}
	requests, length := &f.Limit.Value.Requests, &f.Limit.Value.Window
	if requests.Value > math.MaxUint32 {
		r.d.Problem(requests.Position, "expected at most %d requests, as Envoy sends them", uint32(math.MaxUint32))
	}
	if w := length.Value; w < time.Second || w > window.MaxWindow || w%time.Second != 0 {
		r.d.Problem(length.Position, "expected whole seconds, from 1s to %dd, as Envoy sends them", window.MaxWindow/strict.Day)
	}
	out.Limit = &window.Limit{Hits: requests.Value, Window: length.Value}
	return out
}

func (r *reader) expect(f *strict.Field[expect]) (out Expect) {
	e := &f.Value
	some := false
	for _, field := range reflect.ValueOf(*e).Fields() {
		some = some || field.FieldByName("Set").Bool()
	}
	if f.Set && !f.Bad && !some {
		r.d.Problem(f.Position, "the step expects nothing, so it cannot fail: say at least allowed")
	}
	out.Allowed, out.Denied = given(&e.Allowed), given(&e.Denied)
	out.Rule, out.Tier, out.Subject, out.Shadow = given(&e.Rule), given(&e.Tier), given(&e.Subject), given(&e.Shadow)
	out.Limit, out.Remaining = given(&e.Limit), given(&e.Remaining)
	out.RetryAfter, out.Reset = r.seconds(&e.RetryAfter), r.seconds(&e.Reset)
	for _, h := range e.Headers.Value {
		out.Headers = append(out.Headers, Header{strings.ToLower(h.Key), h.Value.Value})
	}
	return out
}

// given returns the value of a field, or nil if the file does not have it.
func given[T any](f *strict.Field[T]) *T {
	if !f.Set || f.Bad {
		return nil
	}
	return &f.Value
}

// seconds returns a time that headers can have.
func (r *reader) seconds(f *strict.Field[time.Duration]) *time.Duration {
	d := given(f)
	if d != nil && (*d < 0 || *d%time.Second != 0) {
		r.d.Problem(f.Position, "expected whole seconds, because headers have no fractions")
	}
	return d
}
