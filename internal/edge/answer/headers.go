package answer

import (
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/text/httpfield"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Header is one header field. Names are lower case, as in HTTP/2, except in
// StyleReference, where they are as configured. Envoy makes them lower case.
type Header struct{ Name, Value string }

// maxPolicies bounds the items of RateLimit-Policy, because clients refuse the header of a
// request with hundreds of descriptors.
const maxPolicies = 16

// Renderer renders verdicts in a set of styles. It is immutable and safe for
// concurrent use.
type Renderer struct {
	styles families
	names  ReferenceNames
	quiet  bool // see Quiet
}

// ReferenceNames are the names of the fields of StyleReference.
type ReferenceNames struct{ Limit, Remaining, Reset string }

// families says which fields a set of styles has.
type families struct {
	rateLimit, draft03, x, epoch, reference bool
}

// native reports whether there is a style besides StyleReference.
func (f families) native() bool { return f.rateLimit || f.draft03 || f.x }

// add adds a style. An unknown style, which the configuration refuses, has no fields.
func (f *families) add(style string) {
	switch style {
	case rules.StyleRateLimit:
		f.rateLimit = true
	case rules.StyleDraft03:
		f.draft03 = true
	case rules.StyleXRateLimit:
		f.x = true
	case rules.StyleXRateLimitEpoch:
		f.x, f.epoch = true, true
	case rules.StyleReference:
		f.reference = true
	}
}

// NewRenderer returns a renderer for the given styles. A domain can have other styles.
func NewRenderer(styles ...string) *Renderer {
	r := &Renderer{names: ReferenceNames{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}}
	for _, s := range styles {
		r.styles.add(s)
	}
	return r
}

// Named returns a copy of r with other names for the fields of StyleReference.
func (r *Renderer) Named(names ReferenceNames) *Renderer {
	named := *r
	named.names = names
	return &named
}

// Quiet returns a copy of r that says when a client may send a request again only with a style other
// than StyleReference, because envoyproxy/ratelimit does not say it.
func (r *Renderer) Quiet() *Renderer {
	quiet := *r
	quiet.quiet = true
	return &quiet
}

// familiesFor returns the fields for v: of its domain, or else of the service.
func (r *Renderer) familiesFor(v *decide.Verdict) families {
	if v.Headers == nil {
		return r.styles
	}
	var native families
	for _, s := range v.Headers {
		native.add(s)
	}
	return native
}

// Append appends the fields for v to dst. If no limit could have denied the request, it
// appends only the fields of StyleReference. It calls now only for the style
// x-ratelimit-epoch.
func (r *Renderer) Append(dst []Header, v *decide.Verdict, now func() time.Time) []Header {
	var (
		room [256]byte // on the stack; longer texts are not
		text = room[:0]
		all  fields
		f    = r.familiesFor(v)
	)
	if f.reference {
		text = all.reference(text, v, &r.names)
	}
	if v.Decisive >= 0 {
		text = all.native(text, v, f, now)
	}
	if !v.Allowed && (!r.quiet || f.native()) {
		text = all.retry(text, v)
	}
	if all.n == 0 {
		return dst
	}
	return all.appendTo(dst, string(text))
}

// native appends the fields of the styles other than StyleReference.
func (f *fields) native(text []byte, v *decide.Verdict, styles families, now func() time.Time) []byte {
	s := &v.Limits[v.Decisive]
	if s.DeniedUndecided() {
		return text
	}
	wait, resets := s.RetryAfter(), hasReset(s)
	if styles.rateLimit {
		text = appendPolicies(text, v)
		f.end("ratelimit-policy", text)
		text = appendRateLimit(text, s)
		f.end("ratelimit", text)
	}
	if styles.draft03 {
		text = appendQuota(text, v)
		f.end("ratelimit-limit", text)
		text = strconv.AppendUint(text, s.Decision.Remaining, 10)
		f.end("ratelimit-remaining", text)
		if resets {
			text = strconv.AppendInt(text, Seconds(wait), 10)
			f.end("ratelimit-reset", text)
		}
	}
	if styles.x {
		text = strconv.AppendUint(text, s.Limit.Hits, 10)
		f.end("x-ratelimit-limit", text)
		text = strconv.AppendUint(text, s.Decision.Remaining, 10)
		f.end("x-ratelimit-remaining", text)
		if resets {
			reset := Seconds(wait)
			if styles.epoch {
				// The first whole second after the wait.
				reset = ceilUnix(now().Add(wait))
			}
			text = strconv.AppendInt(text, reset, 10)
			f.end("x-ratelimit-reset", text)
		}
	}
	return text
}

// retry appends the fields of a denial that say when the client may send the request again. They are
// for SDKs: retry-after-ms is exact, and x-should-retry makes them give up.
func (f *fields) retry(text []byte, v *decide.Verdict) []byte {
	if Retryable(v) {
		s := &v.Limits[v.Decisive]
		text = strconv.AppendInt(text, RetryAfter(s), 10)
		f.end("retry-after", text)
		text = strconv.AppendInt(text, milliseconds(s.RetryAfter()), 10)
		f.end("retry-after-ms", text)
	}
	if !waits(v) {
		text = append(text, "false"...)
		f.end("x-should-retry", text)
	}
	return text
}

// reference appends the fields of StyleReference.
func (f *fields) reference(text []byte, v *decide.Verdict, names *ReferenceNames) []byte {
	s := ofReference(v)
	if s == nil {
		return text
	}
	text = strconv.AppendUint(text, s.Limit.Hits, 10)
	f.end(names.Limit, text)
	text = strconv.AppendUint(text, ReferenceRemaining(s), 10)
	f.end(names.Remaining, text)
	text = strconv.AppendInt(text, Seconds(ReferenceReset(s, s.RetryAfter())), 10)
	f.end(names.Reset, text)
	return text
}

// ofReference returns the limit that envoyproxy/ratelimit describes in its fields, or nil. It
// is that of the last descriptor that denies, or else that of the first descriptor with the
// fewest hits remaining. Limits that are only observed count too. Requests in flight count only
// if they leave no room.
func ofReference(v *decide.Verdict) (chosen *decide.LimitStatus) {
	for _, at := range v.Strictest {
		if at < 0 || v.Limits[at].DeniedUndecided() {
			continue
		}
		s := &v.Limits[at]
		if s.Limit.Policy == window.InFlight && !s.OverByRule() {
			continue // it has no reset
		}
		if chosen == nil || s.OverByRule() && !s.Quota || ReferenceRemaining(s) < ReferenceRemaining(chosen) {
			chosen = s
		}
	}
	return chosen
}

// ReferenceReset returns the reset as clients of envoyproxy/ratelimit understand it. If nothing
// remains it is wait. Otherwise it is the wait until the oldest hit expires, so that it falls from
// call to call. It never exceeds the span of the limit, and is all of it if there are no hits, or if
// the cost is above the limit.
func ReferenceReset(s *decide.LimitStatus, wait time.Duration) time.Duration {
	if s.Limit.Policy == window.InFlight {
		return wait
	}
	if s.Decision.Allowed {
		wait = s.Decision.UnitAfter
	}
	if span, _ := s.Span(); wait <= 0 || wait > span {
		return span
	}
	return wait
}

// ReferenceRemaining returns what remains as envoyproxy/ratelimit reports it: nothing if the
// limit had no room for the cost, although a smaller cost may have room.
func ReferenceRemaining(s *decide.LimitStatus) uint64 {
	if !s.Decision.Allowed {
		return 0
	}
	return s.Decision.Remaining
}

// maxFields is the number of fields of all styles together.
const maxFields = 14

// fields are header fields whose values are parts of one text, which is their only
// allocation.
type fields struct {
	n    int
	name [maxFields]string
	ends [maxFields]int
}

// end ends the value of a field: it begins in text where the previous field ends.
func (f *fields) end(name string, text []byte) {
	f.name[f.n], f.ends[f.n] = name, len(text)
	f.n++
}

// appendTo appends the fields. It leaves out a value that is not valid in a header.
func (f *fields) appendTo(dst []Header, text string) []Header {
	begin := 0
	for i, end := range f.ends[:f.n] {
		if value := text[begin:end]; httpfield.ValidValue(value) {
			dst = append(dst, Header{f.name[i], value})
		}
		begin = end
	}
	return dst
}

// Retryable reports whether v is a denial that ends if the caller waits. A cost above the
// limit is denied for ever.
func Retryable(v *decide.Verdict) bool {
	return !v.Allowed && v.Decisive >= 0 && !v.Limits[v.Decisive].Decision.Never
}

// maxWait is the longest wait that a client is asked to wait for. Some SDKs give up by themselves after
// a longer one, and others sleep for hours.
const maxWait = 120 * time.Second

// waits reports whether the client of a denial should wait and send the request again.
func waits(v *decide.Verdict) bool {
	if !Retryable(v) {
		return false
	}
	s := &v.Limits[v.Decisive]
	return !s.Rule.Answer.NeverRetry && s.RetryAfter() <= maxWait
}

// milliseconds rounds d up to whole milliseconds, at least 1.
func milliseconds(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}

// AppendRetry appends the fields of a denial that no limit of the rules makes. The wait must be short.
func AppendRetry(dst []Header, wait time.Duration) []Header {
	return append(dst, Header{"retry-after", strconv.FormatInt(max(1, Seconds(wait)), 10)}, Header{"retry-after-ms", strconv.FormatInt(milliseconds(wait), 10)})
}

// RetryAfter returns Retry-After for the limit that denied: whole seconds, at least 1.
func RetryAfter(s *decide.LimitStatus) int64 { return max(1, Seconds(s.RetryAfter())) }

// Seconds rounds d up to whole seconds, at least zero. Envoy cuts off fractions, so a client
// would come back too early.
func Seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// appendRateLimit writes "name";r=remaining;t=reset. t is optional, so appendRateLimit leaves
// it out if no wait helps, and if requests in flight leave room.
func appendRateLimit(b []byte, s *decide.LimitStatus) []byte {
	b = appendName(b, s.Limit.Name)
	b = append(b, ";r="...)
	b = strconv.AppendUint(b, s.Decision.Remaining, 10)
	if !hasReset(s) {
		return b
	}
	b = append(b, ";t="...)
	return strconv.AppendInt(b, Seconds(s.RetryAfter()), 10)
}

// hasReset reports whether fields give a reset: not if no wait helps, and not if requests in
// flight leave room.
func hasReset(s *decide.LimitStatus) bool {
	return s.Wait() > 0 || !s.Decision.Never && s.Limit.Policy != window.InFlight
}

// appendPolicies writes "name";q=limit;w=window for each limit of v that could deny. A limit of
// requests in flight has another unit, which needs no window.
func appendPolicies(b []byte, v *decide.Verdict) []byte {
	items := 0
	for i := range v.Limits {
		s := &v.Limits[i]
		if !s.MayDeny() {
			continue
		}
		if items++; items > maxPolicies {
			break
		}
		if items > 1 {
			b = append(b, ", "...)
		}
		b = appendName(b, s.Limit.Name)
		b = append(b, ";q="...)
		b = strconv.AppendUint(b, s.Limit.Hits, 10)
		if s.Limit.Policy == window.InFlight {
			b = append(b, `;qu="concurrent-requests"`...)
		}
		b = appendWindow(b, s)
	}
	return b
}

// appendQuota writes the decisive limit, and then each limit that could deny with its
// window.
func appendQuota(b []byte, v *decide.Verdict) []byte {
	b = strconv.AppendUint(b, v.Limits[v.Decisive].Limit.Hits, 10)
	items := 0
	for i := range v.Limits {
		s := &v.Limits[i]
		if !s.MayDeny() {
			continue
		}
		if items++; items > maxPolicies {
			break
		}
		b = append(b, ", "...)
		b = strconv.AppendUint(b, s.Limit.Hits, 10)
		b = appendWindow(b, s)
	}
	return b
}

// appendWindow writes ;w=seconds for the span of a limit. The parameter is an integer and
// optional, so appendWindow leaves it out if a window is not a whole number of seconds, and for
// a limit of requests in flight. The time in which a bucket fills is rounded up.
func appendWindow(b []byte, s *decide.LimitStatus) []byte {
	span, _ := s.Span()
	roundsUp := s.Limit.Policy == window.TokenBucket || s.Limit.Policy == window.Calendar
	if s.Limit.Policy == window.InFlight || span%time.Second != 0 && !roundsUp {
		return b
	}
	b = append(b, ";w="...)
	return strconv.AppendInt(b, Seconds(span), 10)
}

// appendName writes a structured-field string. Names need no escapes; see rules.ValidName.
func appendName(b []byte, name string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"')
}

// ceilUnix rounds t up to seconds since 1970.
func ceilUnix(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}
