package ratelimit

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/headers"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// maxDescriptors bounds one request. Envoy sends one for each configured action
// list, so a handful; more is a mistake or an attack on the store.
const maxDescriptors = 256

// Service implements RateLimitService. It is safe for concurrent use.
type Service struct {
	rlsv3.UnimplementedRateLimitServiceServer

	decider *policy.Decider
	secrets *tier.Secrets
	headers *headers.Renderer
	calls   sync.Pool
}

// NewService returns a Service that asks decider, digests the entries that
// secrets names, and answers with the headers that render renders.
func NewService(decider *policy.Decider, secrets *tier.Secrets, render *headers.Renderer) *Service {
	return &Service{
		decider: decider,
		secrets: secrets,
		headers: render,
		calls:   sync.Pool{New: func() any { return new(call) }},
	}
}

// call is the memory of one request, reused by the next.
type call struct {
	request policy.Request
	entries []descriptors.Entry
	verdict policy.Verdict
	headers []headers.Header
}

// ShouldRateLimit answers OK or OVER_LIMIT. Errors are INVALID_ARGUMENT for a
// request without a domain or descriptors, and UNAVAILABLE where the store could
// not decide in time.
func (s *Service) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	switch n := len(in.GetDescriptors()); {
	case in.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "the request has no domain")
	case n == 0:
		return nil, status.Error(codes.InvalidArgument, "the request has no descriptors")
	case n > maxDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "the request has %d descriptors, more than %d", n, maxDescriptors)
	}
	c := s.calls.Get().(*call)
	defer s.calls.Put(c)
	c.read(in, s.secrets)
	if err := s.decider.Decide(ctx, &c.request, &c.verdict); err != nil {
		return nil, storeStatus(err)
	}
	c.headers = s.headers.Append(c.headers[:0], &c.verdict, time.Now())
	return answer(&c.verdict, c.headers), nil
}

// storeStatus is what Envoy sees of a store that could not decide. The text of
// the cause stays here: it may name addresses.
func storeStatus(err error) error {
	if errors.Is(err, window.ErrBadCheck) {
		return status.Error(codes.Internal, "the request made a check that no store accepts")
	}
	return status.Error(codes.Unavailable, "the store could not decide in time")
}

// read turns the message into plain values. No API key is left in them.
func (c *call) read(in *rlsv3.RateLimitRequest, secrets *tier.Secrets) {
	clear(c.request.Descriptors)
	clear(c.entries)
	c.request.Domain = in.GetDomain()
	c.request.Descriptors = c.request.Descriptors[:0]
	c.entries = c.entries[:0]
	total := 0
	for _, d := range in.GetDescriptors() {
		total += len(d.GetEntries())
	}
	if cap(c.entries) < total {
		// All at once: the descriptors below point into it.
		c.entries = make([]descriptors.Entry, 0, total)
	}
	for _, d := range in.GetDescriptors() {
		first := len(c.entries)
		for _, e := range d.GetEntries() {
			c.entries = append(c.entries, descriptors.Entry{
				Key:   e.GetKey(),
				Value: secrets.Value(e.GetKey(), e.GetValue()),
			})
		}
		c.request.Descriptors = append(c.request.Descriptors, policy.Descriptor{
			Entries:  c.entries[first:len(c.entries):len(c.entries)],
			Cost:     cost(in, d),
			Override: override(d.GetLimit()),
			Refund:   d.GetIsNegativeHits(),
		})
	}
}

// cost is the descriptor's own addend, even zero, else the request's, where zero
// means one.
func cost(in *rlsv3.RateLimitRequest, d *ratelimitcommonv3.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return own.GetValue()
	}
	return max(1, uint64(in.GetHitsAddend()))
}

// unitLengths are the lengths of the units of an override. Calendar units are
// lengths too, as in the reference service: a month is 30 days, a year 365.
var unitLengths = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second,
	typev3.RateLimitUnit_MINUTE: time.Minute,
	typev3.RateLimitUnit_HOUR:   time.Hour,
	typev3.RateLimitUnit_DAY:    24 * time.Hour,
	typev3.RateLimitUnit_MONTH:  30 * 24 * time.Hour,
	typev3.RateLimitUnit_YEAR:   365 * 24 * time.Hour,
}

// override reads the limit that came with a descriptor. One that is no limit,
// such as one with an unknown unit, counts as absent, and the rules apply.
func override(o *ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride) *window.Limit {
	length, ok := unitLengths[o.GetUnit()]
	if o == nil || !ok {
		return nil
	}
	multiplier := max(1, o.GetUnitMultiplier().GetValue())
	if time.Duration(multiplier) > window.MaxWindow/length {
		return nil
	}
	return &window.Limit{
		Hits:   uint64(o.GetRequestsPerUnit()),
		Window: length * time.Duration(multiplier),
	}
}

// answer builds the response for v.
func answer(v *policy.Verdict, fields []headers.Header) *rlsv3.RateLimitResponse {
	out := &rlsv3.RateLimitResponse{
		OverallCode: code(v.Allowed),
		Statuses:    make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(v.Strictest)),
	}
	for i, at := range v.Strictest {
		if at < 0 {
			out.Statuses[i] = &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
		} else {
			out.Statuses[i] = descriptorStatus(&v.Limits[at])
		}
	}
	if len(fields) > 0 || !v.Allowed {
		out.ResponseHeadersToAdd = make([]*corev3.HeaderValue, 0, len(fields)+1)
		for _, f := range fields {
			out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &corev3.HeaderValue{Key: f.Name, Value: f.Value})
		}
	}
	if !v.Allowed {
		// Never on an allowed answer: Envoy would join it with the upstream's.
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd,
			&corev3.HeaderValue{Key: "content-type", Value: headers.ContentType})
		out.RawBody = headers.AppendProblem(nil, v)
	}
	if v.Decisive >= 0 {
		out.DynamicMetadata = metadata(v)
	}
	return out
}

func code(allowed bool) rlsv3.RateLimitResponse_Code {
	if allowed {
		return rlsv3.RateLimitResponse_OK
	}
	return rlsv3.RateLimitResponse_OVER_LIMIT
}

func descriptorStatus(s *policy.LimitStatus) *rlsv3.RateLimitResponse_DescriptorStatus {
	unit, multiplier := unitOf(s.Limit.Window)
	limit := &rlsv3.RateLimitResponse_RateLimit{
		Name:            s.Rule.Name,
		RequestsPerUnit: saturate(s.Limit.Hits),
		Unit:            unit,
	}
	if multiplier > 1 {
		limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	return &rlsv3.RateLimitResponse_DescriptorStatus{
		Code:               code(s.Decision.Allowed),
		CurrentLimit:       limit,
		LimitRemaining:     saturate(s.Decision.Remaining),
		DurationUntilReset: &durationpb.Duration{Seconds: headers.Seconds(s.Reset())},
	}
}

// windowUnits are the units of an answer, the longest first.
var windowUnits = []struct {
	length time.Duration
	unit   rlsv3.RateLimitResponse_RateLimit_Unit
}{
	{365 * 24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_YEAR},
	{30 * 24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_MONTH},
	{7 * 24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_WEEK},
	{24 * time.Hour, rlsv3.RateLimitResponse_RateLimit_DAY},
	{time.Hour, rlsv3.RateLimitResponse_RateLimit_HOUR},
	{time.Minute, rlsv3.RateLimitResponse_RateLimit_MINUTE},
	{time.Second, rlsv3.RateLimitResponse_RateLimit_SECOND},
}

// unitOf writes a window as a multiple of the longest unit that divides it. A
// window that is not a whole number of seconds has no unit: Envoy then leaves
// the window out of its own headers, which is better than a wrong one.
func unitOf(w time.Duration) (rlsv3.RateLimitResponse_RateLimit_Unit, uint32) {
	for _, u := range windowUnits {
		if w%u.length == 0 {
			return u.unit, uint32(w / u.length)
		}
	}
	return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 1
}

func saturate(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }

// metadata is what access logs and later filters read. Texts are strings and
// never empty, because Envoy's metadata action drops a descriptor for an empty
// or absent one.
func metadata(v *policy.Verdict) *structpb.Struct {
	s := &v.Limits[v.Decisive]
	fields := map[string]*structpb.Value{
		"rule":      structpb.NewStringValue(s.Rule.Name),
		"limit":     structpb.NewNumberValue(float64(s.Limit.Hits)),
		"remaining": structpb.NewNumberValue(float64(s.Decision.Remaining)),
	}
	if s.Tier != "" {
		fields["tier"] = structpb.NewStringValue(s.Tier)
	}
	if s.Subject != "" {
		fields["subject"] = structpb.NewStringValue(s.Subject)
	}
	if !v.Allowed {
		fields["retry_after"] = structpb.NewNumberValue(float64(headers.RetryAfter(s)))
	}
	return &structpb.Struct{Fields: fields}
}
