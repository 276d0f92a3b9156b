package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// rulesSource checks rules.source and rules.xds.
func (l *settingsLoader) rulesSource() {
	const path = "rules.xds"
	r, x := &l.settings.Rules, &l.settings.Rules.XDS
	if r.Source == RulesXDS {
		if x.Address == "" {
			l.problem(path+".address", "is not set, and rules.source is xds: set host:port of the management server")
		}
		if r.Path != "" {
			l.problem("rules.path", "rules.source is xds, so rls reads no rules from files: remove rules.path, or set rules.source to files")
		}
	}
	if x.Address != "" {
		l.remote(path+".address", x.Address, true)
	}
	if x.NodeID == "" {
		l.problem(path+".node_id", "a node needs an id: servers choose the rules by it")
	}
	if x.MaxBackoff < x.InitialBackoff {
		l.problem(l.given("dropin.xds.max_backoff", "dropin.xds.initial_backoff"), "the longest wait %v is shorter than the first, %v", x.MaxBackoff, x.InitialBackoff)
	}
	l.clientTLS(path+".tls", x.TLS)
	var names []string
	for _, pair := range x.NodeMetadata {
		name, _, ok := strings.Cut(pair, "=")
		switch {
		case !ok || name == "":
			l.problem("dropin.xds.node_metadata", "%s is not name=value", strict.Quote(pair))
		case slices.Contains(names, name):
			l.problem("dropin.xds.node_metadata", "%s is listed twice", strict.Quote(name))
		}
		names = append(names, name)
	}
	for i, pair := range x.Headers {
		if message := checkMetadata(pair); message != "" {
			l.problem("dropin.xds.headers", "header %d %s", i+1, message)
		}
	}
}

// metadataName matches the names of gRPC metadata. gRPC puts them into lower case.
var metadataName = regexp.MustCompile(`^[0-9A-Za-z_.-]+$`)

// checkMetadata returns what is wrong with name=value as gRPC metadata. It repeats no part of it: a
// mistake may put the secret before the sign.
func checkMetadata(pair Secret) string {
	name, value, ok := strings.Cut(string(pair), "=")
	name = strings.ToLower(name)
	switch {
	case !ok || !metadataName.MatchString(name):
		return "is not name=value, with a name of letters, digits, - _ and ."
	case strings.HasPrefix(name, "grpc-"), slices.Contains([]string{"content-type", "user-agent", "te", "host", "connection"}, name):
		return "has a name that belongs to gRPC: choose another"
	case strings.HasSuffix(name, "-bin"):
		return "has a name that ends in -bin, whose values are binary: choose another"
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }):
		return "has a value with a character that is not printable ASCII"
	default:
		return ""
	}
}
