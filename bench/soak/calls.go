package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/bench/internal/traffic"
)

// The kinds of calls.
const (
	limitCall  = "limits"
	checkCall  = "checks"
	healthCall = "health checks"
)

// A call is a call of a kind.
type call struct {
	traffic.Call
	kind string
}

// ask makes the call once.
func (c *call) ask(ctx context.Context, conn grpc.ClientConnInterface) error {
	_, err := c.Send(ctx, conn)
	return err
}

// anyCall returns a random call.
func anyCall() *call {
	caller := fmt.Sprint("caller-", rand.IntN(callers))
	switch rand.IntN(10) {
	case 0, 1:
		return usedUp()
	case 2, 3:
		return limits(rlsv3.RateLimitResponse_OK, traffic.Descriptor("caller", caller), traffic.Descriptor("unknown", "x"), traffic.Descriptor("route", "search", "caller", caller))
	case 4, 5, 6:
		return apiKeyCheck()
	default:
		return limits(rlsv3.RateLimitResponse_OK, traffic.Descriptor("caller", caller))
	}
}

// callers is how many keys there are, each with its logs.
const callers = 1000

// usedUp returns a call about a limit that is used up.
func usedUp() *call {
	return limits(rlsv3.RateLimitResponse_OVER_LIMIT, traffic.Descriptor("greedy", "one"))
}

func limits(want rlsv3.RateLimitResponse_Code, descriptors ...*ratelimitcommonv3.RateLimitDescriptor) *call {
	return &call{kind: limitCall, Call: traffic.Call{
		Method:  rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
		Request: &rlsv3.RateLimitRequest{Domain: "soak", Descriptors: descriptors},
		Check: func(m proto.Message) error {
			got := m.(*rlsv3.RateLimitResponse)
			if got.GetOverallCode() != want || len(got.GetStatuses()) != len(descriptors) {
				return fmt.Errorf("%v, want %v with %d statuses", got, want, len(descriptors))
			}
			return nil
		},
	}}
}

func apiKeyCheck() *call {
	return &call{kind: checkCall, Call: traffic.Call{
		Method: authv3.Authorization_Check_FullMethodName,
		Request: &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Method: http.MethodGet, Host: "api.example.com", Path: "/v1/orders",
				Headers: map[string]string{"x-api-key": apiKey, "user-agent": "soak"},
			}},
			ContextExtensions: map[string]string{"route": "orders"},
		}},
		Check: func(m proto.Message) error {
			got := m.(*authv3.CheckResponse)
			if got.GetStatus() == nil || got.GetStatus().GetCode() != int32(codes.OK) || len(got.GetOkResponse().GetHeaders()) == 0 {
				return fmt.Errorf("%v, want OK with headers", got)
			}
			return nil
		},
	}}
}

func healthCheck() *call {
	return &call{kind: healthCall, Call: traffic.Call{
		Method: healthv1.Health_Check_FullMethodName, Request: new(healthv1.HealthCheckRequest),
		Check: func(m proto.Message) error {
			if got := m.(*healthv1.HealthCheckResponse); got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
				return fmt.Errorf("%v, want SERVING", got)
			}
			return nil
		},
	}}
}

// A tally counts the outcomes of calls and connections. It is safe for concurrent use.
type tally struct {
	mu       sync.Mutex
	calls    map[string]int // by kind, without those that were given up
	failed   map[string]int // of those, by what was wrong
	givenUp  map[string]int // by their outcome
	opened   map[string]int // connections by kind
	examples []string       // of failures, the first few
}

func newTally() *tally {
	return &tally{calls: make(map[string]int), failed: make(map[string]int), givenUp: make(map[string]int), opened: make(map[string]int)}
}

// maxExamples is how many failures are written in full.
const maxExamples = 10

// noTimeLeft is the message of the service if a call left its store no time.
const noTimeLeft = "the store could not decide"

// called counts a call that must be answered.
func (t *tally) called(q *call, how string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[q.kind]++
	if err == nil {
		return
	}
	t.failed[what(err)]++
	if len(t.examples) < maxExamples {
		t.examples = append(t.examples, fmt.Sprintf("%s, %s: %v", how, q.kind, err))
	}
}

// excused counts a call that its caller has given up. It must end with the allowed code, with
// the right answer, or with noTimeLeft. The deadline may pass a little earlier on the clock of
// the service.
func (t *tally) excused(q *call, how string, err error, allowed codes.Code) {
	if code := status.Code(err); err != nil && code != allowed &&
		(code != codes.Unavailable || status.Convert(err).Message() != noTimeLeft) {
		t.called(q, how, err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.givenUp[what(err)]++
}

// what returns a short name of the outcome of a call.
func what(err error) string {
	if errors.Is(err, traffic.ErrWrong) {
		return traffic.ErrWrong.Error()
	}
	return status.Code(err).String()
}

// connected counts connections.
func (t *tally) connected(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened[kind]++
}

// totals are the sums of a tally at one moment.
type totals struct {
	limits, checks, health, givenUp, opened int
	failed                                  map[string]int
}

func (t *tally) totals() totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := func(m map[string]int) (n int) {
		for _, v := range m {
			n += v
		}
		return n
	}
	return totals{t.calls[limitCall], t.calls[checkCall], t.calls[healthCall], sum(t.givenUp), sum(t.opened), maps.Clone(t.failed)}
}

// list writes counts by name, such as "OK 5, Unavailable 2".
func list(counts map[string]int) string {
	var all []string
	for _, name := range sorted(counts) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

func sorted(counts map[string]int) []string { return slices.Sorted(maps.Keys(counts)) }
