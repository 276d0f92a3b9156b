package envoycheck

import (
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// A Manager is an HTTP connection manager, with its filters that ask rls.
type Manager struct {
	*envoydump.Manager
	// Where names the listener, and the filter chain if it has a name.
	Where    string
	Listener *envoydump.Listener
	// Routes replaces that of the embedded message. Nil: not read.
	Routes         *envoydump.Routes
	Limits         []*LimitFilter
	Authorizations []*AuthorizationFilter
	routes         []*route
	// ofGateway is true if Envoy Gateway has written it: its policies say on purpose which requests have
	// a limit.
	ofGateway bool
}

// A LimitFilter is a ratelimit filter.
type LimitFilter struct {
	*envoydump.RateLimitFilter
	Name     string
	At       int // among the HTTP filters
	Disabled bool
	// Ends is true if it only reports the end of requests: each of its descriptors has
	// apply_on_stream_done.
	Ends bool
}

// An AuthorizationFilter is an ext_authz filter that calls rls.
type AuthorizationFilter struct {
	*envoydump.Authorization
	Name     string
	At       int
	Disabled bool
}

// A site is a listener, with its managers and the clusters that it forwards to.
type site struct {
	*envoydump.Listener
	managers []*Manager
	tcp      []string // names of the chains and the clusters that tcp_proxy forwards to
	clusters map[string]bool
}

// findManagers finds the managers of all listeners, their filters and routes, and chooses those to check.
func (in *Input) findManagers() {
	for i := range in.Listeners {
		in.sites = append(in.sites, in.site(&in.Listeners[i]))
	}
	in.dropOthers()
	ours := in.clustersOfLimits()
	for _, s := range in.sites {
		for _, m := range s.managers {
			m.Authorizations = slices.DeleteFunc(m.Authorizations, func(a *AuthorizationFilter) bool {
				return !ours[a.Call.Envoy.Cluster] && !m.namesContext()
			})
			in.addRoutes(s, m)
		}
	}
	in.choose()
	for _, s := range in.chosen {
		in.Managers = append(in.Managers, s.managers...)
	}
}

// dropOthers drops filters that ask another rate-limit service: rls has no rules for their domain, and
// filters with a domain of the rules call other clusters.
func (in *Input) dropOthers() {
	ours := make(map[string]bool)
	each := func(is func(*Manager, *LimitFilter) bool) {
		for _, s := range in.sites {
			for _, m := range s.managers {
				m.Limits = slices.DeleteFunc(m.Limits, func(f *LimitFilter) bool { return is(m, f) })
			}
		}
	}
	each(func(m *Manager, f *LimitFilter) bool {
		if in.tree(f.Domain) != nil || m.namesDomain(in, f.Name) {
			ours[f.Service.Call.Envoy.Cluster] = true
		}
		return false
	})
	each(func(m *Manager, f *LimitFilter) bool {
		other := len(ours) > 0 && !ours[f.Service.Call.Envoy.Cluster]
		if other {
			in.NotRead("filter %s of %s: it seems to ask another service, by cluster %s", f.Name, m.Where, f.Service.Call.Envoy.Cluster)
		}
		return other
	})
}

// namesDomain reports whether a route gives a filter a domain of the rules.
func (m *Manager) namesDomain(in *Input, filter string) bool {
	return m.anyRoute(func(r *route) bool {
		message, _, _ := r.perFilter(filter)
		per, ok := message.(*envoydump.RateLimitPerRoute)
		return ok && in.tree(per.Domain) != nil
	})
}

// anyRoute reports whether is returns true for a route, or for a virtual host as a route that says nothing.
func (m *Manager) anyRoute(is func(*route) bool) bool {
	return m.Routes != nil && slices.ContainsFunc(m.Routes.Hosts, func(h envoydump.VirtualHost) bool {
		return slices.ContainsFunc(append(slices.Clip(h.Routes), envoydump.Route{}), func(r envoydump.Route) bool {
			return is(&route{Route: &r, manager: m, host: &h})
		})
	})
}

// site reads the filter chains of a listener.
func (in *Input) site(l *envoydump.Listener) *site {
	s := &site{Listener: l, clusters: make(map[string]bool)}
	chains := l.Chains
	if l.Default != nil {
		chains = append(slices.Clip(chains), *l.Default)
	}
	for _, chain := range chains {
		where := "listener " + l.Name
		if chain.Name != "" && len(chains) > 1 {
			where += ", chain " + chain.Name
		}
		for _, f := range chain.Filters {
			switch message := in.config(f, where).(type) {
			case *envoydump.Manager:
				s.managers = append(s.managers, in.manager(message, l, where))
			case *envoydump.TCPProxy:
				names := []string{message.Cluster}
				for _, c := range message.Weighted.Clusters {
					names = append(names, c.Name)
				}
				for _, name := range slices.DeleteFunc(names, func(name string) bool { return name == "" }) {
					s.tcp = append(s.tcp, where+"\n"+name)
					s.clusters[name] = true
				}
			}
		}
	}
	return s
}

// config returns the configuration of a filter. Nil: it is not of interest, or not read.
func (in *Input) config(f envoydump.Filter, where string) any {
	is := f.Config
	if f.Discovery != nil && is.Type == "" {
		found, ok := in.Discovered[f.Name]
		if !ok {
			in.NotRead("filter %s of %s: a discovery service has its configuration, and the dump does not show it", f.Name, where)
		}
		is = found
	}
	if is.Message == nil && (is.HasLimits || strings.HasPrefix(is.Type, "http_connection_manager.")) {
		in.NotRead("filter %s of %s", f.Name, where)
	}
	return is.Message
}

func (in *Input) manager(of *envoydump.Manager, l *envoydump.Listener, where string) *Manager {
	m := &Manager{Manager: of, Where: where, Listener: l, Routes: of.Routes}
	if m.Routes == nil {
		m.Routes = in.Routes[of.RDS.Name]
	}
	if m.Routes == nil || m.Routes.VHDS != nil {
		in.NotRead("routes of %s", where)
	}
	for at, f := range of.Filters {
		switch message := in.config(f, where).(type) {
		case *envoydump.RateLimitFilter:
			m.Limits = append(m.Limits, &LimitFilter{RateLimitFilter: message, Name: f.Name, At: at, Disabled: f.Disabled})
		case *envoydump.Authorization:
			m.Authorizations = append(m.Authorizations, &AuthorizationFilter{Authorization: message, Name: f.Name, At: at, Disabled: f.Disabled})
		}
	}
	return m
}

// clustersOfLimits returns the clusters that ratelimit filters call: rls.
func (in *Input) clustersOfLimits() map[string]bool {
	all := make(map[string]bool)
	for _, s := range in.sites {
		for _, m := range s.managers {
			for _, f := range m.Limits {
				all[f.Service.Call.Envoy.Cluster] = true
			}
		}
	}
	delete(all, "")
	return all
}

// asks reports whether a listener asks rls.
func (s *site) asks() bool {
	return slices.ContainsFunc(s.managers, func(m *Manager) bool { return len(m.Limits)+len(m.Authorizations) > 0 })
}

// choose chooses the listeners to check: those of the options. Otherwise those that ask rls, and those
// on the same port or with the same clusters: a mesh has many others. If none asks rls, it chooses all.
func (in *Input) choose() {
	ports, clusters, asking := make(map[int]bool), make(map[string]bool), false
	for _, s := range in.sites {
		if s.asks() {
			asking = true
			ports[s.Address.Socket.Port] = true
			maps.Copy(clusters, s.clusters)
		}
	}
	delete(ports, 0)
	delete(clusters, "") // the route names several, or a header does
	related := func(s *site) bool {
		for name := range s.clusters {
			if clusters[name] {
				return true
			}
		}
		return ports[s.Address.Socket.Port]
	}
	for _, s := range in.sites {
		if names := in.Options.Listeners; len(names) > 0 && slices.Contains(names, s.Name) || len(names) == 0 && (!asking || s.asks() || related(s)) {
			in.chosen = append(in.chosen, s)
		}
	}
}
