package envoyfile

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// at returns the location of a position in the current file.
func (r *reader) at(s strict.Position) Location { return Location{r.d.File, s.Line} }

func (r *reader) manager(v value, at scope) {
	m := r.object(v)
	out := &Manager{Location: r.at(v.Position), Listener: at.listener, Port: at.port}
	r.config.Managers = append(r.config.Managers, out)
	routes, rds, scoped := m.get("route_config"), m.get("rds"), m.get("scoped_routes")
	switch {
	case routes.set():
		out.Routes = r.routes(routes)
	case rds.set():
		if name := r.object(rds).need("route_config_name"); name.set() {
			r.waiting = append(r.waiting, waiting{out, r.text(name), name.Position, r.d})
		}
	case scoped.set():
		r.d.Problem(scoped.Position, "scoped routes are not supported: give the route configuration alone, in a separate file")
	default:
		r.d.Problem(v.Position, "the connection manager has no route_config and no rds: add the routes")
	}
	r.logs(r.list(m.get("access_log")))
	var before []string
	for _, item := range r.list(m.get("http_filters")) {
		f := r.object(item)
		typedConfig, discovery := f.get("typed_config"), f.get("config_discovery")
		config, typ := r.typed(typedConfig)
		if typ == typeFilter {
			if limits := r.filter(f, config); limits != nil {
				limits.Before = slices.Clone(before)
				out.Filters = append(out.Filters, limits)
			}
		} else if typedConfig.mentionsFilter() || discovery.mentionsFilter() {
			r.d.Problem(item.Position, "a ratelimit filter within another filter, or from a discovery service, is not supported: list it in http_filters, with its typed_config")
		}
		kind, _, _ := strings.Cut(typ, ".")
		before = append(before, kind)
	}
}

func (r *reader) filter(f *object, config value) *Filter {
	l := r.object(config)
	out := &Filter{
		Location: r.at(config.Position), Name: f.text("name"), Domain: r.text(l.need("domain")), Stage: l.number("stage", maxStage, 0),
		Requests: RequestType(l.enum("request_type", "both", "internal", "external")), Limits: r.limits(l), Off: f.flag("disabled", false),
	}
	if r.never(l.get("filter_enabled")) {
		return nil
	}
	return out
}

// never reports whether no request is among a fraction, as far as the file says.
func (r *reader) never(fraction value) bool {
	is := r.object(r.object(fraction).get("default_value"))
	return is.set() && is.number("numerator", math.MaxUint32, 0) == 0
}

func (r *reader) routes(v value) *Routes {
	c := r.object(v)
	out := &Routes{
		Location: r.at(v.Position), Name: c.text("name"), HostHeader: strings.ToLower(c.text("vhost_header")),
		IgnorePort: c.flag("ignore_port_in_host_matching", false), IgnoreParameters: c.flag("ignore_path_parameters_in_path_matching", false),
		PerFilter: r.perFilter(c), Changed: c.changed(),
	}
	if vhds := c.get("vhds"); vhds.set() {
		r.d.Problem(vhds.Position, "virtual hosts from an xDS server are not supported: give a dump of Envoy's /config_dump with them")
	}
	for _, h := range r.list(c.get("virtual_hosts")) {
		out.Hosts = append(out.Hosts, r.host(h))
	}
	return out
}

// changed returns the names of headers that are removed or added, in lower case.
func (o *object) changed() (names []string) {
	for _, n := range o.r.list(o.get("request_headers_to_remove")) {
		names = append(names, strings.ToLower(o.r.text(n)))
	}
	for _, h := range o.r.list(o.get("request_headers_to_add")) {
		names = append(names, strings.ToLower(o.r.object(o.r.object(h).get("header")).text("key")))
	}
	return names
}

func (r *reader) host(v value) *VirtualHost {
	h := r.object(v)
	out := &VirtualHost{Location: r.at(v.Position), Name: h.text("name"), Limits: r.limits(h), PerFilter: r.perFilter(h), Changed: h.changed()}
	for _, domain := range r.list(h.need("domains")) {
		d := r.text(domain)
		if n := strings.Count(d, "*"); n > 1 || n == 1 && d[0] != '*' && d[len(d)-1] != '*' {
			r.d.Problem(domain.Position, "%s has its * where Envoy accepts none: it begins or ends with it", strict.Quote(d))
		}
		out.Domains = append(out.Domains, strings.ToLower(d))
	}
	if m := h.get("matcher"); m.set() {
		r.d.Problem(m.Position, "a matcher in place of routes is not supported: list the routes")
	}
	for _, one := range r.list(h.get("routes")) {
		out.Routes = append(out.Routes, r.route(one))
	}
	return out
}

func (r *reader) route(v value) *Route {
	in := r.object(v)
	action := r.object(in.get("route"))
	out := &Route{
		Location: r.at(v.Position), Name: in.text("name"), Match: r.match(in.need("match")), Forwards: action.set(),
		Cluster: action.text("cluster"), Limits: r.limits(action), IncludeVH: action.flag("include_vh_rate_limits", false),
		PerFilter: r.perFilter(in), Changed: in.changed(),
		Rewrites: action.has("prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "path_rewrite"),
		RewritesHost: action.flag("auto_host_rewrite", false) ||
			action.has("host_rewrite", "host_rewrite_literal", "host_rewrite_header", "host_rewrite_path_regex"),
	}
	if out.RewritesHost {
		out.Changed = append(out.Changed, ":authority", "host")
	}
	for _, c := range r.list(r.object(action.get("weighted_clusters")).get("clusters")) {
		for _, e := range r.entries(r.object(c).get("typed_per_filter_config")) {
			if _, t := r.typed(e.value); t == typePerRoute || t == typeFilterConfig {
				r.d.Problem(e.Position, "limits of one of several weighted clusters are not supported: move them to the route")
			}
		}
	}
	for _, e := range r.entries(r.object(in.get("metadata")).get("filter_metadata")) {
		if !e.set() {
			continue
		}
		if out.Metadata == nil {
			out.Metadata = make(map[string]any)
		}
		values, fits := r.d.JSONMapping(e.node, e.Path, maxMetadata, maxMetadata)
		if !fits {
			r.d.Problem(e.Position, "the metadata has more than %d values or bytes", maxMetadata)
		}
		out.Metadata[e.key] = values
	}
	return out
}

// maxMetadata bounds the metadata of a route, in values and in bytes.
const maxMetadata = 1 << 20

// perFilter reads the settings of a route for ratelimit filters, by their names.
func (r *reader) perFilter(o *object) map[string]*PerRoute {
	out := make(map[string]*PerRoute)
	for _, e := range r.entries(o.get("typed_per_filter_config")) {
		config, typ := r.typed(e.value)
		off, empty := false, false
		if typ == typeFilterConfig {
			c := r.object(config)
			off = c.flag("disabled", false)
			config, typ = r.typed(c.get("config"))
			empty = typ != typePerRoute
		}
		switch {
		case typ == typePerRoute:
			out[e.key] = r.perRoute(config)
			out[e.key].Off = off
		case empty:
			out[e.key] = &PerRoute{Location: r.at(e.Position), Off: off, Empty: true}
		case typ == typeCheckRoute:
			r.check(config)
		}
	}
	return out
}

func (r *reader) perRoute(v value) *PerRoute {
	p := r.object(v)
	out := &PerRoute{
		Location: r.at(v.Position), Domain: p.text("domain"), Limits: r.limits(p), VH: VH(p.enum("vh_rate_limits", "OVERRIDE", "INCLUDE", "IGNORE")),
	}
	for i, l := range r.list(p.get("rate_limits")) {
		if out.Limits[i].Stage != 0 || out.Limits[i].DisableKey != "" {
			r.d.Problem(l.Position, "Envoy does not accept stage and disable_key here: remove them, or move the list below route")
		}
	}
	p.get("@type")
	p.get("override_option") // Envoy does not implement it
	p.done()
	return out
}

// check notes the descriptors of rls's own authorization.
func (r *reader) check(v value) {
	for _, e := range r.entries(r.object(r.object(v).get("check_settings")).get("context_extensions")) {
		if e.key == "descriptors" && r.text(e.value) != "" {
			r.config.Checks = append(r.config.Checks, r.at(e.Position))
		}
	}
}

// match reads a match strictly: an unknown condition would change which requests have which limits.
func (r *reader) match(v value) Match {
	m := r.object(v)
	fraction := m.get("runtime_fraction")
	never := r.never(fraction)
	out := Match{
		Location: r.at(v.Position), GRPC: m.has("grpc"), Fraction: fraction.set() && !never,
		Headers: r.headers(r.list(m.get("headers"))), Query: r.queries(r.list(m.get("query_parameters"))),
	}
	fold := !m.flag("case_sensitive", true)
	for _, name := range []string{"cookies", "tls_context", "dynamic_metadata", "filter_state"} {
		if m.has(name) {
			out.Unsupported = name
		}
	}
	if never {
		out.Unsupported = "runtime_fraction 0"
	}
	switch name, path := m.one(1, "prefix", "path", "safe_regex", "path_separated_prefix", "connect_matcher", "path_match_policy"); name {
	case "":
	case "safe_regex":
		out.Kind, out.Path = Regex, r.regex(path)
	case "connect_matcher", "path_match_policy":
		out.Kind, out.Path, out.Unsupported = Unknown, name, cmp.Or(out.Unsupported, name)
	default:
		kinds := map[string]PathKind{"prefix": Prefix, "path": Exact, "path_separated_prefix": SeparatedPrefix}
		out.Kind, out.Path, out.Fold = kinds[name], r.text(path), fold
	}
	m.done()
	return out
}

// regex reads a regular expression.
func (r *reader) regex(v value) string {
	text := r.object(v).need("regex")
	return r.checkRegex(text.Position, r.text(text))
}

// checkRegex reports a regular expression that RE2 does not accept.
func (r *reader) checkRegex(s strict.Position, text string) string {
	if _, err := WholeText(text); err != nil {
		r.d.Problem(s, "not a regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return text
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

// textTests are the tests of matchers that have a text.
var textTests = map[string]Test{"exact": IsExact, "prefix": HasPrefix, "suffix": HasSuffix, "contains": Contains}

var (
	queryTests  = []string{"string_match", "present_match"}
	headerTests = []string{"exact_match", "safe_regex_match", "range_match", "present_match", "prefix_match", "suffix_match", "contains_match", "string_match"}
)

func (r *reader) headers(list []value) (out []Matcher) {
	for _, v := range list {
		h := r.object(v)
		invert, empty := h.flag("invert_match", false), h.flag("treat_missing_header_as_empty", false)
		m := h.matcher(headerTests)
		m.Name, m.Invert, m.Empty = strings.ToLower(m.Name), invert, empty
		out = append(out, m)
	}
	return out
}

func (r *reader) queries(list []value) (out []Matcher) {
	for _, v := range list {
		out = append(out, r.object(v).matcher(queryTests))
	}
	return out
}

// matcher reads a name and one of some tests.
func (o *object) matcher(tests []string) Matcher {
	m := Matcher{Location: o.r.at(o.Position), Name: o.r.text(o.need("name")), Present: true}
	switch name, test := o.one(0, tests...); name {
	case "":
	case "safe_regex_match":
		m.Test, m.Text = IsRegex, o.r.regex(test)
	case "range_match":
		limits := o.r.object(test)
		m.Test, m.Start, m.End = InRange, limits.signed("start"), limits.signed("end")
		limits.done()
	case "present_match":
		m.Present = o.flag(name, true)
	case "string_match":
		o.r.stringMatcher(test, &m)
	default:
		m.Test, m.Text = textTests[strings.TrimSuffix(name, "_match")], o.r.text(test)
	}
	o.done()
	return m
}

// stringMatcher reads a matcher of texts.
func (r *reader) stringMatcher(v value, m *Matcher) {
	s := r.object(v)
	if custom := s.get("custom"); custom.set() {
		r.d.Problem(custom.Position, "a custom matcher is not supported: use exact, prefix, suffix, contains or safe_regex")
		return
	}
	fold := s.flag("ignore_case", false)
	switch name, test := s.one(1, "exact", "prefix", "suffix", "contains", "safe_regex"); name {
	case "":
	case "safe_regex":
		m.Test, m.Text = IsRegex, r.regex(test)
	default:
		m.Test, m.Text, m.Fold = textTests[name], r.text(test), fold
	}
	s.done()
}

// metadataKey reads a path of metadata, which begins with its namespace.
func (r *reader) metadataKey(v value) []string {
	k := r.object(v)
	path := []string{r.text(k.need("key"))}
	for _, one := range r.list(k.need("path")) {
		segment := r.object(one)
		path = append(path, r.text(segment.need("key")))
		segment.done()
	}
	k.done()
	return path
}

// format reads a format of access logs.
func (r *reader) format(s strict.Position, text string) []Part {
	parts, err := Parse(text)
	if err != nil {
		r.d.Problem(s, "%v", err)
	}
	return parts
}
