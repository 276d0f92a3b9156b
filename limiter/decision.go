package limiter

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Decision is the answer to a request. It is a copy: no later request changes it. If
// rules limit requests in flight, call Release when the request has ended.
type Decision struct {
	// Allowed is true if the request may pass.
	Allowed bool
	// Limited is true if a limit was checked that could have denied the request.
	Limited bool
	// Degraded is true if the store did not decide, and the rules' on_store_error did.
	Degraded bool
	// Observed is the name of a rule that had no room but is only observed. Empty: none.
	Observed string
	// Subject and Tier say who asked. Empty: unknown.
	Subject, Tier string

	decisive, shadowed int
	one                decide.LimitStatus   // the only limit
	all                []decide.LimitStatus // all limits, unless there is only one
	strictest          []int                // of each descriptor; nil: there is one limit, of one descriptor
	styles             []string             // of the domain
	headers            *answer.Renderer
	limiter            *Limiter // if the request holds something until Release
	stream             window.StreamID
}

// A Header is one header field of an answer, with its name in lower case.
type Header struct{ Name, Value string }

// A LimitStatus says how one limit stands after a decision.
type LimitStatus struct {
	// Rule is the name of the rule, and Name that of the limit. They differ if the rule has several.
	Rule, Name string
	// Policy is sliding, token_bucket, fixed, calendar, sliding_counter or in_flight.
	Policy string
	// Hits is the size of the limit, and Window the time that it is for. The window of a bucket is
	// the time in which an empty one fills, and that of in_flight is zero.
	Hits   uint64
	Window time.Duration
	// Remaining is the cost that can still be spent now.
	Remaining uint64
	// RetryAfter is the wait until the same cost has room. Zero: it had room, or Never is true.
	RetryAfter time.Duration
	// ResetAfter is the wait in headers until the reset.
	ResetAfter time.Duration
	// Never is true if the cost is larger than the limit, so that no wait helps.
	Never bool
	// Denies is true if the limit had no room, and is not only observed.
	Denies bool
}

// set copies the verdict.
func (d *Decision) set(v *decide.Verdict, headers *answer.Renderer) {
	d.Allowed, d.Degraded = v.Allowed, v.Degraded
	d.Subject, d.Tier = v.Subject, v.Tier
	d.decisive, d.shadowed, d.styles, d.headers = v.Decisive, v.Shadowed, v.Headers, headers
	switch {
	case len(v.Limits) == 1 && len(v.Strictest) == 1:
		d.one = v.Limits[0]
	case len(v.Limits) > 0:
		d.all, d.strictest = slices.Clone(v.Limits), slices.Clone(v.Strictest)
	}
	if v.Shadowed >= 0 {
		d.Observed = v.Limits[v.Shadowed].Rule.Name
	}
	d.Limited = v.Decisive >= 0
}

// set fills in l, which is zero.
func (l *LimitStatus) set(s *decide.LimitStatus) {
	l.Rule, l.Name, l.Policy, l.Hits = s.Rule.Name, s.Limit.Name, s.Limit.Policy.String(), s.Limit.Hits
	l.Window, _ = s.Span()
	l.Remaining, l.ResetAfter = s.Decision.Remaining, s.RetryAfter()
	l.Never, l.Denies = s.Decision.Never, s.Over()
	if !s.Decision.Allowed && !s.Decision.Never {
		l.RetryAfter = s.RetryAfter()
	}
}

// InFlight reports whether the request counts until Release: a limit of requests in flight or a budget
// allowed it.
func (d *Decision) InFlight() bool { return d.limiter != nil }

// Release says that the request has ended, so that it counts as one in flight no more. Under a budget it
// has cost what it has reserved. Release does nothing if no limit of requests in flight and no budget
// allowed the request, or if it was released before, also by a copy of d. After
// an error the request counts until its hold expires. Release is safe for concurrent use.
func (d *Decision) Release(ctx context.Context) error { return d.Settle(ctx, Request{}) }

// Settle is [Decision.Release] of a request under budgets, whose true costs are those of req: the request
// itself, with other costs. A descriptor with Ask has cost nothing, and one with the cost 0 what it has
// reserved. Call one of the two, and once.
func (d *Decision) Settle(ctx context.Context, req Request) error {
	if d.limiter == nil {
		return nil
	}
	return d.limiter.release(ctx, d.stream, &req)
}

// Limit returns the decisive limit: of the limits that deny, the one with the longest wait, and
// otherwise the one with the smallest part remaining. If d.Limited is false, it is zero.
func (d *Decision) Limit() (l LimitStatus) {
	switch {
	case !d.Limited:
	case d.one.Rule != nil:
		l.set(&d.one)
	default:
		l.set(&d.all[d.decisive])
	}
	return l
}

// Limits returns all limits of the request, in the order of its descriptors. It allocates.
func (d *Decision) Limits() []LimitStatus {
	v := d.verdict()
	limits := make([]LimitStatus, len(v.Limits))
	for i := range v.Limits {
		limits[i].set(&v.Limits[i])
	}
	return limits
}

// AppendHeaders appends the header fields for a client to dst: those of the styles of the domain,
// or else of the settings, and Retry-After for a denial that ends. If nothing limits the request,
// there are none.
func (d *Decision) AppendHeaders(dst []Header) []Header {
	if d.headers == nil {
		return dst
	}
	var room [14]answer.Header
	for _, h := range d.headers.Append(room[:0], d.verdict(), time.Now) {
		dst = append(dst, Header(h))
	}
	return dst
}

// Body returns the body of a denial with its content type: that of the rule, or a problem document
// (RFC 9457). Without a denial both are empty.
func (d *Decision) Body() (contentType string, body []byte) {
	if d.Allowed || d.decisive < 0 || d.headers == nil {
		return "", nil
	}
	fields, body := answer.AppendDenial(nil, nil, d.verdict(), answer.About{Now: time.Now})
	return fields[0].Value, body
}

// verdict returns the decision in the form of package answer.
func (d *Decision) verdict() *decide.Verdict {
	v := &decide.Verdict{
		Allowed: d.Allowed, Degraded: d.Degraded, Decisive: d.decisive, Shadowed: d.shadowed,
		Limits: d.all, Strictest: d.strictest, Headers: d.styles,
	}
	if d.one.Rule != nil {
		v.Limits, v.Strictest = []decide.LimitStatus{d.one}, []int{0}
		if d.one.Unknown() {
			v.Strictest[0] = -1
		}
	}
	return v
}
