package ratelimit

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/wire"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// asMessage returns the answer as a message of the protobuf library. The tests compare it
// with that of appendAnswer.
func asMessage(t testing.TB, v *decide.Verdict, fields []answer.Header, asked *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	t.Helper()
	out := &rlsv3.RateLimitResponse{OverallCode: code(v.Allowed)}
	for i, at := range v.Strictest {
		st := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
		if v.Matches[i].Unlimited {
			st.LimitRemaining = math.MaxUint32
		}
		if at >= 0 {
			s := &v.Limits[at]
			unit, multiplier := UnitOf(s.Limit.Window)
			limit := &rlsv3.RateLimitResponse_RateLimit{Name: s.Rule.Name, RequestsPerUnit: saturate(s.Limit.Hits), Unit: unit}
			if multiplier > 1 {
				limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
			}
			st = &rlsv3.RateLimitResponse_DescriptorStatus{
				Code:               code(s.Decision.Allowed || s.Observed()),
				CurrentLimit:       limit,
				LimitRemaining:     saturate(s.Decision.Remaining),
				DurationUntilReset: &durationpb.Duration{Seconds: answer.Seconds(s.Wait())},
			}
		}
		out.Statuses = append(out.Statuses, st)
	}
	for _, f := range fields {
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &corev3.HeaderValue{Key: f.Name, Value: f.Value})
	}
	if !v.Allowed {
		var own []answer.Header
		own, out.RawBody = answer.AppendDenial(nil, nil, v, answer.About{Now: time.Now})
		for _, f := range own {
			out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &corev3.HeaderValue{Key: f.Name, Value: f.Value})
		}
	}
	m := make(map[string]any)
	if v.Decisive >= 0 {
		s := &v.Limits[v.Decisive]
		m["rule"], m["limit"], m["remaining"] = s.Rule.Name, float64(s.Limit.Hits), float64(s.Decision.Remaining)
		if !v.Allowed && !s.Decision.Never {
			m["retry_after"] = float64(answer.RetryAfter(s))
		}
	}
	for name, value := range map[string]string{"subject": v.Subject, "tier": v.Tier, "key_digest": tier.ShortDigest(v.KeyDigest)} {
		if value != "" {
			m[name] = value
		}
	}
	if v.Shadowed >= 0 {
		m["shadowed"] = v.Limits[v.Shadowed].Rule.Name
	}
	if v.Unresolved {
		m["caller_unresolved"] = true
	}
	if v.Degraded {
		m["degraded"], m["degraded_by"] = true, v.DegradedBy().String()
	}
	if own := v.Metadata(); len(own) > 0 {
		m["metadata"] = own
	}
	if asked != nil {
		echoed(m, asked)
	}
	if len(m) == 0 {
		return out
	}
	metadata, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	out.DynamicMetadata = metadata
	return out
}

// echoed adds the request to m in the layout of envoyproxy/ratelimit.
func echoed(m map[string]any, asked *rlsv3.RateLimitRequest) {
	var all []any
	for _, d := range asked.GetDescriptors() {
		entries := []any{}
		for _, e := range d.GetEntries() {
			value := strings.Trim(e.GetValue(), " \t")
			if e.GetKey() == "api_key" {
				value = "***"
			}
			entries = append(entries, e.GetKey()+"="+value)
		}
		one := map[string]any{"entries": entries}
		if d.HitsAddend != nil {
			one["hitsAddend"] = float64(d.HitsAddend.GetValue())
		}
		if d.Limit != nil {
			// The library writes one space or two, depending on the build.
			one["limit"] = strings.ReplaceAll(d.Limit.String(), "  ", " ")
		}
		all = append(all, one)
	}
	m["domain"], m["descriptors"] = asked.GetDomain(), all
	if n := asked.GetHitsAddend(); n != 0 {
		m["hitsAddend"] = float64(n)
	}
}

// asEcho returns the metadata that repeats a request, or nil without a request.
func asEcho(t testing.TB, asked *rlsv3.RateLimitRequest) []byte {
	t.Helper()
	if asked == nil {
		return nil
	}
	m := new(message)
	if err := m.Decode(string(encode(t, asked))); err != nil {
		t.Fatal(err)
	}
	return appendEcho(nil, m, tier.NewSecrets([]string{"api_key"}, nil))
}

// answerOf appends an answer with the body of a denial.
func answerOf(b []byte, v *decide.Verdict, fields []answer.Header, echo []byte) []byte {
	var body []byte
	if !v.Allowed {
		fields, body = answer.AppendDenial(slices.Clip(fields), nil, v, answer.About{Now: time.Now})
	}
	return appendAnswer(b, v, fields, body, echo)
}

// compare compares appendAnswer with the protobuf library.
func comparing(t *testing.T, v *decide.Verdict, fields []answer.Header, asked *rlsv3.RateLimitRequest) {
	t.Helper()
	message := asMessage(t, v, fields, asked)
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	const before = "what is there already"
	got := answerOf([]byte(before), v, fields, asEcho(t, asked))
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

// limited returns one limit of a verdict.
func limited(rule string, hits uint64, w time.Duration, d window.Decision) decide.LimitStatus {
	return decide.LimitStatus{
		Rule:     &rules.Rule{Name: rule},
		Limit:    rules.Limit{Limit: window.Limit{Hits: hits, Window: w}, Name: rule},
		Cost:     1,
		Decision: d,
	}
}

func TestAnswerIsWhatProtobufWrites(t *testing.T) {
	ok := window.Decision{Allowed: true, Remaining: 50, ResetAfter: 30 * time.Second}
	none := window.Decision{Allowed: true, UnitAfter: time.Second, ResetAfter: time.Minute}
	denied := window.Decision{RetryAfter: 1500 * time.Millisecond, UnitAfter: time.Second, ResetAfter: time.Minute}
	perKey := limited("per-key", 100, time.Minute, ok)
	var many []decide.LimitStatus
	for range 300 {
		many = append(many, limited(strings.Repeat("n", 64), 5, 90*time.Second, denied))
	}
	tests := map[string][]decide.LimitStatus{
		"nothing limits the request": nil,
		"allowed":                    {perKey},
		"nothing remains":            {limited("r", 100, time.Minute, none)},
		"denied":                     {limited("r", 100, time.Minute, denied), perKey},
		"never":                      {limited("r", 100, time.Minute, window.Decision{Never: true, Remaining: 7})},
		"a limit of zero":            {limited("r", 0, time.Minute, window.Decision{Never: true})},
		"the largest numbers":        {limited("r", math.MaxUint64, window.MaxWindow, window.Decision{Allowed: true, Remaining: math.MaxUint64, ResetAfter: math.MaxInt64})},
		"a window without a unit":    {limited("r", 1, 1500*time.Millisecond, ok)},
		"many":                       many,
	}
	for _, u := range windowUnits {
		tests["unit "+u.unit.String()] = []decide.LimitStatus{limited("r", 1, u.length, ok), limited("r", 1, 3*u.length, ok)}
	}
	render := answer.NewRenderer(rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit)
	for name, limits := range tests {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(limits...)
			comparing(t, v, render.Append(nil, v, time.Now), nil)
		})
	}
	observed := limited("watched", 100, time.Minute, denied)
	observed.Enforcement = verdict.Observed
	own := limited("own", 5, time.Minute, denied)
	own.Rule.Answer.Denial = rules.Denial{Body: strings.Repeat("é", 20_000), ContentType: "text/html"}
	for name, tt := range map[string]struct {
		limits []decide.LimitStatus
		change func(*decide.Verdict)
		asked  *rlsv3.RateLimitRequest
	}{
		"a length of two bytes":          {nil, func(v *decide.Verdict) { v.Subject = strings.Repeat("é", 64) }, nil},
		"a length of three bytes":        {nil, func(v *decide.Verdict) { v.Subject = strings.Repeat("é", 8192) }, nil},
		"a subject beside a limit":       {[]decide.LimitStatus{perKey}, func(v *decide.Verdict) { v.Subject, v.Tier = "hobby", "free" }, nil},
		"an unknown key":                 {nil, func(v *decide.Verdict) { v.Tier, v.KeyDigest = "free", strings.Repeat("a", tier.DigestLen) }, nil},
		"an unknown key, of the request": {[]decide.LimitStatus{perKey}, func(v *decide.Verdict) { v.KeyDigest = strings.Repeat("a", tier.DigestLen) }, full()},
		"unlimited":                      {nil, func(v *decide.Verdict) { v.Matches[0] = decide.Match{Rule: perKey.Rule, Unlimited: true} }, nil},
		"degraded":                       {nil, func(v *decide.Verdict) { v.Degraded = true }, nil},
		"an unresolved caller":           {nil, func(v *decide.Verdict) { v.Unresolved, v.Degraded = true, true }, nil},
		"only observed":                  {[]decide.LimitStatus{observed}, func(v *decide.Verdict) { v.Allowed, v.Decisive, v.Shadowed = true, -1, 0 }, nil},
		"observed beside one that holds": {[]decide.LimitStatus{perKey, observed}, func(v *decide.Verdict) { v.Allowed, v.Shadowed = true, 1 }, nil},
		"a body of its own":              {[]decide.LimitStatus{own}, func(*decide.Verdict) {}, nil},
		"metadata of a rule alone":       {nil, func(v *decide.Verdict) { v.Matches[0].Rule = ruleWith(everyKind) }, nil},
		"an empty one":                   {nil, func(v *decide.Verdict) { v.Matches[0].Rule = ruleWith(map[string]any{}) }, nil},
		"the request":                    {nil, func(*decide.Verdict) {}, full()},
		"all of it": {[]decide.LimitStatus{perKey, observed}, func(v *decide.Verdict) {
			v.Allowed, v.Degraded, v.Shadowed, v.Matches[0].Rule = false, true, 1, ruleWith(everyKind)
		}, full()},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(tt.limits...)
			tt.change(v)
			comparing(t, v, nil, tt.asked)
		})
	}
}

// verdictOf returns a verdict with a descriptor without a rule, followed by one descriptor
// for each limit. The first limit is decisive.
func verdictOf(limits ...decide.LimitStatus) *decide.Verdict {
	v := &decide.Verdict{Allowed: true, Limits: limits, Strictest: []int{-1}, Matches: []decide.Match{{}}, Decisive: min(0, len(limits)-1), Shadowed: -1}
	for i, s := range limits {
		v.Strictest = append(v.Strictest, i)
		v.Matches = append(v.Matches, decide.Match{Rule: s.Rule})
		v.Allowed = v.Allowed && s.Decision.Allowed
	}
	return v
}

func ruleWith(metadata map[string]any) *rules.Rule {
	return &rules.Rule{Answer: rules.Answer{Metadata: metadata}}
}

// everyKind is metadata with values of every kind, including empty values.
var everyKind = map[string]any{
	"z": nil, "a": true, "b": false, "": "", "n": 1.5, "zero": 0.0, "minus": math.Copysign(0, -1), "text": "é",
	"list": []any{nil, true, 1.0, "x", []any{}, []any{"deep"}, map[string]any{}}, "no list": []any{},
	"map": map[string]any{"y": map[string]any{"k": "v"}, "x": map[string]any{}}, strings.Repeat("long", 50): strings.Repeat("x", 1000),
}

// TestMetadataThatCannotBeWritten uses metadata that the configuration or Envoy refuses.
func TestMetadataThatCannotBeWritten(t *testing.T) {
	nested := func(depth int, leaf any) any {
		for range depth {
			leaf = map[string]any{"k": []any{leaf}}
		}
		return leaf
	}
	for _, tt := range []struct {
		name        string
		given, want any
	}{
		{"not a number", math.NaN(), nil},
		{"infinity", math.Inf(-1), nil},
		{"no such kind", 7, nil},
		{"text that is not UTF-8", "x\xff", "x\uFFFD"},
		// The mapping of all metadata adds one level.
		{"as deep as may be", nested(wire.MaxDepth/2-1, map[string]any{"k": 1.0}), nested(wire.MaxDepth/2-1, map[string]any{"k": 1.0})},
		{"too deep", nested(wire.MaxDepth/2, map[string]any{"k": 1.0}), nested(wire.MaxDepth/2-1, map[string]any{"k": nil})},
	} {
		v := verdictOf()
		v.Matches[0].Rule = ruleWith(map[string]any{"given": tt.given, "k\xff": true})
		out := new(rlsv3.RateLimitResponse)
		if err := proto.Unmarshal(answerOf(nil, v, nil, nil), out); err != nil {
			t.Errorf("%s: the answer cannot be read: %v", tt.name, err)
			continue
		}
		if _, err := protojson.Marshal(out); err != nil {
			t.Errorf("%s: the answer is no JSON: %v", tt.name, err)
		}
		want := map[string]any{"metadata": map[string]any{"given": tt.want, "k\uFFFD": true}}
		if diff := cmp.Diff(want, out.GetDynamicMetadata().AsMap()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestOverrideText(t *testing.T) {
	for _, o := range []*ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{
		{},
		{RequestsPerUnit: 5},
		{Unit: typev3.RateLimitUnit_YEAR},
		{Unit: 99},
		{Unit: -1},
		full().Descriptors[0].Limit,
		{RequestsPerUnit: math.MaxUint32, UnitMultiplier: wrapperspb.UInt32(0)},
	} {
		if got, want := overrideOf(t, o).text(), strings.ReplaceAll(o.String(), "  ", " "); got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
	}
}

// FuzzAnswer compares appendAnswer with the protobuf library. If the library cannot write
// an answer, it must be able to read that of appendAnswer.
func FuzzAnswer(f *testing.F) {
	f.Add("per-key", "free", "hobby", "ratelimit", `"per-key";r=1;t=2`, uint64(100), uint64(50), int64(time.Minute), int64(time.Second), uint16(1))
	f.Add("", "", "", "", "", uint64(0), uint64(0), int64(0), int64(0), uint16(1<<1))
	f.Add("r", strings.Repeat("x", 127), strings.Repeat("x", 128), "n", "v\xff", uint64(math.MaxUint64), uint64(math.MaxUint64), int64(math.MaxInt64), int64(-1), uint16(0))
	f.Add("r", "t", "s", "n", "v", uint64(5), uint64(7), int64(time.Hour), int64(time.Hour), uint16(1<<10-1))
	f.Fuzz(func(t *testing.T, rule, tierName, subject, name, value string, hits, remaining uint64, length, wait int64, flags uint16) {
		flag := func(i int) bool { return flags>>i&1 == 1 }
		s := limited(rule, hits, time.Duration(length), window.Decision{
			Allowed: flag(0), Never: flag(1), Remaining: remaining,
			RetryAfter: time.Duration(wait), UnitAfter: time.Duration(wait), ResetAfter: time.Duration(wait),
		})
		if flag(2) {
			s.Enforcement = verdict.Observed
		}
		if flag(3) {
			s.Rule.Answer.Metadata = map[string]any{name: value, value: map[string]any{rule: []any{subject, nil, flag(0)}, subject: float64(remaining)}}
		}
		if flag(4) {
			s.Rule.Answer.Denial = rules.Denial{Body: value, ContentType: name}
		}
		v := &decide.Verdict{
			Allowed: flag(0) || flag(2), Degraded: flag(5), Decisive: 0, Shadowed: -1,
			Limits: []decide.LimitStatus{s}, Strictest: []int{-1, 0, 0}, Matches: make([]decide.Match, 3),
			Tier: tierName, Subject: subject,
		}
		if flag(10) {
			v.KeyDigest = name
		}
		v.Matches[0].Unlimited, v.Matches[1].Rule = flag(6), s.Rule
		if flag(7) {
			v.Shadowed = 0
		}
		if flag(8) && v.Allowed {
			v.Decisive = -1
		}
		var request *rlsv3.RateLimitRequest
		if flag(9) {
			request = &rlsv3.RateLimitRequest{
				Domain: rule, HitsAddend: uint32(hits), Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{{
					Entries:    []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: name, Value: value}, {Key: "api_key", Value: subject}},
					Limit:      &ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(hits), Unit: typev3.RateLimitUnit(length)},
					HitsAddend: wrapperspb.UInt64(remaining),
				}, {}},
			}
		}
		fields := []answer.Header{{Name: name, Value: value}}
		if utf8.ValidString(rule + "\x00" + tierName + "\x00" + subject + "\x00" + name + "\x00" + value) {
			comparing(t, v, fields, request)
			return
		}
		// The library cannot write the request.
		entries := []descriptors.Entry{{Key: name, Value: value}, {Key: "api_key", Value: subject}}
		m := message{domain: rule, entries: entries, descriptors: []described{{entries: 2}}}
		if err := proto.Unmarshal(answerOf(nil, v, fields, appendEcho(nil, &m, tier.NewSecrets([]string{"api_key"}, nil))), new(rlsv3.RateLimitResponse)); err != nil {
			t.Errorf("the answer cannot be read: %v", err)
		}
	})
}
