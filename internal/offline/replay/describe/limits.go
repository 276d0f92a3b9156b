package describe

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// limit is one compiled descriptor.
type limit struct {
	actions   []action
	cost      uint64
	unpriced  bool    // Envoy sends no cost
	costFrom  *lookup // nil: cost counts
	refund    bool
	override  *window.Limit
	limitFrom *lookup       // nil: override counts
	when      *when         // nil: every request
	always    []*unreported // what holds for each request with this descriptor
}

// action is a compiled action.
type action struct {
	envoyfile.Action
	secret  bool
	parts   []part
	matches []matcher
	client  part // at whose address AddressMatch looks
	absent  bool // the value is absent for all requests
	unable  *unreported
}

type part struct {
	text    string
	lookup  // without a counter: text is all
	most    int
	subject bool // the subject may stand for the value
	// noSubject counts requests of a log that has neither the value nor a subject.
	noSubject *unreported
	// noKeys counts requests of a log that has subjects, and not the digests of keys without one.
	noKeys *unreported
}

// limit compiles a descriptor. The headers that Envoy changes after the call are in changed.
func (d *Describer) limit(in *envoyfile.RateLimit, route *envoyfile.Route, changed []string) limit {
	l := limit{cost: 1, unpriced: !in.Cost.Set, refund: in.Cost.Refund, override: in.Limit}
	if in.Cost.Set {
		l.cost = in.Cost.Number
	}
	if in.Cost.From != "" {
		from := d.look(in.Cost.From, in.Cost.Location, "The descriptors whose cost it is were left out.")
		l.costFrom = &from
	}
	if in.LimitFrom != "" {
		from := d.look(in.LimitFrom, in.Location, "The descriptors had no limits, so the rules counted.")
		l.limitFrom = &from
	}
	if in.DisableKey != "" {
		l.always = append(l.always, d.missing("", in.Location, "disable_key: the descriptor counted as enabled in the runtime."))
	}
	if in.When != nil {
		l.when = d.when(in.When)
	}
	for i := range in.Actions {
		l.actions = append(l.actions, d.action(&in.Actions[i], route, changed, pathOf(in, route)))
	}
	return l
}

// pathOf returns the attribute with the path that a limit sees.
func pathOf(in *envoyfile.RateLimit, route *envoyfile.Route) accesslog.Attribute {
	if route.Rewrites && !in.AtEnd {
		return accesslog.OriginalOrPath
	}
	return accesslog.Path
}

func (d *Describer) action(in *envoyfile.Action, route *envoyfile.Route, changed []string, path accesslog.Attribute) action {
	a := action{Action: *in, secret: d.secrets.Is(in.Key)}
	for _, p := range in.Parts {
		if p.Attribute == accesslog.Path {
			p.Attribute = path
		}
		a.parts = append(a.parts, d.part(&p, in, &a, changed))
	}
	switch in.Kind {
	case envoyfile.HeaderMatch:
		a.matches = d.matchers(in.Headers, true, path, changed)
	case envoyfile.QueryMatch:
		a.matches = d.matchers(in.Query, false, path, nil)
	case envoyfile.QueryParameter:
		none := d.missing(path, in.Location, "The query parameter "+in.Name+" counted as absent: descriptors "+without(in)+".")
		a.parts = []part{{lookup: lookup{at: d.want(path), none: none}}}
	case envoyfile.AddressMatch:
		a.client = d.part(&envoyfile.Part{Attribute: accesslog.Client}, in, &a, nil)
	case envoyfile.RouteMetadata:
		a.Kind = envoyfile.Text
		if s, ok := metadataText(route.Metadata, in.Path); ok {
			a.Value = s
		} else {
			a.absent = in.Value == ""
		}
	case envoyfile.SourceCluster:
		a.Kind, a.Value = envoyfile.Text, d.cluster
		if d.cluster == "" {
			a.Kind = envoyfile.Unsupported
			a.unable = d.missing("", in.Location, "The files do not have node.cluster, which is the value of source_cluster: the descriptors with it were left out. Add the bootstrap.")
		}
	case envoyfile.DestinationCluster:
		a.Kind, a.Value = envoyfile.Text, route.Cluster
		if route.Cluster == "" {
			a.Kind = envoyfile.Format
			a.parts = []part{{lookup: d.look(accesslog.Cluster, in.Location, "Descriptors with "+in.Key+" were left out.")}}
		}
	case envoyfile.Unsupported:
		a.unable = d.missing("", in.Location, in.Value+": descriptors with it were left out.")
	}
	if a.Kind == envoyfile.Text && a.secret {
		a.Value = d.secrets.Fingerprint(a.Value)
	}
	return a
}

// metadataText returns a text in the metadata of a route.
func metadataText(m map[string]any, path []string) (string, bool) {
	var v any = m
	for _, key := range path {
		below, _ := v.(map[string]any)
		v = below[key]
	}
	s, ok := v.(string)
	return s, ok && s != ""
}

// without says what descriptors are like if an action finds no value.
func without(in *envoyfile.Action) string {
	if in.SkipIfAbsent {
		return "have no entry " + in.Key
	}
	return "with " + in.Key + " were left out"
}

func (d *Describer) part(p *envoyfile.Part, in *envoyfile.Action, a *action, changed []string) part {
	if p.Attribute == "" {
		return part{text: p.Text}
	}
	out := part{most: p.Most, subject: a.secret && len(in.Parts) == 1}
	effect := "Descriptors " + without(in) + ", as if it were absent."
	switch {
	case out.subject:
		effect = "All keys of a subject counted as one."
		d.at.subject, d.at.authSubject = d.want(accesslog.Subject), d.want(accesslog.Metadata("envoy.filters.http.ext_authz", "subject"))
		d.at.keyDigest = d.want(accesslog.KeyDigest)
		untried := ", and their limits were not tried."
		if in.SkipIfAbsent {
			untried = "."
		}
		out.noKeys = d.look(accesslog.KeyDigest, in.Location, "Requests without a subject counted as requests without a key.").none
		out.noSubject = d.look(accesslog.Subject, in.Location, "The log has neither the key nor its subject: descriptors "+without(in)+untried).none
	case in.Kind == envoyfile.Metadata && in.Value != "":
		effect = "Descriptors with " + in.Key + " had the default value."
	}
	out.lookup = d.header(p.Attribute, in.Location, effect, changed, out.subject)
	return out
}

// describe appends the descriptor of a limit, if there is one.
func (d *Describer) describe(l *limit, r *accesslog.Record, subject *string) {
	if l.when != nil && !l.when.matchesRecord(d, r) {
		return
	}
	start := len(d.entries)
	for i := range l.actions {
		if !d.act(&l.actions[i], r, subject) {
			d.entries = d.entries[:start]
			return
		}
	}
	one := decide.Descriptor{Entries: d.entries[start:len(d.entries):len(d.entries)], Cost: l.cost, Unpriced: l.unpriced, Refund: l.refund, Override: l.override}
	if l.costFrom != nil {
		cost, ok := costOf(l.costFrom.of(d, r))
		if !ok {
			d.entries = d.entries[:start]
			return
		}
		one.Cost = cost
	}
	if l.limitFrom != nil {
		one.Override = limitOf(l.limitFrom.of(d, r))
	}
	for _, u := range l.always {
		d.count(u)
	}
	one.Ends = identity.IsEndOfStream(one.Entries)
	d.list = append(d.list, one)
}

// costOf returns the number of hits in a value, as Envoy reads it.
func costOf(v accesslog.Value) (uint64, bool) {
	if v.State != accesslog.Present {
		return 0, false
	}
	text := string(bytes.TrimSpace(v.Text))
	if strings.Contains(text, "_") {
		return 0, false
	}
	if digits, ok := strings.CutPrefix(strings.ToLower(strings.TrimPrefix(text, "+")), "0x"); ok && !strings.Contains(digits, "p") {
		text += "p0" // Envoy takes 0x10, too
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil, f < 0, f > envoyfile.MaxCost:
		return 0, false
	case math.IsNaN(f):
		return 1 << 63, true // as Envoy sends it
	}
	return uint64(f), true
}

// limitOf returns the limit in a value, or nil.
func limitOf(v accesslog.Value) *window.Limit {
	if v.State != accesslog.Present {
		return nil
	}
	var in struct {
		Requests *float64 `json:"requests_per_unit"`
		Unit     *string  `json:"unit"`
	}
	if json.Unmarshal(v.Text, &in) == nil && in.Requests != nil && in.Unit != nil {
		if length := envoyfile.UnitOf(*in.Unit); length > 0 && *in.Requests >= 0 {
			return &window.Limit{Hits: uint64(uint32(min(*in.Requests, math.MaxUint32))), Window: length}
		}
	}
	return nil
}

// act appends the entry of an action. It reports false if the descriptor is dropped.
func (d *Describer) act(a *action, r *accesslog.Record, subject *string) bool {
	var value string
	var ok bool
	switch a.Kind {
	case envoyfile.Text:
		value, ok = a.Value, !a.absent
	case envoyfile.Format:
		value, ok = d.format(a, r, subject)
	case envoyfile.Metadata:
		if value, ok = d.format(a, r, subject); !ok || value == "" {
			value, ok = a.Value, a.Value != ""
		}
	case envoyfile.QueryParameter:
		value, ok = d.query(a, r)
	case envoyfile.MaskedAddress:
		value, ok = d.masked(a, r)
	case envoyfile.HeaderMatch, envoyfile.QueryMatch:
		value, ok = a.Value, a.all(d, r) == a.Expect
	case envoyfile.AddressMatch:
		value, ok = d.addressMatch(a, r)
	default:
		d.count(a.unable)
		return false
	}
	if ok {
		d.entries = append(d.entries, descriptors.Entry{Key: a.Key, Value: value})
	}
	return ok || a.SkipIfAbsent
}

// all reports whether all matchers hold.
func (a *action) all(d *Describer, r *accesslog.Record) bool {
	for i := range a.matches {
		m := &a.matches[i]
		if a.Kind == envoyfile.HeaderMatch && !m.matchesRecord(d, r) || a.Kind == envoyfile.QueryMatch && !m.matchesQuery(d, r, true) {
			return false
		}
	}
	return true
}

// format returns the value of the parts. It reports false if one of them is absent.
func (d *Describer) format(a *action, r *accesslog.Record, subject *string) (string, bool) {
	d.buffer = d.buffer[:0]
	for i := range a.parts {
		p := &a.parts[i]
		if p.none == nil {
			d.buffer = append(d.buffer, p.text...)
			continue
		}
		if p.subject && (p.later || r.Values[p.at].State == accesslog.Unreported) {
			return d.standIn(p, r, subject)
		}
		v := p.of(d, r)
		if v.State != accesslog.Present && a.Kind != envoyfile.AddressMatch {
			return "", false
		}
		d.buffer = append(d.buffer, p.cut(v.Text)...)
	}
	if a.secret {
		return d.secrets.Fingerprint(string(d.buffer)), true
	}
	return string(d.buffer), true
}

func (p *part) cut(text []byte) []byte {
	if p.most > 0 && len(text) > p.most {
		return text[:p.most]
	}
	return text
}

// What is digested for a subject, and for the digest of a key without one, begins with these.
const (
	subjectPrefix = "slidegate-subject:"
	keyPrefix     = "slidegate-key:"
)

// anonymousPrefix begins what an authorization logs as the subject of a request without a key.
var anonymousPrefix = []byte(tier.AnonymousPrefix)

// standIn returns a value that stands for the API key of a request: of its subject, or else for a
// key that has none. It reports false if the request has no key.
func (d *Describer) standIn(p *part, r *accesslog.Record, subject *string) (string, bool) {
	reported := false
	for _, at := range [...]int{d.at.subject, d.at.authSubject} {
		v := &r.Values[at]
		reported = reported || v.State != accesslog.Unreported
		if v.State != accesslog.Present || len(v.Text) == 0 {
			continue
		}
		d.count(p.none)
		if bytes.HasPrefix(v.Text, anonymousPrefix) {
			return "", false
		}
		*subject = string(v.Text)
		return d.secrets.Fingerprint(subjectPrefix + string(v.Text)), true
	}
	v := &r.Values[d.at.keyDigest]
	switch {
	case v.State == accesslog.Unreported && !reported:
		d.count(p.noSubject)
		return "", false
	case v.State == accesslog.Unreported:
		d.count(p.noKeys)
	}
	d.count(p.none)
	if v.State != accesslog.Present || len(v.Text) == 0 {
		return "", false
	}
	// A value that is the beginning of a digest stays the beginning, so that reports name the key as
	// rls does.
	value := string(v.Text)
	digest := d.secrets.Fingerprint(keyPrefix + value)
	if _, err := hex.DecodeString(value); err == nil && len(value) == len(tier.ShortDigest(digest)) {
		digest = value + digest[len(value):]
	}
	return digest, true
}

func (d *Describer) query(a *action, r *accesslog.Record) (string, bool) {
	v := a.parts[0].of(d, r)
	value, ok := d.parameter(v.Text, a.Name, true)
	switch {
	case !ok:
		return "", false
	case a.secret:
		return d.secrets.Fingerprint(string(value)), true
	}
	return string(value), true
}

// client returns the address of a request.
func (d *Describer) client(p *part, r *accesslog.Record) (client netip.Addr, ok bool) {
	v := p.of(d, r)
	if v.State != accesslog.Present {
		return client, false
	}
	client, err := netip.ParseAddr(string(v.Text)) // mapped addresses stay so, as in Envoy
	return client, err == nil
}

func (d *Describer) masked(a *action, r *accesslog.Record) (string, bool) {
	client, ok := d.client(&a.parts[0], r)
	if !ok {
		return "", false
	}
	bits := a.V6
	if client.Is4() {
		bits = a.V4
	}
	network, err := client.WithZone("").Prefix(bits)
	if err != nil {
		return "", false
	}
	return network.String(), true
}

func (d *Describer) addressMatch(a *action, r *accesslog.Record) (string, bool) {
	client, ok := d.client(&a.client, r)
	if !ok {
		return "", false
	}
	in := slices.ContainsFunc(a.Networks, func(n netip.Prefix) bool { return n.Contains(client) })
	if in == a.Invert {
		return "", false
	}
	if value, ok := d.format(a, r, new(string)); ok && value != "" {
		return value, true
	}
	return a.Value, a.Value != ""
}
