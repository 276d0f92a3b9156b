package envoycheck

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// A route is one that forwards, with what it sends to rls.
type route struct {
	*envoydump.Route
	manager *manager
	host    *envoydump.VirtualHost
	where   string
	paths   paths
	sends   []*sent
	// off are the filters that are disabled on the route.
	off []*limitFilter
	// hidden are descriptors of the virtual host that the route does not send, and ignored says that
	// the route says so.
	hidden  []*sent
	ignored bool
	// unused are descriptors of its own rate_limits, below route: Envoy takes other lists instead.
	unused []*sent
}

// addRoutes adds the routes of a manager that forward.
func (in *input) addRoutes(s *site, m *manager) {
	if m.table == nil {
		return
	}
	for i := range m.table.Hosts {
		host := &m.table.Hosts[i]
		if host.Matcher != nil {
			in.notRead("matcher tree of virtual host %s of %s", host.Name, m.where)
		}
		for j := range host.Routes {
			r := &route{Route: &host.Routes[j], manager: m, host: host, paths: pathsOf(&host.Routes[j].Match)}
			if r.Action == nil {
				continue
			}
			r.where = fmt.Sprintf("route %s/%s of %s", host.Name, r.name(j), m.where)
			s.clusters[r.Action.Cluster] = true
			for _, c := range r.Action.Weighted.Clusters {
				s.clusters[c.Name] = true
				if len(c.PerFilter) > 0 {
					in.notRead("typed_per_filter_config of the weighted clusters of %s", r.where)
				}
			}
			m.routes = append(m.routes, r)
		}
	}
}

// ask adds what the routes of a manager send to its filters.
func (in *input) ask(m *manager) {
	for _, r := range m.routes {
		for _, f := range m.limits {
			in.addSent(r, f)
		}
	}
	for _, f := range m.limits {
		f.ends = m.sends(func(s *sent) bool { return s.filter == f }) && !m.sends(func(s *sent) bool { return s.filter == f && !s.limit.AtEnd })
	}
	m.ofGateway = m.sends(func(s *sent) bool {
		return strings.HasPrefix(s.filter.Name, "envoy.filters.http.ratelimit/") || slices.ContainsFunc(s.entries, func(e entry) bool { return machineKey.MatchString(e.Key) })
	})
}

// machineKey is a key of Envoy Gateway.
var machineKey = regexp.MustCompile(`^rule-\d+-match-`)

// name returns the name of a route, or says which requests it takes.
func (r *route) name(at int) string {
	switch m := &r.Match; {
	case r.Name != "":
		return r.Name
	case m.Prefix != nil:
		return "prefix " + *m.Prefix
	case m.SeparatedPrefix != "":
		return "prefix " + m.SeparatedPrefix
	default:
		return cmp.Or(m.Path, fmt.Sprintf("number %d", at+1))
	}
}

// requests says which requests a route takes by their path.
func (r *route) requests() string {
	return strings.Join([]string{r.Match.Path, r.Match.Regex.Regex, r.paths.begin}, "\n")
}

// sends reports whether a manager sends a descriptor for which is returns true.
func (m *manager) sends(is func(*sent) bool) bool {
	return slices.ContainsFunc(m.routes, func(r *route) bool { return slices.ContainsFunc(r.sends, is) })
}

// levels are what a route says to filters, the most specific first.
func (r *route) levels() []envoydump.PerFilter {
	return []envoydump.PerFilter{r.PerFilter, r.host.PerFilter, r.manager.table.PerFilter}
}

// perFilter returns the most specific message of what a route says to a filter. Nil: none. off is true
// if the most specific of all disables the filter: a FilterConfig without a message only enables it.
func (r *route) perFilter(name string) (message any, off, found bool) {
	for _, level := range r.levels() {
		is, ok := level[name]
		if !ok {
			continue
		}
		if wrap, ok := is.Message.(*envoydump.FilterConfig); ok {
			is, off = wrap.Config, off || !found && wrap.Disabled
		}
		if found = true; is.Type != "" || off {
			return is.Message, off, true
		}
	}
	return nil, false, found
}

// ratelimit returns what a route says to a ratelimit filter.
func (r *route) ratelimit(name string) envoydump.RateLimitPerRoute {
	message, _, _ := r.perFilter(name)
	if per, ok := message.(*envoydump.RateLimitPerRoute); ok {
		return *per
	}
	return envoydump.RateLimitPerRoute{}
}

// addSent adds the descriptors that a route sends by a filter.
func (in *input) addSent(r *route, f *limitFilter) {
	message, off, found := r.perFilter(f.Name)
	if off || f.Disabled && !found {
		r.off = append(r.off, f)
		return
	}
	if message == nil && r.PerFilter[f.Name].HasLimits {
		in.notRead("what %s says to filter %s", r.where, f.Name)
	}
	per := r.ratelimit(f.Name)
	domain, local, host := cmp.Or(per.Domain, f.Domain), r.Action.Limits, r.host.Limits
	instead := per.Limits
	if len(instead) == 0 {
		instead = f.Limits
	}
	switch {
	case len(instead) > 0:
		r.sends = append(r.sends, in.sent(r, f, domain, instead, false)...)
		r.unused = append(r.unused, in.sent(r, f, domain, local, true)...)
	case r.Action.IncludeVH || per.VH == "INCLUDE" || per.VH != "IGNORE" && len(local) == 0:
		local, host = slices.Concat(local, host), nil
		fallthrough
	default:
		r.sends = append(r.sends, in.sent(r, f, domain, local, true)...)
		r.ignored = r.ignored || per.VH == "IGNORE" && !r.Action.IncludeVH
	}
	r.hidden = append(r.hidden, in.sent(r, f, domain, host, true)...)
}
