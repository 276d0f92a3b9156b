package describe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
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
	secrets    *tier.Secrets
	wants      []accesslog.Attribute
	managers   []*manager
	mapped     []question // of a mapping file
	isMap      bool
	port       *lookup // nil: there is one manager
	unreported []*unreported
	domains    []string // of the questions
	cluster    string   // of the sources of requests
	request    uint64   // the number of the current one

	buffer []byte
	at     attributes
	// Of the questions of the current request:
	entries []descriptors.Entry
	list    []decide.Descriptor
}

// attributes are indexes among the values of records. Those that nothing wants are not set, and
// routeName is then -1.
type attributes struct {
	details, flags, pathOnly                           int
	subject, authSubject, keyDigest, reason, routeName int
}

var _ replay.Describer = (*Describer)(nil)

// manager is a compiled connection manager.
type manager struct {
	port      int
	hosts     hosts
	authority lookup // that selects the host
	// The path selects the route: the first of these that the log has.
	path     int // index of an attribute
	pathOnly lookup
	// laterHost is set if the log may have a later host than that which chose the virtual host.
	// Then byName has the routes by their names, nil for a name that is not unique.
	laterHost  *unreported
	byName     map[string]*route
	ignoreSemi bool
	ignorePort bool
}

// New compiles Envoy's configuration. The error says what cannot be replayed.
func New(c *envoyfile.Config, o Options) (*Describer, error) {
	d := newDescriber(o)
	d.cluster = c.Cluster
	managers, err := chosen(c, o)
	if err != nil {
		return nil, err
	}
	for _, m := range managers {
		d.managers = append(d.managers, d.manager(m))
	}
	if len(managers) > 1 {
		port := d.look(accesslog.LocalPort, managers[0].Location, fmt.Sprintf("All requests were taken as those of the listener %q.", managers[0].Listener))
		d.port = &port
	}
	return d, nil
}

// NewMap compiles a mapping file.
func NewMap(m *envoyfile.Map, o Options) *Describer {
	d := newDescriber(o)
	d.isMap, d.domains, d.at.reason = true, []string{m.Domain}, d.want(accesslog.Reason)
	ask, end := d.split(question{domain: m.Domain}, m.Limits, &envoyfile.Route{}, nil)
	d.mapped = []question{ask, end}
	return d
}

func newDescriber(o Options) *Describer {
	d := &Describer{secrets: o.Secrets, at: attributes{routeName: -1}}
	d.at.details, d.at.flags, d.at.pathOnly = d.want(accesslog.Details), d.want(accesslog.Flags), d.want(accesslog.PathOnly)
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
		return m.Listener != "" || len(m.Filters) > 0 || m.Location != m.Routes.Location
	})
	switch {
	case len(managers) == 0 && o.Listener != "":
		return nil, fmt.Errorf("the configuration has no listener %q", o.Listener)
	case filters == 0 && len(c.Checks) > 0:
		return nil, fmt.Errorf("%s: rls takes these limits within the authorization (ext_authz), so Envoy's configuration makes no descriptors: write them into a mapping file", c.Checks[0])
	case filters == 0 && alone && o.Domain == "":
		return nil, fmt.Errorf("%s: the file has no ratelimit filter, which has the domain: name the domain, or give the bootstrap", managers[0].Location)
	case filters == 0 && alone:
		for _, m := range managers {
			m.Filters = []*envoyfile.Filter{{Location: m.Location, Name: "envoy.filters.http.ratelimit", Domain: o.Domain}}
		}
	case filters == 0:
		return nil, fmt.Errorf("%s: no connection manager has a ratelimit filter, so Envoy asks nothing", c.Managers[0].Location)
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

// unreported counts the requests for which something was not known.
type unreported struct {
	replay.Unreported
	last uint64 // the request that was counted last
}

// A lookup finds an attribute in records, and counts the requests of which the log does not report it.
type lookup struct {
	at    int // index of the attribute
	none  *unreported
	later bool // the log has a later value, which does not count
}

// of returns the value that counts.
func (l *lookup) of(d *Describer, r *accesslog.Record) (v accesslog.Value) {
	if !l.later {
		v = r.Values[l.at]
	}
	if v.State == accesslog.Unreported {
		d.count(l.none)
	}
	return v
}

// look returns the lookup of an attribute that a log should have. effect says what holds without it.
func (d *Describer) look(a accesslog.Attribute, at envoyfile.Location, effect string) lookup {
	if d.isMap {
		effect += " If the log has it, say where: in fields for JSON, with --format for text."
	} else {
		effect += " To record it, add " + a.String() + " to the log format."
	}
	return lookup{at: d.want(a), none: d.missing(a, at, effect)}
}

// header is look for an attribute that may be a header. One that is in changed has no value that
// counts. If it is hidden, no log should have it.
func (d *Describer) header(a accesslog.Attribute, at envoyfile.Location, effect string, changed []string, hidden bool) lookup {
	name, is := strings.CutPrefix(strings.TrimSuffix(string(a), ")"), "REQ(")
	switch {
	case is && slices.Contains(changed, name):
		effect = "Envoy changes this header after the rate limit, so the log has a later value. " + effect
		return lookup{at: d.want(a), none: d.missing(a, at, effect), later: true}
	case hidden || is && d.secrets.Hides(name):
		return lookup{at: d.want(a), none: d.missing(a, at, effect)}
	}
	return d.look(a, at, effect)
}

// missing returns the counter for an attribute that a log does not have.
func (d *Describer) missing(a accesslog.Attribute, at envoyfile.Location, effect string) *unreported {
	for _, u := range d.unreported {
		if u.Attribute == a && u.Effect == effect {
			return u
		}
	}
	u := &unreported{Unreported: replay.Unreported{Attribute: a, Location: at.String(), Effect: effect}}
	d.unreported = append(d.unreported, u)
	return u
}

func (d *Describer) count(u *unreported) {
	if u.last != d.request {
		u.last = d.request
		u.Requests++
	}
}

// Unreported returns what the logs have not reported so far.
func (d *Describer) Unreported() []replay.Unreported {
	var list []replay.Unreported
	for _, u := range d.unreported {
		if u.Requests > 0 {
			list = append(list, u.Unreported)
		}
	}
	return list
}

// Describe appends the questions that Envoy asks about a request. They are valid until the next
// call.
func (d *Describer) Describe(dst []replay.Question, r *accesslog.Record) []replay.Question {
	d.request++
	d.entries, d.list = d.entries[:0], d.list[:0]
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
	if d.port == nil {
		return d.managers[0]
	}
	v := d.port.of(d, r)
	port, err := strconv.Atoi(string(v.Text))
	at := slices.IndexFunc(d.managers, func(m *manager) bool { return err == nil && m.port == port })
	return d.managers[max(at, 0)]
}
