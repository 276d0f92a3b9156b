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

// The API keys, and who has them.
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

// rulesWithoutTiers have the limit of the large tier for everybody.
var rulesWithoutTiers = strings.Replace(rules, `
      by_tier:
        large: {unit: second, requests_per_unit: 4000000000}
        small: {unit: day, requests_per_unit: 10}`, `
      unit: second
      requests_per_unit: 4000000000`, 1)

// fill is how many requests exhaust the small tier, and some.
const fill = 20

// A scenario is one call and the answer that it must get.
type scenario struct {
	name        string
	descriptors int
	method      string
	request     proto.Message
	// check reports how an answer differs from what is wanted. Every message is of
	// the type that the method has.
	check func(proto.Message) error
	// exhausted: the limit is reached before anything is measured.
	exhausted bool
	// outcome is what rls counts the decisions of a call as, decisions how many there
	// are.
	outcome   string
	decisions int
}

// A comparison is servers that get the same calls in the same rounds.
type comparison struct {
	what      string // is compared: the title of the column
	base      string // what others are compared with: bareName, or a service
	services  []string
	second    string // one of the services, that the others are compared with too; empty: none
	scenarios []scenario
}

// What rls runs with: a store, or a source of tiers.
const (
	bareName     = "bare"
	onMemory     = "memory"
	onRedis      = "redis"
	noTiers      = "none"
	fromPostgres = "postgres"
)

// And on a transport that it is told. The store is the embedded one, unless it says
// Redis.
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

// transportOf returns which transport a service is told to have. Empty: it is not
// told.
func transportOf(service string) string {
	switch service {
	case onUnary, onUnaryRedis:
		return "unary"
	case onStandard, onStandardRedis:
		return "standard"
	}
	return ""
}

// hasRedis says whether a service has its store in Redis.
func hasRedis(service string) bool {
	return service == onRedis || service == onUnaryRedis || service == onStandardRedis || service == beforeRedis
}

// isBefore reports whether a service is the older binary.
func isBefore(service string) bool { return service == beforeName || service == beforeRedis }

// comparisons returns what is measured: also against the older binary if there is one.
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
		descriptor("api_key", key),
		descriptor("remote_address", "198.51.100.7"),
		descriptor("route", "search", "api_key", key),
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

// descriptor takes keys and values in turn.
func descriptor(pairs ...string) *ratelimitcommonv3.RateLimitDescriptor {
	d := new(ratelimitcommonv3.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// checkLimits reports how an answer to a rate-limit request differs from what is
// wanted.
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

// sample asks n times and returns the last answer. Every answer must be what the
// scenario wants.
func (s scenario) sample(ctx context.Context, address string, n int) (proto.Message, error) {
	return s.ask(ctx, address, n, s.check)
}

// exhaust spends what is to be denied. The answers are of no interest.
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

// call asks once.
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
	return append(messagePrefix(len(message)), message...), nil
}

// messagePrefix is what stands before a gRPC message of n bytes that is not
// compressed.
func messagePrefix(n int) []byte {
	return []byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}
