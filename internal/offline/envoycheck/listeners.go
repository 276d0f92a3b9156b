package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// unlimited finds listeners that forward without asking rls.
func unlimited(in *Input) (found []Finding) {
	for _, s := range in.chosen {
		for _, m := range s.managers {
			if len(m.routes) > 0 && len(m.Limits)+len(m.Authorizations) == 0 {
				found = append(found, finding(NoFilter, m.Where, "every request", "Add the ratelimit filter to http_filters, as rls envoy-config prints it.",
					"The listener forwards requests and has no ratelimit filter, and no ext_authz that asks for limits: nothing is limited here."))
			}
		}
		for _, tcp := range s.tcp {
			where, cluster, _ := strings.Cut(tcp, "\n")
			if in.passesThrough(cluster) {
				continue
			}
			found = append(found, finding(TCPListener, where, "every request over this listener", "Close the listener to clients, or forward with an HTTP connection manager.",
				"The listener passes on TCP to %s: no limit applies to what it serves.", cluster))
		}
	}
	return found
}

// passesThrough reports whether a cluster forwards to the address that the client has called, as those
// of a mesh do.
func (in *Input) passesThrough(cluster string) bool {
	c := in.Clusters[cluster]
	return c != nil && c.Type == "ORIGINAL_DST"
}

// pathChanges finds filters that may change the path after Envoy has chosen the route.
func pathChanges(in *Input) (found []Finding) {
	for _, m := range in.Managers {
		if len(m.Limits) == 0 {
			continue
		}
		for _, f := range m.Filters[:m.Limits[0].At] {
			if f.Config.Type == "lua.Lua" && f.Config.HasPath {
				found = append(found, finding(PathChangedBefore, "filter "+f.Name+" of "+m.Where, "requests whose path the filter changes may miss limits of their new path", "Move the change of the path behind the ratelimit filter, or into early_header_mutation_extensions.",
					"The filter may change the path after Envoy has chosen the route, so the limits of another route apply."))
			}
		}
	}
	return found
}

// clientAddress finds managers that take the client's address from what clients can write.
func clientAddress(in *Input) (found []Finding) {
	for _, m := range in.Managers {
		if len(m.Detection) > 0 || !m.sends(func(s *sent) bool {
			return slices.ContainsFunc(s.entries, func(e entry) bool { return strings.Contains(e.of.Kind, "remote_address") })
		}) {
			continue
		}
		hops := in.Options.Hops
		switch {
		case in.Options.Edge && !m.UseRemoteAddress:
			found = append(found, finding(ClientAddress, m.Where, "clients that send another address with each request", "Set use_remote_address: true.",
				"The limited address is the last of X-Forwarded-For, which every client can write."))
		case hops >= 0 && m.TrustedHops != hops, hops < 0 && m.TrustedHops > 0:
			found = append(found, finding(TrustedHops, m.Where, "clients that send another address with each request", fmt.Sprintf("Set xff_num_trusted_hops to the number of the proxies. If %d is right, say --hops %d.", m.TrustedHops, m.TrustedHops),
				"Envoy trusts X-Forwarded-For of %d proxies. If fewer proxies stand in front of it, clients choose their address.", m.TrustedHops))
		}
	}
	return found
}

// spellings finds managers in which another spelling of a path takes another route.
func spellings(in *Input) (found []Finding) {
	for _, m := range in.Managers {
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
		if len(missing) == 0 || !m.sends(func(s *sent) bool { return s.route.Match.Prefix == nil || *s.route.Match.Prefix != "/" }) {
			continue
		}
		found = append(found, finding(PathNotNormalised, m.Where, "requests with such a path miss the limits of their route", "Set "+strings.Join(missing, ", ")+".",
			"A path that is spelled otherwise, such as //search or /%%2Fsearch, takes another route."))
	}
	return found
}

// sends reports whether a manager sends a descriptor for which is returns true.
func (m *Manager) sends(is func(*sent) bool) bool {
	return slices.ContainsFunc(m.routes, func(r *route) bool { return slices.ContainsFunc(r.sends, is) })
}

// switches finds filters that are off, or that deny nothing.
func switches(in *Input) (found []Finding) {
	for _, m := range in.Managers {
		for _, f := range m.Limits {
			if f.Disabled {
				found = append(found, finding(FilterOffByDefault, m.Where, "requests of all other routes", "Remove disabled: true, or enable the filter on each route with limits.",
					"The filter %s is disabled: it works only on routes that enable it.", f.Name))
			}
			if percent, by := in.percent(f.Enabled, "filter_enabled", "ratelimit.http_filter_enabled"); percent < 100 {
				found = append(found, partial(NotEnabled, percent, m.Where, by+": the filter asks rls about that part of the requests only.", "the requests that it does not ask about"))
			}
			if percent, by := in.percent(f.Enforced, "filter_enforced", "ratelimit.http_filter_enforcing"); percent < 100 {
				found = append(found, partial(NotEnforced, percent, m.Where, by+": other requests over their limit pass, and Envoy only counts them.", "requests over their limit"))
			}
		}
	}
	return found
}

// partial returns a finding about a part of the requests. It is an error if the part is below 1 %.
func partial(code Code, percent float64, where, message, passes string) Finding {
	f := Finding{Code: code, Where: where, Message: message, Passes: passes, Fix: "Set it to 100 %."}
	if percent >= 1 {
		f.Severity = Warning
	}
	return f
}

// percent returns a fraction of requests as a percentage, and says what sets it: the field of the filter, or
// a runtime key. key is the runtime key that counts if the filter has no such field.
func (in *Input) percent(of *envoydump.Fraction, field, key string) (percent float64, by string) {
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
