package describe

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/slidegate/slidegate/internal/config/envoyfile"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/replay"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Options say how descriptors are made. Secrets is required.
type Options struct {
	// Secrets knows the entries that hold API keys.
	Secrets *tier.Secrets
	// Domain is that of files without a ratelimit filter.
	Domain string
	// Listener chooses a connection manager by the name of its listener. Empty: the port of the
	// request chooses, if the log has it.
	Listener string
}

// A Describer makes questions. It is not safe for concurrent use.
type Describer struct {
	secrets  *tier.Secrets
	wants    []accesslog.Attribute
	managers []*manager
	mapped   []question // of a mapping file
	isMap    bool
	isText   bool // Envoy writes text, not JSON
	port     int  // index of the attribute, -1: there is one manager
	noPort   *untold
	common   common
	untold   []*untold
	domains  []string // of the questions
	cluster  string   // of the sources of requests
	request  uint64   // the number of the current one

	buffer []byte
	// The memory of the questions of the current request.
	memory  []byte
	entries []descriptors.Entry
	list    []policy.Descriptor
}

var _ replay.Describer = (*Describer)(nil)

// common are indexes of attributes that do not belong to one action.
type common struct {
	details, flags, pathOnly int
	// These are -1 if nothing needs them.
	subject, authSubject, keyDigest, reason, routeName, internal int
}

// manager is a compiled connection manager.
type manager struct {
	port       int
	hosts      hosts
	hostHeader int // index of the attribute that selects the host
	path       int // index of the attribute that selects the route
	noHost     *untold
	noPath     *untold
	// laterHost is set if the log may have a later host than that which chose the virtual host.
	// Then byName has the routes by their names, nil for a name that is not unique.
	laterHost  *untold
	byName     map[string]*route
	ignoreSemi bool
	ignorePort bool
}

// New compiles Envoy's configuration. The error says what cannot be replayed.
func New(c *envoyfile.Config, o Options) (*Describer, error) {
	d := newDescriber(o)
	d.cluster = c.Cluster
	d.isText = len(c.Logs) > 0 && !slices.ContainsFunc(c.Logs, func(w accesslog.Written) bool { return len(w.Fields) > 0 })
	managers, err := chosen(c, o)
	if err != nil {
		return nil, err
	}
	for _, m := range managers {
		d.managers = append(d.managers, d.manager(m))
	}
	if len(managers) > 1 {
		d.port = d.want(accesslog.LocalPort)
		d.noPort = d.missing(accesslog.LocalPort, managers[0].Place,
			fmt.Sprintf("All requests were taken as those of the listener %q.", managers[0].Listener), "port")
	}
	return d, nil
}

// NewMap compiles a mapping file.
func NewMap(m *envoyfile.Map, o Options) *Describer {
	d := newDescriber(o)
	d.isMap, d.domains, d.common.reason = true, []string{m.Domain}, d.want(accesslog.Reason)
	ask, end := question{domain: m.Domain}, question{domain: m.Domain, atEnd: true}
	for _, l := range m.Limits {
		if l.AtEnd {
			end.limits = append(end.limits, d.limit(l, &envoyfile.Route{}, nil))
		} else {
			ask.limits = append(ask.limits, d.limit(l, &envoyfile.Route{}, nil))
		}
	}
	d.mapped = []question{ask, end}
	return d
}

func newDescriber(o Options) *Describer {
	d := &Describer{secrets: o.Secrets, port: -1}
	d.common = common{
		details: d.want(accesslog.Details), flags: d.want(accesslog.Flags), pathOnly: d.want(accesslog.PathOnly),
		subject: -1, authSubject: -1, keyDigest: -1, reason: -1, routeName: -1, internal: -1,
	}
	return d
}

// chosen returns the managers whose requests are described.
func chosen(c *envoyfile.Config, o Options) (managers []*envoyfile.Manager, err error) {
	filters := 0
	for _, m := range c.Managers {
		filters += len(m.Filters)
		if o.Listener == "" || m.Listener == o.Listener {
			managers = append(managers, m)
		}
	}
	alone := len(c.Managers) > 0 && !slices.ContainsFunc(c.Managers, func(m *envoyfile.Manager) bool {
		return m.Listener != "" || len(m.Filters) > 0 || m.Place != m.Routes.Place
	})
	switch {
	case len(managers) == 0 && o.Listener != "":
		return nil, fmt.Errorf("the configuration has no listener %q", o.Listener)
	case filters == 0 && len(c.Checks) > 0:
		return nil, fmt.Errorf("%s: rls takes these limits within the authorization (ext_authz), so Envoy's configuration makes no descriptors: write them into a mapping file", c.Checks[0])
	case filters == 0 && alone && o.Domain == "":
		return nil, fmt.Errorf("%s: the file has no ratelimit filter, which has the domain: name the domain, or give the bootstrap", managers[0].Place)
	case filters == 0 && alone:
		for _, m := range managers {
			m.Filters = []*envoyfile.Filter{{Place: m.Place, Name: "envoy.filters.http.ratelimit", Domain: o.Domain}}
		}
	case filters == 0:
		return nil, fmt.Errorf("%s: no connection manager has a ratelimit filter, so Envoy asks nothing", c.Managers[0].Place)
	}
	if o.Listener == "" && len(managers) > 1 {
		// A manager with a filter first: it counts if the log has no port.
		slices.SortStableFunc(managers, func(a, b *envoyfile.Manager) int { return min(1, len(b.Filters)) - min(1, len(a.Filters)) })
	}
	return managers, nil
}

// want returns the index of an attribute among the values of records.
func (d *Describer) want(a accesslog.Attribute) int {
	if i := slices.Index(d.wants, a); i >= 0 {
		return i
	}
	d.wants = append(d.wants, a)
	return len(d.wants) - 1
}

// Wants returns the attributes that Describe reads.
func (d *Describer) Wants() []accesslog.Attribute { return d.wants }

// Domains returns the domains in which questions are asked.
func (d *Describer) Domains() []string { return d.domains }

// untold counts the requests for which something was not known.
type untold struct {
	replay.Untold
	last uint64 // the request that was counted last
}

// missing returns the counter for an attribute that a log does not have. name is a name for it in a
// log; empty: it must not be logged.
func (d *Describer) missing(a accesslog.Attribute, at envoyfile.Place, effect, name string) *untold {
	switch {
	case name == "":
	case d.isMap:
		effect += " If the log has it, say where: in fields for JSON, with --format for text."
	case d.isText:
		effect += fmt.Sprintf(" To tell it, write %s into the text format of the log.", a.String())
	default:
		effect += fmt.Sprintf(" To tell it, add %q: %q to json_format.", name, a.String())
	}
	for _, u := range d.untold {
		if u.Attribute == a && u.Effect == effect {
			return u
		}
	}
	u := &untold{Untold: replay.Untold{Attribute: a, Place: at.String(), Effect: effect}}
	d.untold = append(d.untold, u)
	return u
}

func (d *Describer) count(u *untold) {
	if u.last != d.request {
		u.last = d.request
		u.Requests++
	}
}

// Untold returns what the logs did not tell so far.
func (d *Describer) Untold() []replay.Untold {
	var list []replay.Untold
	for _, u := range d.untold {
		if u.Requests > 0 {
			list = append(list, u.Untold)
		}
	}
	return list
}

// nameOf suggests a name for an attribute in a log.
func nameOf(a accesslog.Attribute) string {
	if name := accesslog.NameOf(a); name != "" {
		return name
	}
	_, argument, found := strings.Cut(strings.TrimSuffix(string(a), ")"), "(")
	if !found || strings.HasPrefix(string(a), "CEL(") {
		argument, _, _ = strings.Cut(string(a), "(")
	}
	argument = argument[strings.LastIndexByte(argument, ':')+1:]
	argument = strings.TrimPrefix(strings.ToLower(argument), "x-")
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			return c
		}
		return '_'
	}, argument)
}

// Describe appends the questions that Envoy asks about a request. They are valid until the next
// call.
func (d *Describer) Describe(dst []replay.Question, r *accesslog.Record) []replay.Question {
	d.request++
	d.memory, d.entries, d.list = d.memory[:0], d.entries[:0], d.list[:0]
	if d.isMap {
		return d.ask(dst, d.mapped, r)
	}
	m := d.choose(r)
	route := m.route(d, r)
	if route == nil {
		return dst
	}
	return d.ask(dst, route.questions, r)
}

// text copies a text to where it stays until the next request.
func (d *Describer) text(b []byte) string {
	from := len(d.memory)
	d.memory = append(d.memory, b...)
	return d.written(from)
}

// written returns what was appended to the memory, as a text that is valid until the next request.
// If the memory moves, the text stays where it is.
func (d *Describer) written(from int) string {
	return unsafe.String(unsafe.SliceData(d.memory[from:]), len(d.memory)-from) //nolint:gosec // nothing writes there before the next request
}

// ask appends questions of a route.
func (d *Describer) ask(dst []replay.Question, questions []question, r *accesslog.Record) []replay.Question {
	for i := range questions {
		q := &questions[i]
		if q.unasked(d, r) || d.isMap && d.refused(r) {
			continue
		}
		before, subject := len(d.list), ""
		for j := range q.limits {
			d.describe(&q.limits[j], r, &subject)
		}
		if len(d.list) > before {
			dst = append(dst, replay.Question{Domain: q.domain, Descriptors: d.list[before:len(d.list):len(d.list)], Subject: subject, AtEnd: q.atEnd})
		}
	}
	return dst
}

// choose returns the manager of a request.
func (d *Describer) choose(r *accesslog.Record) *manager {
	if d.port < 0 {
		return d.managers[0]
	}
	v := &r.Values[d.port]
	if v.State != accesslog.Present {
		d.count(d.noPort)
		return d.managers[0]
	}
	port := 0
	for _, c := range v.Text {
		if c < '0' || c > '9' || port > 1<<16 {
			return d.managers[0]
		}
		port = port*10 + int(c-'0')
	}
	for _, m := range d.managers {
		if m.port == port {
			return m
		}
	}
	return d.managers[0]
}
