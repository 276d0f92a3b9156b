package compat

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// read reads variables of the reference and of rls, as the command does. The problems are those
// of both.
func read(environ ...string) (*Reading, settings.Settings, strict.Problems) {
	configured, origins, _ := settings.Load("", environ)
	r := Read(environ, Configured{Settings: configured, Origins: origins})
	s, _, err := settings.Load("", environ, r.DropIn)
	if more := strict.Problems(nil); errors.As(err, &more) {
		r.Complete(more)
	}
	return r, s, r.Problems
}

// row returns the row of a variable.
func row(t *testing.T, r *Reading, name string) Row {
	t.Helper()
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name })
	if i < 0 {
		t.Fatalf("there is no row %s", name)
	}
	return r.Rows[i]
}

// rulesDir makes the directories DIR/sub/config and DIR/config, and returns DIR.
func rulesDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"sub/config", "config"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// least is an environment that starts: ROOT is a directory with rules.
const least = "RUNTIME_ROOT=ROOT RUNTIME_SUBDIRECTORY=sub REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379"

// Environments that give a variable its effect.
const (
	xds        = " CONFIG_TYPE=GRPC_XDS_SOTW"
	xdsTLS     = xds + " CONFIG_GRPC_XDS_SERVER_USE_TLS=true"
	serverTLS  = " GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=CERT GRPC_SERVER_TLS_KEY=KEY"
	redisTLS   = " REDIS_TLS=true"
	sentinel   = " REDIS_TYPE=sentinel REDIS_URL=main,s1:26379,s2:26379"
	enabled    = " LIMIT_RESPONSE_HEADERS_ENABLED=true"
	statsd     = " USE_STATSD=true"
	prometheus = " USE_STATSD=false USE_PROMETHEUS=true"
	traces     = " TRACING_ENABLED=true"
	noEffect   = "no effect: "
)

// A rowTest is one variable: what it becomes when it is not set, when it is, and with a wrong
// value.
type rowTest struct {
	name string
	with string // further variables
	// def is Became of the row if the variable is not set. Empty: same default.
	def string
	// set is a value, and want is Became of the row with it.
	set, want string
	// wrong is a value that is refused, and problem a part of the message. Empty: any value is
	// right, or has no effect.
	wrong, problem string
}

// The wrong values of each kind.
const (
	notTrue   = "expected true or false, got"
	notWhole  = "expected a whole number, got"
	notNumber = "expected a number from 0 to 1, such as 0.8, got"
	notTime   = "expected a time such as 10s, got"
)

var rowTests = []rowTest{
	// A1
	{"HOST", "", "http.address = 0.0.0.0:8080", "::", "http.address = [::]:8080", "a b", `"a b:8080" is not an address`},
	{"PORT", "", "http.address = 0.0.0.0:8080", "0x1F92", "http.address = 0.0.0.0:8082", "70000", "70000 is not a port"},
	{"PORT", "", "http.address = 0.0.0.0:8080", "80", "http.address = 0.0.0.0:80", "http", notWhole},
	{"GRPC_HOST", "", "grpc.address = 0.0.0.0:8081", "::", "grpc.address = [::]:8081", "a/b", "is not an address"},
	{"GRPC_PORT", "", "grpc.address = 0.0.0.0:8081", "9", "grpc.address = 0.0.0.0:9", "-1", "-1 is not a port"},
	{"GRPC_UDS", "", "", "/run/rl.sock", "grpc.address = unix:///run/rl.sock", "/", "must be absolute"},
	{"DEBUG_HOST", "", "admin.address = 0.0.0.0:6070", "127.0.0.1", "admin.address = 127.0.0.1:6070", "a b", "is not an address"},
	{"DEBUG_PORT", "", "admin.address = 0.0.0.0:6070", "6071", "admin.address = 0.0.0.0:6071", "6070.0", notWhole},
	{"GRPC_MAX_CONNECTION_AGE", "", "grpc.max_connection_age = 24h0m0s", "30m", "grpc.max_connection_age = 30m0s", "30", notTime},
	{"GRPC_MAX_CONNECTION_AGE", "", "grpc.max_connection_age = 24h0m0s", "0", "grpc.max_connection_age = 0s", "-1s", "is not 0 and not between"},
	{"GRPC_SERVER_USE_TLS", " GRPC_SERVER_TLS_CERT=CERT GRPC_SERVER_TLS_KEY=KEY", "", "true", "TLS", "yes", notTrue},
	{"GRPC_SERVER_USE_TLS", " GRPC_SERVER_TLS_CERT=CERT GRPC_SERVER_TLS_KEY=KEY", "", "0", "no TLS", "2", notTrue},
	{"GRPC_SERVER_TLS_CERT", "", "", "CERT", noEffect + "GRPC_SERVER_USE_TLS is not true", "", ""},
	{"GRPC_SERVER_TLS_CERT", " GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_KEY=KEY", "refused: is needed, because GRPC_SERVER_USE_TLS is true", "CERT", "grpc.tls.cert_file = CERT", "/missing", "no such file"},
	{"GRPC_SERVER_TLS_KEY", " GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=CERT", "refused: is needed, because GRPC_SERVER_USE_TLS is true", "KEY", "grpc.tls.key_file = KEY", "", ""},
	{"GRPC_CLIENT_TLS_CACERT", serverTLS, "", "CA", "grpc.tls.client_ca_file = CA; certificates of the system's CAs are not accepted", "/missing", "no such file"},
	{"GRPC_CLIENT_TLS_SAN", serverTLS, "", "envoy", "ignored: clients present no certificate, because GRPC_CLIENT_TLS_CACERT is not set; envoyproxy/ratelimit checks no name then either", "", ""},
	{"GRPC_CLIENT_TLS_SAN", serverTLS + " GRPC_CLIENT_TLS_CACERT=CA", "", "envoy", "grpc.tls.client_san = envoy", "", ""},
	{"LOG_LEVEL", "", "log.level = warn", "Warning", "log.level = warn", "loud", `"loud" is not one of panic, fatal`},
	{"LOG_LEVEL", "", "log.level = warn", "trace", "log.level = debug", "", ""},
	{"LOG_LEVEL", "", "log.level = warn", "FATAL", "log.level = error", "", ""},
	{"LOG_FORMAT", "", "log.format = console", "JSON", "log.format = reference", "", ""},
	{"LOG_FORMAT", "", "log.format = console", "logfmt", "log.format = console", "", ""},
	{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "", "dropin.healthy.rules = false", "true", "dropin.healthy.rules = true", "on", notTrue},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "", "dropin.healthy.store = false", "true", "dropin.healthy.store = true", "on", notTrue},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", "", "", "true", "ignored: rls does not start with a broken rules file", "on", notTrue},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", xds, "dropin.xds.without_rules = false", "true", "dropin.xds.without_rules = true", "on", notTrue},
	{"MERGE_DOMAIN_CONFIG", "", "rules.merge_domains = false", "true", "rules.merge_domains = true", "on", notTrue},
	{"SHADOW_MODE", "", "rules.shadow_mode = false", "true", "rules.shadow_mode = true", "on", notTrue},
	{"QUOTA_MODE", "", "dropin.rules.quota_mode = false", "true", "dropin.rules.quota_mode = true", "on", notTrue},
	{"RESPONSE_DYNAMIC_METADATA", "", "dropin.metadata.request = false", "true", "dropin.metadata.request = true", "on", notTrue},

	// A2
	{"RUNTIME_ROOT", "", `refused: "/srv/runtime_data/current/sub" does not exist; the path is RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and, if RUNTIME_WATCH_ROOT is false, RUNTIME_APPDIRECTORY`, "ROOT", "rules.path = ROOT/sub", "/missing", `"/missing/sub" does not exist`},
	{"RUNTIME_ROOT", xds, "", "/data", noEffect + "rules come from an xDS server", "", ""},
	{"RUNTIME_SUBDIRECTORY", " RUNTIME_WATCH_ROOT=false", "rules.path = ROOT/config", "sub", "rules.path = ROOT/sub/config", "", ""},
	{"RUNTIME_SUBDIRECTORY", "", "refused", "sub", "rules.path = ROOT/sub", "", ""},
	{"RUNTIME_APPDIRECTORY", "", "dropin.rules.prefix = config", "other", "dropin.rules.prefix = other", "", ""},
	{"RUNTIME_APPDIRECTORY", " RUNTIME_WATCH_ROOT=false", "rules.path = ROOT/sub/config", "", "refused: is empty; envoyproxy/ratelimit has no rules then", "", ""},
	{"RUNTIME_IGNOREDOTFILES", "", "dropin.rules.ignore_dot_files = false", "true", "dropin.rules.ignore_dot_files = true", "on", notTrue},
	{"RUNTIME_WATCH_ROOT", "", "rules.path = ROOT/sub, dropin.rules.prefix = config", "false", "rules.path = ROOT/sub/config; rls always notices changes", "on", notTrue},

	// A3
	{"CONFIG_TYPE", "", "rules.source = files", "GRPC_XDS_SOTW", "rules.source = xds", "GRPC_XDS_DELTA", "is not one of FILE, GRPC_XDS_SOTW"},
	{"CONFIG_GRPC_XDS_NODE_ID", xds, "rules.xds.node_id = default", "envoy-ratelimit", "rules.xds.node_id = envoy-ratelimit", "", ""},
	{"CONFIG_GRPC_XDS_NODE_ID", "", "", "a", noEffect + "rules come from files", "", ""},
	{"CONFIG_GRPC_XDS_NODE_METADATA", xds, "", "a=b,c=d=e", "dropin.xds.node_metadata = a=b,c=d=e", "", ""},
	{"CONFIG_GRPC_XDS_NODE_METADATA", xds, "", "a:b,c=d", "ignored: 1 parts have no =, and envoyproxy/ratelimit drops them too; dropin.xds.node_metadata = c=d", "", ""},
	{"CONFIG_GRPC_XDS_SERVER_URL", xds, "rules.xds.address = localhost:18000", "dns:///eg:18001", "rules.xds.address = eg:18001", "http://u:p@h", "expected host:port"},
	{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", xds, "", "authorization:token", "dropin.xds.headers = ***", "a:b:c", "expected name:value"},
	{"CONFIG_GRPC_XDS_SERVER_USE_TLS", xds, "rules.xds.address = localhost:18000", "true", "rules.xds.address = grpcs://localhost:18000", "on", notTrue},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", xdsTLS + " CONFIG_GRPC_XDS_CLIENT_TLS_KEY=KEY", "", "CERT", "rules.xds.tls.cert_file = CERT", "", ""},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", xdsTLS, "", "CERT", "ignored: CONFIG_GRPC_XDS_CLIENT_TLS_KEY is not set; envoyproxy/ratelimit presents no certificate then either", "", ""},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", xdsTLS + " CONFIG_GRPC_XDS_CLIENT_TLS_CERT=CERT", "", "KEY", "rules.xds.tls.key_file = KEY", "", ""},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", xdsTLS, "", "CA", "rules.xds.tls.ca_file = CA", "", ""},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", xds, "", "CA", noEffect + "CONFIG_GRPC_XDS_SERVER_USE_TLS is not true", "", ""},
	{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", xdsTLS, "", "eg", "rules.xds.address = grpcs://localhost:18000?sni=eg", "", ""},

	// A4
	{"BACKEND_TYPE", "", "store.type = redis", "redis", "store.type = redis", "memcache", "memcached cannot keep a log of hits"},
	{"BACKEND_TYPE", "", "store.type = redis", "", "store.type = redis", "Redis", `"Redis" is not one of redis`},
	{"REDIS_SOCKET_TYPE", " REDIS_URL=/run/redis.sock", "store.redis.url = unix:///run/redis.sock", "unix", "store.redis.url = unix:///run/redis.sock", "udp", `"udp" is not one of tcp, unix`},
	{"REDIS_TYPE", "", "store.redis.url = redis://redis:6379", "Single", "store.redis.url = redis://redis:6379", "ring", `"ring" is not one of single, sentinel, cluster`},
	{"REDIS_TYPE", " REDIS_URL=a:1", "store.redis.url = redis://a:1", "CLUSTER", "store.redis.url = redis-cluster://a:1", "", ""},
	{"REDIS_URL", "", "refused: the default of envoyproxy/ratelimit is twemproxy", "h:7", "store.redis.url = redis://h:7", "user:pw@h:7", "expected host:port, or redis://"},
	{"REDIS_URL", "", "refused", "redis://h:7/11", "store.redis.url = redis://h:7/11", "redis://h:7/a", "must be a number"},
	{"REDIS_URL", "", "refused", "redis://h:7?db=11", "store.redis.url = redis://h:7/11", "redis://h:7?db=70000", "must be a number"},
	{"REDIS_URL", "", "refused", "redis://h:7/0?db=11", "store.redis.url = redis://h:7/0", "rediss://h:7", "does not know rediss"},
	{"REDIS_URL", "", "refused", "redis://u:pw@h:7?db=1", "store.redis.url = redis://h:7/1, store.redis.username = ***, store.redis.password = ***", "h/x:7", "expected host:port"},
	{"REDIS_URL", "", "refused", "redis://h:7?username=u&password=pw", "store.redis.url = redis://h:7, store.redis.username = ***, store.redis.password = ***", "/var/run/nutcracker/ratelimit.sock", "twemproxy"},
	{"REDIS_URL", sentinel, "refused", "main,s1:26379", "store.redis.url = redis-sentinel://s1:26379/main", "s1:26379,s2:26379", "expected master,host:port"},
	{"REDIS_URL", " REDIS_TYPE=cluster", "refused", "a:1,redis://b:2", "store.redis.url = redis-cluster://a:1,b:2", "a:1,b/2", "expected host:port,host:port: nodes"},
	{"REDIS_URL", " REDIS_TYPE=cluster", "refused", ",a:1,,redis://b:2/0,a:1,redis://b:2/0?db=7,", "store.redis.url = redis-cluster://a:1,b:2", ",,", "expected host:port,host:port: nodes"},
	{"REDIS_URL", " REDIS_TYPE=cluster", "refused", "redis://u:p%2F%40@a:1,redis://u:p%2f%40@b,c:3,:4", "store.redis.url = redis-cluster://a:1,b:6379,c:3,localhost:4, store.redis.username = ***, store.redis.password = ***", "redis://a:1/1", "only database 0"},
	{"REDIS_URL", " REDIS_TYPE=cluster", "refused", "a:1", "store.redis.url = redis-cluster://a:1", "redis://:p@a:1,redis://:q@b:1", "different users or passwords"},
	{"REDIS_URL", " REDIS_TYPE=cluster", "refused", "[::1]:1", "store.redis.url = redis-cluster://[::1]:1", "a:1,rediss://b:1", "does not know rediss"},
	{"REDIS_URL", " REDIS_TYPE=sentinel", "refused", "mymaster,redis://:spw@127.0.0.1:26379", "store.redis.url = redis-sentinel://127.0.0.1:26379/mymaster, store.redis.sentinel_password = ***", "main,redis://s:1/1", "sentinels have no databases"},
	{"REDIS_URL", sentinel, "refused", "main,s1:1", "store.redis.url = redis-sentinel://s1:1/main", "main,", "expected master,host:port"},
	{"REDIS_URL", sentinel, "refused", "main,,redis://s1?username=u&password=pw,s2:2,s2:2,", "store.redis.url = redis-sentinel://s1:26379,s2:2/main, store.redis.sentinel_username = ***, store.redis.sentinel_password = ***", "redis://s1:1,s2:2", "expected master,host:port"},
	{"REDIS_URL", sentinel + " REDIS_AUTH=pw REDIS_SENTINEL_AUTH=spw", "refused", "main,redis://u:x@s1:1/0", "store.redis.url = redis-sentinel://s1:1/main", "main,redis://s1:1,redis://:p@s2:x", "expected master,host:port"},
	{"REDIS_URL", "", "refused", "redis://:6379", "store.redis.url = redis://localhost:6379", "a:1,b:2", "set REDIS_TYPE to cluster"},
	{"REDIS_URL", "", "refused", ":6379", "store.redis.url = redis://localhost:6379", "redis://:p/w@h:1", "%2F for a /"},
	{"REDIS_URL", "", "refused", "redis://h", "store.redis.url = redis://h:6379", "redis://u@h:1", "a user needs a password"},
	{"REDIS_URL", " REDIS_SOCKET_TYPE=unix", "refused", "redis.sock", "store.redis.url = unix://WORKDIR/redis.sock", "@redis", "is not the path of a unix socket"},
	{"REDIS_URL", " REDIS_SOCKET_TYPE=unix", "refused", "/run/r.sock", "store.redis.url = unix:///run/r.sock", "redis://h:1", "set REDIS_SOCKET_TYPE=tcp"},
	{"REDIS_URL", " REDIS_SOCKET_TYPE=unix", "refused", "/run/a b.sock", "store.redis.url = unix:///run/a%20b.sock", "redis:6379", "set REDIS_SOCKET_TYPE=tcp"},
	{"REDIS_AUTH", "", "", "secretword", "store.redis.password = ***", "", ""},
	{"REDIS_AUTH", " REDIS_URL=redis://u:p@h:7", "", "v:secret:word", "store.redis.username = ***, store.redis.password = ***", "", ""},
	{"REDIS_AUTH", "", "", "secret", "store.redis.password = ***", "user:", "a user needs a password"},
	{"REDIS_AUTH", " REDIS_TYPE=sentinel REDIS_URL=main,redis://:spw@s:1", "", "pw", "store.redis.password = ***", "", ""},
	{"REDIS_SENTINEL_AUTH", sentinel, "", "user:pw", "store.redis.sentinel_username = ***, store.redis.sentinel_password = ***", "", ""},
	{"REDIS_SENTINEL_AUTH", "", "", "pw", noEffect + "REDIS_TYPE is not sentinel", "", ""},
	{"REDIS_TLS", "", "store.redis.url = redis://redis:6379", "true", "store.redis.url = rediss://redis:6379", "on", notTrue},
	{"REDIS_TLS", sentinel, "store.redis.url = redis-sentinel://s1:26379,s2:26379/main", "true", "store.redis.url = rediss-sentinel://s1:26379,s2:26379/main", "", ""},
	{"REDIS_TLS", " REDIS_SOCKET_TYPE=unix REDIS_URL=/run/redis.sock", "store.redis.url = unix:///run/redis.sock", "false", "store.redis.url = unix:///run/redis.sock", "true", "does not use TLS on a unix socket"},
	{"REDIS_TLS_CLIENT_CERT", redisTLS + " REDIS_TLS_CLIENT_KEY=KEY", "", "CERT", "store.redis.tls.cert_file = CERT", "/missing", "no such file"},
	{"REDIS_TLS_CLIENT_KEY", redisTLS + " REDIS_TLS_CLIENT_CERT=CERT", "", "KEY", "store.redis.tls.key_file = KEY", "", ""},
	{"REDIS_TLS_CACERT", redisTLS, "", "CA", "store.redis.tls.ca_file = CA", "/missing", "no such file"},
	{"REDIS_TLS_CACERT", "", "", "CA", noEffect + "REDIS_TLS is not true", "", ""},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", redisTLS, "dropin.redis_any_name = false", "true", "dropin.redis_any_name = true", "on", notTrue},
	{"REDIS_POOL_SIZE", "", "store.redis.pool_size = 10", "20", "store.redis.pool_size = 20", "-1", "is negative"},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "", "", "WAIT", noEffect + "a call waits for a connection", "", ""},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "", "", "create", "ignored: a call waits for a connection", "", ""},
	{"REDIS_TIMEOUT", "", "store.timeout = 10s", "1s", "store.timeout = 1s", "1", notTime},
	{"REDIS_TIMEOUT", "", "store.timeout = 10s", "1m", "store.timeout = 10s; at most 10s", "-1s", "-1s is negative"},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "", "", "1s", "ignored: rls does not end because Redis is unavailable", "1", notTime},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "", "", "0", noEffect + "rls starts without Redis and connects when it answers", "", ""},
	{"REDIS_PERSECOND", "", "", "true", "ignored: limits per second are in the same store as all others, so that one request is decided at once", "on", notTrue},
	{"REDIS_PERSECOND", "", "", "false", "one Redis for all limits", "", ""},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "", "dropin.local_cache = false", "1000000", "dropin.local_cache = true", "1M", notWhole},
	{"NEAR_LIMIT_RATIO", "", "dropin.near_limit_ratio = 0.8", "0.8", "dropin.near_limit_ratio = 0.8", "80", notNumber},
	{"TRACING_SAMPLING_RATE", traces, "dropin.traces.sampling = 1", "0.8", "dropin.traces.sampling = 0.8", "2", notNumber},
	{"NEAR_LIMIT_RATIO", "", "dropin.near_limit_ratio = 0.8", "0.5", "dropin.near_limit_ratio = 0.5", "50%", notNumber},
	{"NEAR_LIMIT_RATIO", "", "dropin.near_limit_ratio = 0.8", "1e-1", "dropin.near_limit_ratio = 0.1", "1.5", notNumber},
	{"CACHE_KEY_PREFIX", "", "", "eg:rl:", "store.redis.key_prefix = eg:rl:", "a{b", "printable ASCII"},
	{"CACHE_KEY_PREFIX", "", "", "", "the prefix of rls stays", "", ""},

	// A5
	{"LIMIT_RESPONSE_HEADERS_ENABLED", "", `headers.styles = ""`, "true", "headers.styles = reference", "on", notTrue},
	{"LIMIT_LIMIT_HEADER", enabled, "dropin.headers.limit = RateLimit-Limit", "x-limit", "dropin.headers.limit = x-limit", "", ""},
	{"LIMIT_LIMIT_HEADER", "", "", "x-limit", noEffect + "LIMIT_RESPONSE_HEADERS_ENABLED is not true", "", ""},
	{"LIMIT_REMAINING_HEADER", enabled, "dropin.headers.remaining = RateLimit-Remaining", "x", "dropin.headers.remaining = x", "", ""},
	{"LIMIT_RESET_HEADER", enabled, "dropin.headers.reset = RateLimit-Reset", "x", "dropin.headers.reset = x", "", ""},
	{"USE_STATSD", "", "", "true", "dropin.statsd.address = localhost:8125", "on", notTrue},
	{"USE_STATSD", "", "", "false", "no statsd", "", ""},
	{"STATSD_HOST", "", "", "statsd", "dropin.statsd.address = statsd:8125", "", ""},
	{"STATSD_HOST", " USE_STATSD=false", "", "statsd", noEffect + "USE_STATSD is false", "", ""},
	{"STATSD_PORT", statsd, "dropin.statsd.address = localhost:8125", "9125", "dropin.statsd.address = localhost:9125", "x", notWhole},
	{"STATSD_PORT", "", "", "9125", noEffect + "neither USE_STATSD nor STATSD_HOST is set", "", ""},
	{"STATSD_PROTOCOL", statsd, "dropin.statsd.protocol = tcp", "udp", "dropin.statsd.protocol = udp", "sctp", "is not one of tcp, udp"},
	{"STATS_FLUSH_INTERVAL", statsd, "dropin.statsd.interval = 10s", "1s", "dropin.statsd.interval = 1s", "0s", "is not between"},
	{"USE_PROMETHEUS", " USE_STATSD=false", "", "true", "dropin.metrics.address = :9090", "on", notTrue},
	{"USE_PROMETHEUS", "", "", "true", "dropin.metrics.address = :9090; envoyproxy/ratelimit does not start with it unless USE_STATSD is false", "", ""},
	{"PROMETHEUS_ADDR", prometheus, "dropin.metrics.address = :9090", ":19001", "dropin.metrics.address = :19001", "", ""},
	{"PROMETHEUS_ADDR", "", "", ":19001", noEffect + "USE_PROMETHEUS is not true", "", ""},
	{"PROMETHEUS_PATH", prometheus, "dropin.metrics.path = /metrics", "/m", "dropin.metrics.path = /m", "", ""},
	{"PROMETHEUS_MAPPER_YAML", prometheus, "", "MAPPER", "dropin.metrics.mapper_file = MAPPER", "", ""},
	{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", prometheus, "dropin.metrics.milliseconds = false", "true", "dropin.metrics.milliseconds = true", "on", notTrue},
	{"USE_DOG_STATSD", "", "", "false", "no DogStatsD", "true", "rls does not send DogStatsD"},
	{"EXTRA_TAGS", "", "", "a:1", noEffect + "the metrics of envoyproxy/ratelimit go nowhere", "", ""},
	{"EXTRA_TAGS", statsd, "", "a:1", "dropin.tags = a=1", "", ""},
	{"EXTRA_TAGS", prometheus, "", "a:1", "dropin.tags = a=1", "", ""},
	{"EXTRA_TAGS", statsd, "", "b:2,a:1", "dropin.tags = a=1,b=2", "a:b:c", "expected name:value"},
	{"DISABLE_STATS", "", "", "true", "the metrics of envoyproxy/ratelimit are off", "on", notTrue},
	{"DISABLE_STATS", "", "", "false", "the metrics are not off", "", ""},
	{"TRACING_ENABLED", "", "dropin.traces.protocol = off", "true", "dropin.traces.protocol = http", "on", notTrue},
	{"TRACING_SERVICE_NAME", traces, "dropin.traces.attributes = service.name=RateLimit", "a", "dropin.traces.attributes = service.name=a", "a,b", "a comma cannot be in service.name"},
	{"TRACING_SERVICE_NAMESPACE", traces, "dropin.traces.attributes = service.name=RateLimit", "a", "dropin.traces.attributes = service.name=RateLimit,service.namespace=a", "", ""},
	{"TRACING_SERVICE_INSTANCE_ID", traces, "dropin.traces.attributes = service.name=RateLimit", "a", "dropin.traces.attributes = service.name=RateLimit,service.instance.id=a", "", ""},
	{"TRACING_EXPORTER_PROTOCOL", traces, "dropin.traces.protocol = http", "grpc", "dropin.traces.protocol = grpc", "udp", "is not one of http, grpc"},
	{"TRACING_EXPORTER_PROTOCOL", "", "", "grpc", noEffect + "TRACING_ENABLED is not true", "", ""},
	{"TRACING_SAMPLING_RATE", traces, "dropin.traces.sampling = 1", "0.1", "dropin.traces.sampling = 0.1", "x", notNumber},
}

// withoutEffect has a row for each variable whose value is not read.
func withoutEffect() (rows []rowTest) {
	for _, v := range table {
		if v.why != "" && v.prefix() == "" {
			rows = append(rows, rowTest{name: v.name, set: "a", want: noEffect + v.why})
		}
	}
	return rows
}

// TestEveryVariable reads each variable of the reference: not set, set, and with a wrong value.
func TestEveryVariable(t *testing.T) {
	tested := make(map[string]bool)
	ca, cert, key := servers.NewAuthority(t).ServerFiles()
	root := rulesDir(t)
	mapper := filepath.Join(root, "mapper.yaml")
	tree.Write(t, mapper, "mappings: []\n")
	workdir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range append(withoutEffect(), rowTests...) {
		tested[tt.name] = true
		// Files have short names in the table.
		files := strings.NewReplacer("ROOT", root, "CERT", cert, "KEY", key, "CA", ca, "MAPPER", mapper)
		whole := func(text string) string {
			if i := slices.Index([]string{"ROOT", "CERT", "KEY", "CA", "MAPPER"}, text); i >= 0 {
				return files.Replace(text)
			}
			return text
		}
		wanted := func(text string) string {
			text = strings.ReplaceAll(text, "WORKDIR", workdir)
			for _, name := range []string{"ROOT", "CERT", "KEY", "CA", "MAPPER"} {
				for _, end := range []string{"", "/", ",", ";"} {
					if end == "" {
						if rest, ok := strings.CutSuffix(text, "= "+name); ok {
							text = rest + "= " + files.Replace(name)
						}
						continue
					}
					text = strings.ReplaceAll(text, "= "+name+end, "= "+files.Replace(name)+end)
				}
			}
			return text
		}
		variables := make(map[string]string)
		for _, v := range strings.Fields(least + tt.with) {
			name, text, _ := strings.Cut(v, "=")
			variables[name] = whole(text)
		}
		environ := func(set bool, text string) (all []string) {
			v := maps.Clone(variables)
			delete(v, tt.name)
			if set {
				v[tt.name] = text
			}
			for name, text := range v {
				all = append(all, name+"="+text)
			}
			return all
		}

		r, _, problems := read(environ(false, "")...)
		got := row(t, r, tt.name)
		want := wanted(tt.def)
		if want == "" {
			want = "same default"
		}
		if became := got.Became(); !strings.HasPrefix(became, want) || got.Set {
			t.Errorf("%s, not set%s: got %q, want %q", tt.name, tt.with, became, want)
		}
		if refused := len(problems) > 0; refused != strings.HasPrefix(want, "refused") {
			t.Errorf("%s, not set%s: problems %v", tt.name, tt.with, problems)
		}

		r, _, problems = read(environ(true, whole(tt.set))...)
		got = row(t, r, tt.name)
		if became := got.Became(); became != wanted(tt.want) && !strings.HasPrefix(wanted(tt.want), "refused") || !got.Set {
			t.Errorf("%s=%s%s: got %q, want %q", tt.name, tt.set, tt.with, became, wanted(tt.want))
		}
		if refused := len(problems) > 0; refused != strings.HasPrefix(tt.want, "refused") {
			t.Errorf("%s=%s%s: problems %v", tt.name, tt.set, tt.with, problems)
		}

		if tt.problem == "" {
			continue
		}
		r, _, problems = read(environ(true, whole(tt.wrong))...)
		if len(problems) != 1 || problems[0].Path != tt.name || !strings.Contains(problems[0].Message, tt.problem) {
			t.Errorf("%s=%s%s: got problems %v, want one with %q", tt.name, tt.wrong, tt.with, problems, tt.problem)
		}
		if got := row(t, r, tt.name); got.State != StateRefused {
			t.Errorf("%s=%s%s: got state %s, want refused", tt.name, tt.wrong, tt.with, got.State)
		}
	}
	for _, v := range table {
		if !tested[v.name] && v.prefix() == "" {
			t.Errorf("no test sets %s", v.name)
		}
	}
}
