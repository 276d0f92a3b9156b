package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/peer"
)

// The tier large has a limit that h2load cannot reach. h2load sends one fixed request,
// so all load charges one key. The log of that key holds the charges of one second:
// tens of thousands of entries, far more than the log of a customer.
//
// The limit of the tier small is used up before the measurement begins.
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

// The API keys of the subjects large and small.
const (
	largeKey = "bench-large"
	smallKey = "bench-small"
)

const tierNames = `
tiers: [small, large]
default: small
`

const tiers = tierNames + `
subjects:
  - {id: large, tier: large, keys: [{plain: ` + largeKey + `}]}
  - {id: small, tier: small, keys: [{plain: ` + smallKey + `}]}
`

// rulesWithoutTiers have the limit of the tier large for all keys.
var rulesWithoutTiers = strings.Replace(rules, `
      by_tier:
        large: {unit: second, requests_per_unit: 4000000000}
        small: {unit: day, requests_per_unit: 10}`, `
      unit: second
      requests_per_unit: 4000000000`, 1)

// fill is more requests than the tier small allows.
const fill = 20

// A scenario is one call and its right answer.
type scenario struct {
	traffic.Call
	name        string
	descriptors int
	// exhausted says that the limit is used up before the measurement.
	exhausted bool
	// outcome is the label of a call's decisions in rls's metrics, decisions their
	// number.
	outcome   string
	decisions int
}

// A comparison is several servers that get the same calls in the same rounds.
type comparison struct {
	what      string // the title of the column
	base      string // the server that the services are compared with: bareName, or a service
	services  []string
	second    string // a service that the others are compared with too; empty: none
	scenarios []scenario
}

// Services, by their store or customer source.
const (
	bareName     = "bare"
	onMemory     = "memory"
	onRedis      = "redis"
	noTiers      = "none"
	fromPostgres = "postgres"
)

// Services that set the transport. Without "redis" the store is the embedded one.
const (
	onUnary         = "unary"
	onStandard      = "standard"
	onUnaryRedis    = "unary-redis"
	onStandardRedis = "standard-redis"
	// The older binary, on either store.
	beforeName  = "before"
	beforeRedis = "before-redis"
)

// transportName is what the comparison of transports is called.
const transportName = "transport"

// transportOf returns the setting of a service's transport. Empty: the default.
func transportOf(service string) string {
	switch service {
	case onUnary, onUnaryRedis:
		return "unary"
	case onStandard, onStandardRedis:
		return "standard"
	}
	return ""
}

// hasRedis reports whether a service has its store in Redis.
func hasRedis(service string) bool {
	return service == onRedis || service == onUnaryRedis || service == onStandardRedis || service == beforeRedis
}

// isBefore reports whether a service is the older binary.
func isBefore(service string) bool { return service == beforeName || service == beforeRedis }

// comparisons returns all comparisons. before adds those with the older binary.
func comparisons(before bool) []comparison {
	const allowed, denied = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
	one, three := limited("allowed", largeKey, 1, allowed), limited("allowed", largeKey, 3, allowed)
	oneDenied, threeDenied := limited("denied", smallKey, 1, denied), limited("denied", smallKey, 3, denied)
	all := []comparison{
		{what: "store", base: bareName, services: []string{onMemory, onRedis}, scenarios: []scenario{one, three, oneDenied, threeDenied}},
		// onMemory has its tiers from a file.
		{what: "tiers", base: noTiers, services: []string{onMemory, fromPostgres}, scenarios: []scenario{one, three}},
		{what: "check", base: bareName, services: []string{fromPostgres}, scenarios: []scenario{authenticated(), oneHop()}},
		{
			what: transportName, base: bareName, second: onStandard,
			services: []string{onUnary, onStandard}, scenarios: []scenario{one, three, oneDenied, authenticated(), oneHop()},
		},
		// A repeated denial does not reach Redis.
		{
			what: transportName, base: bareName, second: onStandardRedis,
			services: []string{onUnaryRedis, onStandardRedis}, scenarios: []scenario{one, oneDenied},
		},
	}
	if before {
		all = append(all,
			comparison{what: beforeName, base: beforeName, services: []string{onMemory}, scenarios: []scenario{one, three, oneDenied, authenticated(), oneHop()}},
			comparison{what: beforeName, base: beforeRedis, services: []string{onRedis}, scenarios: []scenario{one, oneDenied}})
	}
	return all
}

// limited is a rate-limit request of an API key with the first n descriptors.
func limited(name, key string, n int, want rlsv3.RateLimitResponse_Code) scenario {
	descriptors := []*ratelimitcommonv3.RateLimitDescriptor{
		traffic.Descriptor("api_key", key),
		traffic.Descriptor("remote_address", "198.51.100.7"),
		traffic.Descriptor("route", "search", "api_key", key),
	}
	s := scenario{
		name: name, descriptors: n,
		Call: traffic.Call{
			Method:  rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
			Request: &rlsv3.RateLimitRequest{Domain: "bench", Descriptors: descriptors[:n]},
			Check:   func(m proto.Message) error { return checkLimits(m.(*rlsv3.RateLimitResponse), n, want) },
		},
		outcome: "allowed", decisions: n,
	}
	if want == rlsv3.RateLimitResponse_OVER_LIMIT {
		s.outcome, s.decisions, s.exhausted = "denied", 1, true // one rule denies, the others do not charge
	}
	return s
}

// checkLimits returns an error that says how an answer to a rate-limit request is
// wrong.
func checkLimits(a *rlsv3.RateLimitResponse, descriptors int, want rlsv3.RateLimitResponse_Code) error {
	switch {
	case a.GetOverallCode() != want:
		return fmt.Errorf("answer is %v, want %v", a.GetOverallCode(), want)
	case len(a.GetStatuses()) != descriptors:
		return fmt.Errorf("answer has %d statuses, want %d", len(a.GetStatuses()), descriptors)
	case len(a.GetResponseHeadersToAdd()) < 2:
		return fmt.Errorf("answer has %d headers, want at least RateLimit and RateLimit-Policy", len(a.GetResponseHeadersToAdd()))
	case len(a.GetDynamicMetadata().GetFields()) < 3: // subject and tier are more
		return fmt.Errorf("answer has %d fields of dynamic metadata, want at least 3", len(a.GetDynamicMetadata().GetFields()))
	case want == rlsv3.RateLimitResponse_OVER_LIMIT && len(a.GetRawBody()) == 0:
		return errors.New("answer is a denial without a body")
	}
	return nil
}

// exhaust uses up the limit of a scenario of denials.
func (s scenario) exhaust(ctx context.Context, address string) error {
	if !s.exhausted {
		return nil
	}
	s.Check = func(proto.Message) error { return nil }
	_, err := s.sample(ctx, address, fill)
	return err
}

// sample calls n times and returns the last answer. A wrong answer is an error.
func (s scenario) sample(ctx context.Context, address string, n int) (last proto.Message, err error) {
	conn, err := traffic.Dial(address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for range n {
		if last, err = s.Send(ctx, conn); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// frame is the body of the HTTP/2 request: a gRPC message.
func (s scenario) frame() ([]byte, error) {
	message, err := proto.Marshal(s.Request)
	if err != nil {
		return nil, err
	}
	return peer.Frame(message), nil
}
