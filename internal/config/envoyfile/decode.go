package envoyfile

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
)

// at returns the place of a spot in the current file.
func (r *reader) at(s strict.Spot) Place { return Place{r.d.File, s.Line} }

func (r *reader) manager(a *anything, at place) {
	var m manager
	a.into(r.d, &m)
	out := &Manager{Place: r.at(a.Spot), Listener: at.listener, Port: at.port}
	r.config.Managers = append(r.config.Managers, out)
	switch {
	case m.RouteConfig.Set:
		out.Routes = r.routes(&m.RouteConfig.Value)
	case m.RDS.Set:
		r.waiting = append(r.waiting, waiting{out, m.RDS.Value.Name.Value, m.RDS.Value.Name.OrElse(m.RDS.Spot), r.d})
	case m.Scoped.Set:
		r.d.Problem(m.Scoped.Spot, "scoped routes are not supported: give the route configuration alone, in a file of its own")
	default:
		r.d.Problem(a.Spot, "the connection manager has no route_config and no rds: add the routes")
	}
	r.logs(m.Logs)
	var before []string
	for i := range m.Filters.Value {
		f := &m.Filters.Value[i].Value
		if f.Config.Value.typ == typeFilter {
			if limits := r.filter(f); limits != nil {
				limits.Before = slices.Clone(before)
				out.Filters = append(out.Filters, limits)
			}
		} else if f.Config.Value.mentions(typeFilter) || f.Discovery.Value.mentions(typeFilter) {
			r.d.Problem(m.Filters.Value[i].Spot, "a ratelimit filter within another filter, or from a discovery service, is not supported: list it in http_filters, with its typed_config")
		}
		kind, _, _ := strings.Cut(f.Config.Value.typ, ".")
		before = append(before, kind)
	}
}

func (r *reader) filter(f *httpFilter) *Filter {
	var l limitFilter
	f.Config.Value.into(r.d, &l)
	out := &Filter{Place: r.at(f.Config.Spot), Name: f.Name, Domain: l.Domain.Value, Stage: l.Stage.Value, Off: f.Disabled}
	switch l.RequestType.Value {
	case "", "both":
	case "internal":
		out.Requests = InternalRequest
	case "external":
		out.Requests = ExternalRequest
	default:
		r.d.Problem(l.RequestType.Spot, "%s", strict.NotOneOf(l.RequestType.Value, []string{"internal", "external", "both"}))
	}
	out.Limits = r.limits(l.Limits)
	if never(&l.Enabled) {
		return nil
	}
	return out
}

func (r *reader) routes(a *anything) *Routes {
	var c routes
	a.into(r.d, &c)
	out := &Routes{
		Place: r.at(a.Spot), Name: c.Name, HostHeader: strings.ToLower(c.HostHeader), IgnorePort: c.IgnorePort, IgnoreParameters: c.IgnoreParameters,
		PerFilter: r.perFilter(c.PerFilter), Changed: changed(c.Remove, c.Add),
	}
	if c.VHDS.Set {
		r.d.Problem(c.VHDS.Spot, "virtual hosts from a management server are not supported: give a dump of Envoy's /config_dump with them")
	}
	for i := range c.Hosts {
		out.Hosts = append(out.Hosts, r.host(&c.Hosts[i]))
	}
	return out
}

// changed returns the names of headers that are removed or added, in lower case.
func changed(remove []string, add []headerOption) (names []string) {
	for _, n := range remove {
		names = append(names, strings.ToLower(n))
	}
	for _, h := range add {
		names = append(names, strings.ToLower(h.Header.Key))
	}
	return names
}

func (r *reader) host(f *strict.Field[virtualHost]) *VirtualHost {
	h := &f.Value
	out := &VirtualHost{Place: r.at(f.Spot), Name: h.Name, Limits: r.limits(h.Limits), PerFilter: r.perFilter(h.PerFilter), Changed: changed(h.Remove, h.Add)}
	for i := range h.Domains.Value {
		d := h.Domains.Value[i]
		if n := strings.Count(d.Value, "*"); n > 1 || n == 1 && d.Value[0] != '*' && d.Value[len(d.Value)-1] != '*' {
			r.d.Problem(d.Spot, "%s has its * at a place where Envoy accepts none: it begins or ends with it", strict.Quote(d.Value))
		}
		out.Domains = append(out.Domains, strings.ToLower(d.Value))
	}
	if h.Matcher.Set {
		r.d.Problem(h.Matcher.Spot, "a matcher in place of routes is not supported: list the routes")
	}
	for i := range h.Routes {
		out.Routes = append(out.Routes, r.route(&h.Routes[i]))
	}
	return out
}

func (r *reader) route(f *strict.Field[route]) *Route {
	in := &f.Value
	action := &in.Route.Value
	out := &Route{
		Place: r.at(f.Spot), Name: in.Name, Match: r.match(&in.Match), Forwards: in.Route.Set,
		Cluster: action.Cluster.Value, Limits: r.limits(action.Limits), IncludeVH: action.IncludeVH,
		PerFilter: r.perFilter(in.PerFilter), Changed: changed(in.Remove, in.Add),
		Rewrites: action.Prefix.Set || action.Regex.Set || action.Policy.Set || action.Path.Set, RewritesHost: action.rewritesHost(),
	}
	if out.RewritesHost {
		out.Changed = append(out.Changed, ":authority", "host")
	}
	for _, c := range action.Weighted.Value.Clusters {
		for _, e := range c.Value.PerFilter {
			if t := e.Value.Value.typ; t == typePerRoute || t == typeFilterConfig {
				r.d.Problem(e.Spot, "limits of one of several weighted clusters are not supported: move them to the route")
			}
		}
	}
	for _, e := range in.Metadata.Value.Filters {
		if out.Metadata == nil {
			out.Metadata = make(map[string]any)
		}
		values, fits := r.d.JSONMapping(e.Value.Value.node, e.Value.Value.path, maxMetadata, maxMetadata)
		if !fits {
			r.d.Problem(e.Spot, "the metadata has more than %d values or bytes", maxMetadata)
		}
		out.Metadata[e.Key] = values
	}
	return out
}

// maxMetadata bounds the metadata of a route, in values and in bytes.
const maxMetadata = 1 << 20

// perFilter reads the settings of a route for ratelimit filters, by their names.
func (r *reader) perFilter(in strict.Ordered[strict.Field[anything]]) map[string]*PerRoute {
	out := make(map[string]*PerRoute)
	for i := range in {
		e := &in[i]
		a, off, empty := &e.Value.Value, false, false
		if a.typ == typeFilterConfig {
			var c filterConfig
			a.into(r.d, &c)
			off, empty = c.Disabled, c.Config.Value.typ != typePerRoute
			a = &c.Config.Value
		}
		switch {
		case a.typ == typePerRoute:
			p := r.perRoute(a)
			p.Off = off
			out[e.Key] = p
		case empty:
			out[e.Key] = &PerRoute{Place: r.at(e.Spot), Off: off, Empty: true}
		case a.typ == typeCheckRoute:
			r.check(a)
		}
	}
	return out
}

func (r *reader) perRoute(a *anything) *PerRoute {
	var p perRoute
	a.into(r.d, &p)
	out := &PerRoute{Place: r.at(a.Spot), Domain: p.Domain, Limits: r.limits(p.Limits)}
	out.VH = VH(r.enum(&p.VH, []string{"OVERRIDE", "INCLUDE", "IGNORE"}))
	for i, l := range p.Limits {
		if l.Value.Stage.Value != 0 || l.Value.DisableKey != "" {
			r.d.Problem(p.Limits[i].Spot, "Envoy does not accept stage and disable_key here: remove them, or move the list below route")
		}
	}
	return out
}

// check notes the descriptors of rls's own authorization.
func (r *reader) check(a *anything) {
	var c check
	a.into(r.d, &c)
	for _, e := range c.Settings.Context {
		if e.Key == "descriptors" && e.Value != "" {
			r.config.Checks = append(r.config.Checks, r.at(e.Spot))
		}
	}
}

func (r *reader) match(f *strict.Field[match]) Match {
	m := &f.Value
	out := Match{Place: r.at(f.Spot), GRPC: m.GRPC.Set, Share: m.Fraction.Set && !never(&m.Fraction)}
	fold := strict.Given(&m.CaseSensitive) && !m.CaseSensitive.Value
	paths := 0
	path := func(set bool, kind PathKind, text string, folds bool) {
		if set {
			paths++
			out.Kind, out.Path, out.Fold = kind, text, folds
		}
	}
	path(m.Prefix.Set, Prefix, string(m.Prefix.Value), fold)
	path(m.Path.Set, Exact, m.Path.Value, fold)
	path(m.Separated.Set, SeparatedPrefix, m.Separated.Value, fold)
	path(m.Regex.Set, Regex, m.Regex.Value.Regex.Value, false)
	path(m.Connect.Set, Unknown, "connect_matcher", false)
	path(m.Policy.Set, Unknown, "path_match_policy", false)
	if paths != 1 && strict.Given(f) {
		r.d.Problem(f.Spot, "expected one of prefix, path, safe_regex, path_separated_prefix, connect_matcher and path_match_policy")
	}
	r.regex(&m.Regex)
	for _, u := range []struct {
		set  bool
		name string
	}{
		{out.Kind == Unknown, out.Path},
		{m.Cookies.Set, "cookies"},
		{m.TLS.Set, "tls_context"},
		{m.DynamicMetadata.Set, "dynamic_metadata"},
		{m.FilterState.Set, "filter_state"},
		{never(&m.Fraction), "runtime_fraction 0"},
	} {
		if u.set {
			out.Unsupported = u.name
		}
	}
	out.Headers, out.Query = r.headers(m.Headers), r.queries(m.Query)
	return out
}

// regex reports a regular expression that RE2 does not accept.
func (r *reader) regex(f *strict.Field[regex]) {
	if f.Set && !f.Bad {
		if _, err := WholeText(f.Value.Regex.Value); err != nil {
			r.d.Problem(f.Value.Regex.Spot, "not a regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
}

// WholeText compiles a regular expression that must match a whole text.
func WholeText(text string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(text); err != nil {
		return nil, err // the brackets below could make it valid
	}
	re, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return regexp.Compile("^(?:" + text + `\E)$`) // \Q quotes the rest of the text
	}
	return re, nil
}

func (r *reader) headers(list []strict.Field[headerMatcher]) (out []Matcher) {
	for i := range list {
		f := &list[i]
		h := &f.Value
		m := Matcher{Place: r.at(f.Spot), Name: strings.ToLower(h.Name.Value), Present: true, Invert: h.Invert, Empty: h.Empty}
		n := 0
		text := func(set bool, test Test, value string) {
			if set {
				n++
				m.Test, m.Text = test, value
			}
		}
		text(h.Exact.Set, IsExact, string(h.Exact.Value))
		text(h.Prefix.Set, HasPrefix, h.Prefix.Value)
		text(h.Suffix.Set, HasSuffix, h.Suffix.Value)
		text(h.Contains.Set, Contains, h.Contains.Value)
		text(h.Regex.Set, IsRegex, h.Regex.Value.Regex.Value)
		text(h.Range.Set, InRange, "")
		text(h.Present.Set, IsPresent, "")
		if h.Present.Set {
			m.Present = h.Present.Value
		}
		m.Start, m.End = int64(h.Range.Value.Start.Value), int64(h.Range.Value.End.Value)
		r.regex(&h.Regex)
		if h.Text.Set {
			n++
			r.text(&h.Text, &m)
		}
		if n > 1 {
			r.d.Problem(f.Spot, "a matcher has one test: %d are set", n)
		}
		out = append(out, m)
	}
	return out
}

func (r *reader) queries(list []strict.Field[queryMatcher]) (out []Matcher) {
	for i := range list {
		f := &list[i]
		m := Matcher{Place: r.at(f.Spot), Name: f.Value.Name.Value, Present: true}
		switch {
		case f.Value.Text.Set && f.Value.Present.Set:
			r.d.Problem(f.Spot, "a matcher has one test: 2 are set")
		case f.Value.Text.Set:
			r.text(&f.Value.Text, &m)
		case f.Value.Present.Set:
			m.Present = f.Value.Present.Value
		}
		out = append(out, m)
	}
	return out
}

// text reads a matcher of texts.
func (r *reader) text(f *strict.Field[stringMatcher], m *Matcher) {
	s := &f.Value
	n := 0
	set := func(set bool, test Test, value string) {
		if set {
			n++
			m.Test, m.Text, m.Fold = test, value, s.Fold
		}
	}
	set(s.Exact.Set, IsExact, string(s.Exact.Value))
	set(s.Prefix.Set, HasPrefix, s.Prefix.Value)
	set(s.Suffix.Set, HasSuffix, s.Suffix.Value)
	set(s.Contains.Set, Contains, s.Contains.Value)
	set(s.Regex.Set, IsRegex, s.Regex.Value.Regex.Value)
	r.regex(&s.Regex)
	if m.Test == IsRegex {
		m.Fold = false
	}
	switch {
	case s.Custom.Set:
		r.d.Problem(s.Custom.Spot, "a custom matcher is not supported: use exact, prefix, suffix, contains or safe_regex")
	case n != 1 && !f.Bad:
		r.d.Problem(f.Spot, "expected one of exact, prefix, suffix, contains and safe_regex")
	}
}

// metadataAttribute returns the attribute of dynamic metadata.
func metadataAttribute(k *metadataKey) accesslog.Attribute {
	return accesslog.Metadata(k.Key, pathOf(k)...)
}

func pathOf(k *metadataKey) (path []string) {
	for _, s := range k.Path {
		path = append(path, s.Key)
	}
	return path
}

// oneOf reports a problem unless one of the named fields is set.
func (r *reader) oneOf(s strict.Spot, names []string, set []bool) (which int) {
	which, n := -1, 0
	for i := range set {
		if set[i] {
			which = i
			n++
		}
	}
	switch {
	case n == 0:
		r.d.Problem(s, "expected one of %s", strings.Join(names, ", "))
	case n > 1:
		r.d.Problem(s, "expected one of %s, got %d of them", strings.Join(names, ", "), n)
		which = -1
	}
	return which
}

// format reads a format of access logs.
func (r *reader) format(s strict.Spot, text string) []Part {
	parts, err := Parse(text)
	if err != nil {
		r.d.Problem(s, "%v", err)
	}
	return parts
}

// enum returns the number of an enum's value, 0 if it is not set or wrong. Envoy reads the number, and
// the name in any case.
func (r *reader) enum(f *strict.Field[string], names []string) int {
	if !strict.Given(f) {
		return 0
	}
	n := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, f.Value) })
	if number, err := strconv.Atoi(f.Value); err == nil && number >= 0 && number < len(names) {
		n = number
	}
	if n < 0 {
		r.d.Problem(f.Spot, "%s", strict.NotOneOf(f.Value, names))
	}
	return max(n, 0)
}

func bits(r *reader, f *strict.Field[uint64], most int) int {
	if !strict.Given(f) {
		return most
	}
	if f.Value > uint64(most) {
		r.d.Problem(f.Spot, "expected a number from 0 to %d", most)
		return most
	}
	return int(f.Value)
}
