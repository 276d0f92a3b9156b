package outage

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/offline/envoyconfig"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// TestEnvoyAcceptsTheFiles validates the files of envoy/ without changes, and what rls envoy-config
// makes of them.
func TestEnvoyAcceptsTheFiles(t *testing.T) {
	t.Parallel()
	version := stack.EnvoyVersion(t)[1]
	for _, shape := range envoyconfig.Shapes {
		if version < shape.Since {
			continue
		}
		file := filepath.Join("../../envoy", shape.File)
		if file == stack.TLSConfig {
			file = stack.WithCertificates(t, file)
		}
		edge.EnvoyAccepts(t, file)
		address := "limits.example:9091"
		if shape.Name == "sidecar" {
			address = "unix:///srv/rls.sock"
		}
		got := edge.Run(t, stack.RulesIn(t, strings.Replace(stack.ThreeKinds, "domain: edge", "domain: shop", 1)), "",
			"envoy-config", "--shape", shape.Name, "--rls", address, "--upstream", "unix:///srv/app.sock", "--listener", "[::]:80", "--admin-listener", "[::1]:90")
		if got.Code != 0 || !strings.Contains(got.Stdout, `domain: "shop"`) {
			t.Fatalf("rls envoy-config --shape %s: %+v", shape.Name, got)
		}
		file = configtest.Write(t, "envoy.yaml", got.Stdout)
		if shape.Name == "tls" {
			file = stack.WithCertificates(t, file)
		}
		edge.EnvoyAccepts(t, file)
	}
}

// TestOverAUnixSocket runs the sidecar's configuration, which takes the address from a
// header of the gateway.
func TestOverAUnixSocket(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		dir := edge.SocketDir(t)
		env := maps.Clone(settings)
		env[stack.EnvGRPCAddress] = "unix://" + filepath.Join(dir, "grpc.sock")
		s := stack.Setup{Rules: stack.ThreeKinds, Env: env, Config: stack.SidecarConfig}.Start(t)
		c := s.From("127.0.0.1")

		c.Want(200, 3, "/", "x-api-key", "k")
		c.Want(429, 1, "/", "x-api-key", "k")
		for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
			c.Want(200, 2, "/login", "X-Forwarded-For", address)
			c.Want(429, 1, "/login", "X-Forwarded-For", "203.0.113.9, "+address)
		}
		s.WantAllDecided()
	})
}

// TestEnvoyFailsOpen kills rls. Requests pass without limits and without header fields
// about limits. The limits are back when rls is back, without a change to Envoy.
func TestEnvoyFailsOpen(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: strings.ReplaceAll(stack.PerKey, "100", "2"), Env: settings}.Start(t)
		c := s.From("127.0.0.1")
		c.Want(200, 2, "/", "x-api-key", "k")
		c.Want(429, 1, "/", "x-api-key", "k")

		s.RLS.Kill()
		for range 5 {
			got := c.Get("/", "x-api-key", "k")
			if got.Status != http.StatusOK {
				t.Errorf("without rls: got %d, want 200", got.Status)
			}
			if v := got.Header.Values("RateLimit"); len(v) > 0 {
				t.Errorf("without rls: got RateLimit %q, want none", v)
			}
		}
		for name, want := range map[string]uint64{"error": 5, "failure_mode_allowed": 5} {
			if n := s.Stat("cluster.upstream.ratelimit." + name); n != want {
				t.Errorf("Envoy's counter %s: got %d, want %d", name, n, want)
			}
		}

		if err := s.RLS.Start(); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, "the limits to be back", func() bool {
			return c.Get("/", "x-api-key", "k").Header.Get("RateLimit") != ""
		})
		// The embedded store has begun anew, Redis has not. Two have passed in either.
		for range 2 {
			c.Get("/", "x-api-key", "k")
		}
		c.Want(429, 1, "/", "x-api-key", "k")
		if settings[stack.EnvStoreType] == "redis" {
			if left := s.Peek("api_key=k"); left[0] != 0 {
				t.Errorf("remaining: got %d, want 0: Redis has kept the history", left[0])
			}
		}
		failed := s.Stat("cluster.upstream.ratelimit.error")
		c.Want(429, 1, "/", "x-api-key", "k")
		if n := s.Stat("cluster.upstream.ratelimit.error"); n != failed {
			t.Errorf("Envoy's counter error: got %d more, want no more once rls is back", n-failed)
		}
	})
}

// TestInstancesShareAnOutage freezes Redis below three instances that nothing says how many they are.
// Together they admit at most the limit again.
func TestInstancesShareAnOutage(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	env := stack.OnRedis(server.Addr())
	env[stack.EnvStoreTimeout] = "15ms"
	var all []*edge.RLSServer
	for range 3 {
		all = append(all, stack.Setup{Rules: stack.PerKey, Env: env}.Serve(t))
	}
	for _, rls := range all {
		stack.WaitInstances(t, rls, "", 3)
	}
	server.Pause()
	admitted := 0
	for _, rls := range all {
		ask := stack.Limiter(t, rls)
		for range 60 {
			out, err := ask("api_key=outage")
			if err != nil {
				t.Fatal(err)
			}
			if out.GetOverallCode() == rlsv3.RateLimitResponse_OK {
				admitted++
			}
		}
		stack.WaitInstances(t, rls, "", 3)
	}
	server.Resume()
	if admitted != 99 {
		t.Errorf("three instances admit %d of 100, want 33 each", admitted)
	}
}

// TestRedisStalls freezes Redis during single calls: every tenth, and those around the limit. No
// call may fail. Beside the limit, only as many calls may pass as have a degraded answer.
func TestRedisStalls(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	env := stack.OnRedis(server.Addr())
	env[stack.EnvStoreTimeout] = "15ms"
	rls := stack.Setup{Rules: stack.PerKey, Env: env}.Serve(t)
	ask := stack.Limiter(t, rls)
	// calls makes 130 calls.
	calls := func(value string, stallsAt int) (allowed, degraded int) {
		for call := 1; call <= 130; call++ {
			stalls := call == stallsAt || call == stallsAt+1 || call > 98 && call < 102
			if stalls {
				server.Pause()
			}
			out, err := ask(value)
			if stalls {
				server.Resume()
			}
			if err != nil {
				t.Fatalf("%s, call %d: %v", value, call, err)
			}
			if out.GetOverallCode() == rlsv3.RateLimitResponse_OK {
				allowed++
			}
			if out.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue() {
				degraded++
			}
		}
		return allowed, degraded
	}
	const limit = 100
	for i := 1; i <= 130; i += 10 {
		value := fmt.Sprintf("api_key=stalls-at-%d", i)
		allowed, degraded := calls(value, i)
		if degraded == 0 {
			t.Errorf("%s: no answer was degraded", value)
		}
		// Redis may have charged a degraded call that the instance has denied, or the reverse.
		if allowed < limit-degraded || allowed > limit+degraded {
			t.Errorf("%s: %d of 130 calls were allowed, want %d, or up to the %d degraded ones more or less", value, allowed, limit, degraded)
		}
	}
}

// TestRedisRestarts stops Redis between two requests, once by a crash and once by a
// freeze, and starts it again.
func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	env := stack.OnRedis(server.Addr())
	// Long enough for a slow machine to answer in, where Redis is well.
	env[stack.EnvStoreTimeout] = "300ms"
	env["SLIDEGATE_STORE_ON_ERROR"] = "report"
	rls := stack.Setup{Rules: stack.PerKey, Env: env}.Serve(t)
	ask := stack.Limiter(t, rls)
	// settled waits for a decision. A slow Redis may cause errors before it.
	settled := func(what string) *rlsv3.RateLimitResponse {
		t.Helper()
		var out *rlsv3.RateLimitResponse
		process.Eventually(t, what, func() (ok bool) {
			var err error
			out, err = ask("api_key=k")
			return err == nil
		})
		return out
	}
	unavailable := func(state string) {
		t.Helper()
		start := time.Now()
		_, err := ask("api_key=k")
		took := time.Since(start)
		if status.Code(err) != codes.Unavailable {
			t.Errorf("Redis %s: got %v, want UNAVAILABLE", state, err)
		}
		// store.timeout is 300 ms. The rest is for a machine that does other things:
		// what must not happen is an answer that hangs, retries or waits for TCP.
		if took > 3*time.Second {
			t.Errorf("Redis %s: the answer took %v, want about 300ms", state, took)
		}
		if text := status.Convert(err).Message(); strings.Contains(text, server.Addr()) {
			t.Errorf("Redis %s: the message %q names its address", state, text)
		}
		health, err := healthv1.NewHealthClient(stack.Dial(t, rls)).Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health with Redis %s: got %v, %v, want SERVING", state, health.GetStatus(), err)
		}
		stack.Page(t, rls.HTTP()+"/healthcheck")
	}
	down := func(want, when string) {
		t.Helper()
		if got := stack.Metric(t, rls, "slidegate_store_down"); got != want {
			t.Errorf("slidegate_store_down %s: got %q, want %s", when, got, want)
		}
	}

	settled("the first decision")
	server.Stop()
	// One failure may be a moment of overload, five in a row are an outage.
	for range 5 {
		unavailable("gone")
	}
	down("1", "with Redis gone")
	server.Start()
	if got := stack.Remaining(settled("a decision after the restart")); got != 99 {
		t.Errorf("remaining after a restart of Redis: got %d, want 99: what it kept is lost", got)
	}
	down("0", "after the restart")

	server.Pause()
	for range 5 {
		unavailable("frozen")
	}
	down("1", "with Redis frozen")
	server.Resume()
	settled("a decision after the freeze")
	down("0", "after the freeze")
	if v := stack.Metric(t, rls, `slidegate_rpc_seconds_count{code="Unknown",method="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}`); v != "" {
		t.Errorf("%s calls were answered UNKNOWN, want none", v)
	}
}

// priorities has a rule of each priority. No limit is reached.
const priorities = `
domain: edge
descriptors:
  - key: pay
    rate_limit: {unit: hour, requests_per_unit: 1000000, priority: high, on_store_error: allow}
  - key: browse
    rate_limit: {unit: hour, requests_per_unit: 1000000, on_store_error: allow}
  - key: crawl
    rate_limit: {unit: hour, requests_per_unit: 1000000, priority: low, on_store_error: allow}
`

// TestTenTimesWhatRedisBears sends ten times as many requests as a Redis decides that is behind a
// long line. Each must be answered before its deadline, by the store or by on_store_error. The
// store must decide those of the highest priority, which it can bear.
func TestTenTimesWhatRedisBears(t *testing.T) {
	const (
		distance = 400 * time.Millisecond
		bears    = 2 * 48 * int(time.Second/distance) // two calls of the script at a time
		// Of 20 requests, one is of the priority high: half of what Redis bears.
		tick    = 50 * time.Millisecond
		perTick = 10 * bears / int(time.Second/tick) / 20 * 20
		ticks   = 80
	)
	server := servers.StartRedis(t)
	proxy := servers.StartProxy(t, server.Addr())
	env := stack.OnRedis(proxy.Addr())
	env[stack.EnvStoreTimeout] = "3s"
	rls := stack.Setup{Rules: priorities, Env: env}.Serve(t)
	client := rlsv3.NewRateLimitServiceClient(stack.Dial(t, rls))
	ask := func(key string) (degraded bool) {
		// Envoy's deadline. It is long, for a slow machine: a request must not wait for it.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		out, err := client.ShouldRateLimit(ctx, stack.Request(1, key+"=a"))
		if err != nil || out.GetOverallCode() != rlsv3.RateLimitResponse_OK {
			t.Errorf("%s: got %v, %v, want OK", key, out.GetOverallCode(), err)
			return true
		}
		return out.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue()
	}
	process.Eventually(t, "Redis to decide", func() bool { return !ask("pay") })
	proxy.Distance(distance)

	keys := map[string]*struct{ asked, decided atomic.Int64 }{"pay": {}, "browse": {}, "crawl": {}}
	var all sync.WaitGroup
	send := func(key string) {
		all.Go(func() {
			n := keys[key]
			n.asked.Add(1)
			if !ask(key) {
				n.decided.Add(1)
			}
		})
	}
	pace := time.NewTicker(tick)
	defer pace.Stop()
	for range ticks {
		for j := range perTick {
			switch {
			case j%20 == 0:
				send("pay")
			case j%2 == 0:
				send("browse")
			default:
				send("crawl")
			}
		}
		<-pace.C
	}
	all.Wait()

	share := func(key string) float64 { n := keys[key]; return float64(n.decided.Load()) / float64(n.asked.Load()) }
	t.Logf("the store decided %.0f %% of high, %.0f %% of normal, %.0f %% of low", 100*share("pay"), 100*share("browse"), 100*share("crawl"))
	if got := share("pay"); got < 0.9 {
		t.Errorf("the store decided %.0f %% of the requests with the priority high, want nearly all", 100*got)
	}
	if pay, browse, crawl := share("pay"), share("browse"), share("crawl"); pay <= browse || browse <= crawl {
		t.Errorf("the store decided %.2f of high, %.2f of normal and %.2f of low, want the more the higher", pay, browse, crawl)
	}
	if n := stack.Number(t, rls, `slidegate_store_refused_total{priority="high"}`); n > 0 {
		t.Errorf("%d requests of the priority high were refused, want none", n)
	}
	proxy.Distance(0)
	process.Eventually(t, "Redis to decide each request again", func() bool { return !ask("crawl") && !ask("browse") && !ask("pay") })
}

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
