package ratelimit

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/headers"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window"
)

// asMessage builds the answer as a message of the protobuf library. It is what
// appendAnswer is compared with.
func asMessage(v *policy.Verdict, fields []headers.Header) *rlsv3.RateLimitResponse {
	out := &rlsv3.RateLimitResponse{OverallCode: code(v.Allowed)}
	for _, at := range v.Strictest {
		st := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
		if at >= 0 {
			s := &v.Limits[at]
			unit, multiplier := unitOf(s.Limit.Window)
			limit := &rlsv3.RateLimitResponse_RateLimit{Name: s.Rule.Name, RequestsPerUnit: saturate(s.Limit.Hits), Unit: unit}
			if multiplier > 1 {
				limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
			}
			st = &rlsv3.RateLimitResponse_DescriptorStatus{
				Code:               code(s.Decision.Allowed),
				CurrentLimit:       limit,
				LimitRemaining:     saturate(s.Decision.Remaining),
				DurationUntilReset: &durationpb.Duration{Seconds: headers.Seconds(s.Reset())},
			}
		}
		out.Statuses = append(out.Statuses, st)
	}
	for _, f := range fields {
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &corev3.HeaderValue{Key: f.Name, Value: f.Value})
	}
	if !v.Allowed {
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd,
			&corev3.HeaderValue{Key: "content-type", Value: headers.ContentType})
		out.RawBody = headers.AppendProblem(nil, v)
	}
	if v.Decisive >= 0 {
		s := &v.Limits[v.Decisive]
		m := map[string]*structpb.Value{
			"rule":      structpb.NewStringValue(s.Rule.Name),
			"limit":     structpb.NewNumberValue(float64(s.Limit.Hits)),
			"remaining": structpb.NewNumberValue(float64(s.Decision.Remaining)),
		}
		if s.Tier != "" {
			m["tier"] = structpb.NewStringValue(s.Tier)
		}
		if s.Subject != "" {
			m["subject"] = structpb.NewStringValue(s.Subject)
		}
		if !v.Allowed {
			m["retry_after"] = structpb.NewNumberValue(float64(headers.RetryAfter(s)))
		}
		out.DynamicMetadata = &structpb.Struct{Fields: m}
	}
	return out
}

// compare writes v in both ways.
func compare(t *testing.T, v *policy.Verdict, fields []headers.Header) {
	t.Helper()
	message := asMessage(v, fields)
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	const before = "what is there already"
	got := appendAnswer([]byte(before), v, fields)
	if !bytes.HasPrefix(got, []byte(before)) {
		t.Errorf("the answer overwrites what it is appended to: %q", got[:len(before)])
	}
	got = got[len(before):]
	if bytes.Equal(got, want) {
		return
	}
	read := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(got, read); err != nil {
		t.Fatalf("the answer cannot be read: %v\n% x", err, got)
	}
	t.Errorf("answer (-want +got):\n%s\nbytes (-want +got):\n-% x\n+% x", cmp.Diff(message, read, protocmp.Transform()), want, got)
}

// limited is one limit of a verdict.
func limited(rule string, hits uint64, w time.Duration, d window.Decision) policy.LimitStatus {
	return policy.LimitStatus{
		Rule:     &policy.Rule{Name: rule},
		Limit:    policy.Limit{Limit: window.Limit{Hits: hits, Window: w}, Policy: rule},
		Cost:     1,
		Decision: d,
	}
}

func TestAnswerIsWhatProtobufWrites(t *testing.T) {
	ok := window.Decision{Allowed: true, Remaining: 50, ResetAfter: 30 * time.Second}
	none := window.Decision{Allowed: true, UnitAfter: time.Second, ResetAfter: time.Minute}
	denied := window.Decision{RetryAfter: 1500 * time.Millisecond, UnitAfter: time.Second, ResetAfter: time.Minute}
	perKey := limited("per-key", 100, time.Minute, ok)
	perKey.Tier, perKey.Subject = "free", "hobby"
	var many []policy.LimitStatus
	for range 300 {
		many = append(many, limited(strings.Repeat("n", 64), 5, 90*time.Second, denied))
	}
	long := func(n int) policy.LimitStatus {
		s := perKey
		s.Subject = strings.Repeat("é", n)
		return s
	}
	tests := map[string][]policy.LimitStatus{
		"nothing limits the request": nil,
		"allowed":                    {perKey},
		"nothing remains":            {limited("r", 100, time.Minute, none)},
		"denied":                     {limited("r", 100, time.Minute, denied), perKey},
		"never":                      {limited("r", 100, time.Minute, window.Decision{Never: true, Remaining: 7})},
		"a limit of zero":            {limited("r", 0, time.Minute, window.Decision{Never: true})},
		"the largest numbers":        {limited("r", math.MaxUint64, window.MaxWindow, window.Decision{Allowed: true, Remaining: math.MaxUint64, ResetAfter: math.MaxInt64})},
		"a window without a unit":    {limited("r", 1, 1500*time.Millisecond, ok)},
		"a length of two bytes":      {long(64), long(100)},
		"a length of three bytes":    {long(8192), long(20_000)},
		"many":                       many,
	}
	for _, u := range windowUnits {
		tests["unit "+u.unit.String()] = []policy.LimitStatus{limited("r", 1, u.length, ok), limited("r", 1, 3*u.length, ok)}
	}
	render, err := headers.NewRenderer(headers.StyleRateLimit, headers.StyleDraft03, headers.StyleXRateLimit)
	if err != nil {
		t.Fatal(err)
	}
	for name, limits := range tests {
		t.Run(name, func(t *testing.T) {
			// A descriptor without a rule stands between those with one.
			v := &policy.Verdict{Allowed: true, Limits: limits, Strictest: []int{-1}, Decisive: min(0, len(limits)-1)}
			for i, s := range limits {
				v.Strictest = append(v.Strictest, i)
				v.Allowed = v.Allowed && s.Decision.Allowed
			}
			compare(t, v, render.Append(nil, v, time.Unix(1_000_000, 0)))
		})
	}
}

// FuzzAnswer compares what appendAnswer writes with what the protobuf library
// does, and that what the library refuses to write can be read nevertheless.
func FuzzAnswer(f *testing.F) {
	f.Add("per-key", "free", "hobby", "ratelimit", `"per-key";r=1;t=2`, uint64(100), uint64(50), int64(time.Minute), int64(time.Second), true, false)
	f.Add("", "", "", "", "", uint64(0), uint64(0), int64(0), int64(0), false, true)
	f.Add("r", strings.Repeat("x", 127), strings.Repeat("x", 128), "n", "v\xff", uint64(math.MaxUint64), uint64(math.MaxUint64), int64(math.MaxInt64), int64(-1), false, false)
	f.Fuzz(func(t *testing.T, rule, tierName, subject, name, value string, hits, remaining uint64, length, wait int64, allowed, never bool) {
		s := limited(rule, hits, time.Duration(length), window.Decision{
			Allowed: allowed, Never: never, Remaining: remaining,
			RetryAfter: time.Duration(wait), UnitAfter: time.Duration(wait), ResetAfter: time.Duration(wait),
		})
		s.Tier, s.Subject = tierName, subject
		v := &policy.Verdict{Allowed: allowed, Limits: []policy.LimitStatus{s}, Strictest: []int{-1, 0, 0}, Decisive: 0}
		fields := []headers.Header{{Name: name, Value: value}}
		if utf8.ValidString(rule + "\x00" + tierName + "\x00" + subject + "\x00" + name + "\x00" + value) {
			compare(t, v, fields)
			return
		}
		if err := proto.Unmarshal(appendAnswer(nil, v, fields), new(rlsv3.RateLimitResponse)); err != nil {
			t.Errorf("the answer cannot be read: %v", err)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	s := limited("per-key", 100, time.Minute, window.Decision{Allowed: true, Remaining: 50, ResetAfter: 30 * time.Second})
	s.Tier, s.Subject = "free", "hobby"
	v := &policy.Verdict{Allowed: true, Limits: []policy.LimitStatus{s}, Strictest: []int{0}}
	fields := []headers.Header{{Name: "ratelimit-policy", Value: `"per-key";q=100;w=60`}, {Name: "ratelimit", Value: `"per-key";r=50;t=30`}}
	b.Run("append", func(b *testing.B) {
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			out = appendAnswer(out[:0], v, fields)
		}
	})
	b.Run("proto", func(b *testing.B) {
		var out []byte
		var err error
		b.ReportAllocs()
		for b.Loop() {
			if out, err = (proto.MarshalOptions{}).MarshalAppend(out[:0], asMessage(v, fields)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
