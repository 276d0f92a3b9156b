package replay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/pkg/window"
)

// A decider is one generation of rules, which decides and counts.
type decider struct {
	rules    *rules.Rules
	tiers    *tier.Directory
	timeline *Timeline
	tally    *tally
	varies   func(rule string) bool // whose limits are varied; nil: none

	allowed, denied, unlimited, unknown uint64

	// The questions about a request as the policy takes them, and copies of their descriptors.
	asked  []decide.Request
	copies []decide.Descriptor
	// best is the limit of an outcome, if another question was decided after it.
	best decide.LimitStatus
}

func newDecider(rs *rules.Rules, maxBytes int64, s *sample) *decider {
	return &decider{rules: rs, tiers: rs.Tiers(), timeline: NewTimeline(rs, maxBytes), tally: newTally(rs, s)}
}

// An outcome is what a decider decided on a request. It is valid until the next request.
type outcome struct {
	allowed bool
	limit   *decide.LimitStatus // the decisive one; nil: nothing limits the request
	req     *decide.Request     // of the question that limit decides
	match   match
}

// subject names whom the limit of an outcome counts.
func (o *outcome) subject() DeniedSubject {
	return DeniedSubject{Subject: whose(o.limit, o.req), Rule: o.limit.Rule.Name, Tier: strings.Clone(o.limit.Tier)}
}

// sum counts a request.
func (d *decider) sum(o *outcome, t time.Duration) {
	switch {
	case !o.allowed:
		d.denied++
		if o.limit != nil {
			d.tally.top.add(o.match.caller, t, o.subject)
		}
		return
	case o.limit == nil:
		d.unlimited++
	}
	d.allowed++
}

// caller returns the subject of a question, or nil.
func (d *decider) caller(q *Question) *tier.Subject {
	if q.Subject == "" || d.tiers == nil {
		return nil
	}
	return d.tiers.ByID(q.Subject)
}

// request decides the questions of a request. After a denial, Envoy asks no further filter, but
// it does ask at the end what the filter that denied asks then.
func (d *decider) request(ctx context.Context, e *Engine, r *accesslog.Record) (o outcome, err error) {
	o.allowed = true
	missing := false
	d.asked, d.copies = d.asked[:0], d.copies[:0]
	for i := range e.questions {
		q := &e.questions[i]
		if q.AtEnd {
			e.later(r, q, d)
			continue
		}
		if !o.allowed {
			break
		}
		caller := d.caller(q)
		missing = missing || q.Subject != "" && caller == nil
		if o.limit != nil {
			d.best = *o.limit
			o.limit = &d.best
		}
		// Rules remove an idempotency key that they do not know from a descriptor. If a slice grows, what
		// it had stays where it is.
		from := len(d.copies)
		d.copies = append(d.copies, q.Descriptors...)
		d.asked = append(d.asked, decide.Request{Domain: q.Domain, Descriptors: d.copies[from:], Stream: stream(e.number)})
		req := &d.asked[len(d.asked)-1]
		v, err := d.timeline.Decide(ctx, r.At, *req, caller)
		if err != nil {
			return o, err
		}
		d.count(e, r, req, v, &o)
	}
	if missing {
		d.unknown++
	}
	return o, nil
}

// stream names the stream of a request.
func stream(number uint64) window.StreamID { return window.StreamID(max(mix(number), 1)) }

// count counts the verdict on a question, and makes it the outcome if it is the strictest so far.
func (d *decider) count(e *Engine, r *accesslog.Record, req *decide.Request, v *decide.Verdict, o *outcome) {
	checks := d.timeline.Checks()
	decisive := v.Decisive
	if !v.Allowed {
		o.allowed = false
	}
	holds := false
	for i := range v.Limits {
		l := &v.Limits[i]
		m := d.tally.match(req, l, &checks[i])
		d.tally.count(m, v, l, e.number, false)
		d.whatIf(m, &checks[i], r.At, false)
		holds = holds || v.Allowed && (l.Limit.Policy == window.InFlight || l.Limit.Budget != nil)
		if i == decisive && (o.limit == nil || !v.Allowed || l.HasLess(o.limit)) {
			o.limit, o.req, o.match = l, req, m
		}
	}
	for i := range v.Matches {
		if m := &v.Matches[i]; m.Unlimited && m.ReplacedBy == nil {
			p := d.tally.unlimited(m.Rule, m.UnlimitedTier)
			p.requests++
			p.total.requests.once(e.number)
		}
	}
	if holds && !slices.ContainsFunc(e.questions, Question.ends) {
		e.later(r, &Question{Domain: req.Domain}, d)
	}
}

// ends reports whether a question ends the stream of its request.
func (q Question) ends() bool {
	return q.AtEnd && slices.ContainsFunc(q.Descriptors, func(one decide.Descriptor) bool { return one.Ends })
}

// ended decides what Envoy asks at the end of a request.
func (d *decider) ended(ctx context.Context, end *pending) error {
	q := &end.question
	req := &decide.Request{Domain: q.Domain, Descriptors: q.Descriptors, Stream: stream(end.number)}
	if q.ends() {
		req.Ending = endOfLog
	}
	if len(q.Descriptors) == 0 {
		// The filter of the log's Envoy need not end streams: the end of the request is known.
		req.Descriptors, req.Ending = []decide.Descriptor{identity.EndOfStream()}, endOfLog
	}
	v, err := d.timeline.Decide(ctx, end.at, *req, d.caller(q))
	if err != nil {
		return err
	}
	checks := d.timeline.Checks()
	for i := range v.Limits {
		l := &v.Limits[i]
		m := d.tally.match(req, l, &checks[i])
		d.tally.count(m, v, l, end.number, true)
		d.whatIf(m, &checks[i], end.at, true)
	}
	return nil
}

// endOfLog is how streams end: as those whose upstream answered.
const endOfLog = "via_upstream"
