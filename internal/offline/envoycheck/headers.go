package envoycheck

import (
	"fmt"
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
func headers(in *Input) (found []Finding) {
	for s := range in.sends() {
		r := s.route
		for _, e := range s.entries {
			header := strings.ToLower(e.of.Header)
			if e.of.Kind != "request_headers" || s.skipped {
				continue
			}
			removed, safe := r.manager.early(header)
			identity := identityKeys.MatchString(e.Key) || identityHeader.MatchString(header)
			f := Finding{Where: r.where, Passes: fmt.Sprintf("requests that only %s limits", s)}
			switch {
			case removed:
				f.Code, f.Message, f.Fix = HeaderRemoved, fmt.Sprintf("The header %s is removed before this filter, so the descriptor %s is never sent.", header, s), "Remove the early mutation, or take the value from elsewhere."
			case identity && !safe:
				f.Code, f.Message, f.Fix = ClientHeader, fmt.Sprintf("The descriptor takes %s from %s, which clients can send.", e.Key, header), fmt.Sprintf("Remove %s in early_header_mutation_extensions, or use metadata of ext_authz.", header)
				f.Passes = "clients that choose another value"
			default:
				continue
			}
			if setter := r.manager.setter(s.filter); setter != "" {
				in.NotRead("whether the filter %s of %s sets the header %s", setter, r.manager.Where, header)
				continue
			}
			if r.manager.ofGateway {
				f.Severity = Note
			}
			found = append(found, f)
		}
	}
	return found
}

// early returns what happens to a header before routing: it is removed, or its value is safe because
// Envoy writes it.
func (m *Manager) early(header string) (removed, safe bool) {
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
func (m *Manager) setter(before *LimitFilter) string {
	for _, f := range m.Filters[:before.At] {
		kind, _, _ := strings.Cut(f.Config.Type, ".")
		if slices.Contains(setters, kind) {
			return f.Name
		}
	}
	return ""
}
