package ratelimit

import (
	"context"
	"fmt"
	"strings"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// Ask sends one request with some descriptors to a running service, as Envoy does. It charges hits.
// If the service cannot be reached, Ask tries again until ctx ends. It returns whether the service
// denies the request, and what it says of the limit of each descriptor. The error says that the
// service did not decide.
func Ask(ctx context.Context, conn grpc.ClientConnInterface, domain string, sent []descriptors.Descriptor, hits uint32) (denied bool, limits []string, err error) {
	in := &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, entries := range sent {
		d := new(ratelimitcommonv3.RateLimitDescriptor)
		for _, e := range entries {
			d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		in.Descriptors = append(in.Descriptors, d)
	}
	answer, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, in, grpc.WaitForReady(true))
	if err != nil {
		return false, nil, err
	}
	return answer.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT, limitTexts(answer), nil
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
			remaining, what = uint64(decisive["remaining"].GetNumberValue()), "places free"
		case limit == nil:
			texts = append(texts, "no limit, or places in flight that are free")
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
