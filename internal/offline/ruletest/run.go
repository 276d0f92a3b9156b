package ruletest

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/answer"
)

// A Result is how a test went.
type Result struct {
	File     string
	Line     int
	Name     string
	Requests int
	// Failures are what was not as expected, in the order of the steps.
	Failures []Failure
	// Problems say why the test, or all tests of the file, could not be run. Nil: they could.
	Problems []string
	// Answers are a line for each step, if the runner is verbose: its location, and what the answers
	// were, as the step may expect it.
	Answers []string
	Took    time.Duration // in real time
}

// Passed reports whether the test ran and everything was as expected.
func (r *Result) Passed() bool { return len(r.Failures) == 0 && len(r.Problems) == 0 }

// A Failure is a step that was not as expected.
type Failure struct {
	Line  int           // in the file
	Step  int           // counts from 1
	At    time.Duration // of the last request, since the start of the test
	Wrong []string      // a sentence for each difference
	Got   string        // what the request got
}

// A Decide decides one request of a test at a time since 1970.
type Decide func(ctx context.Context, at time.Duration, req decide.Request, caller *tier.Subject) (*decide.Verdict, error)

// A Runner runs tests of one generation of rules.
type Runner struct {
	Generation *config.Generation
	// Renderer renders the headers that tests expect.
	Renderer *answer.Renderer
	// Begin returns what decides the requests of one test, on empty logs, and what ends it.
	Begin func() (decide Decide, end func() error, err error)
	// Coverage counts what the requests reached.
	Coverage *Coverage
	// Verbose keeps the answers of all steps. Without it, a test that expects nothing fails.
	Verbose bool
}

// An event is one request of a step.
type event struct {
	at      time.Duration
	step, n int
}

// events yields the requests of a test in the order of their times. Requests at the same time are
// in the order of their steps. It keeps one event for each step.
func events(t *ruletests.Test) iter.Seq[event] {
	return func(yield func(event) bool) {
		var due queue
		for i := range t.Steps {
			due = append(due, event{at: t.Steps[i].At, step: i})
		}
		heap.Init(&due)
		for len(due) > 0 {
			e := due[0]
			if !yield(e) {
				return
			}
			if s := &t.Steps[e.step]; e.n+1 < s.Times {
				due[0].at, due[0].n = e.at+s.Every, e.n+1
				heap.Fix(&due, 0)
			} else {
				heap.Pop(&due)
			}
		}
	}
}

// queue is a heap of the next request of each step; see [heap.Interface].
type queue []event

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].step < q[j].step
}
func (q *queue) Push(e any) { *q = append(*q, e.(event)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// Check returns what is wrong with the tests of a file, before they are run: [strict.Problems] or nil.
func (r *Runner) Check(f *ruletests.File) error {
	var all strict.Problems
	for i := range f.Tests {
		_, _, problems := r.requests(f, &f.Tests[i])
		all = append(all, problems...)
	}
	return all.Err()
}

// Run runs one test. The error says why it could not be run.
func (r *Runner) Run(ctx context.Context, f *ruletests.File, t *ruletests.Test) (result Result, err error) {
	result = Result{File: f.Name, Line: t.Line, Name: t.Name}
	begun := time.Now()
	defer func() { result.Took = time.Since(begun) }()
	requests, callers, problems := r.requests(f, t)
	if problems != nil {
		return result, problems
	}
	decide, end, err := r.Begin()
	if err != nil {
		return result, err
	}
	defer func() {
		if ended := end(); err == nil {
			err = ended
		}
	}()
	start := time.Duration(f.Start.UnixNano())
	steps := make([]outcome, len(t.Steps))
	for e := range events(t) {
		if err := ctx.Err(); err != nil {
			return result, err
		}
		v, err := decide(ctx, start+e.at, clone(requests[e.step]), callers[e.step])
		if err != nil {
			return result, fmt.Errorf("%s:%d: step %d at %s: %w", f.Name, t.Steps[e.step].Line, e.step+1, strict.FormatDuration(e.at), err)
		}
		if v.Degraded {
			return result, fmt.Errorf("%s:%d: step %d at %s: the store did not answer, so on_store_error of the rules decided: check the Redis of --redis", f.Name, t.Steps[e.step].Line, e.step+1, strict.FormatDuration(e.at))
		}
		result.Requests++
		r.Coverage.count(v)
		o := &steps[e.step]
		if v.Allowed {
			o.allowed++
		} else {
			o.denied++
		}
		if e.n == t.Steps[e.step].Times-1 {
			o.last(r.Renderer, v, e.at, f.Start.Add(e.at))
		}
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		if wrong := steps[i].differences(s); len(wrong) > 0 {
			result.Failures = append(result.Failures, Failure{Line: s.Line, Step: i + 1, At: steps[i].at, Wrong: wrong, Got: steps[i].String()})
		}
		if r.Verbose {
			result.Answers = append(result.Answers, fmt.Sprintf("%s:%d: step %d at %s: expect: %s", f.Name, s.Line, i+1, strict.FormatDuration(steps[i].at), steps[i].expectation(s.Times)))
		}
	}
	return result, nil
}

// requests returns the request and the caller of each step, as an adapter would make them: with
// digests for API keys. The problems say what no test can ask, or that this one cannot fail.
func (r *Runner) requests(f *ruletests.File, t *ruletests.Test) (requests []decide.Request, callers []*tier.Subject, problems strict.Problems) {
	g := r.Generation
	if !t.Checked && !r.Verbose {
		problems = strict.Problems{{File: f.Name, Line: t.Line, Message: "no step of the test expects anything, so it cannot fail: write expect, or read the answers with --verbose"}}
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		req, problem := r.request(t.Name, &s.Request)
		var caller *tier.Subject
		if id := s.Request.Subject; id != "" && problem == "" {
			if tiers := g.Rules.Tiers(); tiers != nil {
				caller = tiers.ByID(id)
			}
			if caller == nil {
				problem = fmt.Sprintf("subject: the tiers file has no subject %q", id)
			}
		}
		if problem != "" {
			problems = append(problems, strict.Problem{File: f.Name, Line: s.Line, Message: problem})
		}
		requests, callers = append(requests, req), append(callers, caller)
	}
	return requests, callers, problems
}

// request makes the request of a step. problem says what is wrong with it.
func (r *Runner) request(test string, q *ruletests.Request) (req decide.Request, problem string) {
	g := r.Generation
	req = decide.Request{Domain: q.Domain, Tier: q.Tier, Ending: q.End}
	if domains := g.Rules.Domains(); req.Domain == "" {
		if len(domains) != 1 {
			return req, "domain: the rules have the domains " + strings.Join(domains, ", ") + "; choose one"
		}
		req.Domain = domains[0]
	} else if !slices.Contains(domains, req.Domain) {
		return req, fmt.Sprintf("domain: the rules have no domain %q, only %s", req.Domain, strings.Join(domains, ", "))
	}
	if tiers := g.Rules.Tiers(); q.Tier != "" && (tiers == nil || !tiers.HasTier(q.Tier)) {
		return req, fmt.Sprintf("tier: the tiers file has no tier %q", q.Tier)
	}
	if q.Stream != "" {
		// A store knows for some time which streams have ended. Tests share none.
		req.Stream = inflight.NewStreamID(test + "\n" + q.Stream)
	}
	if q.End != "" {
		// What Envoy sends when a stream ends, before the costs that are known only then.
		req.Descriptors = append(req.Descriptors, identity.EndOfStream())
	}
	for _, d := range q.Descriptors {
		entries := slices.Clone(d.Entries)
		for i := range entries {
			entries[i].Value = g.Secrets.Value(entries[i].Key, entries[i].Value)
		}
		req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: entries, Cost: d.Cost, Unpriced: d.Unsaid, Refund: d.Refund, Override: d.Limit})
	}
	return req, ""
}

// clone copies what the decider changes in a request.
func clone(req decide.Request) decide.Request {
	req.Descriptors = slices.Clone(req.Descriptors)
	for i := range req.Descriptors {
		req.Descriptors[i].Entries = slices.Clone(req.Descriptors[i].Entries)
	}
	return req
}

// An outcome is what the requests of a step got.
type outcome struct {
	allowed, denied uint64
	// Of the last request:
	at                  time.Duration
	admitted            bool
	rule, tier, subject string // of the decisive limit
	shadow              string
	limited             bool
	limit, remaining    uint64
	retryAfter, reset   time.Duration
	headers             []answer.Header
}

// last keeps the answer to the last request.
func (o *outcome) last(renderer *answer.Renderer, v *decide.Verdict, at time.Duration, now time.Time) {
	o.at, o.admitted = at, v.Allowed
	if v.Shadowed >= 0 {
		o.shadow = v.Limits[v.Shadowed].Rule.Name
	}
	if v.Decisive >= 0 {
		s := &v.Limits[v.Decisive]
		o.limited, o.rule, o.tier, o.subject = true, s.Rule.Name, s.Tier, s.Subject
		o.limit, o.remaining = s.Limit.Hits, s.Decision.Remaining
		o.reset = time.Duration(answer.Seconds(s.RetryAfter())) * time.Second
		if answer.Retryable(v) {
			o.retryAfter = time.Duration(answer.RetryAfter(s)) * time.Second
		}
	}
	for _, h := range renderer.Append(nil, v, func() time.Time { return now }) {
		o.headers = append(o.headers, answer.Header{Name: strings.ToLower(h.Name), Value: strings.Clone(h.Value)})
	}
}

// noLimit is what a request got that no limit decided.
const noLimit = "no limit"

// String describes the last request in one line.
func (o *outcome) String() string {
	word := "allowed"
	if !o.admitted {
		word = "denied"
	}
	if !o.limited {
		return word + ", " + noLimit + o.observed()
	}
	text := fmt.Sprintf("%s by the rule %s, limit %d, remaining %d", word, o.rule, o.limit, o.remaining)
	if o.tier != "" {
		text += ", tier " + o.tier
	}
	if o.subject != "" {
		text += ", subject " + o.subject
	}
	if !o.admitted {
		if o.retryAfter > 0 {
			text += fmt.Sprintf(", retry after %s", strict.FormatDuration(o.retryAfter))
		} else {
			text += ", never admitted"
		}
	}
	return text + o.observed()
}

// expectation returns what a step got as YAML of its expect.
func (o *outcome) expectation(times int) string {
	allowed := strconv.FormatBool(o.admitted)
	if times > 1 {
		allowed = strconv.FormatUint(o.allowed, 10)
	}
	text := "{allowed: " + allowed + ", rule: " + quoted(o.rule)
	if o.limited {
		text += fmt.Sprintf(", limit: %d, remaining: %d", o.limit, o.remaining)
	}
	for _, name := range []struct{ key, value string }{{"tier", o.tier}, {"subject", o.subject}, {"shadow", o.shadow}} {
		if name.value != "" {
			text += ", " + name.key + ": " + quoted(name.value)
		}
	}
	if !o.admitted {
		text += ", retry_after: " + strict.FormatDuration(o.retryAfter)
	}
	if o.limited {
		text += ", reset: " + strict.FormatDuration(o.reset)
	}
	return text + "}"
}

// plainWord matches a text that YAML reads as a text, or as a word that stands for one.
var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// quoted returns a text as YAML.
func quoted(text string) string {
	if plainWord.MatchString(text) && !strings.EqualFold(text, "null") {
		return text
	}
	return strconv.Quote(text)
}

// observed names the observed rule without room, if there is one.
func (o *outcome) observed() string {
	if o.shadow == "" {
		return ""
	}
	return ", the observed rule " + o.shadow + " had no room"
}

// differences returns a sentence for each way in which a step was not as expected.
func (o *outcome) differences(s *ruletests.Step) (wrong []string) {
	e := &s.Expect
	differs := func(what string, got, want any) {
		wrong = append(wrong, fmt.Sprintf("%s: got %v, want %v", what, got, want))
	}
	count := func(what string, got uint64, want *ruletests.Count) {
		if want != nil && got != want.Of(s.Times) {
			differs(what, fmt.Sprintf("%d of %d", got, s.Times), want.Of(s.Times))
		}
	}
	count("allowed", o.allowed, e.Allowed)
	count("denied", o.denied, e.Denied)
	text := func(what, got string, want *string) {
		if want != nil && got != *want {
			differs(what, cmp.Or(got, "none"), cmp.Or(*want, "none"))
		}
	}
	text("rule", o.rule, e.Rule)
	text("tier", o.tier, e.Tier)
	text("subject", o.subject, e.Subject)
	text("shadow", o.shadow, e.Shadow)
	number := func(what string, got uint64, want *uint64) {
		switch {
		case want == nil:
		case !o.limited && *want > 0:
			differs(what, noLimit, *want)
		case got != *want:
			differs(what, got, *want)
		}
	}
	number("limit", o.limit, e.Limit)
	number("remaining", o.remaining, e.Remaining)
	wait := func(what string, got time.Duration, want *time.Duration) {
		if want != nil && got != *want {
			differs(what, strict.FormatDuration(got), strict.FormatDuration(*want))
		}
	}
	wait("retry_after", o.retryAfter, e.RetryAfter)
	if e.Reset != nil && *e.Reset > 0 && !o.limited {
		differs("reset", noLimit, strict.FormatDuration(*e.Reset))
	} else {
		wait("reset", o.reset, e.Reset)
	}
	for _, h := range e.Headers {
		got := ""
		if i := slices.IndexFunc(o.headers, func(g answer.Header) bool { return g.Name == h.Name }); i >= 0 {
			got = o.headers[i].Value
		}
		text("the header "+h.Name, got, &h.Value)
	}
	return wrong
}
