package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/answer/dynamic"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// namespace has the metadata of ext_authz, whatever the name of the filter.
const namespace = "envoy.filters.http.ext_authz"

// namesContext reports whether the routes of a manager have a context that only rls understands.
func (m *Manager) namesContext() bool {
	return m.anyRoute(func(r *route) bool {
		names := r.context()
		return names["domain"] || names["descriptors"] || names["anonymous"]
	})
}

// context returns the names in the context of ext_authz on a route. Envoy hides the values.
func (r *route) context() map[string]bool {
	names := make(map[string]bool)
	for _, level := range []envoydump.PerFilter{r.PerFilter, r.host.PerFilter, r.manager.Routes.PerFilter} {
		for _, is := range level {
			if wrap, ok := is.Message.(*envoydump.FilterConfig); ok {
				is = wrap.Config
			}
			if per, ok := is.Message.(*envoydump.AuthorizationPerRoute); ok {
				for name := range per.Check.Context {
					names[name] = true
				}
			}
		}
	}
	return names
}

// oneHop finds managers whose authorization is to ask for limits and names no domain.
func oneHop(in *Input) (found []Finding) {
	for _, m := range in.Managers {
		if len(m.Limits) > 0 || len(m.Authorizations) == 0 {
			continue
		}
		in.NotRead("values of the context of ext_authz of %s: Envoy hides them, so its domain and descriptors are not checked", m.Where)
		var without []string
		for _, r := range m.routes {
			if !slices.ContainsFunc(m.Authorizations, func(a *AuthorizationFilter) bool { return !r.authorizationOff(a) }) {
				found = append(found, finding(AuthorizationOff, r.where, "every request of the route", "Enable ext_authz on the route, with anonymous in its context_extensions if requests need no key.",
					"ext_authz is disabled on this route, so rls is not asked and nothing is limited here."))
			} else if !r.context()["domain"] {
				without = append(without, r.where)
			}
		}
		if len(without) == len(m.routes) && len(without) > 0 {
			without = []string{m.Where}
		}
		for _, where := range without {
			found = append(found, finding(NoDomain, where, "every request with a valid key", "Add domain and descriptors to context_extensions, as rls envoy-config --shape one-hop prints them.",
				"ext_authz names no domain in its context_extensions, so rls only checks keys and limits nothing here."))
		}
	}
	return found
}

// means reports whether a name was probably meant as the namespace of ext_authz: it is the name of the filter,
// or nearly that of the namespace.
func (m *Manager) means(name string) bool {
	return name == namespace || strings.HasPrefix(name, "envoy.filters.") && strings.Contains(name, "authz") ||
		slices.ContainsFunc(m.Authorizations, func(a *AuthorizationFilter) bool { return a.Name == name })
}

// metadata finds descriptors that never have the metadata of ext_authz.
func metadata(in *Input) (found []Finding) {
	for s := range in.sends() {
		r := s.route
		for _, e := range s.entries {
			read := e.of.Metadata
			if e.of.Source == "ROUTE_ENTRY" || e.of.Default != "" || len(read.Path) == 0 || !r.manager.means(read.Namespace) {
				continue
			}
			if read.Namespace != namespace {
				found = append(found, finding(OtherMetadata, r.where, fmt.Sprintf("requests that only %s limits", s), "Correct the key of metadata_key.",
					"Envoy has the metadata of rls under %s, whatever the name of the filter; this action reads %s.", namespace, read.Namespace))
			} else if f := r.metadata(s.filter, e.of.Metadata.Path[0].Key); f.Code != "" {
				f.Where, f.Passes = r.where, fmt.Sprintf("requests that only %s limits", s)
				found = append(found, f)
			}
		}
	}
	return found
}

// authorizationOff reports whether an ext_authz filter is disabled on the route.
func (r *route) authorizationOff(a *AuthorizationFilter) bool {
	message, off, found := r.perFilter(a.Name)
	per, ok := message.(*envoydump.AuthorizationPerRoute)
	return ok && per.Disabled || off || a.Disabled && !found
}

// metadata returns what is wrong with a key of the metadata of ext_authz, without where.
func (r *route) metadata(reader *LimitFilter, key string) Finding {
	at := slices.IndexFunc(r.manager.Authorizations, func(a *AuthorizationFilter) bool { return a.At < reader.At })
	if at < 0 {
		message := "has no ext_authz that calls rls"
		if len(r.manager.Authorizations) > 0 {
			message = "has it after this filter"
		} else if slices.ContainsFunc(r.manager.Filters, func(f envoydump.Filter) bool { return strings.HasPrefix(f.Config.Type, "ext_authz.") }) {
			return Finding{} // another service has other metadata
		}
		return Finding{Code: AuthorizationAfter, Message: fmt.Sprintf("A descriptor reads %s of the metadata of ext_authz, and the listener %s: the metadata is not there yet.", key, message), Fix: "Put ext_authz before the ratelimit filter."}
	}
	before := r.manager.Authorizations[at]
	if r.authorizationOff(before) {
		return Finding{Code: AuthorizationOff, Message: "ext_authz is disabled on this route, so descriptors with its metadata are never sent.", Fix: "Enable ext_authz on the route, with anonymous in its context_extensions if requests need no key."}
	}
	if !slices.ContainsFunc(dynamic.Keys, func(k dynamic.Key) bool { return k.Name == key }) && key != "rate_limit" {
		return Finding{Code: OtherMetadata, Message: fmt.Sprintf("rls sends subject, tier, labels and rate_limit; this action reads %s.", key), Fix: "Correct the path of metadata_key."}
	}
	return Finding{}
}

// removedCredentials finds descriptors from a header that ext_authz takes off.
func removedCredentials(in *Input) (found []Finding) {
	if in.Service.Settings == nil || !in.Service.Settings.Authz.RemoveCredential {
		return nil
	}
	removed := make(map[string]bool)
	for _, c := range in.Service.Settings.Authz.Credentials {
		switch c.Kind {
		case settings.CredentialHeader:
			removed[c.Name] = true
		case settings.CredentialBearer, settings.CredentialBasic, settings.CredentialAPIKey:
			removed["authorization"] = true
		}
	}
	for s := range in.sends() {
		r := s.route
		for _, e := range s.entries {
			if before := func(a *AuthorizationFilter) bool { return a.At < s.filter.At }; removed[strings.ToLower(e.of.Header)] && slices.ContainsFunc(r.manager.Authorizations, before) {
				found = append(found, finding(CredentialRemoved, r.where, fmt.Sprintf("requests that only %s limits", s), "Use the metadata subject of ext_authz in place of the header.",
					"authz.remove_credential is on, so ext_authz takes the header %s off, and the descriptor %s is never sent.", e.of.Header, s))
			}
		}
	}
	return found
}
