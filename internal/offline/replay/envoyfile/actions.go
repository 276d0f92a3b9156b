package envoyfile

import (
	"cmp"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/pkg/window"
)

const (
	maxStage = 10
	// MaxCost is the largest hits_addend that Envoy sends.
	MaxCost = 1_000_000_000
)

// limits reads rate_limits.
func (r *reader) limits(of *object) (out []*RateLimit) {
	for _, v := range r.list(of.get("rate_limits")) {
		l := r.object(v)
		one := &RateLimit{
			Location: r.at(v.Position), Stage: l.number("stage", maxStage, 0), DisableKey: l.text("disable_key"),
			AtEnd: l.flag("apply_on_stream_done", false), Cost: r.cost(l.get("hits_addend")),
		}
		r.limit(l.get("limit"), one)
		l.get("x_ratelimit_option")
		actions := l.need("actions")
		for _, a := range r.list(actions) {
			one.Actions = append(one.Actions, r.action(a))
		}
		if actions.set() && len(one.Actions) == 0 {
			r.d.Problem(actions.Position, "at least one action is needed")
		}
		l.done()
		out = append(out, one)
	}
	return out
}

// units are the units of limits that Envoy sends, and unitNames their names by their numbers.
var (
	units = map[string]time.Duration{
		"SECOND": time.Second, "MINUTE": time.Minute, "HOUR": time.Hour, "DAY": strict.Day,
		"MONTH": 30 * strict.Day, "YEAR": 365 * strict.Day,
	}
	unitNames = []string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"}
)

// UnitOf returns the length of a unit of a limit, or zero for an unknown one.
func UnitOf(name string) time.Duration { return units[name] }

func (r *reader) limit(v value, out *RateLimit) {
	if !v.set() {
		return
	}
	l := r.object(v)
	name, from := l.one(1, "dynamic_metadata", "rate_limit")
	l.done()
	o := r.object(from)
	switch name {
	case "dynamic_metadata":
		path := r.metadataKey(o.need("metadata_key"))
		out.LimitFrom = accesslog.Metadata(path[0], path[1:]...)
	case "rate_limit":
		hits := o.number("requests_per_unit", math.MaxUint64, 0)
		if length := units[unitNames[o.enum("unit", unitNames...)]]; length > 0 {
			out.Limit = &window.Limit{Hits: hits, Window: length}
		}
	}
	o.done()
}

func (r *reader) cost(v value) (c Cost) {
	if !v.set() {
		return c
	}
	h := r.object(v)
	c = Cost{Location: r.at(v.Position), Set: true, Refund: h.flag("is_negative_hits", false)}
	switch name, is := h.one(1, "number", "format"); name {
	case "number":
		c.Number = h.number(name, MaxCost, 0)
	case "format":
		parts, err := Parse(r.text(is))
		switch {
		case err != nil:
			r.d.Problem(is.Position, "%v", err)
		case len(parts) != 1 || parts[0].Attribute == "":
			r.d.Problem(is.Position, "expected one operator, such as %%REQ(x-cost)%%")
		default:
			c.From = parts[0].Attribute
		}
	}
	h.done()
	return c
}

var actionNames = []string{
	"source_cluster", "destination_cluster", "request_headers", "query_parameters", "remote_address", "generic_key",
	"header_value_match", "dynamic_metadata", "metadata", "extension", "masked_remote_address", "query_parameter_value_match", "remote_address_match",
}

func (r *reader) action(v value) Action {
	of := r.object(v)
	name, is := of.one(1, actionNames...)
	of.done()
	a, out := r.object(is), Action{Location: r.at(v.Position), Key: name}
	switch name {
	case "":
		out.Kind = Unsupported
	case "source_cluster":
		out.Kind = SourceCluster
	case "destination_cluster":
		out.Kind = DestinationCluster
	case "request_headers":
		out.Kind, out.Key, out.SkipIfAbsent = Format, r.text(a.need("descriptor_key")), a.flag("skip_if_absent", false)
		out.Parts = []Part{{Attribute: accesslog.Header(r.text(a.need("header_name")))}}
	case "query_parameters":
		out.Kind, out.Key, out.SkipIfAbsent = QueryParameter, r.text(a.need("descriptor_key")), a.flag("skip_if_absent", false)
		out.Name = r.text(a.need("query_parameter_name"))
	case "remote_address":
		out.Kind, out.Parts = Format, []Part{{Attribute: accesslog.Client}}
	case "generic_key":
		out.Kind = Text
		a.fixed(&out, "generic_key")
	case "header_value_match":
		out.Kind, out.Headers, out.Expect = HeaderMatch, r.headers(r.list(a.need("headers"))), a.flag("expect_match", true)
		a.fixed(&out, "header_match")
	case "dynamic_metadata", "metadata":
		r.metadata(a, &out)
	case "extension":
		r.extension(a, &out)
		return out // it may have other keys
	case "masked_remote_address":
		out.Kind, out.Parts = MaskedAddress, []Part{{Attribute: accesslog.Client}}
		out.V4, out.V6 = int(a.number("v4_prefix_mask_len", 32, 32)), int(a.number("v6_prefix_mask_len", 128, 128))
	case "query_parameter_value_match":
		out.Kind, out.Query, out.Expect = QueryMatch, r.queries(r.list(a.need("query_parameters"))), a.flag("expect_match", true)
		a.fixed(&out, "query_match")
	case "remote_address_match":
		r.addressMatch(a, &out)
	}
	a.done()
	return out
}

// fixed reads the key and the value of an action whose value is fixed.
func (o *object) fixed(out *Action, key string) {
	out.Key = cmp.Or(o.text("descriptor_key"), key)
	out.Value = cmp.Or(o.text("descriptor_value"), o.text("default_value"))
}

func (r *reader) metadata(a *object, out *Action) {
	path := r.metadataKey(a.need("metadata_key"))
	out.Key, out.Value, out.SkipIfAbsent = r.text(a.need("descriptor_key")), a.text("default_value"), a.flag("skip_if_absent", false)
	if a.enum("source", "DYNAMIC", "ROUTE_ENTRY") == 1 {
		out.Kind, out.Path = RouteMetadata, path
		return
	}
	out.Kind, out.Parts = Metadata, []Part{{Attribute: accesslog.Metadata(path[0], path[1:]...)}}
}

// extension reads an expression. The access log can have its value, too.
func (r *reader) extension(a *object, out *Action) {
	out.Kind = Unsupported
	config, typ := r.typed(a.get("typed_config"))
	if typ != typeExpression {
		out.Value = "the extension " + strict.Quote(a.text("name")) + " is not supported"
		return
	}
	e := r.object(config)
	out.Key, out.SkipIfAbsent = r.text(e.need("descriptor_key")), e.flag("skip_if_error", false)
	text := e.get("text")
	e.get("@type")
	e.get("parsed")
	e.done()
	if !text.set() {
		out.Value = "an expression without its text is not supported"
		return
	}
	out.Kind, out.Parts = Format, []Part{{Attribute: accesslog.Attribute("CEL(" + r.text(text) + ")")}}
}

func (r *reader) addressMatch(a *object, out *Action) {
	out.Kind, out.Key, out.Value = AddressMatch, cmp.Or(a.text("descriptor_key"), "remote_address_match"), a.text("default_value")
	out.Parts = r.format(a.Position, a.text("descriptor_value"))
	m := r.object(a.need("address_matcher"))
	out.Invert = m.flag("invert_match", false)
	for _, v := range r.list(m.get("ranges")) {
		g := r.object(v)
		text := r.text(g.need("address_prefix"))
		address, err := netip.ParseAddr(strings.TrimSpace(text))
		bits := g.number("prefix_len", uint64(cmp.Or(address.BitLen(), 128)), 0)
		g.done()
		if err != nil {
			r.d.Problem(v.Position, "%s is not an IP address", strict.Quote(text))
			continue
		}
		out.Networks = append(out.Networks, netip.PrefixFrom(address, int(bits)).Masked())
	}
	m.done()
}
