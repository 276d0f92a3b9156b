package answer

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/policy"
)

// A Style is one family of header fields.
type Style string

// The styles.
const (
	StyleRateLimit       Style = "ratelimit"
	StyleDraft03         Style = "draft03"
	StyleXRateLimit      Style = "x-ratelimit"
	StyleXRateLimitEpoch Style = "x-ratelimit-epoch"
)

// A Header is one field. Names are lower case, as HTTP/2 has them.
type Header struct{ Name, Value string }

// maxPolicies bounds the items of RateLimit-Policy: a request with hundreds of
// descriptors must not make a header that clients refuse.
const maxPolicies = 16

// Renderer renders verdicts in a set of styles. It is immutable and safe for
// concurrent use.
type Renderer struct{ styles families }

// families are the fields that a set of styles asks for.
type families struct {
	rateLimit, draft03, x, epoch bool
}

// add adds a style, and reports whether it is one.
func (f *families) add(s Style) bool {
	switch s {
	case StyleRateLimit:
		f.rateLimit = true
	case StyleDraft03:
		f.draft03 = true
	case StyleXRateLimit:
		f.x = true
	case StyleXRateLimitEpoch:
		f.x, f.epoch = true, true
	default:
		return false
	}
	return true
}

// NewRenderer returns a renderer for the given styles, which a domain may
// replace by its own.
func NewRenderer(styles ...Style) (*Renderer, error) {
	r := new(Renderer)
	for _, s := range styles {
		if !r.styles.add(s) {
			return nil, fmt.Errorf("unknown header style %q", s)
		}
	}
	return r, nil
}

// familiesFor returns the fields that v asks for: those of its domain, else of
// the service. The configuration has checked the names of the domain's.
func (r *Renderer) familiesFor(v *policy.Verdict) families {
	if v.Headers == nil {
		return r.styles
	}
	var own families
	for _, s := range v.Headers {
		own.add(Style(s))
	}
	return own
}

// Append appends the fields for v to dst. There are none where nothing could
// have denied the request. now is asked for epoch resets alone.
func (r *Renderer) Append(dst []Header, v *policy.Verdict, now func() time.Time) []Header {
	if v.Decisive < 0 {
		return dst
	}
	s := &v.Limits[v.Decisive]
	reset := Seconds(s.Reset())
	f := r.familiesFor(v)
	if s.Blind {
		f = families{}
	}
	var (
		room [256]byte // on the stack; what is longer is not
		text = room[:0]
		all  fields
	)
	if f.rateLimit {
		text = appendPolicies(text, v)
		all.end("ratelimit-policy", text)
		text = appendRateLimit(text, s, reset)
		all.end("ratelimit", text)
	}
	if f.draft03 {
		text = appendQuota(text, v)
		all.end("ratelimit-limit", text)
		text = strconv.AppendUint(text, s.Decision.Remaining, 10)
		all.end("ratelimit-remaining", text)
		text = strconv.AppendInt(text, reset, 10)
		all.end("ratelimit-reset", text)
	}
	if f.x {
		if f.epoch {
			// The first whole second at which the wait is over.
			reset = ceilUnix(now().Add(s.Reset()))
		}
		text = strconv.AppendUint(text, s.Limit.Hits, 10)
		all.end("x-ratelimit-limit", text)
		text = strconv.AppendUint(text, s.Decision.Remaining, 10)
		all.end("x-ratelimit-remaining", text)
		text = strconv.AppendInt(text, reset, 10)
		all.end("x-ratelimit-reset", text)
	}
	if !v.Allowed {
		text = strconv.AppendInt(text, RetryAfter(s), 10)
		all.end("retry-after", text)
	}
	return all.appendTo(dst, string(text))
}

// maxFields is how many fields all styles have together.
const maxFields = 9

// fields are header fields whose values are parts of one text: it is all that they
// leave to the collector.
type fields struct {
	n    int
	name [maxFields]string
	ends [maxFields]int
}

// end says that a field's value is what was appended to text since the last one.
func (f *fields) end(name string, text []byte) {
	f.name[f.n], f.ends[f.n] = name, len(text)
	f.n++
}

// appendTo appends the fields, but none whose value could break a response.
func (f *fields) appendTo(dst []Header, text string) []Header {
	begin := 0
	for i, end := range f.ends[:f.n] {
		if value := text[begin:end]; httpguts.ValidHeaderFieldValue(value) {
			dst = append(dst, Header{f.name[i], value})
		}
		begin = end
	}
	return dst
}

// RetryAfter returns the value of Retry-After for the limit that denied: whole
// seconds, at least 1. It may exceed the window, which a reset does not.
func RetryAfter(s *policy.LimitStatus) int64 { return max(1, Seconds(s.Wait())) }

// Seconds rounds d up to whole seconds and never below zero. Envoy cuts off
// fractions, which would send clients back too early.
func Seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// appendRateLimit writes "name";r=remaining;t=reset.
func appendRateLimit(b []byte, s *policy.LimitStatus, reset int64) []byte {
	b = appendName(b, s.Limit.Policy)
	b = append(b, ";r="...)
	b = strconv.AppendUint(b, s.Decision.Remaining, 10)
	b = append(b, ";t="...)
	return strconv.AppendInt(b, reset, 10)
}

// appendPolicies writes "name";q=limit;w=window for every limit of v that could
// deny.
func appendPolicies(b []byte, v *policy.Verdict) []byte {
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
		b = appendName(b, s.Limit.Policy)
		b = append(b, ";q="...)
		b = strconv.AppendUint(b, s.Limit.Hits, 10)
		b = appendWindow(b, s.Limit.Window)
	}
	return b
}

// appendQuota writes the deciding limit and then every limit that could deny with
// its window.
func appendQuota(b []byte, v *policy.Verdict) []byte {
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
		b = appendWindow(b, s.Limit.Window)
	}
	return b
}

// appendWindow writes ;w=seconds, or nothing for a window that is not a whole
// number of seconds: the parameter is optional and an integer.
func appendWindow(b []byte, window time.Duration) []byte {
	if window%time.Second != 0 {
		return b
	}
	b = append(b, ";w="...)
	return strconv.AppendInt(b, int64(window/time.Second), 10)
}

// appendName writes a structured-field string. Names have no character that
// would need an escape; see policy.ValidName.
func appendName(b []byte, name string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"')
}

func ceilUnix(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}
