package envoycheck

import (
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// A manager is an HTTP connection manager, with its filters that ask rls.
type manager struct {
	*envoydump.Manager
	// where names the listener, and the filter chain if it has a name.
	where    string
	listener *envoydump.Listener
	// table replaces Routes of the message. Nil: not read.
	table          *envoydump.Routes
	limits         []*limitFilter
	authorizations []*authorizationFilter
	routes         []*route
	// ofGateway is true if Envoy Gateway has written it: its policies say on purpose which requests have
	// a limit.
	ofGateway bool
}

// A filter is an HTTP filter of a manager.
type filter struct {
	envoydump.Filter
	manager *manager
	at      int // among the HTTP filters
}

func (f *filter) where() string { return "filter " + f.Name + " of " + f.manager.where }

// A limitFilter is a ratelimit filter.
type limitFilter struct {
	filter
	*envoydump.RateLimitFilter
	// ends is true if it only reports the end of requests: each of its descriptors has
	// apply_on_stream_done.
	ends bool
}

// An authorizationFilter is an ext_authz filter that calls rls.
type authorizationFilter struct {
	filter
	*envoydump.Authorization
}

// A site is a listener, with its managers and the clusters that it forwards to.
type site struct {
	*envoydump.Listener
	managers []*manager
	tcp      []string // names of the chains and the clusters that tcp_proxy forwards to
	clusters map[string]bool
}

// findManagers finds the managers of all listeners, their filters and routes, and chooses those to check.
func (in *input) findManagers() {
	for i := range in.Listeners {
		in.all = append(in.all, in.site(&in.Listeners[i]))
	}
	ours := in.clustersOfRLS()
	for _, s := range in.all {
		for _, m := range s.managers {
			m.limits = slices.DeleteFunc(m.limits, func(f *limitFilter) bool {
				other := !ours[f.cluster()]
				if other {
					in.notRead("filter %s of %s: it seems to ask another service, by cluster %s", f.Name, m.where, f.cluster())
				}
				return other
			})
			m.authorizations = slices.DeleteFunc(m.authorizations, func(a *authorizationFilter) bool {
				return (a.Call.Envoy.Cluster == "" || !ours[a.Call.Envoy.Cluster]) && !m.namesContext()
			})
			in.ask(m)
		}
	}
	in.choose()
}

func (f *limitFilter) cluster() string { return f.Service.Call.Envoy.Cluster }

// clustersOfRLS returns the clusters of filters that ask for a domain of the rules: a filter that calls
// another cluster asks another service. If there is no such filter, it returns the clusters of all.
func (in *input) clustersOfRLS() map[string]bool {
	all, ours := make(map[string]bool), make(map[string]bool)
	for _, s := range in.all {
		for _, m := range s.managers {
			for _, f := range m.limits {
				all[f.cluster()] = true
				if in.tree(f.Domain) != nil || m.any(func(r *route) bool { return in.tree(r.ratelimit(f.Name).Domain) != nil }) {
					ours[f.cluster()] = true
				}
			}
		}
	}
	if len(ours) == 0 {
		return all
	}
	return ours
}

// any reports whether is returns true for a route.
func (m *manager) any(is func(*route) bool) bool { return slices.ContainsFunc(m.routes, is) }

// site reads the filter chains of a listener.
func (in *input) site(l *envoydump.Listener) *site {
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
				m := in.manager(message, l, where)
				s.managers = append(s.managers, m)
				in.addRoutes(s, m)
			case *envoydump.TCPProxy:
				for _, c := range append(message.Weighted.Clusters, envoydump.WeightedCluster{Name: message.Cluster}) {
					if c.Name != "" {
						s.tcp = append(s.tcp, where+"\n"+c.Name)
						s.clusters[c.Name] = true
					}
				}
			}
		}
	}
	return s
}

// config returns the configuration of a filter. Nil: it is not of interest, or not read.
func (in *input) config(f envoydump.Filter, where string) any {
	is := f.Config
	if f.Discovery != nil && is.Type == "" {
		found, ok := in.Discovered[f.Name]
		if !ok {
			in.notRead("filter %s of %s: a discovery service has its configuration, and the dump does not show it", f.Name, where)
		}
		is = found
	}
	if is.Message == nil && (is.HasLimits || strings.HasPrefix(is.Type, "http_connection_manager.")) {
		in.notRead("filter %s of %s", f.Name, where)
	}
	return is.Message
}

func (in *input) manager(of *envoydump.Manager, l *envoydump.Listener, where string) *manager {
	m := &manager{Manager: of, where: where, listener: l, table: of.Routes}
	if m.table == nil {
		m.table = in.Routes[of.RDS.Name]
	}
	if m.table == nil || m.table.VHDS != nil {
		in.notRead("routes of %s", where)
	}
	for at, f := range of.Filters {
		switch message := in.config(f, where).(type) {
		case *envoydump.RateLimitFilter:
			m.limits = append(m.limits, &limitFilter{filter: filter{f, m, at}, RateLimitFilter: message})
		case *envoydump.Authorization:
			m.authorizations = append(m.authorizations, &authorizationFilter{filter{f, m, at}, message})
		}
	}
	return m
}

// asks reports whether a listener asks rls.
func (s *site) asks() bool {
	return slices.ContainsFunc(s.managers, func(m *manager) bool { return len(m.limits)+len(m.authorizations) > 0 })
}

// choose chooses the listeners to check: those of the options. Otherwise those that ask rls, and those
// on the same port or with the same clusters: a mesh has many others. If none asks rls, it chooses all.
func (in *input) choose() {
	ports, clusters, asking := make(map[int]bool), make(map[string]bool), false
	for _, s := range in.all {
		if s.asks() {
			asking, ports[s.Address.Socket.Port] = true, true
			maps.Copy(clusters, s.clusters)
		}
	}
	delete(ports, 0)
	delete(clusters, "") // the route names several, or a header does
	for _, s := range in.all {
		chosen := slices.Contains(in.options.Listeners, s.Name)
		if len(in.options.Listeners) == 0 {
			chosen = !asking || s.asks() || ports[s.Address.Socket.Port]
			for name := range s.clusters {
				chosen = chosen || clusters[name]
			}
		}
		if chosen {
			in.sites, in.managers = append(in.sites, s), append(in.managers, s.managers...)
		}
	}
	for _, m := range in.managers {
		in.limits, in.routes = append(in.limits, m.limits...), append(in.routes, m.routes...)
	}
	for _, r := range in.routes {
		in.sends = append(in.sends, r.sends...)
	}
}
