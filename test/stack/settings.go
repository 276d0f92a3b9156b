package stack

import (
	"maps"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/servers"
)

// Settings of rls that tests need.
const (
	EnvStoreType    = "SLIDEGATE_STORE_TYPE"
	EnvStoreTimeout = "SLIDEGATE_STORE_TIMEOUT"
	EnvRedisURL     = "SLIDEGATE_STORE_REDIS_URL"
	EnvTiersSource  = "SLIDEGATE_TIERS_SOURCE"
	EnvGRPCAddress  = "SLIDEGATE_GRPC_ADDRESS"
	EnvHTTPAddress  = "SLIDEGATE_HTTP_ADDRESS"
	EnvAdminAddress = "SLIDEGATE_ADMIN_ADDRESS"
	EnvStyles       = "SLIDEGATE_HEADERS_STYLES"
	EnvDrainDelay   = "SLIDEGATE_DRAIN_DELAY"
	EnvLogLevel     = "SLIDEGATE_LOG_LEVEL"
	EnvRulesPath    = "SLIDEGATE_RULES_PATH"
	EnvTiersPath    = "SLIDEGATE_TIERS_PATH"
	EnvTrustedEntry = "SLIDEGATE_TIERS_TRUSTED_ENTRY"
	EnvCredentials  = "SLIDEGATE_AUTHZ_CREDENTIALS"
	EnvSnapshot     = "SLIDEGATE_STORE_MEMORY_SNAPSHOT"
)

// With returns the settings in both maps.
func With(settings, more map[string]string) map[string]string {
	all := maps.Clone(settings)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, more)
	return all
}

// AsDropIn adds the settings of rls in place of envoyproxy/ratelimit to those of a test, which say
// where its rules, its store and its addresses are.
func AsDropIn(env map[string]string) {
	env["SLIDEGATE_COMPAT"], env[EnvLogLevel], env["SLIDEGATE_METRICS_ADDRESS"] = "envoyproxy", "info", "127.0.0.1:0"
	if env[EnvStoreType] == "" {
		env[EnvStoreType] = "memory"
	}
}

// OnRedis returns the settings for a redis-server. The timeout of the store is long
// for the reason of PatientEnvoy.
func OnRedis(addr string) map[string]string {
	return map[string]string{EnvStoreType: "redis", EnvRedisURL: "redis://" + addr, EnvStoreTimeout: "10s"}
}

// EachStore runs a test on every store. settings select the store.
func EachStore(t *testing.T, f func(t *testing.T, settings map[string]string)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		f(t, map[string]string{EnvStoreType: "memory"})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f(t, OnRedis(servers.Redis(t)))
	})
}

// EachTopology runs a test on every kind of Redis, with the settings to connect. The variables of
// envoyproxy/ratelimit for the same Redis are among them: a process that starts as rls does not
// read them.
func EachTopology(t *testing.T, f func(t *testing.T, settings map[string]string)) {
	t.Parallel()
	with := func(url string, more map[string]string) map[string]string {
		settings := OnRedis("")
		settings[EnvRedisURL] = url
		maps.Copy(settings, more)
		return settings
	}
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		address := servers.Redis(t)
		settings := OnRedis(address)
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
