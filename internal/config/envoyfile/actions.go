package envoyfile

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
	"github.com/slidegate/slidegate/pkg/window"
)

const (
	maxStage = 10
	// MaxCost is the largest hits_addend that Envoy sends.
	MaxCost = 1_000_000_000
)

func (r *reader) limits(list []strict.Field[rateLimit]) (out []*RateLimit) {
	for i := range list {
		f := &list[i]
		l := &f.Value
		one := &RateLimit{Place: r.at(f.Spot), Stage: l.Stage.Value, DisableKey: l.DisableKey, AtEnd: l.AtEnd}
		if l.Stage.Value > maxStage {
			r.d.Problem(l.Stage.Spot, "expected a number from 0 to %d", maxStage)
		}
		r.limit(&l.Limit, one)
		one.Cost = r.cost(&l.Cost)
		for j := range l.Actions.Value {
			one.Actions = append(one.Actions, r.action(&l.Actions.Value[j]))
		}
		if len(one.Actions) == 0 && strict.Given(&l.Actions) {
			r.d.Problem(l.Actions.Spot, "at least one action is needed")
		}
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

func (r *reader) limit(f *strict.Field[limitOverride], out *RateLimit) {
	if !f.Set || f.Bad {
		return
	}
	switch r.oneOf(f.Spot, []string{"dynamic_metadata", "rate_limit"}, []bool{f.Value.Metadata.Set, f.Value.Fixed.Set}) {
	case 0:
		out.LimitFrom = metadataAttribute(&f.Value.Metadata.Value.Key.Value)
	case 1:
		fixed := &f.Value.Fixed.Value
		if length := units[unitNames[r.enum(&fixed.Unit, unitNames)]]; length > 0 {
			out.Limit = &window.Limit{Hits: fixed.Requests.Value, Window: length}
		}
	}
}

func (r *reader) cost(f *strict.Field[hitsAddend]) (c Cost) {
	if !f.Set || f.Bad {
		return c
	}
	c = Cost{Place: r.at(f.Spot), Set: true, Number: f.Value.Number.Value, Refund: f.Value.Refund}
	switch r.oneOf(f.Spot, []string{"number", "format"}, []bool{f.Value.Number.Set, f.Value.Format.Set}) {
	case 0:
		if c.Number > MaxCost {
			r.d.Problem(f.Value.Number.Spot, "expected a number from 0 to %d", uint64(MaxCost))
		}
	case 1:
		parts := r.format(f.Value.Format.Spot, f.Value.Format.Value)
		if len(parts) == 1 && parts[0].Attribute != "" {
			c.From = parts[0].Attribute
		} else if parts != nil || f.Value.Format.Value == "" {
			r.d.Problem(f.Value.Format.Spot, "expected one operator, such as %%REQ(x-cost)%%")
		}
	}
	return c
}

var actionNames = []string{
	"source_cluster", "destination_cluster", "request_headers", "query_parameters", "remote_address", "generic_key",
	"header_value_match", "dynamic_metadata", "metadata", "extension", "masked_remote_address", "query_parameter_value_match", "remote_address_match",
}

// value is the text of a generic key or a match.
func (g *genericKey) value() string { return string(cmp.Or(g.Value, g.Default)) }

func (r *reader) action(f *strict.Field[action]) Action {
	a := &f.Value
	out := Action{Place: r.at(f.Spot), Kind: Unsupported}
	set := []bool{
		a.SourceCluster.Set, a.DestinationCluster.Set, a.RequestHeaders.Set, a.QueryParameters.Set, a.RemoteAddress.Set, a.GenericKey.Set,
		a.HeaderValueMatch.Set, a.DynamicMetadata.Set, a.Metadata.Set, a.Extension.Set, a.Masked.Set, a.QueryValueMatch.Set, a.AddressMatch.Set,
	}
	if f.Bad && !slices.Contains(set, true) {
		return out // it has an unknown key, which was reported
	}
	client := []Part{{Attribute: accesslog.Client}}
	switch r.oneOf(f.Spot, actionNames, set) {
	case 0:
		out.Kind, out.Key = SourceCluster, "source_cluster"
	case 1:
		out.Kind, out.Key = DestinationCluster, "destination_cluster"
	case 2:
		h := &a.RequestHeaders.Value
		out.Kind, out.Key, out.SkipIfAbsent = Format, h.Key, h.Skip
		out.Parts = []Part{{Attribute: accesslog.Header(h.Header)}}
	case 3:
		q := &a.QueryParameters.Value
		out.Kind, out.Key, out.Name, out.SkipIfAbsent = QueryParameter, q.Key, q.Name, q.Skip
	case 4:
		out.Kind, out.Key, out.Parts = Format, "remote_address", client
	case 5:
		g := &a.GenericKey.Value
		out.Kind, out.Key, out.Value = Text, cmp.Or(g.Key, "generic_key"), g.value()
	case 6:
		h := &a.HeaderValueMatch.Value
		out.Kind, out.Key, out.Value = HeaderMatch, cmp.Or(h.Key, "header_match"), h.value()
		out.Headers, out.Expect = r.headers(h.Headers), !h.Expect.Set || h.Expect.Value
	case 7:
		out = r.metadataAction(out, &a.DynamicMetadata.Value)
	case 8:
		out = r.metadataAction(out, &a.Metadata.Value)
	case 9:
		out = r.extension(out, &a.Extension)
	case 10:
		out.Kind, out.Key, out.Parts = MaskedAddress, "masked_remote_address", client
		out.V4, out.V6 = bits(r, &a.Masked.Value.V4, 32), bits(r, &a.Masked.Value.V6, 128)
	case 11:
		q := &a.QueryValueMatch.Value
		out.Kind, out.Key, out.Value = QueryMatch, cmp.Or(q.Key, "query_match"), q.value()
		out.Query, out.Expect = r.queries(q.Query), !q.Expect.Set || q.Expect.Value
	case 12:
		out = r.addressAction(out, &a.AddressMatch)
	}
	return out
}

func (r *reader) metadataAction(out Action, m *metaAction) Action {
	out.Kind, out.Key, out.Value, out.SkipIfAbsent = Metadata, m.Key, string(m.Default), m.Skip
	out.Parts = []Part{{Attribute: metadataAttribute(&m.From.Value)}}
	if r.enum(&m.Source, []string{"DYNAMIC", "ROUTE_ENTRY"}) == 1 {
		out.Kind, out.Parts = RouteMetadata, nil
		out.Path = append([]string{m.From.Value.Key}, pathOf(&m.From.Value)...)
	}
	return out
}

// extension reads an expression. The access log can have its value, too.
func (r *reader) extension(out Action, f *strict.Field[extension]) Action {
	config := &f.Value.Config.Value
	if config.typ != typeExpression {
		out.Value = "the extension " + strict.Quote(f.Value.Name) + " is not supported"
		return out
	}
	var e expression
	config.into(r.d, &e)
	if !e.Text.Set {
		out.Value = "an expression without its text is not supported"
		return out
	}
	out.Kind, out.Key, out.SkipIfAbsent = Format, e.Key, e.Skip
	out.Parts = []Part{{Attribute: accesslog.Attribute("CEL(" + e.Text.Value + ")")}}
	return out
}

func (r *reader) addressAction(out Action, f *strict.Field[addressAction]) Action {
	a := &f.Value
	out.Kind, out.Key = AddressMatch, cmp.Or(a.Key, "remote_address_match")
	out.Parts, out.Value = r.format(f.Spot, string(a.Value)), string(a.Default)
	out.Invert = a.Matcher.Value.Invert
	for i := range a.Matcher.Value.Ranges {
		g := &a.Matcher.Value.Ranges[i]
		address, err := netip.ParseAddr(strings.TrimSpace(g.Value.Address))
		if err != nil {
			r.d.Problem(g.Spot, "%s is not an IP address", strict.Quote(g.Value.Address))
			continue
		}
		length := 0
		if g.Value.Bits.Set {
			length = bits(r, &g.Value.Bits, address.BitLen())
		}
		out.Networks = append(out.Networks, netip.PrefixFrom(address, length).Masked())
	}
	return out
}
