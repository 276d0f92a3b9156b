package tiers

import (
	"reflect"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
)

// tierList is the names of the tiers, with what each carries. It is written as a list of names, or as
// a mapping.
type tierList []tierItem

type tierItem struct {
	name    strict.Field[string]
	carries carried
}

// carried is what a tier carries.
type carried struct {
	Limit  strict.Field[*carriedLimit]                               `yaml:"limit" doc:"the limit that an authorization hands to Envoy as the metadata limit"`
	Limits strict.Field[strict.Ordered[strict.Field[*carriedLimit]]] `yaml:"limits" doc:"more limits by name, for the metadata limit_NAME; at most 16 in all"`
}

type carriedLimit struct {
	Unit            strict.Field[string] `yaml:"unit,required" doc:"second, minute, hour, day, month or year"`
	RequestsPerUnit strict.Field[uint64] `yaml:"requests_per_unit,required" doc:"from 1 to 4294967295"`
}

// AdviseKey explains keys of rules that Envoy cannot send.
func (*carriedLimit) AdviseKey(key string) strict.KeyAdvice {
	if key == "window" || key == "requests" {
		return strict.KeyAdvice{Message: "Envoy can send no window of any length: write unit and requests_per_unit"}
	}
	return strict.KeyAdvice{}
}

// ReadNode reads a list or a mapping.
func (l *tierList) ReadNode(d *strict.Decoder, n *strict.Node, p *strict.Path) {
	if !strict.IsMapping(n) {
		var names []strict.Field[string]
		d.Decode(n, reflect.ValueOf(&names).Elem(), p)
		for _, name := range names {
			*l = append(*l, tierItem{name: name})
		}
		return
	}
	var all strict.Ordered[carried]
	all.ReadNode(d, n, p)
	for _, e := range all {
		*l = append(*l, tierItem{strict.FieldOf(e.Position, e.Key), e.Value})
	}
}

// limits returns the limits that a tier carries, and reports their problems.
func (c *carried) limits(d *strict.Decoder) *limits.Set {
	var list []limits.Limit
	add := func(name string, f *strict.Field[*carriedLimit]) {
		if f.Value == nil {
			return
		}
		l := limits.Limit{Name: name}
		var err error
		if unit := &f.Value.Unit; strict.Given(unit) {
			if l.Unit, err = limits.Unit(unit.Value); err != nil {
				d.Problem(unit.Position, "%s", err)
			}
		}
		if requests := &f.Value.RequestsPerUnit; strict.Given(requests) {
			if l.Requests, err = limits.Requests(requests.Value); err != nil {
				d.Problem(requests.Position, "%s", err)
			}
		}
		list = append(list, l)
	}
	add("", &c.Limit)
	for i := range c.Limits.Value {
		e := &c.Limits.Value[i]
		if err := limits.Name(e.Key); err != nil {
			d.Problem(e.Position, "%s", err)
		}
		add(e.Key, &e.Value)
	}
	limits, err := limits.New(list)
	if err != nil {
		d.Problem(c.Limits.Position, "%s", err)
	}
	return limits
}
