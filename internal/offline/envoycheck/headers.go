package envoycheck

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// identityKeys are keys of entries that say who is limited, and identityHeader the headers for them.
	identityKeys   = regexp.MustCompile(`^(tier|plan|subject|user|customer|tenant|consumer|account|org)(_?id)?$`)
	identityHeader = regexp.MustCompile(`^x-(tier|plan|subject|user|customer|tenant|consumer|account|org)(-|$)`)
	// setters are the kinds of filters that may set a header before the ratelimit filter reads it.
	setters = []string{"ext_authz", "jwt_authn", "lua", "ext_proc", "wasm", "golang", "dynamic_modules", "header_mutation", "api_key_auth", "oauth2"}
)

// headers finds descriptors from headers that clients choose, or that are gone.
func (in *input) headers() {
	for _, s := range in.sends {
		m := s.route.manager
		for _, e := range s.entries {
			header := strings.ToLower(e.of.Header)
			if e.of.Kind != "request_headers" || s.skipped {
				continue
			}
			removed, safe := m.early(header)
			identity := identityKeys.MatchString(e.Key) || identityHeader.MatchString(header)
			if !removed && (safe || !identity) {
				continue
			}
			if setter := m.setter(s.filter); setter != "" {
				in.notRead("whether the filter %s of %s sets the header %s", setter, m.where, header)
				continue
			}
			var f *Finding
			if removed {
				f = in.reportSent(headerRemoved, s, "The header %s is removed before this filter, so the descriptor %s is never sent.", header, s)
			} else {
				f = in.reportSent(clientHeader, s, "The descriptor takes %s from %s, which clients can send.", e.Key, header)
			}
			if m.ofGateway {
				f.Severity = Note
			}
		}
	}
}

// early returns what happens to a header before routing: it is removed, or its value is safe because
// Envoy writes it.
func (m *manager) early(header string) (removed, safe bool) {
	for _, extension := range m.Early {
		for _, mutation := range extension.Config.Mutations {
			if strings.EqualFold(mutation.Remove, header) || mutation.OnMatch != nil && matches(mutation.OnMatch.Key, header) {
				removed = true
			}
			action := mutation.Append.Action
			if strings.EqualFold(mutation.Append.Header.Key, header) && (action == "OVERWRITE_IF_EXISTS_OR_ADD" || removed && action != "OVERWRITE_IF_EXISTS") {
				removed, safe = false, true
			}
		}
	}
	return removed, safe
}

// setter returns the name of a filter before another one that may set headers.
func (m *manager) setter(before *limitFilter) string {
	for _, f := range m.Filters[:before.at] {
		kind, _, _ := strings.Cut(f.Config.Type, ".")
		if slices.Contains(setters, kind) {
			return f.Name
		}
	}
	return ""
}
