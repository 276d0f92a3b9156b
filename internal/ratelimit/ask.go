package ratelimit

import (
	"context"
	"fmt"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Ask sends one request with one descriptor to a running service, as Envoy does. It charges hits. If
// the service cannot be reached, Ask tries again until ctx ends. It returns whether the service denies
// the request, and what it says of the descriptor's limit. The error says that the service did not
// decide.
func Ask(ctx context.Context, conn grpc.ClientConnInterface, domain string, entries descriptors.Descriptor, hits uint32) (denied bool, limit string, err error) {
	d := new(ratelimitcommonv3.RateLimitDescriptor)
	for _, e := range entries {
		d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
	}
	answer, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: domain, Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{d}, HitsAddend: hits,
	}, grpc.WaitForReady(true))
	if err != nil {
		return false, "", err
	}
	limit = "no limit"
	if s := answer.GetStatuses(); len(s) == 1 && s[0].GetCurrentLimit() != nil {
		limit = fmt.Sprintf("%d of %d remaining", s[0].GetLimitRemaining(), s[0].GetCurrentLimit().GetRequestsPerUnit())
		if name := s[0].GetCurrentLimit().GetName(); name != "" {
			limit = name + ": " + limit
		}
	}
	return answer.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT, limit, nil
}
