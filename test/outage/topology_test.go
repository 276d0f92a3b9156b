package outage

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// TestInstancesShareTheLimit has two instances, each with an Envoy of its own, share
// limits on every kind of Redis.
func TestInstancesShareTheLimit(t *testing.T) {
	stack.EachTopology(t, func(t *testing.T, settings map[string]string) {
		one := stack.Setup{Rules: stack.PerKey, Env: settings}.Start(t)
		two := stack.Setup{Rules: stack.PerKey, Env: settings}.Start(t)
		for _, s := range []*stack.Stack{one, two} {
			s.From("127.0.0.1").Want(200, 1, "/", "x-api-key", "one-key")
		}
		passed, denied := stack.SendFromMany(t, "one-key", one, two)
		if passed != 98 || denied != 202 {
			t.Errorf("of 300 requests after two: got %d passed and %d denied, want 98 and 202", passed, denied)
		}
		one.WantAllDecided()
		two.WantAllDecided()
	})
}

// TestAllOrNothingOnEveryTopology charges limits whose logs are on different servers.
// A denied request must charge none of them. Started in place of envoyproxy/ratelimit with its
// variables for the same Redis, rls does the same.
func TestAllOrNothingOnEveryTopology(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 5}}
  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 100}}
  - {key: route, rate_limit: {name: per-route, window: 1h, requests: 100}}
`
	program := stack.AsRatelimit(t)
	stack.EachTopology(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: rules, Env: settings}
		rls := s.Serve(t)
		ask := stack.Limiter(t, rls)
		environ := []string{"REDIS_SOCKET_TYPE=tcp", "RUNTIME_ROOT=" + filepath.Dir(configtest.Write(t, "rules.yaml", rules)), "RUNTIME_SUBDIRECTORY=.", "RUNTIME_APPDIRECTORY=rules"}
		for name, text := range settings {
			if strings.HasPrefix(name, "REDIS_") {
				environ = append(environ, name+"="+text)
			}
		}
		dropIn := stack.StartDropIn(t, program, environ)
		client := rlsv3.NewRateLimitServiceClient(stack.Connect(t, process.Address(dropIn.Port+1), grpc.WithTransportCredentials(insecure.NewCredentials())))
		for i := range 8 {
			ask := ask
			if i%2 == 1 {
				ask = func(descriptors ...string) (*rlsv3.RateLimitResponse, error) {
					ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
					defer cancel()
					return client.ShouldRateLimit(ctx, stack.Request(1, descriptors...))
				}
			}
			out, err := ask("api_key=k", "remote_address=192.0.2.1", "route=search")
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			left := max(4-i, 0)
			for j, want := range []int{left, 95 + left, 95 + left} {
				if got := out.GetStatuses()[j].GetLimitRemaining(); int(got) != want {
					t.Errorf("request %d, descriptor %d: %d remain, want %d", i, j, got, want)
				}
			}
		}
	})
}
