package limits

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// TestFormsOfARoute: through both filters of Envoy, clients get the JSON of the form that the route
// names, with its content type, unless the rule has a body.
func TestFormsOfARoute(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1m, requests: 1}
  - key: api_key
    value: own
    rate_limit: {name: own, window: 1m, requests: 1, body: problem}
`
	tiers := "tiers: [free]\ndefault: free\nsubjects:\n  - {id: a, tier: free, keys: [{sha256: " + stack.DigestOf("k") + "}]}\n"
	for name, config := range map[string]string{"ratelimit": stack.EdgeConfig, "ext_authz": stack.OneHopConfig} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.FileSetup(t, config, rules, tiers, stack.RouteForm(config, "anthropic")).Start(t)
			if got := s.Get("/", "x-api-key", "k"); got.Status != 200 {
				t.Fatalf("the first request: %d, %s", got.Status, got.Body)
			}
			got := s.Get("/", "x-api-key", "k")
			var body struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(got.Body), &body); err != nil {
				t.Fatalf("%v: %s", err, got.Body)
			}
			if text := body.Error.Message; got.Status != 429 || got.Header.Get("Content-Type") != "application/json" || body.Type != "error" ||
				body.Error.Type != "rate_limit_error" || !strings.HasPrefix(text, "No room under rule per-key: 1 per 1m; try again in ") {
				t.Errorf("%d, %s, %+v", got.Status, got.Header.Get("Content-Type"), body)
			}
			exact, err := strconv.ParseFloat(got.Header.Get("Retry-After-Ms"), 64)
			if whole := strconv.FormatFloat(math.Ceil(exact/1000), 'f', -1, 64); err != nil || got.Header.Get("Retry-After") != whole || got.Header.Values("X-Should-Retry") != nil {
				t.Errorf("waits: %v, %v", got.Header, err)
			}
		})
	}
	t.Run("the rule has a body", func(t *testing.T) {
		t.Parallel()
		s := stack.Setup{Rules: rules, Change: stack.RouteForm(stack.EdgeConfig, "openai")}.Start(t)
		s.Get("/", "x-api-key", "own")
		if got := s.Get("/", "x-api-key", "own"); stack.ProblemOf(t, got).Rule != "own" {
			t.Errorf("%d, %s", got.Status, got.Body)
		}
	})
	t.Run("without the store", func(t *testing.T) {
		t.Parallel()
		redis := servers.StartRedis(t)
		s := stack.Setup{
			Rules:  "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1m, requests: 1, on_store_error: deny}\n",
			Change: stack.RouteForm(stack.EdgeConfig, "openai"), Env: map[string]string{stack.EnvStoreType: "redis", stack.EnvRedisURL: "redis://" + redis.Addr()},
		}.Start(t)
		redis.Stop()
		got := s.Get("/", "x-api-key", "k")
		const want = `{"error":{"message":"Rule per-key cannot be checked now; try again in 1 s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
		if diff := cmp.Diff(want, got.Body); diff != "" || got.Status != 429 || got.Header.Get("Retry-After-Ms") != "1000" {
			t.Errorf("%d, %v (-want +got):\n%s", got.Status, got.Header, diff)
		}
	})
}

// TestGRPCWaits: grpc-go finds RetryInfo in the status of a denied call. With a retry policy it waits as
// long as the limit needs, sends the call once more, and gives up if the wait is long.
func TestGRPCWaits(t *testing.T) {
	const policy = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":5,"initialBackoff":"0.01s","maxBackoff":"0.01s","backoffMultiplier":1,
		"retryableStatusCodes":["RESOURCE_EXHAUSTED","UNAVAILABLE"]}}]}`
	rules := `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: short, window: 3s, requests: 1, body: grpc}
  - key: api_key
    value: long
    rate_limit: {name: long, window: 1h, requests: 1, body: grpc}
`
	tiers := "tiers: [free]\ndefault: free\nsubjects:\n  - {id: a, tier: free, keys: [{sha256: " + stack.DigestOf("k") + "}, {sha256: " + stack.DigestOf("long") + "}]}\n"
	for name, tt := range map[string]struct {
		config string
		code   codes.Code
		denied string // Envoy's counter
	}{
		"ratelimit": {stack.EdgeConfig, codes.ResourceExhausted, "cluster.upstream.ratelimit.over_limit"},
		"ext_authz": {stack.OneHopConfig, codes.Unavailable, "cluster.upstream.ext_authz.denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := stack.FileSetup(t, tt.config, rules, tiers, nil)
			setup.Upstream = stack.NewGRPCApplication(t)
			s := setup.Start(t)
			call := func(key string, more ...grpc.DialOption) (trailer metadata.MD, err error) {
				t.Helper()
				conn, err := grpc.NewClient(s.Envoy.Addr(), append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-api-key", key), process.Patience)
				defer cancel()
				_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Trailer(&trailer))
				return trailer, err
			}
			denials := func() uint64 { return s.Stat(tt.denied) }
			for _, key := range []string{"k", "long"} {
				if _, err := call(key); err != nil {
					t.Fatal(err)
				}
			}
			trailer, err := call("long", grpc.WithDefaultServiceConfig(policy))
			st := status.Convert(err)
			if st.Code() != tt.code || !strings.HasPrefix(st.Message(), "The budget of rule long is used up until ") || len(st.Details()) != 1 || denials() != 1 {
				t.Fatalf("a long wait: %v with %v after %d denials, want %v, a RetryInfo and one denial", err, st.Details(), denials(), tt.code)
			}
			info, ok := st.Details()[0].(*errdetails.RetryInfo)
			if delay := info.GetRetryDelay().AsDuration(); !ok || delay < 59*time.Minute || delay > time.Hour {
				t.Errorf("RetryInfo %v, want an hour at most", info)
			}
			if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "-1" {
				t.Errorf("grpc-retry-pushback-ms %q, want -1", got)
			}
			if _, err := call("k", grpc.WithDefaultServiceConfig(policy)); err != nil || denials() > 2 {
				t.Errorf("a short wait: %v after %d denials, want one retry that passes", err, denials()-1)
			}
		})
	}
}
