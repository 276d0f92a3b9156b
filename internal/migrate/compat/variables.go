package compat

import (
	"slices"
	"strings"
)

// kind is how envoyproxy/ratelimit reads a variable.
type kind int

const (
	text   kind = iota
	truth       // strconv.ParseBool
	number      // strconv.ParseInt with base 0
	ratio       // strconv.ParseFloat
	period      // time.ParseDuration
	pairs       // k:v,k:v
)

// variable is what this package knows of a variable of envoyproxy/ratelimit. A name that ends with * stands
// for all variables that begin so, of which envoyproxy/ratelimit, or a library of it, reads some.
type variable struct {
	name string
	kind kind
	// def is the default of envoyproxy/ratelimit.
	def string
	// sets lists the settings that the variable can set.
	sets []string
	// secret hides the value.
	secret bool
	// needed says that envoyproxy/ratelimit does not start with an empty text.
	needed bool
	// doc says in docs/reference/drop-in.md what the variable becomes, besides the settings.
	doc string
	// why is the reason why the variable has no effect. Empty: it has one. Its value is not read.
	why string
}

// prefix returns how the names of the variables begin that v stands for. Empty: it is one variable.
func (v *variable) prefix() string {
	prefix, ok := strings.CutSuffix(v.name, "*")
	if !ok {
		return ""
	}
	return prefix
}

type group struct {
	title     string
	variables []variable
}

func sets(paths ...string) []string { return paths }

// groups has every variable of envoyproxy/ratelimit, in the order of docs/reference/drop-in.md.
var groups = []group{
	{"Listeners, logs and health", listenerVariables},
	{"Rules from files", fileVariables},
	{"Rules from an xDS server", xdsVariables},
	{"Redis", redisVariables},
	{"Headers, metrics and traces", reportVariables},
}

var listenerVariables = []variable{
	{name: "HOST", def: "0.0.0.0", sets: sets("http.address")},
	{name: "PORT", kind: number, def: "8080", sets: sets("http.address")},
	{name: "GRPC_HOST", def: "0.0.0.0", sets: sets("grpc.address")},
	{name: "GRPC_PORT", kind: number, def: "8081", sets: sets("grpc.address")},
	{name: "GRPC_UDS", sets: sets("grpc.address"), doc: "`unix://` and the path, instead of host and port"},
	{name: "DEBUG_HOST", def: "0.0.0.0", sets: sets("admin.address"), doc: "only pages that read, in the form of envoyproxy/ratelimit"},
	{name: "DEBUG_PORT", kind: number, def: "6070", sets: sets("admin.address")},
	{name: "GRPC_MAX_CONNECTION_AGE", kind: period, def: "24h", sets: sets("grpc.max_connection_age")},
	{name: "GRPC_MAX_CONNECTION_AGE_GRACE", def: "1h", why: "calls in flight end by themselves"},
	{name: "GRPC_SERVER_USE_TLS", kind: truth, def: "false", sets: sets("dropin.unix_sockets_tls"), doc: "`false`: the files below have no effect. `true` without certificate and key: refused. `dropin.unix_sockets_tls` with `GRPC_UDS`"},
	{name: "GRPC_SERVER_TLS_CERT", sets: sets("grpc.tls.cert_file")},
	{name: "GRPC_SERVER_TLS_KEY", sets: sets("grpc.tls.key_file")},
	{name: "GRPC_CLIENT_TLS_CACERT", sets: sets("grpc.tls.client_ca_file"), doc: "stricter: certificates of the system's CAs are not accepted"},
	{name: "GRPC_CLIENT_TLS_SAN", sets: sets("grpc.tls.client_san"), doc: "ignored without `GRPC_CLIENT_TLS_CACERT`"},
	{name: "GRPC_SERVER_TLS_CA_CERT", why: "envoyproxy/ratelimit does not read it either; to make clients present a certificate of this CA, set SLIDEGATE_GRPC_TLS_CLIENT_CA_FILE to this path"},
	{name: "LOG_LEVEL", def: "WARN", needed: true, sets: sets("log.level"), doc: "`panic` and `fatal` become `error`, `warning` becomes `warn`, `trace` becomes `debug`"},
	{name: "LOG_FORMAT", def: "text", sets: sets("log.format"), doc: "`json` becomes `reference`, everything else `console`"},
	{name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", kind: truth, def: "false", sets: sets("dropin.healthy.rules")},
	{name: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", kind: truth, def: "false", sets: sets("dropin.healthy.store")},
	{name: "FORCE_START_WITHOUT_INITIAL_CONFIG", kind: truth, def: "false", sets: sets("dropin.xds.without_rules"), doc: "ignored with files: rls does not start with a broken file"},
	{name: "MERGE_DOMAIN_CONFIG", kind: truth, def: "false", sets: sets("rules.merge_domains")},
	{name: "SHADOW_MODE", kind: truth, def: "false", sets: sets("rules.shadow_mode")},
	{name: "QUOTA_MODE", kind: truth, def: "false", sets: sets("dropin.rules.quota_mode")},
	{name: "RESPONSE_DYNAMIC_METADATA", kind: truth, def: "false", sets: sets("dropin.metadata.request")},
}

var fileVariables = []variable{
	{name: "RUNTIME_ROOT", def: "/srv/runtime_data/current", sets: sets("rules.path"), doc: "the path is ROOT/SUBDIRECTORY with WATCH_ROOT, and ROOT/SUBDIRECTORY/APPDIRECTORY without it. Refused if there is no such directory"},
	{name: "RUNTIME_SUBDIRECTORY", sets: sets("rules.path"), doc: "refused if empty with WATCH_ROOT"},
	{name: "RUNTIME_APPDIRECTORY", def: "config", sets: sets("rules.path", "dropin.rules.prefix"), doc: "the prefix with WATCH_ROOT, otherwise a part of the path. Refused if empty"},
	{name: "RUNTIME_IGNOREDOTFILES", kind: truth, def: "false", sets: sets("dropin.rules.ignore_dot_files")},
	{name: "RUNTIME_WATCH_ROOT", kind: truth, def: "true", sets: sets("rules.path", "dropin.rules.prefix"), doc: "only chooses the form of the path: rls always notices changes"},
}

var xdsVariables = []variable{
	{name: "CONFIG_TYPE", def: "FILE", needed: true, sets: sets("rules.source"), doc: "`FILE` or `GRPC_XDS_SOTW`"},
	{name: "CONFIG_GRPC_XDS_NODE_ID", def: "default", sets: sets("rules.xds.node_id")},
	{name: "CONFIG_GRPC_XDS_NODE_METADATA", sets: sets("dropin.xds.node_metadata"), doc: "parts without `=` are dropped"},
	{name: "CONFIG_GRPC_XDS_SERVER_URL", def: "localhost:18000", needed: true, sets: sets("rules.xds.address")},
	{name: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", def: "3s", why: "the wait between connections grows from a second to a minute"},
	{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", kind: pairs, secret: true, sets: sets("dropin.xds.headers")},
	{name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", kind: truth, def: "false", sets: sets("rules.xds.address"), doc: "`grpcs://`"},
	{name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", sets: sets("rules.xds.tls.cert_file"), doc: "rls reads a changed file for the next connection"},
	{name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", sets: sets("rules.xds.tls.key_file")},
	{name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", sets: sets("rules.xds.tls.ca_file")},
	{name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", sets: sets("rules.xds.address"), doc: "`?sni=`"},
	{name: "XDS_CLIENT_BACKOFF_*", why: "the wait between connections grows from a second to a minute"},
	{name: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", why: "a message may have 64 MiB"},
}

var redisVariables = []variable{
	{name: "BACKEND_TYPE", def: "redis", sets: sets("store.type"), doc: "`memcache` is refused: it cannot keep the counters. `SLIDEGATE_STORE_TYPE` overrides it"},
	{name: "REDIS_SOCKET_TYPE", def: "unix", needed: true, sets: sets("store.redis.url"), doc: "`tcp` or `unix`"},
	{name: "REDIS_TYPE", def: "SINGLE", needed: true, sets: sets("store.redis.url"), doc: "`single`, `sentinel` or `cluster`"},
	{name: "REDIS_URL", def: "/var/run/nutcracker/ratelimit.sock", needed: true, sets: sets("store.redis.url", "store.redis.username", "store.redis.password", "store.redis.sentinel_username", "store.redis.sentinel_password"), doc: "each form of envoyproxy/ratelimit ([above](#how-values-are-read))"},
	{name: "REDIS_AUTH", secret: true, sets: sets("store.redis.username", "store.redis.password"), doc: "`password` or `user:password`"},
	{name: "REDIS_SENTINEL_AUTH", secret: true, sets: sets("store.redis.sentinel_username", "store.redis.sentinel_password"), doc: "the same form"},
	{name: "REDIS_TLS", kind: truth, def: "false", sets: sets("store.redis.url"), doc: "`rediss`. Refused with a unix socket"},
	{name: "REDIS_TLS_CLIENT_CERT", sets: sets("store.redis.tls.cert_file")},
	{name: "REDIS_TLS_CLIENT_KEY", sets: sets("store.redis.tls.key_file")},
	{name: "REDIS_TLS_CACERT", sets: sets("store.redis.tls.ca_file")},
	{name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", kind: truth, def: "false", sets: sets("dropin.redis_any_name")},
	{name: "REDIS_POOL_SIZE", kind: number, def: "10", sets: sets("store.redis.pool_size")},
	{name: "REDIS_POOL_ON_EMPTY_BEHAVIOR", def: "WAIT", doc: "`CREATE` and `ERROR` are ignored: calls wait for a connection"},
	{name: "REDIS_PIPELINE_WINDOW", def: "0", why: "rls joins commands by itself"},
	{name: "REDIS_PIPELINE_LIMIT", def: "0", why: "rls joins commands by itself"},
	{name: "REDIS_CLUSTER_PIPELINE_PARALLELISM", def: "1", why: "rls joins commands by itself"},
	{name: "REDIS_TIMEOUT", kind: period, def: "10s", sets: sets("store.timeout"), doc: "at most 10s. rls also answers before Envoy's own timeout ends"},
	{name: "REDIS_STARTUP_INITIAL_INTERVAL", def: "1s", why: "rls starts without Redis and connects when it answers"},
	{name: "REDIS_STARTUP_MAX_INTERVAL", def: "30s", why: "rls starts without Redis and connects when it answers"},
	{name: "REDIS_STARTUP_MAX_ELAPSED_TIME", kind: period, def: "0", doc: "ignored above 0: rls keeps running without Redis"},
	{name: "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", why: "rls handles READONLY by itself"},
	{name: "REDIS_PERSECOND", kind: truth, def: "false", doc: "`true` is ignored: all limits are in the Redis of `REDIS_URL`"},
	{name: "REDIS_PERSECOND_*", why: "one Redis for all limits"},
	{name: "EXPIRATION_JITTER_MAX_SECONDS", def: "300", why: "logs expire by themselves"},
	{name: "LOCAL_CACHE_SIZE_IN_BYTES", kind: number, def: "0", sets: sets("dropin.local_cache"), doc: "`true` above 0. rls always caches denials"},
	{name: "NEAR_LIMIT_RATIO", kind: ratio, def: "0.8", sets: sets("dropin.near_limit_ratio")},
	{name: "CACHE_KEY_PREFIX", sets: sets("store.redis.key_prefix"), doc: "empty: `slidegate:`"},
	{name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", def: "false", why: "a denied request never costs anything"},
	{name: "MEMCACHE_*", why: "rls does not use memcached"},
}

var reportVariables = []variable{
	{name: "LIMIT_RESPONSE_HEADERS_ENABLED", kind: truth, def: "false", sets: sets("headers.styles"), doc: "`true`: `reference`. `false`: rls adds no headers"},
	{name: "LIMIT_LIMIT_HEADER", def: "RateLimit-Limit", needed: true, sets: sets("dropin.headers.limit")},
	{name: "LIMIT_REMAINING_HEADER", def: "RateLimit-Remaining", needed: true, sets: sets("dropin.headers.remaining")},
	{name: "LIMIT_RESET_HEADER", def: "RateLimit-Reset", needed: true, sets: sets("dropin.headers.reset")},
	{name: "USE_STATSD", kind: truth, def: "true", sets: sets("dropin.statsd.address"), doc: "not set: rls sends metrics only if `STATSD_HOST` is set"},
	{name: "STATSD_HOST", def: "localhost", needed: true, sets: sets("dropin.statsd.address")},
	{name: "STATSD_PORT", kind: number, def: "8125", sets: sets("dropin.statsd.address")},
	{name: "STATSD_PROTOCOL", def: "tcp", needed: true, sets: sets("dropin.statsd.protocol")},
	{name: "STATS_FLUSH_INTERVAL", kind: period, def: "10s", sets: sets("dropin.statsd.interval")},
	{name: "USE_PROMETHEUS", kind: truth, def: "false", sets: sets("dropin.metrics.address"), doc: "a warning unless `USE_STATSD=false`: envoyproxy/ratelimit does not start then"},
	{name: "PROMETHEUS_ADDR", def: ":9090", needed: true, sets: sets("dropin.metrics.address")},
	{name: "PROMETHEUS_PATH", def: "/metrics", needed: true, sets: sets("dropin.metrics.path")},
	{name: "PROMETHEUS_MAPPER_YAML", sets: sets("dropin.metrics.mapper_file")},
	{name: "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", kind: truth, def: "false", sets: sets("dropin.metrics.milliseconds")},
	{name: "USE_DOG_STATSD", kind: truth, def: "false", doc: "`true` is refused"},
	{name: "USE_DOG_STATSD_MOGRIFIERS", why: "rls does not send DogStatsD"},
	{name: "DOG_STATSD_MOGRIFIER_*", why: "rls does not send DogStatsD"},
	{name: "EXTRA_TAGS", kind: pairs, sets: sets("dropin.tags")},
	{name: "DISABLE_STATS", kind: truth, def: "false", doc: "`true`: no metrics of envoyproxy/ratelimit"},
	{name: "TRACING_ENABLED", kind: truth, def: "false", sets: sets("dropin.traces.protocol"), doc: "`false`: no traces, also with `OTEL_` variables"},
	{name: "TRACING_SERVICE_NAME", def: "RateLimit", sets: sets("dropin.traces.attributes"), doc: "`service.name`"},
	{name: "TRACING_SERVICE_NAMESPACE", sets: sets("dropin.traces.attributes"), doc: "`service.namespace`"},
	{name: "TRACING_SERVICE_INSTANCE_ID", sets: sets("dropin.traces.attributes"), doc: "`service.instance.id`. Empty: the name of the host"},
	{name: "TRACING_EXPORTER_PROTOCOL", def: "http", sets: sets("dropin.traces.protocol"), doc: "`http` or `grpc`. `OTEL_EXPORTER_OTLP_ENDPOINT` and the like say where spans go"},
	{name: "TRACING_SAMPLING_RATE", kind: ratio, def: "1", sets: sets("dropin.traces.sampling"), doc: "of traces that begin here. Spans have other names"},
	{name: otelFamily, doc: "with `TRACING_ENABLED`: as OpenTelemetry describes them", why: "TRACING_ENABLED is not true"},
}

// otelFamily has the variables of OpenTelemetry, which rls reads as envoyproxy/ratelimit does.
const otelFamily = "OTEL_*"

var table = slices.Concat(listenerVariables, fileVariables, xdsVariables, redisVariables, reportVariables)
