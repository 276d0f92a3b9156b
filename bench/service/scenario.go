package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/bench/internal/program"
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
	name        string
	descriptors int
	method      string
	request     proto.Message
	// check returns an error that says how an answer is wrong. The message has the
	// response type of the method.
	check func(proto.Message) error
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

// Services, by their store or their source of tiers.
const (
	bareName     = "bare"
	onMemory     = "memory"
	onRedis      = "redis"
	noTiers      = "none"
	fromPostgres = "postgres"
)

// Services with a transport of their own. Without "redis" the store is the embedded one.
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
		// Denials that hold do not reach Redis.
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
		program.Descriptor("api_key", key),
		program.Descriptor("remote_address", "198.51.100.7"),
		program.Descriptor("route", "search", "api_key", key),
	}
	s := scenario{
		name: name, descriptors: n,
		method:  rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
		request: &rlsv3.RateLimitRequest{Domain: "bench", Descriptors: descriptors[:n]},
		check:   func(m proto.Message) error { return checkLimits(m.(*rlsv3.RateLimitResponse), n, want) },
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

// sample calls n times and returns the last answer. A wrong answer is an error.
func (s scenario) sample(ctx context.Context, address string, n int) (proto.Message, error) {
	return s.ask(ctx, address, n, s.check)
}

// exhaust uses up the limit of a scenario of denials.
func (s scenario) exhaust(ctx context.Context, address string) error {
	if !s.exhausted {
		return nil
	}
	_, err := s.ask(ctx, address, fill, func(proto.Message) error { return nil })
	return err
}

func (s scenario) ask(ctx context.Context, address string, n int, check func(proto.Message) error) (proto.Message, error) {
	conn, err := dial(address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var last proto.Message
	for range n {
		if last, err = s.call(ctx, conn); err != nil {
			return nil, err
		}
		if err := check(last); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// call makes one call.
func (s scenario) call(ctx context.Context, conn *grpc.ClientConn) (proto.Message, error) {
	answer := newAnswer(s.method)
	return answer, conn.Invoke(ctx, s.method, s.request, answer)
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// frame is the body of the HTTP/2 request: a gRPC message.
func (s scenario) frame() ([]byte, error) {
	message, err := proto.Marshal(s.request)
	if err != nil {
		return nil, err
	}
	return peer.Frame(message), nil
}
