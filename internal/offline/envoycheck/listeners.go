package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// unlimited finds listeners that forward without asking rls.
func (in *input) unlimited() {
	for _, s := range in.sites {
		for _, m := range s.managers {
			if len(m.routes) > 0 && len(m.limits)+len(m.authorizations) == 0 {
				in.report(noFilter, m.where, "The listener forwards requests and has no ratelimit filter, and no ext_authz that asks for limits: nothing is limited here.")
			}
		}
		for _, tcp := range s.tcp {
			where, cluster, _ := strings.Cut(tcp, "\n")
			// The clusters of a mesh forward to the address that the client has called.
			if c := in.Clusters[cluster]; c == nil || c.Type != "ORIGINAL_DST" {
				in.report(tcpListener, where, "The listener passes on TCP to %s: no limit applies to what it serves.", cluster)
			}
		}
	}
}

// pathChanges finds filters that may change the path after Envoy has chosen the route.
func (in *input) pathChanges() {
	for _, limit := range in.limits {
		for at, f := range limit.manager.Filters[:limit.at] {
			if f.Config.Type == "lua.Lua" && f.Config.HasPath {
				before := filter{f, limit.manager, at}
				in.report(pathChangedBefore, before.where(), "The filter may change the path after Envoy has chosen the route, so the limits of another route apply.")
			}
		}
	}
}

// clientAddresses finds managers that take the client's address from what clients can write.
func (in *input) clientAddresses() {
	for _, m := range in.managers {
		hops := in.options.Hops
		switch {
		case len(m.Detection) > 0, !m.sends(func(s *sent) bool {
			return slices.ContainsFunc(s.entries, func(e entry) bool { return strings.Contains(e.of.Kind, "remote_address") })
		}):
		case in.options.Edge && !m.UseRemoteAddress:
			in.report(clientAddress, m.where, "The limited address is the last of X-Forwarded-For, which every client can write.")
		case hops >= 0 && m.TrustedHops != hops, hops < 0 && m.TrustedHops > 0:
			in.report(trustedHops, m.where, "Envoy trusts X-Forwarded-For of %d proxies. If fewer proxies stand in front of it, clients choose their address.", m.TrustedHops)
		}
	}
}

// spellings finds managers in which another spelling of a path takes another route.
func (in *input) spellings() {
	for _, m := range in.managers {
		var missing []string
		if m.NormalizePath == nil || !*m.NormalizePath {
			missing = append(missing, "normalize_path: true")
		}
		if !m.MergeSlashes {
			missing = append(missing, "merge_slashes: true")
		}
		if !strings.HasPrefix(m.EscapedSlashes, "REJECT") && !strings.HasPrefix(m.EscapedSlashes, "UNESCAPE") {
			missing = append(missing, "path_with_escaped_slashes_action: REJECT_REQUEST")
		}
		if len(missing) > 0 && m.sends(func(s *sent) bool { return s.route.Match.Prefix == nil || *s.route.Match.Prefix != "/" }) {
			in.report(pathNotNormalised, m.where, "A path that is spelled otherwise, such as //search or /%%2Fsearch, takes another route.").Fix = "Set " + strings.Join(missing, ", ") + "."
		}
	}
}

// switches finds filters that are off, or that deny nothing.
func (in *input) switches() {
	for _, f := range in.limits {
		if f.Disabled {
			in.report(filterOffByDefault, f.manager.where, "The filter %s is disabled: it works only on routes that enable it.", f.Name)
		}
		for _, part := range []struct {
			kind
			of                   *envoydump.Fraction
			field, key, sentence string
		}{
			{notEnabled, f.Enabled, "filter_enabled", "enabled", "the filter asks rls about that part of the requests only."},
			{notEnforced, f.Enforced, "filter_enforced", "enforcing", "other requests over their limit pass, and Envoy only counts them."},
		} {
			percent, by := in.percent(part.of, part.field, "ratelimit.http_filter_"+part.key)
			if percent < 100 {
				found := in.report(part.kind, f.manager.where, "%s: %s", by, part.sentence)
				if percent >= 1 {
					found.Severity = Warning
				}
			}
		}
	}
}

// percent returns a fraction of requests as a percentage, and says what sets it: the field of the filter, or
// a runtime key. key is the runtime key that counts if the filter has no such field.
func (in *input) percent(of *envoydump.Fraction, field, key string) (percent float64, by string) {
	percent = 100
	if of != nil {
		key, percent = of.Key, percentOf(float64(of.Default.Numerator), of.Default.Denominator)
	}
	if n, denominator, ok := in.fraction(key); ok && of != nil {
		field, percent = "The runtime key "+key, percentOf(n, denominator)
	} else if n, ok := in.runtime(key); ok {
		field, percent = "The runtime key "+key, float64(n) // of 100, whatever the default is of
	}
	return percent, fmt.Sprintf("%s is %g %%", field, percent)
}

func percentOf(numerator float64, denominator string) float64 {
	return numerator / max(1, map[string]float64{"TEN_THOUSAND": 100, "MILLION": 10_000}[denominator])
}
