package ratelimit

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Reply is what a running service says to a request.
type Reply struct {
	// Denied is true if the service denies the request.
	Denied bool
	// Limits describe the limit of each descriptor.
	Limits []string
	// Never is true if the request is denied however long the caller waits: its cost is above the
	// limit. Rule is the name of that limit, if the service reports it.
	Never bool
	Rule  string
	// Wait is the time until a denied request has room, in whole seconds. Zero: the service does not
	// report it.
	Wait time.Duration
	// Degraded is true if the service says that a store could not decide.
	Degraded bool
}

// Ask sends one request with some descriptors to a running service, as Envoy does. It charges hits;
// with 0 it only asks.
// If the service cannot be reached, Ask tries again until ctx ends. The error says that the service
// did not decide.
func Ask(ctx context.Context, conn grpc.ClientConnInterface, domain string, sent []descriptors.Descriptor, hits uint32) (Reply, error) {
	in := &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, entries := range sent {
		d := new(ratelimitcommonv3.RateLimitDescriptor)
		for _, e := range entries {
			d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if hits == 0 {
			d.HitsAddend = wrapperspb.UInt64(0) // the request's hits_addend of 0 would mean 1
		}
		in.Descriptors = append(in.Descriptors, d)
	}
	answer, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, in, grpc.WaitForReady(true))
	if err != nil {
		return Reply{}, err
	}
	r := Reply{
		Denied: answer.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT, Limits: limitTexts(answer),
		Degraded: answer.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue(),
	}
	if r.Denied {
		r.describe(answer, max(hits, 1)) // a limit of 0 never has room, not even for 0
	}
	return r, nil
}

// describe says how long the caller of a denied request has to wait. The metadata and the header
// retry-after have the wait of the limit that denies longest. In the form of envoyproxy/ratelimit
// an answer may have neither. Then the statuses show it, and a cost above the limit shows only by
// its number.
func (r *Reply) describe(answer *rlsv3.RateLimitResponse, cost uint32) {
	decisive := answer.GetDynamicMetadata().GetFields()
	r.Rule = decisive["rule"].GetStringValue()
	seconds := int64(min(decisive["retry_after"].GetNumberValue(), math.MaxInt32))
	for _, h := range answer.GetResponseHeadersToAdd() {
		if wait, err := strconv.ParseInt(h.GetValue(), 10, 32); h.GetKey() == "retry-after" && err == nil && seconds <= 0 {
			seconds = wait
		}
	}
	if seconds <= 0 {
		r.Never = r.Rule != ""
		for _, s := range answer.GetStatuses() {
			if limit := s.GetCurrentLimit(); limit != nil && s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
				r.Never = r.Never || cost > limit.GetRequestsPerUnit()
				seconds = max(seconds, min(s.GetDurationUntilReset().GetSeconds(), math.MaxInt32))
			}
		}
	}
	if !r.Never {
		r.Wait = time.Duration(max(seconds, 0)) * time.Second
	}
}

// limitTexts describes the limit of each descriptor in an answer. The status of requests in flight
// with room has no numbers. They are in the metadata if that limit is the decisive one. Without
// them, the header ratelimit-policy says whether the request met such a limit.
func limitTexts(answer *rlsv3.RateLimitResponse) []string {
	decisive := answer.GetDynamicMetadata().GetFields()
	inFlight := decisive["policy"].GetStringValue() == window.InFlight.String()
	mayFly := decisive["rule"] != nil
	for _, h := range answer.GetResponseHeadersToAdd() {
		if h.GetKey() == "ratelimit-policy" {
			mayFly = strings.Contains(h.GetValue(), "concurrent-requests")
		}
	}
	texts := make([]string, 0, len(answer.GetStatuses()))
	for _, s := range answer.GetStatuses() {
		limit := s.GetCurrentLimit()
		of, name := uint64(limit.GetRequestsPerUnit()), limit.GetName()
		remaining, what := uint64(s.GetLimitRemaining()), "remaining"
		switch {
		case limit == nil && !mayFly:
			texts = append(texts, "no limit")
			continue
		case inFlight && len(answer.GetStatuses()) == 1:
			of, name = uint64(decisive["limit"].GetNumberValue()), decisive["rule"].GetStringValue()
			remaining, what = uint64(decisive["remaining"].GetNumberValue()), "slots free"
		case limit == nil:
			texts = append(texts, "no limit, or free slots in flight")
			continue
		}
		text := fmt.Sprintf("%d of %d %s", remaining, of, what)
		if name != "" {
			text = name + ": " + text
		}
		texts = append(texts, text)
	}
	return texts
}
