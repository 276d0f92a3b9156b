package envoycheck

import (
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/answer/dynamic"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// namespace has the metadata of ext_authz, whatever the name of the filter.
const namespace = "envoy.filters.http.ext_authz"

// namesContext reports whether the routes of a manager have a context that only rls understands.
func (m *manager) namesContext() bool {
	return m.any(func(r *route) bool {
		names := r.context()
		return names["domain"] || names["descriptors"] || names["anonymous"]
	})
}

// context returns the names in the context of ext_authz on a route. Envoy hides the values.
func (r *route) context() map[string]bool {
	names := make(map[string]bool)
	for _, level := range r.levels() {
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

// oneHop reports whether the authorization asks for limits: no ratelimit filter does.
func (m *manager) oneHop() bool {
	return len(m.authorizations) > 0 && !slices.ContainsFunc(m.limits, func(f *limitFilter) bool { return !f.ends })
}

// oneHop finds managers whose authorization is to ask for limits and names no domain.
func (in *input) oneHop() {
	for _, m := range in.managers {
		if !m.oneHop() {
			continue
		}
		in.notRead("values of the context of ext_authz of %s: Envoy hides them, so its domain and descriptors are not checked", m.where)
		var without []string
		for _, r := range m.routes {
			if !slices.ContainsFunc(m.authorizations, func(a *authorizationFilter) bool { return !r.authorizationOff(a) }) {
				in.report(authorizationOff, r.where, "ext_authz is disabled on this route, so rls is not asked and nothing is limited here.").Passes = ofRoute
			} else if !r.context()["domain"] {
				without = append(without, r.where)
			}
		}
		if len(without) == len(m.routes) && len(without) > 0 {
			without = []string{m.where}
		}
		for _, where := range without {
			in.report(noDomain, where, "ext_authz names no domain in its context_extensions, so rls only checks keys and limits nothing here.")
		}
	}
}

// means reports whether a name was probably meant as the namespace of ext_authz: it is the name of the filter,
// or nearly that of the namespace.
func (m *manager) means(name string) bool {
	return name == namespace || strings.HasPrefix(name, "envoy.filters.") && strings.Contains(name, "authz") ||
		slices.ContainsFunc(m.authorizations, func(a *authorizationFilter) bool { return a.Name == name })
}

// metadata finds descriptors that never have the metadata of ext_authz.
func (in *input) metadata() {
	for _, s := range in.sends {
		if s.limit.Override != nil {
			in.metadataOf(s, s.limit.Override.Dynamic.Metadata, true)
		}
		for _, e := range s.entries {
			if e.of.Source != "ROUTE_ENTRY" && e.of.Default == "" {
				in.metadataOf(s, e.of.Metadata, false)
			}
		}
	}
}

// metadataOf checks what a descriptor reads: the value of an entry, or its limit.
func (in *input) metadataOf(s *sent, read envoydump.MetadataKey, limit bool) {
	switch {
	case len(read.Path) == 0 || !s.route.manager.means(read.Namespace):
	case read.Namespace != namespace:
		in.reportSent(otherMetadata, s, "Envoy has the metadata of rls under %s, whatever the name of the filter; this action reads %s.", namespace, read.Namespace)
	default:
		in.metadataKey(s, read.Path[0].Key, limit)
	}
}

// authorizationOff reports whether an ext_authz filter is disabled on the route.
func (r *route) authorizationOff(a *authorizationFilter) bool {
	message, off, found := r.perFilter(a.Name)
	per, ok := message.(*envoydump.AuthorizationPerRoute)
	return ok && per.Disabled || off || a.Disabled && !found
}

// metadataKey checks a key of the metadata of ext_authz: that of a limit, or of an entry.
func (in *input) metadataKey(s *sent, key string, limit bool) {
	m := s.route.manager
	all := m.authorizations
	at := slices.IndexFunc(all, func(a *authorizationFilter) bool { return a.at < s.filter.at })
	switch {
	case at < 0 && len(all) > 0:
		in.reportSent(authorizationAfter, s, "A descriptor reads %s of the metadata of ext_authz, and the listener has it after this filter: the metadata is not there yet.", key)
	case at < 0:
		if !slices.ContainsFunc(m.Filters, func(f envoydump.Filter) bool { return strings.HasPrefix(f.Config.Type, "ext_authz.") }) { // another service has other metadata
			in.reportSent(authorizationAfter, s, "A descriptor reads %s of the metadata of ext_authz, and the listener has no ext_authz that calls rls: the metadata is not there.", key)
		}
	case s.route.authorizationOff(all[at]):
		in.reportSent(authorizationOff, s, "ext_authz is disabled on this route, so descriptors with its metadata are never sent.")
	case limit && key != "limit" && !strings.HasPrefix(key, "limit_"):
		in.reportSent(otherMetadata, s, "rls sends the limits of a tier as limit and limit_NAME; this descriptor takes its limit from %s, so it has that of the rule.", key).Passes = "requests over the limit of their tier"
	case limit && in.service.Carried != nil && !slices.Contains(in.service.Carried, key):
		in.reportSent(notCarried, s, "No tier carries %s, from which this descriptor takes its limit, so it has that of the rule.", key)
	case !limit && key != "rate_limit" && !slices.ContainsFunc(dynamic.Keys, func(k dynamic.Key) bool { return k.Name == key }):
		in.reportSent(otherMetadata, s, "rls sends subject, tier, labels and rate_limit; this action reads %s.", key)
	}
}

// removedCredentials finds descriptors from a header that ext_authz takes off.
func (in *input) removedCredentials() {
	if in.service.Settings == nil || !in.service.Settings.Authz.RemoveCredential {
		return
	}
	for _, s := range in.sends {
		for _, e := range s.entries {
			header := strings.ToLower(e.of.Header)
			if header != "" && slices.ContainsFunc(in.service.Settings.Authz.Credentials, func(c settings.Credential) bool { return c.Kind != settings.CredentialCookie && headerOf(c) == header }) &&
				slices.ContainsFunc(s.route.manager.authorizations, func(a *authorizationFilter) bool { return a.at < s.filter.at }) {
				in.reportSent(credentialRemoved, s, "authz.remove_credential is on, so ext_authz takes the header %s off, and the descriptor %s is never sent.", e.of.Header, s)
			}
		}
	}
}
