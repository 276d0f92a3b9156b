package envoycheck

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A route is one that forwards, with what it sends to rls.
type route struct {
	*envoydump.Route
	manager *Manager
	host    *envoydump.VirtualHost
	where   string
	paths   paths
	sends   []*sent
	// off are the filters that are disabled on the route.
	off []*LimitFilter
	// hidden are descriptors of the virtual host that the route does not send, and ignored says that
	// the route says so.
	hidden  []*sent
	ignored bool
	// unused are descriptors of its own rate_limits, below route: Envoy takes other lists instead.
	unused []*sent
}

// sent is a descriptor that a route can send.
type sent struct {
	route   *route
	filter  *LimitFilter
	limit   *envoydump.RateLimit
	domain  string
	entries []entry
	// skipped is true if an entry with skip_if_absent is missing.
	skipped bool
	// ofRoute is true if the rate limit is under route or the virtual host.
	ofRoute bool
	// rules are those that it may match.
	rules []*Rule
}

// An entry has a value, or one that differs by request.
type entry struct {
	descriptors.Entry
	any bool
	of  *envoydump.Action
}

func (s *sent) String() string {
	var path []descriptors.Node
	for _, e := range s.entries {
		path = append(path, descriptors.Node{Key: e.Key, Value: e.Value, AnyValue: e.any})
	}
	return pathText(path)
}

// limits reports whether rls may deny because of the descriptor.
func (s *sent) limits() bool {
	return len(s.limit.Override) > 0 || slices.ContainsFunc(s.rules, func(r *Rule) bool { return r.Limits })
}

// addRoutes adds the routes of a manager that forward.
func (in *Input) addRoutes(s *site, m *Manager) {
	if m.Routes == nil {
		return
	}
	for i := range m.Routes.Hosts {
		host := &m.Routes.Hosts[i]
		if host.Matcher != nil {
			in.NotRead("matcher tree of virtual host %s of %s", host.Name, m.Where)
		}
		for j := range host.Routes {
			r := &route{Route: &host.Routes[j], manager: m, host: host, paths: pathsOf(&host.Routes[j].Match)}
			if r.Action == nil {
				continue
			}
			r.where = fmt.Sprintf("route %s/%s of %s", host.Name, r.name(j), m.Where)
			s.clusters[r.Action.Cluster] = true
			for _, c := range r.Action.Weighted.Clusters {
				s.clusters[c.Name] = true
				if len(c.PerFilter) > 0 {
					in.NotRead("typed_per_filter_config of the weighted clusters of %s", r.where)
				}
			}
			for _, f := range m.Limits {
				in.ask(r, f)
			}
			m.routes = append(m.routes, r)
		}
	}
	for _, f := range m.Limits {
		f.Ends = m.sends(func(s *sent) bool { return s.filter == f }) && !m.sends(func(s *sent) bool { return s.filter == f && !s.limit.AtEnd })
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
	case m.Path != "":
		return m.Path
	case m.SeparatedPrefix != "":
		return "prefix " + m.SeparatedPrefix
	default:
		return fmt.Sprintf("number %d", at+1)
	}
}

// requests says which requests a route takes by their path.
func (r *route) requests() string {
	return strings.Join([]string{r.Match.Path, r.Match.Regex.Regex, r.paths.begin}, "\n")
}

// checked returns the routes of the managers to check.
func (in *Input) checked() (all []*route) {
	for _, m := range in.Managers {
		all = append(all, m.routes...)
	}
	return all
}

// sends returns what the routes of the managers to check send.
func (in *Input) sends() iter.Seq[*sent] {
	return func(yield func(*sent) bool) {
		for _, r := range in.checked() {
			for _, s := range r.sends {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// perFilter returns the most specific message of what a route says to a filter. Nil: none. off is true
// if the most specific of all disables the filter: a FilterConfig without a message only enables it.
func (r *route) perFilter(name string) (message any, off, found bool) {
	for _, level := range []envoydump.PerFilter{r.PerFilter, r.host.PerFilter, r.manager.Routes.PerFilter} {
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

// ask adds the descriptors that a route sends by a filter.
func (in *Input) ask(r *route, f *LimitFilter) {
	message, off, found := r.perFilter(f.Name)
	if off || f.Disabled && !found {
		r.off = append(r.off, f)
		return
	}
	per, _ := message.(*envoydump.RateLimitPerRoute)
	if per == nil {
		if per = new(envoydump.RateLimitPerRoute); found && message == nil && f.Name != "" {
			if is := r.PerFilter[f.Name]; is.HasLimits {
				in.NotRead("what %s says to filter %s", r.where, f.Name)
			}
		}
	}
	domain := f.Domain
	if per.Domain != "" {
		domain = per.Domain
	}
	host := in.sent(r, f, domain, r.host.Limits, true)
	switch {
	case len(per.Limits) > 0:
		r.sends = append(r.sends, in.sent(r, f, domain, per.Limits, false)...)
		r.unused = append(r.unused, in.sent(r, f, domain, r.Action.Limits, true)...)
	case len(f.Limits) > 0:
		r.sends = append(r.sends, in.sent(r, f, domain, f.Limits, false)...)
		r.unused = append(r.unused, in.sent(r, f, domain, r.Action.Limits, true)...)
	case per.VH == "IGNORE" && !r.Action.IncludeVH:
		r.sends = append(r.sends, in.sent(r, f, domain, r.Action.Limits, true)...)
		r.ignored = true
	case per.VH == "INCLUDE" || r.Action.IncludeVH || len(r.Action.Limits) == 0:
		r.sends = append(append(r.sends, in.sent(r, f, domain, r.Action.Limits, true)...), host...)
		return
	default:
		r.sends = append(r.sends, in.sent(r, f, domain, r.Action.Limits, true)...)
	}
	r.hidden = append(r.hidden, host...)
}
