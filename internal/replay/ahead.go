package replay

import (
	"context"
	"slices"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
)

// ahead is how many requests are described and prepared before the first of them is decided. Then
// the logs of all of them are read from memory at once: with many callers, a good part of a decision
// is the wait for the memory of its log. The decisions and their order are the same as one after the
// other.
const ahead = 32

// asking is what Envoy asks about a request.
type asking struct {
	questions []Question
	asked     []policy.Request // the same as the policy takes them
	// was are those for the rules to compare with, whose descriptors are copies: rules remove an
	// idempotency key that they do not know from a descriptor.
	was    []policy.Request
	copies []policy.Descriptor
}

// of returns what a side decides.
func (a *asking) of(e *Engine, s *side) []policy.Request {
	if s == e.was {
		return a.was
	}
	return a.asked
}

// batch returns the next records of a source.
func (e *Engine) batch(from Source) ([]accesslog.Record, error) {
	if b, ok := from.(Batcher); ok && e.keeps {
		return b.Batch(ahead)
	}
	r, err := from.Next()
	if err != nil {
		return nil, err
	}
	e.single[0] = *r
	return e.single[:], nil
}

// describe describes a request in the place n. It is the n-th, from 0, of those that are not decided.
func (e *Engine) describe(r *accesslog.Record, n int) {
	a := &e.slots[n]
	a.questions, a.asked = e.o.Describer.Describe(a.questions[:0], r), a.asked[:0]
	for i := range a.questions {
		q := &a.questions[i]
		a.asked = append(a.asked, policy.Request{Domain: q.Domain, Descriptors: q.Descriptors, Stream: stream(e.number + uint64(n) + 1)})
	}
	if e.was == nil {
		return
	}
	a.was, a.copies = append(a.was[:0], a.asked...), a.copies[:0]
	for i := range a.was {
		begin := len(a.copies)
		a.copies = append(a.copies, a.was[i].Descriptors...) // if it grows, the older ones stay in the memory before
		a.was[i].Descriptors = a.copies[begin:]
	}
}

// prepare describes requests, and prepares them until one depends on those before it. From the first
// such request on, none is prepared any more.
func (e *Engine) prepare(ctx context.Context, records []accesslog.Record) {
	e.unprepare()
	for i := range records {
		e.describe(&records[i], i)
	}
	if len(records) == 1 || e.dependent || e.whatIf != nil && e.whatIf.search {
		return
	}
	for _, s := range []*side{e.now, e.was} {
		if s == nil {
			continue
		}
		e.touched = e.touched[:0]
		for i := range records {
			if e.dependent = e.dependent || len(e.ends) > 0 || !e.prepareOne(ctx, s, i); e.dependent {
				break
			}
		}
		s.timeline.store.Touch(e.touched)
	}
}

// unprepare forgets what an error has left prepared.
func (e *Engine) unprepare() {
	for _, s := range []*side{e.now, e.was} {
		if s != nil {
			clear(s.timeline.prepared[:])
		}
	}
}

// prepareOne prepares the first question of the request in a place. It returns false if the request
// depends on those before it.
func (e *Engine) prepareOne(ctx context.Context, s *side, place int) bool {
	a := &e.slots[place]
	if len(a.questions) == 0 {
		return true
	}
	if slices.ContainsFunc(a.questions, Question.dependent) {
		return false
	}
	checks, ok := s.timeline.prepare(ctx, &a.of(e, s)[0], s.caller(&a.questions[0]), place)
	for i := range checks {
		e.touched = append(e.touched, &checks[i])
	}
	return ok
}

// dependent reports whether a question may change how later ones are prepared: Envoy asks it later,
// or it has no cost and teaches a rule that its costs are usage reports.
func (q Question) dependent() bool {
	return q.AtEnd || slices.ContainsFunc(q.Descriptors, func(d policy.Descriptor) bool { return d.Cost == 0 })
}
