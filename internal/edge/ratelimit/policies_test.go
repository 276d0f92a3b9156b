package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/pkg/descriptors"
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
		if err := proto.Unmarshal(answerOf(nil, v, nil, nil), &got); err != nil {
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

// verdictConn answers each call with a verdict, and keeps the last request.
type verdictConn struct {
	grpc.ClientConnInterface
	verdict *decide.Verdict
	fields  []answer.Header
	answer  *rlsv3.RateLimitResponse // instead of that of the verdict
	asked   *rlsv3.RateLimitRequest
}

func (c *verdictConn) Invoke(_ context.Context, _ string, in, out any, _ ...grpc.CallOption) error {
	c.asked = in.(*rlsv3.RateLimitRequest)
	if c.answer != nil {
		proto.Merge(out.(proto.Message), c.answer)
		return nil
	}
	return proto.Unmarshal(answerOf(nil, c.verdict, c.fields, nil), out.(proto.Message))
}

// TestAsk sends every descriptor, and tells the limit of each. A limit in flight with room has no
// numbers in its status.
func TestAsk(t *testing.T) {
	status := func(name string, p window.Policy, hits, remaining uint64) decide.LimitStatus {
		s := limited(name, hits, time.Minute, window.Decision{Allowed: remaining > 0, Remaining: remaining})
		s.Limit.Policy = p
		return s
	}
	sliding, flying, full := status("per-key", window.Sliding, 100, 99), status("backend", window.InFlight, 20, 19), status("backend", window.InFlight, 20, 0)
	policies := func(text string) []answer.Header { return []answer.Header{{Name: "ratelimit-policy", Value: text}} }
	for name, tt := range map[string]struct {
		limits []decide.LimitStatus // one for each descriptor
		none   bool                 // one more descriptor, without a limit
		fields []answer.Header
		want   string
	}{
		"one":                       {limits: []decide.LimitStatus{sliding}, want: "per-key: 99 of 100 remaining"},
		"none":                      {none: true, want: "no limit"},
		"in flight":                 {limits: []decide.LimitStatus{flying}, want: "backend: 19 of 20 slots free"},
		"in flight, full":           {limits: []decide.LimitStatus{full}, want: "denied backend: 0 of 20 slots free"},
		"several":                   {limits: []decide.LimitStatus{sliding, sliding}, want: "per-key: 99 of 100 remaining; per-key: 99 of 100 remaining"},
		"in flight beside another":  {limits: []decide.LimitStatus{flying, sliding}, fields: policies(`"backend";q=20;qu="concurrent-requests"`), want: "no limit, or free slots in flight; per-key: 99 of 100 remaining"},
		"in flight beside no limit": {limits: []decide.LimitStatus{flying}, none: true, want: "no limit, or free slots in flight; no limit, or free slots in flight"},
		"no limit beside another":   {limits: []decide.LimitStatus{sliding}, none: true, fields: policies(`"per-key";q=100;w=60`), want: "per-key: 99 of 100 remaining; no limit"},
	} {
		v := &decide.Verdict{Allowed: true, Limits: tt.limits, Decisive: -1, Shadowed: -1}
		var sent []descriptors.Descriptor
		for i := range tt.limits {
			v.Strictest, v.Allowed = append(v.Strictest, i), v.Allowed && tt.limits[i].Decision.Allowed
			if v.Decisive < 0 || tt.limits[i].Limit.Policy != window.InFlight {
				v.Decisive = i
			}
			sent = append(sent, descriptors.Descriptor{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}})
		}
		if tt.none {
			v.Strictest = append(v.Strictest, -1)
			sent = append(sent, descriptors.Descriptor{{Key: "c"}})
		}
		v.Matches = make([]decide.Match, len(sent))
		conn := &verdictConn{verdict: v, fields: tt.fields}
		r, err := Ask(t.Context(), conn, "edge", sent, 7)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(r.Limits, "; ")
		if r.Denied {
			got = "denied " + got
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if n := len(conn.asked.GetDescriptors()); n != len(sent) || conn.asked.GetHitsAddend() != 7 || len(conn.asked.GetDescriptors()[0].GetEntries()) != len(sent[0]) {
			t.Errorf("%s: asked %v", name, conn.asked)
		}
	}

	// A question of 0 says so in each descriptor: in the request, 0 would mean 1.
	conn := &verdictConn{verdict: &decide.Verdict{Allowed: true, Decisive: -1, Shadowed: -1, Strictest: []int{-1, -1}, Matches: make([]decide.Match, 2)}}
	if _, err := Ask(t.Context(), conn, "edge", []descriptors.Descriptor{{{Key: "a"}}, {{Key: "b"}}}, 0); err != nil {
		t.Fatal(err)
	}
	for _, d := range conn.asked.GetDescriptors() {
		if d.GetHitsAddend() == nil || d.GetHitsAddend().GetValue() != 0 {
			t.Errorf("asked with 0: got %v", conn.asked)
		}
	}
}

// TestAskDenied tells how long a denial lasts, also if the answer has only statuses.
func TestAskDenied(t *testing.T) {
	of := func(name string, wait time.Duration) decide.LimitStatus {
		return limited(name, 40, time.Hour, window.Decision{RetryAfter: wait, UnitAfter: wait, ResetAfter: wait, Never: wait == 0})
	}
	status := func(limit uint32, seconds int64) *rlsv3.RateLimitResponse_DescriptorStatus {
		return &rlsv3.RateLimitResponse_DescriptorStatus{
			Code: rlsv3.RateLimitResponse_OVER_LIMIT, CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: limit},
			DurationUntilReset: &durationpb.Duration{Seconds: seconds},
		}
	}
	for name, tt := range map[string]struct {
		answer *rlsv3.RateLimitResponse // instead of that of the verdict
		limit  decide.LimitStatus
		hits   uint32
		want   Reply
	}{
		"a wait":                  {limit: of("a", 3598*time.Second+1), hits: 1, want: Reply{Rule: "a", Wait: 3599 * time.Second}},
		"above the limit":         {limit: of("a", 0), hits: 41, want: Reply{Rule: "a", Never: true}},
		"statuses":                {answer: &rlsv3.RateLimitResponse{Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{status(9, 5), status(9, 8), {}}}, hits: 1, want: Reply{Wait: 8 * time.Second}},
		"statuses, above a limit": {answer: &rlsv3.RateLimitResponse{Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{status(9, 5), status(3, 8)}}, hits: 4, want: Reply{Never: true}},
		"a limit of 0":            {answer: &rlsv3.RateLimitResponse{Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{status(0, 60)}}, want: Reply{Never: true}},
		"a header": {answer: &rlsv3.RateLimitResponse{
			Statuses:             []*rlsv3.RateLimitResponse_DescriptorStatus{status(9, 5)},
			ResponseHeadersToAdd: []*corev3.HeaderValue{{Key: "retry-after", Value: "70"}},
		}, hits: 1, want: Reply{Wait: 70 * time.Second}},
		"nothing":  {answer: new(rlsv3.RateLimitResponse), hits: 1},
		"degraded": {limit: of("a", time.Minute), hits: 1, want: Reply{Rule: "a", Wait: time.Minute, Degraded: true}},
	} {
		v := &decide.Verdict{Limits: []decide.LimitStatus{tt.limit}, Strictest: []int{0}, Shadowed: -1, Matches: make([]decide.Match, 1), Degraded: tt.want.Degraded}
		conn := &verdictConn{verdict: v}
		if tt.answer != nil {
			tt.answer.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
			conn.answer = tt.answer
		}
		got, err := Ask(t.Context(), conn, "edge", []descriptors.Descriptor{{{Key: "a"}}}, tt.hits)
		if err != nil {
			t.Fatal(err)
		}
		got.Limits, tt.want.Denied = nil, true
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
