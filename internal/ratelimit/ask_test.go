package ratelimit

import (
	"context"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// verdictConn answers each call with a verdict, and keeps the last request.
type verdictConn struct {
	grpc.ClientConnInterface
	verdict *policy.Verdict
	fields  []answer.Header
	asked   *rlsv3.RateLimitRequest
}

func (c *verdictConn) Invoke(_ context.Context, _ string, in, out any, _ ...grpc.CallOption) error {
	c.asked = in.(*rlsv3.RateLimitRequest)
	return proto.Unmarshal(appendAnswer(nil, c.verdict, c.fields, nil), out.(proto.Message))
}

// TestAsk sends every descriptor, and tells the limit of each. A limit in flight with room has no
// numbers in its status.
func TestAsk(t *testing.T) {
	status := func(name string, p window.Policy, hits, remaining uint64) policy.LimitStatus {
		s := limited(name, hits, time.Minute, window.Decision{Allowed: remaining > 0, Remaining: remaining})
		s.Limit.Policy = p
		return s
	}
	sliding, flying, full := status("per-key", window.Sliding, 100, 99), status("backend", window.InFlight, 20, 19), status("backend", window.InFlight, 20, 0)
	policies := func(text string) []answer.Header { return []answer.Header{{Name: "ratelimit-policy", Value: text}} }
	for name, tt := range map[string]struct {
		limits []policy.LimitStatus // one for each descriptor
		none   bool                 // one more descriptor, without a limit
		fields []answer.Header
		want   string
	}{
		"one":                       {limits: []policy.LimitStatus{sliding}, want: "per-key: 99 of 100 remaining"},
		"none":                      {none: true, want: "no limit"},
		"in flight":                 {limits: []policy.LimitStatus{flying}, want: "backend: 19 of 20 places free"},
		"in flight, full":           {limits: []policy.LimitStatus{full}, want: "denied backend: 0 of 20 places free"},
		"several":                   {limits: []policy.LimitStatus{sliding, sliding}, want: "per-key: 99 of 100 remaining; per-key: 99 of 100 remaining"},
		"in flight beside another":  {limits: []policy.LimitStatus{flying, sliding}, fields: policies(`"backend";q=20;qu="concurrent-requests"`), want: "no limit, or places in flight that are free; per-key: 99 of 100 remaining"},
		"in flight beside no limit": {limits: []policy.LimitStatus{flying}, none: true, want: "no limit, or places in flight that are free; no limit, or places in flight that are free"},
		"no limit beside another":   {limits: []policy.LimitStatus{sliding}, none: true, fields: policies(`"per-key";q=100;w=60`), want: "per-key: 99 of 100 remaining; no limit"},
	} {
		v := &policy.Verdict{Allowed: true, Limits: tt.limits, Decisive: -1, Shadowed: -1}
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
		v.Matches = make([]policy.Match, len(sent))
		conn := &verdictConn{verdict: v, fields: tt.fields}
		denied, limits, err := Ask(t.Context(), conn, "edge", sent, 7)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(limits, "; ")
		if denied {
			got = "denied " + got
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if n := len(conn.asked.GetDescriptors()); n != len(sent) || conn.asked.GetHitsAddend() != 7 || len(conn.asked.GetDescriptors()[0].GetEntries()) != len(sent[0]) {
			t.Errorf("%s: asked %v", name, conn.asked)
		}
	}
}
