package settings

import (
	"slices"
	"strings"
)

// gone has settings of earlier versions, and what to do instead. A name of a section stands for
// all settings in it. Names of store.scopes.NAME stand under store, so that one entry is for
// both. Load refuses the key of the file and the variable with this advice.
var gone = []struct{ name, advice string }{
	{"compare.max_in_flight", fixed},
	{"compare.timeout", fixed},
	{"grpc.keepalive_min_time", fixed},
	{"grpc.keepalive_time", fixed},
	{"grpc.keepalive_timeout", fixed},
	{"grpc.max_concurrent_streams", fixed},
	{"grpc.max_connection_idle", fixed},
	{"grpc.max_message_bytes", fixed},
	{"insight.denials", fixed},
	{"insight.per_second", fixed},
	{"reload", fixed},
	{"store.local_keys", fixed},
	{"store.redis.breaker", fixed},
	{"store.redis.max_log_slots", fixed},
	{"store.redis.max_waiting", fixed},
	{"store.peers", counted},
	{"store.peers_interval", counted},
	{"store.replicas", counted},
	{"tiers.breaker", fixed},
	{"tiers.cache.unknown", fixed},
	{"tiers.cache.unknown_ttl", fixed},
	{"tiers.http.max_bytes", fixed},
	{"tiers.lookups_per_second", "remove it: the number of look-ups under way is bounded"},
	{"tiers.timeout", fixed},
}

// fixed is the advice for a setting whose former default holds for all.
const fixed = "remove it, its value is fixed"

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
