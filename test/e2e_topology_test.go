package test

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// eachTopology runs a test on every kind of Redis, with the settings to connect. The variables of
// envoyproxy/ratelimit for the same Redis are among them: a process that starts as rls does not
// read them.
func eachTopology(t *testing.T, f func(t *testing.T, settings map[string]string)) {
	t.Parallel()
	with := func(url string, more map[string]string) map[string]string {
		settings := onRedis("")
		settings[envRedisURL] = url
		maps.Copy(settings, more)
		return settings
	}
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		address := servers.Redis(t)
		settings := onRedis(address)
		settings["REDIS_URL"] = "redis://" + address + "/0"
		f(t, settings)
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		set := servers.StartSentinel(t, servers.SentinelOptions{Password: "between-us", SentinelPassword: "between-sentinels"})
		f(t, with("redis-sentinel://"+strings.Join(set.Sentinels(), ",")+"/"+set.MasterName(), map[string]string{
			"SLIDEGATE_STORE_REDIS_PASSWORD":          "between-us",
			"SLIDEGATE_STORE_REDIS_SENTINEL_PASSWORD": "between-sentinels",

			"REDIS_TYPE": "sentinel",
			"REDIS_URL":  set.MasterName() + ",redis://:between-sentinels@" + strings.Join(set.Sentinels(), ",,"),
			"REDIS_AUTH": "between-us",
		}))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := servers.StartCluster(t)
		f(t, with("redis-cluster://"+strings.Join(cluster.Addrs(), ","), map[string]string{
			"REDIS_TYPE": "cluster",
			"REDIS_URL":  ",redis://" + strings.Join(append(cluster.Addrs(), cluster.Addrs()[0]), "/0,redis://"),
		}))
	})
	t.Run("tls", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedisTLS(t)
		ca, cert, key := server.TLSFiles()
		f(t, with("rediss://"+server.Addr(), map[string]string{
			"SLIDEGATE_STORE_REDIS_TLS_CA_FILE":   ca,
			"SLIDEGATE_STORE_REDIS_TLS_CERT_FILE": cert,
			"SLIDEGATE_STORE_REDIS_TLS_KEY_FILE":  key,

			"REDIS_URL":             "redis://" + server.Addr() + "?db=0",
			"REDIS_TLS":             "true",
			"REDIS_TLS_CACERT":      ca,
			"REDIS_TLS_CLIENT_CERT": cert,
			"REDIS_TLS_CLIENT_KEY":  key,
		}))
	})
}

// TestInstancesShareTheLimit has two instances, each with an Envoy of its own, share
// limits on every kind of Redis.
func TestInstancesShareTheLimit(t *testing.T) {
	eachTopology(t, func(t *testing.T, settings map[string]string) {
		one := setup{rules: perKey, env: settings}.start(t)
		two := setup{rules: perKey, env: settings}.start(t)
		for _, s := range []*stack{one, two} {
			s.from("127.0.0.1").want(200, 1, "/", "x-api-key", "one-key")
		}
		passed, denied := sendFromMany(t, "one-key", one, two)
		if passed != 98 || denied != 202 {
			t.Errorf("of 300 requests after two: got %d passed and %d denied, want 98 and 202", passed, denied)
		}
		one.wantAllDecided()
		two.wantAllDecided()
	})
}

// TestAllOrNothingOnEveryTopology charges limits whose logs are on different servers.
// A denied request must charge none of them. Started in place of envoyproxy/ratelimit with its
// variables for the same Redis, rls does the same.
func TestAllOrNothingOnEveryTopology(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 5}
  - key: remote_address
    rate_limit: {name: per-address, window: 1h, requests: 100}
  - key: route
    rate_limit: {name: per-route, window: 1h, requests: 100}
`
	program := asRatelimit(t)
	eachTopology(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: rules, env: settings}
		rls := s.serve(t)
		ask := limiter(t, rls)
		environ := []string{"REDIS_SOCKET_TYPE=tcp", "RUNTIME_ROOT=" + filepath.Dir(configtest.Write(t, "rules.yaml", rules)), "RUNTIME_SUBDIRECTORY=.", "RUNTIME_APPDIRECTORY=rules"}
		for name, text := range settings {
			if strings.HasPrefix(name, "REDIS_") {
				environ = append(environ, name+"="+text)
			}
		}
		dropIn := startDropIn(t, program, environ)
		client := rlsv3.NewRateLimitServiceClient(connect(t, process.Address(dropIn.port+1), grpc.WithTransportCredentials(insecure.NewCredentials())))
		for i := range 8 {
			ask := ask
			if i%2 == 1 {
				ask = func(descriptors ...string) (*rlsv3.RateLimitResponse, error) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					return client.ShouldRateLimit(ctx, question(1, descriptors...))
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
