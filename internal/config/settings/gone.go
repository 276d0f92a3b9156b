package settings

import (
	"slices"
	"strings"
)

// gone has settings of earlier versions, and what to do instead. A name of a section stands for
// all settings in it. Names of store.scopes.NAME stand under store, so that one entry is for
// both. Load refuses the key of the file and the variable with this advice.
var gone = []struct{ name, advice string }{
	{"admin.pages", ofDropIn},
	{"authz.rate_limit_rule", "remove it: Envoy gets the only override of a subject"},
	{"authz.realm", fixed},
	{"compare.max_in_flight", fixed},
	{"compare.timeout", fixed},
	{"compare.tls", "begin compare.address with grpcs:// for TLS; SSL_CERT_DIR names a directory of further CAs"},
	{"grpc.keepalive_min_time", fixed},
	{"grpc.keepalive_time", fixed},
	{"grpc.keepalive_timeout", fixed},
	{"grpc.max_concurrent_streams", fixed},
	{"grpc.max_connection_idle", fixed},
	{"grpc.max_message_bytes", fixed},
	{"grpc.tls.unix_sockets", "remove it: the mode of a unix socket controls access"},
	{"headers.reference", ofDropIn},
	{"http.unhealthy", "set http.ready: store, and probe /readyz"},
	{"insight.denials", fixed},
	{"insight.per_second", fixed},
	{"metadata", ofDropIn},
	{"metrics.near_limit_ratio", fixed},
	{"reference", ofDropIn},
	{"reload", fixed},
	{"rules.all_files", ofDropIn},
	{"rules.ignore_dot_files", ofDropIn},
	{"rules.prefix", ofDropIn},
	{"rules.quota_mode", "write quota_mode: true in each rule"},
	{"rules.retry_jitter", "write retry_jitter in each rule that needs it"},
	{"rules.xds.headers", ofDropIn},
	{"rules.xds.initial_backoff", fixed},
	{"rules.xds.max_backoff", fixed},
	{"rules.xds.max_message_bytes", fixed},
	{"rules.xds.node_metadata", ofDropIn},
	{"rules.xds.tls.any_name", nameInURL},
	{"rules.xds.tls.enabled", "begin rules.xds.address with grpcs:// for TLS"},
	{"rules.xds.tls.server_name", nameInURL},
	{"rules.xds.tls.system_cas", bothCAs},
	{"rules.xds.wait", fixed},
	{"secrets.key", secretInFile},
	{"secrets.previous_key", secretInFile},
	{"store.local_keys", fixed},
	{"store.memory.max_keys", "set store.memory.max_bytes: rls derives the number of logs from it"},
	{"store.redis.breaker", fixed},
	{"store.redis.dial_timeout", "remove it, rls derives it from store.timeout"},
	{"store.redis.max_log_slots", fixed},
	{"store.redis.max_waiting", fixed},
	{"store.peers", counted},
	{"store.peers_interval", counted},
	{"store.replicas", counted},
	{"store.redis.password", secretInFile},
	{"store.redis.sentinel_password", secretInFile},
	{"store.redis.tls.any_name", nameInURL},
	{"store.redis.tls.server_name", nameInURL},
	{"store.redis.tls.system_cas", bothCAs},
	{"tiers.breaker", fixed},
	{"tiers.cache.subjects", fixed},
	{"tiers.cache.unknown", fixed},
	{"tiers.cache.unknown_ttl", fixed},
	{"tiers.http.max_bytes", fixed},
	{"tiers.http.method", "remove it: rls sends keys with POST, and digests with GET"},
	{"tiers.http.tls.any_name", nameInURL},
	{"tiers.http.tls.server_name", nameInURL},
	{"tiers.http.tls.system_cas", bothCAs},
	{"tiers.http.token", secretInFile},
	{"tiers.lookups_per_second", "remove it: the number of look-ups under way is bounded"},
	{"tiers.postgres.password", secretInFile},
	{"tiers.postgres.tls.any_name", nameInURL},
	{"tiers.postgres.tls.server_name", nameInURL},
	{"tiers.postgres.tls.system_cas", bothCAs},
	{"tiers.redis.channel", fixed},
	{"tiers.redis.dial_timeout", fixed},
	{"tiers.redis.password", loginInURL},
	{"tiers.redis.password_file", loginInURL},
	{"tiers.redis.pool_size", fixed},
	{"tiers.redis.sentinel_password", loginInURL},
	{"tiers.redis.sentinel_password_file", loginInURL},
	{"tiers.redis.sentinel_username", loginInURL},
	{"tiers.redis.tls", "begin tiers.redis.url with rediss://; without tiers.redis.url, store.redis.tls counts"},
	{"tiers.redis.username", loginInURL},
	{"tiers.timeout", fixed},
	{"traces", "set the standard variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT"},
}

// Advice that several settings share.
const (
	fixed        = "remove it, its value is fixed"
	ofDropIn     = "remove it, only a drop-in for envoyproxy/ratelimit has it, from that service's variables"
	secretInFile = "write the secret into a file and set the same name with _file, or set the variable without _FILE"
	nameInURL    = "the certificate must have the host of the URL as its name, or the name in ?sni= of the URL"
	bothCAs      = "remove it: ca_file adds to the CAs of the system"
	loginInURL   = "write user:password@ in tiers.redis.url; without tiers.redis.url, the credentials of store.redis count"
)

// counted is the advice for the number of instances.
const counted = "remove it, the instances count themselves in Redis"

// adviceFor returns what to do instead of a setting that is gone, by its path.
func adviceFor(path string) (advice string, ok bool) {
	if rest, scoped := strings.CutPrefix(path, "store.scopes."); scoped {
		if _, rest, ok := strings.Cut(rest, "."); ok {
			path = "store." + rest
		}
	}
	i := slices.IndexFunc(gone, func(g struct{ name, advice string }) bool {
		return path == g.name || strings.HasPrefix(path, g.name+".")
	})
	if i < 0 {
		return "", false
	}
	return "no setting any more: " + gone[i].advice, true
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
		if env := envName(g.name); name == env || strings.HasPrefix(name, env+"_") {
			return adviceFor(g.name)
		}
	}
	return "", false
}
