package settings

import "strings"

// gone has settings of earlier versions, by what to do instead. A name of a section stands for
// all settings in it. Names of store.scopes.NAME stand under store, so that one entry is for
// both. Load refuses the key of the file and the variable with this advice.
var gone = []struct{ advice, names string }{
	{ofDropIn, `admin.pages headers.reference metadata reference rules.all_files rules.ignore_dot_files rules.prefix
		rules.xds.headers rules.xds.node_metadata`},
	{fixed, `authz.realm compare.max_in_flight compare.timeout grpc.keepalive_min_time grpc.keepalive_time
		grpc.keepalive_timeout grpc.max_concurrent_streams grpc.max_connection_idle grpc.max_message_bytes
		insight.denials insight.per_second metrics.near_limit_ratio reload rules.xds.initial_backoff
		rules.xds.max_backoff rules.xds.max_message_bytes rules.xds.wait store.local_keys
		store.redis.breaker store.redis.max_log_slots store.redis.max_waiting tiers.breaker
		tiers.cache.subjects tiers.cache.unknown tiers.cache.unknown_ttl tiers.http.max_bytes
		tiers.redis.channel tiers.redis.dial_timeout tiers.redis.pool_size tiers.timeout`},
	{nameInURL, `rules.xds.tls.any_name rules.xds.tls.server_name store.redis.tls.any_name
		store.redis.tls.server_name tiers.http.tls.any_name tiers.http.tls.server_name
		tiers.postgres.tls.any_name tiers.postgres.tls.server_name`},
	{bothCAs, `rules.xds.tls.system_cas store.redis.tls.system_cas tiers.http.tls.system_cas
		tiers.postgres.tls.system_cas`},
	{secretInFile, `secrets.key secrets.previous_key store.redis.password store.redis.sentinel_password tiers.http.token
		tiers.postgres.password`},
	{counted, `store.peers store.peers_interval store.replicas`},
	{loginInURL, `tiers.redis.password tiers.redis.password_file tiers.redis.sentinel_password
		tiers.redis.sentinel_password_file tiers.redis.sentinel_username tiers.redis.username`},
	{"remove it: Envoy gets the only override of a subject", `authz.rate_limit_rule`},
	{"begin compare.address with grpcs:// for TLS; SSL_CERT_DIR names a directory of further CAs", `compare.tls`},
	{"remove it: the mode of a unix socket controls access", `grpc.tls.unix_sockets`},
	{"set http.ready: store, and probe /readyz", `http.unhealthy`},
	{"write quota_mode: true in each rule", `rules.quota_mode`},
	{"write retry_jitter in each rule that needs it", `rules.retry_jitter`},
	{"begin rules.xds.address with grpcs:// for TLS", `rules.xds.tls.enabled`},
	{"set store.memory.max_bytes, which bounds all counters", `store.memory.max_keys`},
	{"remove it, rls derives it from store.timeout", `store.redis.dial_timeout`},
	{"remove it: rls sends keys with POST, and digests with GET", `tiers.http.method`},
	{"remove it: the number of look-ups under way is bounded", `tiers.lookups_per_second`},
	{"begin tiers.redis.url with rediss://; without tiers.redis.url, store.redis.tls counts", `tiers.redis.tls`},
	{"set the standard variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT", `traces`},
}

// Advice that several settings share.
const (
	fixed        = "remove it, its value is fixed"
	ofDropIn     = "remove it, only a drop-in for envoyproxy/ratelimit has it, from that service's variables"
	secretInFile = "write the secret into a file and set the same name with _file, or set the variable without _FILE"
	nameInURL    = "the certificate must have the host of the URL as its name, or the name in ?sni= of the URL"
	bothCAs      = "remove it: ca_file adds to the CAs of the system"
	loginInURL   = "write user:password@ in tiers.redis.url; without tiers.redis.url, the credentials of store.redis count"
	counted      = "remove it, the instances count themselves in Redis"
)

// adviceFor returns what to do instead of a setting that is gone, by its path.
func adviceFor(path string) (advice string, ok bool) {
	if rest, scoped := strings.CutPrefix(path, "store.scopes."); scoped {
		if _, rest, ok := strings.Cut(rest, "."); ok {
			path = "store." + rest
		}
	}
	for _, g := range gone {
		for name := range strings.FieldsSeq(g.names) {
			if path == name || strings.HasPrefix(path, name+".") {
				return "no setting any more: " + g.advice, true
			}
		}
	}
	return "", false
}

// adviceForVariable is adviceFor for the name of a variable.
func adviceForVariable(name string) (advice string, ok bool) {
	if rest, scoped := strings.CutPrefix(name, envScopes); scoped {
		for i := range rest {
			if rest[i] == '_' {
				if advice, ok = adviceForVariable(EnvPrefix + "STORE" + rest[i:]); ok {
					return advice, true
				}
			}
		}
		return "", false
	}
	for _, g := range gone {
		for path := range strings.FieldsSeq(g.names) {
			if env := envName(path); name == env || strings.HasPrefix(name, env+"_") {
				return adviceFor(path)
			}
		}
	}
	return "", false
}
