package replay

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/policy"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/pkg/window"
)

// EngineOptions of an [Engine]. Rules and Describer are required.
type EngineOptions struct {
	Rules     *policy.Rules
	Describer Describer
	// Places has the place of each rule, in the order of Rules.All: file:line.
	Places []string
	// Against are the rules of now. Nil: the report compares nothing.
	Against *policy.Rules
	// MaxBytes bounds the logs, as store.memory.max_bytes does. Zero: no bound.
	MaxBytes int64
	// WhatIf chooses the rules whose limits are varied, by their names. Nil: none.
	WhatIf func(rule string) bool
	// Decisions gets each decision. Nil disables it.
	Decisions *Decisions
	// Files are the names of the logs, for errors.
	Files []string
}

// An Engine decides the requests of logs, in the order of their times, and reports what the rules
// did. It is not safe for concurrent use. Close it after use.
type Engine struct {
	o        EngineOptions
	now, was *side // was is nil without Against
	report   Report
	from, to time.Duration // of the requests, since 1970
	series   Series
	sample   sample
	wants    []accesslog.Attribute
	duration int // the index of the duration in the values of a record
	ends     ends
	number   uint64 // of the request, from 1
	// endless counts the requests whose end matters and is not known.
	endless struct {
		Untold
		last uint64 // the request that was counted last
	}

	questions    []Question // what Envoy asks about the request
	newly, freed *tops
}

// NewEngine returns an engine that has decided nothing.
func NewEngine(o EngineOptions) *Engine {
	e := &Engine{o: o, wants: slices.Clone(o.Describer.Wants()), sample: sample{most: maxRemembered}, series: Series{Requests: []uint64{}, Denied: []uint64{}}}
	e.now = newSide(o.Rules, o.MaxBytes, &e.sample)
	e.now.varies = o.WhatIf
	if e.duration = slices.Index(e.wants, accesslog.Duration); e.duration < 0 {
		e.duration = len(e.wants)
		e.wants = append(e.wants, accesslog.Duration)
	}
	if o.Against != nil {
		e.was, e.newly, e.freed = newSide(o.Against, o.MaxBytes, &e.sample), newTops(), newTops()
		e.report.Against = new(Comparison)
	}
	return e
}

// Wants returns the attributes of the values of records.
func (e *Engine) Wants() []accesslog.Attribute { return e.wants }

// Close frees what the engine holds.
func (e *Engine) Close() {
	for _, s := range []*side{e.now, e.was} {
		if s != nil {
			_ = s.timeline.Close() // never fails
		}
	}
}

// A Source gives records, the earliest first, and io.EOF at the end.
type Source interface {
	Next() (*accesslog.Record, error)
}

// cancelEvery is how many requests are decided between two looks at the context.
const cancelEvery = 1024

// Run decides all requests of a source. If ctx is done before the end, Run returns its error, and the
// report is of the requests so far.
func (e *Engine) Run(ctx context.Context, from Source) error {
	deciding := context.WithoutCancel(ctx) // a request is decided whole
	for looked := cancelEvery; ; {
		if looked >= cancelEvery {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			looked = 0
		}
		r, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		looked++
		if err := e.Add(deciding, r); err != nil {
			return fmt.Errorf("%s: %w", e.placeOf(r), err)
		}
	}
}

// placeOf names the line of a record.
func (e *Engine) placeOf(r *accesslog.Record) string {
	if r.File < len(e.o.Files) {
		return fmt.Sprintf("%s:%d", e.o.Files[r.File], r.Line)
	}
	return fmt.Sprintf("line %d", r.Line)
}

// Add decides a request. An error says why the rules cannot decide it, or that its decision cannot
// be written.
func (e *Engine) Add(ctx context.Context, r *accesslog.Record) error {
	if err := e.end(ctx, r.At); err != nil {
		return err
	}
	e.number++
	e.questions = e.o.Describer.Describe(e.questions[:0], r)
	if e.report.Requests == 0 || r.At < e.from {
		e.from = r.At
	}
	e.to = max(e.to, r.At)
	e.report.Requests++
	if len(e.questions) == 0 {
		e.report.NoQuestion++
	}
	got, err := e.now.request(ctx, e, r)
	if err != nil {
		return err
	}
	e.series.Count(r.At, !got.allowed)
	e.now.sum(&got, r.At)
	var was outcome
	if e.was != nil {
		if was, err = e.was.request(ctx, e, r); err != nil {
			return err
		}
		e.was.sum(&was, r.At)
		e.compare(&got, &was, r.At)
	}
	e.sample.bound(r.At.Microseconds())
	if e.o.Decisions != nil {
		return e.o.Decisions.add(r, &got, &was, e.was != nil)
	}
	return nil
}

// compare counts a request that the two sides decide differently.
func (e *Engine) compare(got, was *outcome, t time.Duration) {
	switch c := e.report.Against; {
	case got.allowed == was.allowed:
	case was.allowed:
		c.NewlyDenied++
		e.newly.add(got.meeting.caller, t, got.subject)
	default:
		c.Freed++
		e.freed.add(was.meeting.caller, t, was.subject)
	}
}

// maxEnds bounds the requests whose end is still to come. Above it, the earliest ends come early.
const maxEnds = 1 << 18

// end decides the questions that Envoy asks at the ends of requests up to a time.
func (e *Engine) end(ctx context.Context, until time.Duration) error {
	for len(e.ends) > 0 && (e.ends[0].at <= until || len(e.ends) > maxEnds) {
		end := heap.Pop(&e.ends).(*pending)
		if err := end.side.ended(ctx, end); err != nil {
			return err
		}
	}
	return nil
}

// later keeps what Envoy asks when a request has ended, for a side.
func (e *Engine) later(r *accesslog.Record, q *Question, s *side) {
	after, ok := lasted(&r.Values[e.duration])
	if !ok && e.endless.last != e.number {
		e.endless.last = e.number
		e.endless.Requests++
	}
	heap.Push(&e.ends, &pending{at: r.At + after, number: e.number, side: s, question: cloned(q)})
}

// lasted reads a duration in milliseconds.
func lasted(v *accesslog.Value) (time.Duration, bool) {
	const most = float64(1 << 32)
	if v.State != accesslog.Present {
		return 0, false
	}
	ms, err := strconv.ParseFloat(string(v.Text), 64)
	if err != nil || !(ms >= 0 && ms < most) {
		return 0, false
	}
	return time.Duration(ms * float64(time.Millisecond)), true
}

// untold returns what the logs did not tell so far.
func (e *Engine) untold() []Untold {
	all := e.o.Describer.Untold()
	if e.endless.Requests > 0 {
		one := e.endless.Untold
		one.Attribute, one.Place = accesslog.Duration, "a limit in flight or a cost at the end"
		one.Effect = "The requests counted as ended when they began. To tell it, add " + accesslog.Duration.String() + " to the log format."
		all = append(all, one)
	}
	return all
}

// cloned copies a question, whose texts belong to the describer.
func cloned(q *Question) Question {
	c := Question{Domain: strings.Clone(q.Domain), Subject: strings.Clone(q.Subject), AtEnd: true, Descriptors: slices.Clone(q.Descriptors)}
	for i := range c.Descriptors {
		d := &c.Descriptors[i]
		d.Entries = slices.Clone(d.Entries)
		for j := range d.Entries {
			d.Entries[j].Key, d.Entries[j].Value = strings.Clone(d.Entries[j].Key), strings.Clone(d.Entries[j].Value)
		}
	}
	return c
}

// Report returns what the rules did so far. It decides first what Envoy asks at the ends of
// requests that are still open. logs says what was read.
func (e *Engine) Report(ctx context.Context, logs accesslog.Stats) (*Report, error) {
	if err := e.end(ctx, math.MaxInt64); err != nil {
		return nil, err
	}
	places := make(map[*policy.Rule]string)
	for i, r := range e.o.Rules.All() {
		if i < len(e.o.Places) {
			places[r] = e.o.Places[i]
		}
	}
	r, n := &e.report, e.now
	r.Logs = logs
	r.Times = e.series
	if r.Requests > 0 {
		r.From, r.To = at(e.from), at(e.to)
	}
	r.Untold = e.untold()
	r.Allowed, r.Denied, r.Unlimited, r.UnknownSubjects, r.Evicted = n.allowed, n.denied, n.unlimited, n.unknown, n.timeline.Evicted()
	r.LogsShare = e.sample.share()
	r.Rules, r.Totals = n.tally.report(places)
	r.Near = n.tally.near.n
	r.Subjects = n.tally.top.rows()
	if e.was != nil {
		c := r.Against
		c.Allowed, c.Denied = e.was.allowed, e.was.denied
		c.NewlyDeniedTop, c.FreedTop = e.newly.rows(), e.freed.rows()
	}
	return r, nil
}

// A side is one generation of rules that decides.
type side struct {
	rules    *policy.Rules
	tiers    *tier.Directory
	timeline *Timeline
	tally    *tally
	varies   func(rule string) bool // whose limits are varied; nil: none

	allowed, denied, unlimited, unknown uint64

	// The questions about a request as the policy takes them, and copies of their descriptors.
	asked  []policy.Request
	copies []policy.Descriptor
	// best is the limit of an outcome, if another question was decided after it.
	best policy.LimitStatus
}

func newSide(rules *policy.Rules, maxBytes int64, s *sample) *side {
	return &side{rules: rules, tiers: rules.Tiers(), timeline: NewTimeline(rules, maxBytes), tally: newTally(rules, s)}
}

// An outcome is what a side decided on a request. It is valid until the next request.
type outcome struct {
	allowed bool
	limit   *policy.LimitStatus // the decisive one; nil: nothing limits the request
	req     *policy.Request     // of the question that limit decides
	meeting meeting
}

// subject names whom the limit of an outcome counts.
func (o *outcome) subject() DeniedSubject {
	return DeniedSubject{Subject: whose(o.limit, o.req), Rule: o.limit.Rule.Name, Tier: strings.Clone(o.limit.Tier)}
}

// sum counts a request.
func (s *side) sum(o *outcome, t time.Duration) {
	switch {
	case !o.allowed:
		s.denied++
		if o.limit != nil {
			s.tally.top.add(o.meeting.caller, t, o.subject)
		}
		return
	case o.limit == nil:
		s.unlimited++
	}
	s.allowed++
}

// caller returns the subject of a question, or nil.
func (s *side) caller(q *Question) *tier.Subject {
	if q.Subject == "" || s.tiers == nil {
		return nil
	}
	return s.tiers.ByID(q.Subject)
}

// request decides the questions of a request. After a denial, Envoy asks no further filter, but
// it does ask at the end what the filter that denied asks then.
func (s *side) request(ctx context.Context, e *Engine, r *accesslog.Record) (o outcome, err error) {
	o.allowed = true
	missing := false
	s.asked, s.copies = s.asked[:0], s.copies[:0]
	for i := range e.questions {
		q := &e.questions[i]
		if q.AtEnd {
			e.later(r, q, s)
			continue
		}
		if !o.allowed {
			break
		}
		caller := s.caller(q)
		missing = missing || q.Subject != "" && caller == nil
		if o.limit != nil {
			s.best = *o.limit
			o.limit = &s.best
		}
		// Rules remove an idempotency key that they do not know from a descriptor. If a slice grows, what
		// it had stays where it is.
		from := len(s.copies)
		s.copies = append(s.copies, q.Descriptors...)
		s.asked = append(s.asked, policy.Request{Domain: q.Domain, Descriptors: s.copies[from:], Stream: stream(e.number)})
		req := &s.asked[len(s.asked)-1]
		v, err := s.timeline.Decide(ctx, r.At, *req, caller)
		if err != nil {
			return o, err
		}
		s.count(e, r, req, v, &o)
	}
	if missing {
		s.unknown++
	}
	return o, nil
}

// stream names the stream of a request.
func stream(number uint64) window.StreamID { return window.StreamID(max(mix(number), 1)) }

// count counts the verdict on a question, and makes it the outcome if it is the strictest so far.
func (s *side) count(e *Engine, r *accesslog.Record, req *policy.Request, v *policy.Verdict, o *outcome) {
	checks := s.timeline.Checks()
	decisive := v.Decisive
	if !v.Allowed {
		o.allowed = false
	}
	inFlight := false
	for i := range v.Limits {
		l := &v.Limits[i]
		m := s.tally.meet(req, l, &checks[i])
		s.tally.count(m, v, l, e.number, false)
		s.whatIf(m, &checks[i], r.At, false)
		inFlight = inFlight || v.Allowed && l.Limit.Policy == window.InFlight
		if i == decisive && (o.limit == nil || !v.Allowed || tighter(l, o.limit)) {
			o.limit, o.req, o.meeting = l, req, m
		}
	}
	for i := range v.Matches {
		if m := &v.Matches[i]; m.Unlimited && m.ReplacedBy == nil {
			p := s.tally.unlimited(m.Rule, m.UnlimitedTier)
			p.requests++
			p.total.requests.once(e.number)
		}
	}
	if inFlight && !slices.ContainsFunc(e.questions, Question.ends) {
		e.later(r, &Question{Domain: req.Domain}, s)
	}
}

// ends reports whether a question ends the stream of its request.
func (q Question) ends() bool {
	return q.AtEnd && slices.ContainsFunc(q.Descriptors, func(d policy.Descriptor) bool { return d.Ends })
}

// tighter reports whether a smaller share of one limit remains than of another.
func tighter(a, b *policy.LimitStatus) bool {
	return a.Decision.Remaining*b.Limit.Hits < b.Decision.Remaining*a.Limit.Hits
}

// ended decides what Envoy asks at the end of a request.
func (s *side) ended(ctx context.Context, end *pending) error {
	q := &end.question
	req := &policy.Request{Domain: q.Domain, Descriptors: q.Descriptors, Stream: stream(end.number)}
	if q.ends() {
		req.Ending = endOfLog
	}
	if len(q.Descriptors) == 0 {
		// The filter of the log's Envoy need not end streams: the end of the request is known.
		req.Descriptors, req.Ending = []policy.Descriptor{policy.EndOfStream()}, endOfLog
	}
	v, err := s.timeline.Decide(ctx, end.at, *req, s.caller(q))
	if err != nil {
		return err
	}
	checks := s.timeline.Checks()
	for i := range v.Limits {
		l := &v.Limits[i]
		m := s.tally.meet(req, l, &checks[i])
		s.tally.count(m, v, l, end.number, true)
		s.whatIf(m, &checks[i], end.at, true)
	}
	return nil
}

// endOfLog is how streams end: as those whose upstream answered.
const endOfLog = "via_upstream"

// A pending is a question that Envoy asks at the end of a request.
type pending struct {
	at       time.Duration
	number   uint64 // of the request
	side     *side
	question Question
}

// ends is a heap of them, the earliest first; see [heap.Interface].
type ends []*pending

func (h ends) Len() int      { return len(h) }
func (h ends) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h ends) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}
func (h *ends) Push(p any) { *h = append(*h, p.(*pending)) }
func (h *ends) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
