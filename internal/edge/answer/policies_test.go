package answer

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// counted returns one limit of a verdict with a policy.
func counted(name string, l window.Limit, d window.Decision) decide.LimitStatus {
	s := status(name, l.Hits, l.Window, d)
	s.Limit.Limit = l
	return s
}

var (
	bucket   = window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}
	seventh  = window.Limit{Hits: 50, Rate: 7, Window: time.Second, Policy: window.TokenBucket} // fills in 7.14 s
	fixed    = window.Limit{Hits: 100, Window: time.Minute, Policy: window.Fixed}
	counter  = window.Limit{Hits: 100, Window: time.Minute, Policy: window.SlidingCounter}
	monthly  = window.Limit{Hits: 10_000, Window: 30 * 24 * time.Hour, Policy: window.Calendar}
	inFlight = window.Limit{Hits: 20, Window: 5 * time.Minute, Policy: window.InFlight}
)

// october is a period of 31 days of which 10 days and a half are left.
func october(d window.Decision) decide.LimitStatus {
	const day = 24 * 60 * 60
	s := counted("monthly", monthly, d)
	s.Period.Period = window.Period{Start: 20_000 * day, End: 20_031 * day, Next: 20_061 * day}
	return s
}

const tenDays = 252 * time.Hour // and a half

// TestFieldsOfPolicies has the header fields of every policy: q, w, qu, r, t and Retry-After.
func TestFieldsOfPolicies(t *testing.T) {
	const sec = time.Second
	r := NewRenderer(rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit)
	full := window.Decision{RetryAfter: 33 * sec, UnitAfter: 33 * sec, ResetAfter: 33 * sec}
	for name, tt := range map[string]struct {
		s                     decide.LimitStatus
		policies, limit       string
		quota                 string // of draft03
		reset, retry          string
		rateLimit, xRemaining string
	}{
		"a bucket: q is the burst, w the time to fill": {
			s:        counted("b", bucket, window.Decision{Allowed: true, Remaining: 49, UnitAfter: 100 * time.Millisecond, ResetAfter: 100 * time.Millisecond}),
			policies: `"b";q=50;w=5`, quota: "50, 50;w=5", rateLimit: `"b";r=49;t=1`, limit: "50", xRemaining: "49", reset: "1",
		},
		"w is rounded up": {
			s:        counted("b", seventh, window.Decision{Allowed: true, ResetAfter: 7143 * time.Millisecond, UnitAfter: 143 * time.Millisecond}),
			policies: `"b";q=50;w=8`, quota: "50, 50;w=8", rateLimit: `"b";r=0;t=1`, limit: "50", xRemaining: "0", reset: "1",
		},
		"an empty bucket has a token again soon": {
			s:        counted("b", bucket, window.Decision{RetryAfter: 1999 * time.Millisecond, UnitAfter: 100 * time.Millisecond, ResetAfter: 5 * sec}),
			policies: `"b";q=50;w=5`, quota: "50, 50;w=5", rateLimit: `"b";r=0;t=2`, limit: "50", xRemaining: "0", reset: "2", retry: "2",
		},
		"a bucket with debt: the wait may exceed w": {
			s:        counted("b", bucket, window.Decision{RetryAfter: 8001 * time.Millisecond, UnitAfter: 8001 * time.Millisecond, ResetAfter: 13 * sec}),
			policies: `"b";q=50;w=5`, quota: "50, 50;w=5", rateLimit: `"b";r=0;t=9`, limit: "50", xRemaining: "0", reset: "9", retry: "9",
		},
		"fixed ends with its window": {
			s:        counted("f", fixed, full),
			policies: `"f";q=100;w=60`, quota: "100, 100;w=60", rateLimit: `"f";r=0;t=33`, limit: "100", xRemaining: "0", reset: "33", retry: "33",
		},
		"a counter may wait into the next window": {
			s:        counted("c", counter, window.Decision{RetryAfter: 70 * sec, UnitAfter: 70 * sec, ResetAfter: 110 * sec}),
			policies: `"c";q=100;w=60`, quota: "100, 100;w=60", rateLimit: `"c";r=0;t=70`, limit: "100", xRemaining: "0", reset: "70", retry: "70",
		},
		"calendar: w is the present period": {
			s:        october(window.Decision{Allowed: true, Remaining: 9_999, UnitAfter: tenDays, ResetAfter: tenDays}),
			policies: `"monthly";q=10000;w=2678400`, quota: "10000, 10000;w=2678400", rateLimit: `"monthly";r=9999;t=907200`,
			limit: "10000", xRemaining: "9999", reset: "907200",
		},
		"calendar: an old period may be longer": {
			s:        october(window.Decision{RetryAfter: 40 * 24 * time.Hour, UnitAfter: 40 * 24 * time.Hour, ResetAfter: 40 * 24 * time.Hour}),
			policies: `"monthly";q=10000;w=3456000`, quota: "10000, 10000;w=3456000", rateLimit: `"monthly";r=0;t=3456000`,
			limit: "10000", xRemaining: "0", reset: "3456000", retry: "3456000",
		},
		"in flight, with room: no w and no reset": {
			s:        counted("up", inFlight, window.Decision{Allowed: true, Remaining: 3, UnitAfter: sec, ResetAfter: 5 * time.Minute}),
			policies: `"up";q=20;qu="concurrent-requests"`, quota: "20, 20", rateLimit: `"up";r=3`, limit: "20", xRemaining: "3",
		},
		"in flight, full: one second": {
			s:        counted("up", inFlight, window.Decision{RetryAfter: 4 * time.Minute, UnitAfter: 4 * time.Minute, ResetAfter: 5 * time.Minute}),
			policies: `"up";q=20;qu="concurrent-requests"`, quota: "20, 20", rateLimit: `"up";r=0;t=1`, limit: "20", xRemaining: "0", reset: "1", retry: "1",
		},
		"in flight, full after this request": {
			s:        counted("up", inFlight, window.Decision{Allowed: true, UnitAfter: 4 * time.Minute, ResetAfter: 5 * time.Minute}),
			policies: `"up";q=20;qu="concurrent-requests"`, quota: "20, 20", rateLimit: `"up";r=0;t=1`, limit: "20", xRemaining: "0", reset: "1",
		},
		"in flight, more than max": {
			s:        counted("up", inFlight, window.Decision{Never: true, Remaining: 20}),
			policies: `"up";q=20;qu="concurrent-requests"`, quota: "20, 20", rateLimit: `"up";r=20`, limit: "20", xRemaining: "20",
		},
	} {
		want := map[string]string{
			"ratelimit-policy": tt.policies, "ratelimit": tt.rateLimit, "ratelimit-limit": tt.quota, "ratelimit-remaining": tt.xRemaining,
			"x-ratelimit-limit": tt.limit, "x-ratelimit-remaining": tt.xRemaining,
		}
		for key, value := range map[string]string{"ratelimit-reset": tt.reset, "x-ratelimit-reset": tt.reset, "retry-after": tt.retry} {
			if value != "" {
				want[key] = value
			}
		}
		got := make(map[string]string)
		for _, h := range r.Append(nil, verdictOf(tt.s), unusedClock) {
			if h.Name != "retry-after-ms" && h.Name != "x-should-retry" {
				got[h.Name] = h.Value
			}
			if h.Name != "ratelimit" && h.Name != "ratelimit-policy" {
				continue
			}
			if _, err := httpsfv.UnmarshalList([]string{h.Value}); err != nil {
				t.Errorf("%s: %s: %s: %v", name, h.Name, h.Value, err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSeveralPolicies: every policy of a request is in RateLimit-Policy.
func TestSeveralPolicies(t *testing.T) {
	ok := window.Decision{Allowed: true, Remaining: 10, ResetAfter: time.Second}
	v := verdictOf(half, counted("b", bucket, ok), counted("f", fixed, ok), october(ok), counted("c", counter, ok), counted("up", inFlight, ok))
	got := NewRenderer(rules.StyleRateLimit).Append(nil, v, unusedClock)
	const want = `"per-key";q=100;w=60, "b";q=50;w=5, "f";q=100;w=60, "monthly";q=10000;w=2678400, "c";q=100;w=60, "up";q=20;qu="concurrent-requests"`
	if got[0].Value != want {
		t.Errorf("got  %s\nwant %s", got[0].Value, want)
	}
}

// TestReferenceOfPolicies: requests in flight are described only if they leave no room.
func TestReferenceOfPolicies(t *testing.T) {
	r := NewRenderer(rules.StyleReference)
	for name, tt := range map[string]struct {
		s    decide.LimitStatus
		want string
	}{
		"fixed":                   {counted("f", fixed, window.Decision{Allowed: true, Remaining: 99, UnitAfter: 33 * time.Second, ResetAfter: 33 * time.Second}), "100 99 33"},
		"bucket":                  {counted("b", seventh, window.Decision{Allowed: true, Remaining: 50}), "50 50 8"},
		"calendar":                {october(window.Decision{Allowed: true, Remaining: 9_999, UnitAfter: tenDays, ResetAfter: tenDays}), "10000 9999 907200"},
		"in flight, with room":    {counted("up", inFlight, window.Decision{Allowed: true, Remaining: 1}), ""},
		"in flight, without room": {counted("up", inFlight, window.Decision{RetryAfter: time.Minute}), "20 0 1"},
	} {
		text := ""
		for _, h := range r.Append(nil, verdictOf(tt.s), unusedClock) {
			if !strings.HasPrefix(h.Name, "retry-after") {
				text += " " + h.Value
			}
		}
		if len(text) > 0 {
			text = text[1:]
		}
		if text != tt.want {
			t.Errorf("%s: got %q, want %q", name, text, tt.want)
		}
	}
}

// TestProblemsOfPolicies has the sentence and the members of a denial by every policy.
func TestProblemsOfPolicies(t *testing.T) {
	full := window.Decision{RetryAfter: 33 * time.Second, UnitAfter: 33 * time.Second, ResetAfter: 33 * time.Second}
	for _, tt := range []struct {
		s      decide.LimitStatus
		detail string
		window any
		policy any
		retry  float64
	}{
		{status("r", 5, 250*time.Millisecond, full), "No room under rule r: 5 per 250ms; try again in 33 s.", 0.25, nil, 33},
		{counted("r", bucket, full), "No room under rule r: 10 per 1s, bursts of 50; try again in 33 s.", 5.0, "token_bucket", 33},
		{counted("r", seventh, full), "No room under rule r: 7 per 1s, bursts of 50; try again in 33 s.", 8.0, "token_bucket", 33},
		{counted("r", fixed, full), "No room under rule r: 100 per 1m fixed; try again in 33 s.", 60.0, "fixed", 33},
		{counted("r", counter, full), "No room under rule r: 100 per 1m sliding_counter; try again in 33 s.", 60.0, "sliding_counter", 33},
		{october(full), "The budget of rule monthly is used up: 10000 per month; try again in 33 s.", 2678400.0, "calendar", 33},
		{counted("r", inFlight, full), "No room under rule r: 20 requests in flight; try again in 1 s.", nil, "in_flight", 1},
	} {
		var got struct {
			Detail, Policy any
			Window         any
			Retry          float64 `json:"retry_after"`
		}
		body := []byte(denialOf(verdictOf(tt.s)))
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got.Detail != tt.detail || got.Window != tt.window || got.Policy != tt.policy || got.Retry != tt.retry {
			t.Errorf("got %s\nwant %q, window %v, policy %v, retry after %v", body, tt.detail, tt.window, tt.policy, tt.retry)
		}
	}
}
