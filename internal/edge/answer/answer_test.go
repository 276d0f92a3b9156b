package answer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// status returns one limit of a verdict, the only limit of its rule.
func status(name string, hits uint64, w time.Duration, d window.Decision) decide.LimitStatus {
	return decide.LimitStatus{
		Rule:     &rules.Rule{Name: name},
		Limit:    rules.Limit{Limit: window.Limit{Hits: hits, Window: w}, Name: name},
		Cost:     1,
		Decision: d,
	}
}

// unusedClock is the clock for styles without an epoch.
func unusedClock() time.Time { panic("a style without an epoch reads the clock") }

// verdictOf returns a verdict with the given limits, one for each descriptor. The first limit
// is decisive.
func verdictOf(limits ...decide.LimitStatus) *decide.Verdict {
	v := &decide.Verdict{Allowed: true, Limits: limits, Decisive: -1}
	for i := range limits {
		limits[i].Descriptor = i
		v.Strictest = append(v.Strictest, i)
		v.Decisive = 0
		v.Allowed = v.Allowed && limits[i].Decision.Allowed
	}
	return v
}

var (
	half = status("per-key", 100, time.Minute,
		window.Decision{Allowed: true, Remaining: 50, ResetAfter: 30*time.Second + time.Microsecond})
	last = status("per-key", 100, time.Minute,
		window.Decision{Allowed: true, Remaining: 0, UnitAfter: 1500 * time.Millisecond, ResetAfter: time.Minute})
	denied = status("per-key", 100, time.Minute,
		window.Decision{RetryAfter: 12300 * time.Millisecond, UnitAfter: 12300 * time.Millisecond, ResetAfter: time.Minute})
	never = func() decide.LimitStatus {
		s := status("per-key", 100, time.Minute, window.Decision{Never: true, Remaining: 7})
		s.Cost = 101
		return s
	}()
	daily = status("daily", 9500, 24*time.Hour, window.Decision{Allowed: true, Remaining: 9000, ResetAfter: time.Hour})
	quick = status("quick", 5, 250*time.Millisecond, window.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Millisecond})
)

func TestAppend(t *testing.T) {
	now := time.Unix(1_000_000, 300_000_000)
	tests := []struct {
		name   string
		styles []string
		v      *decide.Verdict
		want   []Header
	}{
		{"nothing limits the request", []string{rules.StyleRateLimit, rules.StyleDraft03}, verdictOf(), nil},
		{"ratelimit, allowed", []string{rules.StyleRateLimit}, verdictOf(half), []Header{
			{"ratelimit-policy", `"per-key";q=100;w=60`}, {"ratelimit", `"per-key";r=50;t=31`},
		}},
		{"reset is the next unit where nothing remains", []string{rules.StyleRateLimit}, verdictOf(last), []Header{
			{"ratelimit-policy", `"per-key";q=100;w=60`}, {"ratelimit", `"per-key";r=0;t=2`},
		}},
		{"every limit is a policy, one speaks", []string{rules.StyleRateLimit}, verdictOf(half, daily), []Header{
			{"ratelimit-policy", `"per-key";q=100;w=60, "daily";q=9500;w=86400`}, {"ratelimit", `"per-key";r=50;t=31`},
		}},
		{"a window below a second has no w", []string{rules.StyleRateLimit, rules.StyleDraft03}, verdictOf(quick), []Header{
			{"ratelimit-policy", `"quick";q=5`},
			{"ratelimit", `"quick";r=4;t=1`},
			{"ratelimit-limit", "5, 5"},
			{"ratelimit-remaining", "4"},
			{"ratelimit-reset", "1"},
		}},
		{"draft03", []string{rules.StyleDraft03}, verdictOf(half, daily), []Header{
			{"ratelimit-limit", "100, 100;w=60, 9500;w=86400"}, {"ratelimit-remaining", "50"}, {"ratelimit-reset", "31"},
		}},
		{"x-ratelimit", []string{rules.StyleXRateLimit}, verdictOf(half), []Header{
			{"x-ratelimit-limit", "100"}, {"x-ratelimit-remaining", "50"}, {"x-ratelimit-reset", "31"},
		}},
		{"epoch is the first whole second after the wait", []string{rules.StyleXRateLimitEpoch}, verdictOf(half), []Header{
			{"x-ratelimit-limit", "100"}, {"x-ratelimit-remaining", "50"}, {"x-ratelimit-reset", "1000031"},
		}},
		{"retry-after whatever the style", nil, verdictOf(denied), []Header{{"retry-after", "13"}, {"retry-after-ms", "12300"}}},
		{"denied", []string{rules.StyleRateLimit}, verdictOf(denied, daily), []Header{
			{"ratelimit-policy", `"per-key";q=100;w=60, "daily";q=9500;w=86400`},
			{"ratelimit", `"per-key";r=0;t=13`},
			{"retry-after", "13"},
			{"retry-after-ms", "12300"},
		}},
		{"a cost above the limit has no wait", nil, verdictOf(never), []Header{{"x-should-retry", "false"}}},
		{"nor a reset", []string{rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit}, verdictOf(never), []Header{
			{"ratelimit-policy", `"per-key";q=100;w=60`},
			{"ratelimit", `"per-key";r=7`},
			{"ratelimit-limit", "100, 100;w=60"},
			{"ratelimit-remaining", "7"},
			{"x-ratelimit-limit", "100"},
			{"x-ratelimit-remaining", "7"},
			{"x-should-retry", "false"},
		}},
		{"nor one in Unix time", []string{rules.StyleXRateLimitEpoch}, verdictOf(never), []Header{
			{"x-ratelimit-limit", "100"}, {"x-ratelimit-remaining", "7"}, {"x-should-retry", "false"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewRenderer(tt.styles...)
			if diff := cmp.Diff(tt.want, r.Append(nil, tt.v, func() time.Time { return now })); diff != "" {
				t.Errorf("Append (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReference chooses the limit that envoyproxy/ratelimit describes.
func TestReference(t *testing.T) {
	of := func(name string, hits, remaining uint64, change func(*decide.LimitStatus)) decide.LimitStatus {
		s := status(name, hits, time.Minute, window.Decision{Allowed: true, Remaining: remaining, UnitAfter: 10 * time.Second, ResetAfter: time.Minute})
		if change != nil {
			change(&s)
		}
		return s
	}
	over := func(s *decide.LimitStatus) {
		s.Decision = window.Decision{Remaining: 5, RetryAfter: 20 * time.Second, UnitAfter: time.Second, ResetAfter: time.Minute}
	}
	observed := func(s *decide.LimitStatus) { over(s); s.Enforcement = verdict.Observed }
	observedByAll := func(s *decide.LimitStatus) { observed(s); s.Enforcement = verdict.ObservedForAll }
	quota := func(s *decide.LimitStatus) { over(s); s.Quota, s.Mode = true, window.Any }
	for name, tt := range map[string]struct {
		limits []decide.LimitStatus
		want   string // limit, remaining, reset
	}{
		"no limit":                        {nil, ""},
		"the fewest remaining":            {[]decide.LimitStatus{of("a", 10, 7, nil), of("b", 100, 6, nil), of("c", 20, 9, nil)}, "100 6 10"},
		"the first of the same":           {[]decide.LimitStatus{of("a", 10, 7, nil), of("b", 100, 7, nil)}, "10 7 10"},
		"the last that denies":            {[]decide.LimitStatus{of("a", 10, 0, over), of("b", 20, 0, over), of("c", 30, 1, nil)}, "20 0 20"},
		"denied after nothing remaining":  {[]decide.LimitStatus{of("a", 10, 0, nil), of("b", 20, 0, over)}, "20 0 20"},
		"observed counts by what remains": {[]decide.LimitStatus{of("a", 10, 3, nil), of("b", 20, 0, observed)}, "20 0 20"},
		"observed does not deny":          {[]decide.LimitStatus{of("a", 10, 0, over), of("b", 20, 0, observed)}, "10 0 20"},
		"observed by rules.shadow_mode":   {[]decide.LimitStatus{of("a", 10, 0, over), of("b", 20, 0, observedByAll)}, "20 0 20"},
		"a quota rule does not deny":      {[]decide.LimitStatus{of("a", 10, 0, over), of("b", 20, 0, quota)}, "10 0 20"},
		"not checked":                     {[]decide.LimitStatus{of("a", 10, 0, func(s *decide.LimitStatus) { over(s); s.DecidedBy = verdict.ByRuleDeny })}, ""},
		"no hits":                         {[]decide.LimitStatus{of("a", 10, 10, func(s *decide.LimitStatus) { s.Decision.UnitAfter = 0 })}, "10 10 60"},
		"never":                           {[]decide.LimitStatus{of("a", 10, 10, func(s *decide.LimitStatus) { s.Decision = window.Decision{Never: true, Remaining: 4} })}, "10 0 60"},
		"longer than the window":          {[]decide.LimitStatus{of("a", 10, 9, func(s *decide.LimitStatus) { s.Decision.UnitAfter = time.Hour })}, "10 9 60"},
	} {
		v := verdictOf(tt.limits...)
		r := NewRenderer(rules.StyleReference).Named(ReferenceNames{"X-Limit", "x-left", "Reset"}).Quiet()
		var names, values []string
		for _, h := range r.Append(nil, v, unusedClock) {
			names, values = append(names, h.Name), append(values, h.Value)
		}
		if got := strings.Join(values, " "); got != tt.want || got != "" && !slices.Equal(names, []string{"X-Limit", "x-left", "Reset"}) {
			t.Errorf("%s: %q in %q, want %q", name, got, names, tt.want)
		}
	}
}

// TestRetryAfterBesideReference: with Quiet, only another style than reference asks for
// Retry-After. The styles may be those of a domain.
func TestRetryAfterBesideReference(t *testing.T) {
	for _, tt := range []struct {
		styles, domain []string
		quiet, want    bool
	}{
		{[]string{rules.StyleReference}, nil, false, true},
		{[]string{rules.StyleReference}, nil, true, false},
		{nil, nil, true, false},
		{[]string{rules.StyleReference, rules.StyleXRateLimit}, nil, true, true},
		{[]string{rules.StyleXRateLimit}, []string{rules.StyleReference}, true, false},
		{nil, []string{rules.StyleDraft03}, true, true},
	} {
		r := NewRenderer(tt.styles...)
		if tt.quiet {
			r = r.Quiet()
		}
		v := verdictOf(denied)
		v.Headers = tt.domain
		got := slices.ContainsFunc(r.Append(nil, v, unusedClock), func(h Header) bool { return h.Name == "retry-after" })
		if got != tt.want {
			t.Errorf("styles %q, of the domain %q, quiet %v: Retry-After %v, want %v", tt.styles, tt.domain, tt.quiet, got, tt.want)
		}
	}
}

// TestResetWithinTheWindow proves that a reset never exceeds the window while something remains,
// although a log may keep hits a little longer. Otherwise it is the true wait.
func TestResetWithinTheWindow(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := NewRenderer(rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit)
	epoch := NewRenderer(rules.StyleXRateLimitEpoch)
	for _, tt := range []struct {
		window, more  time.Duration
		reset, policy string
		retry         string
	}{
		{time.Minute, 0, "60", ";w=60", "60"},
		{time.Minute, time.Microsecond, "60", ";w=60", "61"},
		{time.Minute, time.Second, "60", ";w=60", "61"}, // a lease
		{time.Second, time.Millisecond, "1", ";w=1", "2"},
		{1500 * time.Millisecond, 600 * time.Millisecond, "2", "", "3"},
		{250 * time.Millisecond, 800 * time.Millisecond, "1", "", "2"},
	} {
		wait := tt.window + tt.more
		for name, d := range map[string]window.Decision{
			"something remains": {Allowed: true, Remaining: 99, ResetAfter: wait},
			"nothing remains":   {Allowed: true, UnitAfter: wait, ResetAfter: wait},
			"denied":            {RetryAfter: wait, UnitAfter: wait, ResetAfter: wait},
		} {
			s := status("per-key", 100, tt.window, d)
			v := verdictOf(s)
			left, reset, until := strconv.FormatUint(d.Remaining, 10), tt.reset, tt.window
			if d.Remaining == 0 {
				reset, until = tt.retry, wait
			}
			want := []Header{
				{"ratelimit-policy", `"per-key";q=100` + tt.policy},
				{"ratelimit", `"per-key";r=` + left + `;t=` + reset},
				{"ratelimit-limit", "100, 100" + tt.policy},
				{"ratelimit-remaining", left},
				{"ratelimit-reset", reset},
				{"x-ratelimit-limit", "100"},
				{"x-ratelimit-remaining", left},
				{"x-ratelimit-reset", reset},
			}
			if !d.Allowed {
				want = append(want, Header{"retry-after", tt.retry}, Header{"retry-after-ms", strconv.FormatInt(milliseconds(wait), 10)})
				if body := denialOf(v); !strings.Contains(body, `"retry_after":`+tt.retry+`,`) {
					t.Errorf("%v, %s: got body %s, want the true wait %s", wait, name, body, tt.retry)
				}
			}
			if diff := cmp.Diff(want, r.Append(nil, v, unusedClock)); diff != "" {
				t.Errorf("%v, %s (-want +got):\n%s", wait, name, diff)
			}
			got := epoch.Append(nil, v, func() time.Time { return now })
			if want := (Header{"x-ratelimit-reset", strconv.FormatInt(1_000_000+Seconds(until), 10)}); got[2] != want {
				t.Errorf("%v, %s: got %v, want %v", wait, name, got[2], want)
			}
		}
	}
}

// TestRetry: SDKs get the exact wait, and are asked to give up if it is long, if no wait helps, or
// if the rule says so.
func TestRetry(t *testing.T) {
	for name, tt := range map[string]struct {
		wait             time.Duration
		never            bool
		inSeconds, exact string
		givesUp          bool
	}{
		"exact":               {59300*time.Millisecond + time.Microsecond, false, "60", "59301", false},
		"at least 1":          {0, false, "1", "1", false},
		"a part of a second":  {time.Microsecond, false, "1", "1", false},
		"the longest":         {120 * time.Second, false, "120", "120000", false},
		"longer":              {120*time.Second + 1, false, "121", "120001", true},
		"tomorrow":            {20 * time.Hour, false, "72000", "72000000", true},
		"client_retry: never": {time.Second, true, "1", "1000", true},
	} {
		s := status("per-key", 100, 24*time.Hour, window.Decision{RetryAfter: tt.wait, UnitAfter: tt.wait})
		s.Rule.Answer.NeverRetry = tt.never
		want := []Header{{"retry-after", tt.inSeconds}, {"retry-after-ms", tt.exact}}
		if tt.givesUp {
			want = append(want, Header{"x-should-retry", "false"})
		}
		if diff := cmp.Diff(want, NewRenderer().Append(nil, verdictOf(s), unusedClock)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	allowed := half
	allowed.Rule = &rules.Rule{Name: "per-key", Answer: rules.Answer{NeverRetry: true}}
	if got := NewRenderer().Append(nil, verdictOf(allowed), unusedClock); got != nil {
		t.Errorf("an allowed request has the fields %v, want none", got)
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Hour: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 59300 * time.Millisecond: 60,
	} {
		if got := Seconds(d); got != want {
			t.Errorf("Seconds(%v) = %d, want %d", d, got, want)
		}
	}
}

// TestStructuredFields reads the fields with a parser of RFC 9651.
func TestStructuredFields(t *testing.T) {
	r := NewRenderer(rules.StyleRateLimit)
	for _, h := range r.Append(nil, verdictOf(half, daily, quick), unusedClock) {
		list, err := httpsfv.UnmarshalList([]string{h.Value})
		if err != nil {
			t.Errorf("%s: %s: %v", h.Name, h.Value, err)
			continue
		}
		first := list[0].(httpsfv.Item)
		if first.Value != "per-key" {
			t.Errorf("%s: first item %v, want the string per-key", h.Name, first.Value)
		}
		for _, name := range first.Params.Names() {
			if p, _ := first.Params.Get(name); !isInt(p) {
				t.Errorf("%s: parameter %s is %T, want an integer", h.Name, name, p)
			}
		}
	}
}

func isInt(v any) bool { _, ok := v.(int64); return ok }

// TestUnsafeValuesAreLeftOut uses names that the configuration refuses. Only a bug elsewhere
// could let them through.
func TestUnsafeValuesAreLeftOut(t *testing.T) {
	r := NewRenderer(rules.StyleRateLimit, rules.StyleXRateLimit)
	for _, name := range []string{"a\r\nset-cookie: x=1", "a\nb", "a\x00b", "a\x7f"} {
		evil := half
		evil.Limit.Name = name
		for _, h := range r.Append(nil, verdictOf(evil), unusedClock) {
			if strings.ContainsAny(h.Value, "\r\n\x00\x7f") {
				t.Errorf("name %q: field %s was sent as %q", name, h.Name, h.Value)
			}
			if strings.HasPrefix(h.Name, "ratelimit") {
				t.Errorf("name %q: field %s was sent as %q, want it left out", name, h.Name, h.Value)
			}
		}
	}
}

func TestPoliciesAreBounded(t *testing.T) {
	r := NewRenderer(rules.StyleRateLimit, rules.StyleDraft03)
	var many []decide.LimitStatus
	for range 200 {
		many = append(many, half)
	}
	for _, h := range r.Append(nil, verdictOf(many...), unusedClock) {
		if len(h.Value) > 1024 {
			t.Errorf("%s has %d bytes for 200 limits, want a bound", h.Name, len(h.Value))
		}
	}
}

// TestWhatCannotDenyIsInNoField adds limits that could not have denied the request to an
// enforced limit. No field mentions them.
func TestWhatCannotDenyIsInNoField(t *testing.T) {
	r := NewRenderer(rules.StyleRateLimit, rules.StyleDraft03)
	change := func(s decide.LimitStatus, how func(*decide.LimitStatus)) decide.LimitStatus {
		how(&s)
		return s
	}
	for name, tt := range map[string]struct {
		beside decide.LimitStatus
		shown  bool
	}{
		"enforced":           {daily, true},
		"quota":              {change(daily, func(s *decide.LimitStatus) { s.Mode, s.Quota = window.Any, true }), true},
		"always":             {change(daily, func(s *decide.LimitStatus) { s.Mode = window.Always }), true},
		"observed":           {change(daily, func(s *decide.LimitStatus) { s.Mode, s.Enforcement = window.Observe, verdict.Observed }), false},
		"always, observed":   {change(daily, func(s *decide.LimitStatus) { s.Mode, s.Enforcement = window.Always, verdict.Observed }), false},
		"quota that passes":  {change(daily, func(s *decide.LimitStatus) { s.Mode, s.Quota = window.Observe, true }), false},
		"refund":             {change(daily, func(s *decide.LimitStatus) { s.Mode = window.Refund }), false},
		"refund, observed":   {change(daily, func(s *decide.LimitStatus) { s.Mode, s.Enforcement = window.Refund, verdict.Observed }), false},
		"nothing to compare": {half, true},
	} {
		v := verdictOf(tt.beside, half)
		v.Decisive = 1
		policies, quota := `"per-key";q=100;w=60`, "100, 100;w=60"
		if tt.shown {
			l := tt.beside.Limit
			item := fmt.Sprintf("q=%d;w=%.0f", l.Hits, l.Window.Seconds())
			policies = fmt.Sprintf("%q;%s, %s", l.Name, item, policies)
			quota = fmt.Sprintf("100, %s, 100;w=60", item[2:])
		}
		want := []Header{
			{"ratelimit-policy", policies},
			{"ratelimit", `"per-key";r=50;t=31`},
			{"ratelimit-limit", quota},
			{"ratelimit-remaining", "50"},
			{"ratelimit-reset", "31"},
		}
		if diff := cmp.Diff(want, r.Append(nil, v, unusedClock)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestStylesOfADomain(t *testing.T) {
	r := NewRenderer(rules.StyleRateLimit)
	for _, tt := range []struct {
		own  []string
		want []string
	}{
		{nil, []string{"ratelimit-policy", "ratelimit"}},
		{[]string{}, nil},
		{[]string{"draft03"}, []string{"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"}},
		{[]string{"x-ratelimit", "ratelimit"}, []string{"ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}},
		{[]string{"no style"}, nil},
	} {
		for _, v := range []*decide.Verdict{verdictOf(half), verdictOf(denied)} {
			v.Headers = tt.own
			var got []string
			for _, h := range r.Append(nil, v, unusedClock) {
				got = append(got, h.Name)
			}
			want := tt.want
			if !v.Allowed {
				want = append(slices.Clone(want), "retry-after", "retry-after-ms")
			}
			if !slices.Equal(got, want) {
				t.Errorf("styles %q, allowed %v: %q, want %q", tt.own, v.Allowed, got, want)
			}
		}
	}
	own := verdictOf(half)
	own.Headers = []string{"x-ratelimit-epoch"}
	if got := r.Append(nil, own, func() time.Time { return time.Unix(1_000_000, 0) }); len(got) != 3 || got[2].Value != "1000031" {
		t.Errorf("epoch of a domain: %v, want the time at which the wait is over", got)
	}
	dst := make([]Header, 0, maxFields)
	service := testing.AllocsPerRun(100, func() { dst = r.Append(dst[:0], verdictOf(half), unusedClock) })
	styles := []string{"ratelimit"}
	domain := testing.AllocsPerRun(100, func() {
		v := verdictOf(half)
		v.Headers = styles
		dst = r.Append(dst[:0], v, unusedClock)
	})
	if domain > service {
		t.Errorf("%v allocations with the styles of a domain, %v with the service's", domain, service)
	}
}

// TestOneText proves that all values are parts of one text. Leaving out one value does not
// change the others.
func TestOneText(t *testing.T) {
	r := NewRenderer(rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit)
	for name, v := range map[string]*decide.Verdict{"allowed": verdictOf(half), "denied": verdictOf(denied, daily)} {
		dst := make([]Header, 0, maxFields)
		if n := testing.AllocsPerRun(100, func() { dst = r.Append(dst[:0], v, unusedClock) }); n > 1 {
			t.Errorf("%s: %v allocations, want that of the text", name, n)
		}
		for _, h := range dst {
			if !httpguts.ValidHeaderFieldName(h.Name) || strings.ToLower(h.Name) != h.Name {
				t.Errorf("%s: field %q", name, h.Name)
			}
		}
		v.Limits[0].Limit.Name = "a\nb"
		if got := r.Append(nil, v, unusedClock); !slices.Equal(got, dst[2:]) {
			t.Errorf("%s: without the first two fields %q, want %q", name, got, dst[2:])
		}
	}
}

// denialOf returns the body of a denial on a route without a form.
func denialOf(v *decide.Verdict) string {
	_, body := AppendDenial(nil, nil, v, About{})
	return string(body)
}

func TestAppendDenial(t *testing.T) {
	problem := func(title string) string { return `"title":` + title + `,"status":429` }
	for _, tt := range []struct {
		name        string
		denial      rules.Denial
		contentType string
		has         string // a part of the body
	}{
		{"the service's own words", rules.Denial{}, ContentTypeProblem, problem(`"Too Many Requests"`)},
		{"a body", rules.Denial{Body: "Slow down, \"friend\".\n", ContentType: "text/plain"}, "text/plain", "Slow down, \"friend\".\n"},
		{"a body and its type", rules.Denial{Body: "<p>é", ContentType: "text/html"}, "text/html", "<p>é"},
		{"a type without a body", rules.Denial{ContentType: "text/html"}, ContentTypeProblem, problem(`"Too Many Requests"`)},
	} {
		s := denied
		s.Rule = &rules.Rule{Name: "per-key", Answer: rules.Answer{Denial: tt.denial}}
		v := verdictOf(s)
		fields, appended := AppendDenial(nil, []byte("before "), v, About{})
		if want := []Header{{"content-type", tt.contentType}}; !slices.Equal(fields, want) {
			t.Errorf("%s: fields %q, want %q", tt.name, fields, want)
		}
		body := string(appended)
		if !strings.HasPrefix(body, "before ") || !strings.Contains(body, tt.has) {
			t.Errorf("%s: body %q, want %q in it, after what was there", tt.name, body, tt.has)
		}
		if body = strings.TrimPrefix(body, "before "); tt.contentType == ContentTypeProblem && !json.Valid([]byte(body)) {
			t.Errorf("%s: body %q is not JSON", tt.name, body)
		} else if tt.contentType != ContentTypeProblem && body != tt.has {
			t.Errorf("%s: body %q, want the rule's alone", tt.name, body)
		}
	}
}

// TestUndecidedDenial denies because the store could not decide. No field mentions the quota,
// because what remains is unknown.
func TestUndecidedDenial(t *testing.T) {
	s := status("per-key", 100, time.Minute, window.Decision{RetryAfter: time.Second})
	s.DecidedBy = verdict.ByRuleDeny
	// The rule's own body describes an exceeded limit.
	s.Rule.Answer.Denial = rules.Denial{Body: "You have used it up.", ContentType: "text/html"}
	v := verdictOf(s)
	r := NewRenderer(rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit)
	if diff := cmp.Diff([]Header{{"retry-after", "1"}, {"retry-after-ms", "1000"}}, r.Append(nil, v, unusedClock)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(denialOf(v)), &got); err != nil {
		t.Fatalf("the body is not JSON: %v", err)
	}
	want := map[string]any{
		"type": reducedCapacity, "title": "The Limit Cannot Be Checked", "status": 429.0,
		"detail": "Rule per-key cannot be checked now; try again in 1 s.",
		"rule":   "per-key", "limit": 100.0, "window": 60.0, "retry_after": 1.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problem (-want +got):\n%s", diff)
	}
	// If the store has decided, the denial is like any other.
	v.Limits[v.Decisive].DecidedBy = verdict.ByStore
	if got := r.Append(nil, v, unusedClock); len(got) != 10 {
		t.Errorf("decided by the store: %v, want all fields", got)
	}
}

func TestProblem(t *testing.T) {
	tests := []struct {
		name string
		v    *decide.Verdict
		want map[string]any // besides what all have
	}{
		{"denied", verdictOf(denied), map[string]any{
			"type": quotaExceeded, "title": "Too Many Requests", "retry_after": 13.0,
			"detail": "No room under rule per-key: 100 per 1m; try again in 13 s.",
		}},
		{"a cost above the limit", verdictOf(never), map[string]any{
			"type": costAboveLimit, "title": "The Cost Is Above The Limit", "cost": 101.0,
			"detail": "This request costs 101, more than is ever free under rule per-key: 100 per 1m.",
		}},
		{"a limit of 0", verdictOf(status("per-key", 0, time.Minute, window.Decision{Never: true})), map[string]any{
			"type": costAboveLimit, "title": "The Cost Is Above The Limit", "cost": 1.0, "limit": 0.0,
			"detail": "No request passes under rule per-key: 0 per 1m.",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got map[string]any
			if err := json.Unmarshal([]byte(denialOf(tt.v)), &got); err != nil {
				t.Fatalf("the body is not JSON: %v", err)
			}
			for name, value := range map[string]any{
				"status": 429.0, "rule": "per-key", "limit": 100.0, "window": 60.0, "violated-policies": []any{"per-key"},
			} {
				if _, own := tt.want[name]; !own {
					tt.want[name] = value
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
		})
	}
}
