package ratelimit

import (
	"fmt"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestStatusOfPolicies has what Envoy is told of a limit of every policy: current_limit with a
// unit that is exactly true or unknown, and duration_until_reset. The metadata names the policy.
func TestStatusOfPolicies(t *testing.T) {
	const day = 24 * 60 * 60
	period := func(days int64) window.Period {
		return window.Period{Start: 20_000 * day, End: (20_000 + days) * day, Next: (20_040 + days) * day}
	}
	month := window.Limit{Hits: 100, Window: 30 * 24 * time.Hour, Policy: window.Calendar}
	full := window.Decision{RetryAfter: 1500 * time.Millisecond, UnitAfter: 1500 * time.Millisecond, ResetAfter: 5 * time.Minute}
	room := window.Decision{Allowed: true, Remaining: 7, UnitAfter: time.Second, ResetAfter: 2500 * time.Millisecond}
	for name, tt := range map[string]struct {
		l      window.Limit
		period window.Period
		d      window.Decision
		want   string // code, limit per multiplier unit, remaining, reset
		policy string
	}{
		"sliding":                       {l: window.Limit{Hits: 100, Window: time.Minute}, d: full, want: "OVER_LIMIT 100 per 1 MINUTE, 0 in 2"},
		"a bucket that fills in 5 s":    {l: window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}, d: full, want: "OVER_LIMIT 50 per 5 SECOND, 0 in 2", policy: "token_bucket"},
		"a bucket that fills in 50/7 s": {l: window.Limit{Hits: 50, Rate: 7, Window: time.Second, Policy: window.TokenBucket}, d: room, want: "OK 50 per 1 UNKNOWN, 7 in 3", policy: "token_bucket"},
		"a bucket that fills in 2.5 s":  {l: window.Limit{Hits: 25, Rate: 10, Window: time.Second, Policy: window.TokenBucket}, d: room, want: "OK 25 per 1 UNKNOWN, 7 in 3", policy: "token_bucket"},
		"fixed":                         {l: window.Limit{Hits: 100, Window: time.Hour, Policy: window.Fixed}, d: room, want: "OK 100 per 1 HOUR, 7 in 3", policy: "fixed"},
		"sliding_counter":               {l: window.Limit{Hits: 100, Window: time.Hour, Policy: window.SlidingCounter}, d: room, want: "OK 100 per 1 HOUR, 7 in 3", policy: "sliding_counter"},
		"a month of 30 days":            {l: month, period: period(30), d: room, want: "OK 100 per 1 MONTH, 7 in 3", policy: "calendar"},
		"a month of 31 days":            {l: month, period: period(31), d: room, want: "OK 100 per 31 DAY, 7 in 3", policy: "calendar"},
		"a month of 28 days":            {l: month, period: period(28), d: room, want: "OK 100 per 4 WEEK, 7 in 3", policy: "calendar"},
		"in flight, with room":          {l: window.Limit{Hits: 20, Window: time.Minute, Policy: window.InFlight}, d: room, want: "OK no limit, 0 in -1", policy: "in_flight"},
		"in flight, full":               {l: window.Limit{Hits: 20, Window: time.Minute, Policy: window.InFlight}, d: full, want: "OVER_LIMIT 20 per 1 UNKNOWN, 0 in 1", policy: "in_flight"},
	} {
		s := limited("r", tt.l.Hits, tt.l.Window, tt.d)
		s.Limit.Limit, s.Period.Period = tt.l, tt.period
		v := &decide.Verdict{Allowed: tt.d.Allowed, Limits: []decide.LimitStatus{s}, Strictest: []int{0}, Matches: make([]decide.Match, 1), Shadowed: -1}
		var got rlsv3.RateLimitResponse
		if err := proto.Unmarshal(appendAnswer(nil, v, nil, nil), &got); err != nil {
			t.Fatal(err)
		}
		st := got.GetStatuses()[0]
		limit, reset := "no limit", int64(-1)
		if l := st.GetCurrentLimit(); l != nil {
			limit = fmt.Sprintf("%d per %d %v", l.GetRequestsPerUnit(), max(l.GetUnitMultiplier().GetValue(), 1), l.GetUnit())
		}
		if d := st.GetDurationUntilReset(); d != nil {
			reset = d.GetSeconds()
		}
		if text := fmt.Sprintf("%v %s, %d in %d", st.GetCode(), limit, st.GetLimitRemaining(), reset); text != tt.want {
			t.Errorf("%s: got %s, want %s", name, text, tt.want)
		}
		if p := got.GetDynamicMetadata().GetFields()["policy"].GetStringValue(); p != tt.policy {
			t.Errorf("%s: metadata has the policy %q, want %q", name, p, tt.policy)
		}
	}
}
