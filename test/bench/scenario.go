package main

import (
	"context"
	"fmt"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// A limit that h2load cannot reach: it sends one fixed request, so all load
// falls on one key. The log of that key then holds what was charged within one
// second, tens of thousands of entries, which is far more than the log of one
// customer would.
//
// And one that is reached before the measurement begins and lasts through it.
const rules = `
domain: bench
descriptors:
  - key: api_key
    rate_limit:
      name: per-key
      by_tier:
        large: {unit: second, requests_per_unit: 4000000000}
        small: {unit: day, requests_per_unit: 10}
  - key: remote_address
    rate_limit: {name: per-address, unit: second, requests_per_unit: 4000000000}
  - key: route
    value: search
    descriptors:
      - key: api_key
        rate_limit: {name: search-per-key, unit: second, requests_per_unit: 4000000000}
`

const tiers = `
tiers: [small, large]
default: small
subjects:
  - {id: large, tier: large, keys: [{plain: bench-large}]}
  - {id: small, tier: small, keys: [{plain: bench-small}]}
`

// fill is how many requests exhaust the small tier, and some.
const fill = 20

// A scenario is one request and the answer that it must get.
type scenario struct {
	name        string
	descriptors int
	want        rlsv3.RateLimitResponse_Code
	request     *rlsv3.RateLimitRequest
}

func scenarios() []scenario {
	var all []scenario
	for _, s := range []struct {
		name, key string
		want      rlsv3.RateLimitResponse_Code
	}{
		{"allowed", "bench-large", rlsv3.RateLimitResponse_OK},
		{"denied", "bench-small", rlsv3.RateLimitResponse_OVER_LIMIT},
	} {
		descriptors := []*ratelimitcommonv3.RateLimitDescriptor{
			descriptor("api_key", s.key),
			descriptor("remote_address", "198.51.100.7"),
			descriptor("route", "search", "api_key", s.key),
		}
		for _, n := range []int{1, len(descriptors)} {
			all = append(all, scenario{s.name, n, s.want, &rlsv3.RateLimitRequest{Domain: "bench", Descriptors: descriptors[:n]}})
		}
	}
	return all
}

// descriptor takes keys and values in turn.
func descriptor(pairs ...string) *ratelimitcommonv3.RateLimitDescriptor {
	d := new(ratelimitcommonv3.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// counted is what rls must have counted after n requests.
func (s scenario) counted(n int) (outcome string, decisions int) {
	if s.want == rlsv3.RateLimitResponse_OVER_LIMIT {
		return "denied", n // one rule denies, the others do not charge
	}
	return "allowed", n * s.descriptors
}

// check reports how an answer differs from what the scenario wants.
func (s scenario) check(a *rlsv3.RateLimitResponse) error {
	switch {
	case a.GetOverallCode() != s.want:
		return fmt.Errorf("answer is %v, want %v", a.GetOverallCode(), s.want)
	case len(a.GetStatuses()) != s.descriptors:
		return fmt.Errorf("answer has %d statuses, want %d", len(a.GetStatuses()), s.descriptors)
	case len(a.GetResponseHeadersToAdd()) < 2:
		return fmt.Errorf("answer has %d headers, want at least RateLimit and RateLimit-Policy", len(a.GetResponseHeadersToAdd()))
	case len(a.GetDynamicMetadata().GetFields()) < 5:
		return fmt.Errorf("answer has %d fields of dynamic metadata, want at least 5", len(a.GetDynamicMetadata().GetFields()))
	case s.want == rlsv3.RateLimitResponse_OVER_LIMIT && len(a.GetRawBody()) == 0:
		return fmt.Errorf("answer is a denial without a body")
	}
	return nil
}

// sample asks n times and returns the last answer. Every answer must be what the
// scenario wants.
func (s scenario) sample(ctx context.Context, address string, n int) (*rlsv3.RateLimitResponse, error) {
	return s.ask(ctx, address, n, s.check)
}

// exhaust spends what is to be denied. The answers are of no interest.
func (s scenario) exhaust(ctx context.Context, address string) error {
	if s.want != rlsv3.RateLimitResponse_OVER_LIMIT {
		return nil
	}
	_, err := s.ask(ctx, address, fill, func(*rlsv3.RateLimitResponse) error { return nil })
	return err
}

func (s scenario) ask(ctx context.Context, address string, n int, check func(*rlsv3.RateLimitResponse) error) (*rlsv3.RateLimitResponse, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var last *rlsv3.RateLimitResponse
	for range n {
		if last, err = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, s.request); err != nil {
			return nil, err
		}
		if err := check(last); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// frame is the body of the HTTP/2 request: a gRPC message.
func (s scenario) frame() ([]byte, error) {
	message, err := proto.Marshal(s.request)
	if err != nil {
		return nil, err
	}
	return append(messagePrefix(len(message)), message...), nil
}

// messagePrefix is what stands before a gRPC message of n bytes that is not
// compressed.
func messagePrefix(n int) []byte {
	return []byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}
