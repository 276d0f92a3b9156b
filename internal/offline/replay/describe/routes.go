package describe

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

// hosts are the virtual hosts of a manager, by their domains.
type hosts struct {
	exact map[string]*host
	wild  []wildcard // suffixes, then prefixes, the longest first
	all   *host
	only  *host // set if the authority does not matter
	list  []*host
}

type wildcard struct {
	prefix, suffix string // one is empty
	host           *host
}

// host is a compiled virtual host.
type host struct {
	routes []route
	// byName has the routes that have names: nil for a name that is not unique.
	byName map[string]*route
	fold   bool // the case does not matter to a path matcher
}

// route is a compiled route.
type route struct {
	path      pathMatcher
	headers   []matcher
	query     []matcher
	grpc      *matcher
	never     *unreported // a condition that no log reports: only its name finds the route
	fraction  *unreported
	plain     bool // the path alone decides
	questions []question
}

type pathMatcher struct {
	kind  envoyfile.PathKind
	text  []byte
	fold  bool
	regex *regexp.Regexp
}

func (d *Describer) manager(in *envoyfile.Manager) *manager {
	m := &manager{port: in.Port, ignoreSemi: in.Routes.IgnoreParameters, ignorePort: in.Routes.IgnorePort, hosts: hosts{exact: make(map[string]*host)}}
	for _, v := range in.Routes.Hosts {
		h := d.host(in, v)
		m.hosts.list = append(m.hosts.list, h)
		for _, name := range v.Domains {
			switch {
			case name == "*":
				m.hosts.all = h
			case strings.HasPrefix(name, "*"):
				m.hosts.wild = append(m.hosts.wild, wildcard{"", name[1:], h})
			case strings.HasSuffix(name, "*"):
				m.hosts.wild = append(m.hosts.wild, wildcard{name[:len(name)-1], "", h})
			default:
				m.hosts.exact[name] = h
			}
		}
	}
	slices.SortStableFunc(m.hosts.wild, func(a, b wildcard) int {
		return cmp.Or(cmp.Compare(len(b.suffix), len(a.suffix)), cmp.Compare(len(b.prefix), len(a.prefix)))
	})
	if m.hosts.all != nil && len(m.hosts.exact)+len(m.hosts.wild) == 0 {
		m.hosts.only = m.hosts.all
	} else {
		a := accesslog.Authority
		if in.Routes.HostHeader != "" {
			a = accesslog.Header(in.Routes.HostHeader)
		}
		m.authority = d.look(a, in.Routes.Location, "The virtual host was taken whose domain is *, if there is one.")
	}
	// A route that rewrites leaves the original path in another header, which PATH(NQ) prefers.
	// Without such routes that header is the client's own.
	m.path = d.at.pathOnly
	if !slices.ContainsFunc(in.Routes.Hosts, func(v *envoyfile.VirtualHost) bool {
		return slices.ContainsFunc(v.Routes, func(r *envoyfile.Route) bool { return r.Rewrites })
	}) {
		m.path = d.want(accesslog.Path)
	}
	m.pathOnly = d.look(accesslog.PathOnly, in.Routes.Location, "Requests had no route, so nothing was asked.")
	d.later(m, in)
	return m
}

// later prepares for a host that Envoy rewrites after it has chosen the route: the log has the later one.
func (d *Describer) later(m *manager, in *envoyfile.Manager) {
	if m.hosts.only != nil || in.Routes.HostHeader != "" {
		return
	}
	for _, v := range in.Routes.Hosts {
		if i := slices.IndexFunc(v.Routes, func(r *envoyfile.Route) bool { return r.RewritesHost }); i >= 0 && m.laterHost == nil {
			m.laterHost = d.look(accesslog.RouteName, v.Routes[i].Location, "Envoy may rewrite the host after it chose the route, so the virtual host was chosen by a later one. Give each route its own name.").none
			d.at.routeName = d.want(accesslog.RouteName)
		}
	}
	m.byName = make(map[string]*route)
	for _, h := range m.hosts.list {
		for name, one := range h.byName {
			if _, twice := m.byName[name]; twice {
				one = nil
			}
			m.byName[name] = one
		}
	}
}

func (d *Describer) host(m *envoyfile.Manager, v *envoyfile.VirtualHost) *host {
	h := &host{routes: make([]route, len(v.Routes)), byName: make(map[string]*route)}
	seen := make(map[string]int)
	for i, in := range v.Routes {
		h.routes[i] = d.route(m, v, in)
		h.fold = h.fold || h.routes[i].path.fold
		h.byName[in.Name] = &h.routes[i]
		seen[in.Name]++
	}
	for name, n := range seen {
		if n > 1 || name == "" {
			h.byName[name] = nil
		} else {
			d.at.routeName = d.want(accesslog.RouteName)
		}
	}
	return h
}

func (d *Describer) route(m *envoyfile.Manager, v *envoyfile.VirtualHost, in *envoyfile.Route) route {
	out := d.match(&in.Match)
	if in.Forwards {
		out.questions = d.questions(m, v, in)
	}
	return out
}

// match compiles the conditions of a route.
func (d *Describer) match(match *envoyfile.Match) route {
	out := route{
		path:    pathMatcher{kind: match.Kind, text: []byte(match.Path), fold: match.Fold},
		headers: d.matchers(match.Headers, true, accesslog.Path, nil), query: d.matchers(match.Query, false, accesslog.Path, nil),
	}
	switch {
	case match.Kind == envoyfile.Regex:
		out.path.regex = full(match.Path)
	case match.Fold:
		out.path.text = bytes.ToLower(out.path.text)
	}
	if match.GRPC {
		list := d.matchers([]envoyfile.Matcher{{Location: match.Location, Name: "content-type", Test: envoyfile.IsRegex, Text: `application/grpc([+].*)?`}}, true, accesslog.Path, nil)
		out.grpc = &list[0]
	}
	if match.Unsupported != "" {
		out.never = d.look(accesslog.RouteName, match.Location, "No log says whether "+match.Unsupported+" matches, so no request took this route.").none
	}
	if match.Fraction {
		out.fraction = d.missing("", match.Location, "runtime_fraction: every request took this route that otherwise matched.")
	}
	out.plain = len(out.headers)+len(out.query) == 0 && out.grpc == nil && out.fraction == nil
	return out
}

// full compiles a regular expression that must match the whole text. It was checked before.
func full(text string) *regexp.Regexp {
	re, err := envoyfile.WholeText(text)
	if err != nil {
		panic(err)
	}
	return re
}

// takes reports whether the path matcher takes a path. lower is the path in lower case.
func (p *pathMatcher) takes(path, lower []byte) bool {
	if p.fold {
		path = lower
	}
	switch p.kind {
	case envoyfile.Prefix:
		return bytes.HasPrefix(path, p.text)
	case envoyfile.Exact:
		return bytes.Equal(path, p.text)
	case envoyfile.SeparatedPrefix:
		rest, ok := bytes.CutPrefix(path, p.text)
		return ok && (len(rest) == 0 || rest[0] == '/')
	case envoyfile.Regex:
		return p.regex.Match(path)
	default:
		return p.kind == envoyfile.AnyPath
	}
}

// route returns the route of a request, or nil.
func (m *manager) route(d *Describer, r *accesslog.Record) *route {
	if m.laterHost != nil {
		if named := m.byName[string(r.Values[d.at.routeName].Text)]; named != nil {
			return named
		}
		d.count(m.laterHost)
	}
	h := m.host(d, r)
	if h == nil {
		return nil
	}
	if d.at.routeName >= 0 {
		if named := h.byName[string(r.Values[d.at.routeName].Text)]; named != nil {
			return named
		}
	}
	v := r.Values[m.path]
	if v.State != accesslog.Present {
		v = m.pathOnly.of(d, r)
	}
	if v.State != accesslog.Present {
		return nil
	}
	path := withoutQuery(v.Text)
	if m.ignoreSemi {
		if i := bytes.IndexByte(path, ';'); i >= 0 {
			path = path[:i]
		}
	}
	lower := path
	if h.fold {
		lower = bytes.ToLower(path)
	}
	for i := range h.routes {
		switch one := &h.routes[i]; {
		// No path matches a matcher that is not supported: its requests are only counted.
		case one.path.kind != envoyfile.Unknown && !one.path.takes(path, lower):
		case one.never != nil:
			d.count(one.never)
		case one.plain || one.conditions(d, r):
			return one
		}
	}
	return nil
}

// withoutQuery returns a path without its query and fragment.
func withoutQuery(path []byte) []byte {
	for i, c := range path {
		if c == '?' || c == '#' {
			return path[:i]
		}
	}
	return path
}

// conditions reports whether the conditions other than the path hold.
func (one *route) conditions(d *Describer, r *accesslog.Record) bool {
	for i := range one.headers {
		if !one.headers[i].matchesRecord(d, r) {
			return false
		}
	}
	if one.grpc != nil && !one.grpc.matchesRecord(d, r) {
		return false
	}
	for i := range one.query {
		if !one.query[i].matchesQuery(d, r, false) {
			return false
		}
	}
	if one.fraction != nil {
		d.count(one.fraction)
	}
	return true
}

// host returns the virtual host of a request, or nil.
func (m *manager) host(d *Describer, r *accesslog.Record) *host {
	if m.hosts.only != nil {
		return m.hosts.only
	}
	v := m.authority.of(d, r)
	if v.State != accesslog.Present {
		return m.hosts.all
	}
	name := v.Text
	if m.ignorePort {
		if i := bytes.LastIndexByte(name, ':'); i >= 0 && bytes.IndexByte(name[i:], ']') < 0 {
			name = name[:i]
		}
	}
	lower := string(bytes.ToLower(name))
	if h := m.hosts.exact[lower]; h != nil {
		return h
	}
	for _, w := range m.hosts.wild {
		if len(lower) > len(w.prefix)+len(w.suffix) && strings.HasPrefix(lower, w.prefix) && strings.HasSuffix(lower, w.suffix) {
			return w.host
		}
	}
	return m.hosts.all
}
