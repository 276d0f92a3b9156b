package rules

import (
	"encoding/json"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
)

// A Domain is the rules of one domain that were not read from a file.
type Domain struct {
	// Source names where the domain comes from, in problems and places.
	Source      string
	Name        string
	Descriptors []Descriptor
	// Unknown: the source says something of the domain that a Domain has no field for.
	Unknown bool
}

// A Descriptor is one node of the rules of a [Domain]. An empty Value means any value.
type Descriptor struct {
	Key, Value                      string
	Limit                           *Limit // nil: nothing is limited here
	ShadowMode, QuotaMode, Detailed bool
	Metadata                        map[string]any // as encoding/json decodes it
	Descriptors                     []Descriptor
}

// A Limit is the rate_limit of a [Descriptor].
type Limit struct {
	Unit            string // in any case; empty: none, which only Unlimited allows
	RequestsPerUnit uint64
	Unlimited       bool
	Name            string
	Replaces        []string
}

// ReadDomains is [Read] for domains that were not read from files. It makes the same checks.
// It does not warn of keys that have no effect where a program writes them.
func ReadDomains(o Options, domains []Domain) (*rules.Rules, []Location) {
	r := newReader(o)
	r.noFile = true
	for i := range domains {
		r.given(&domains[i])
	}
	r.finish()
	return r.rules, r.places
}

// given reads one domain.
func (r *rulesReader) given(d *Domain) {
	r.Report.File(d.Source)
	r.Warn.File(d.Source)
	r.decoder = &strict.Decoder{File: d.Source, Report: r.Report, Warn: r.Warn, Hides: r.hides}
	name := field(strict.Position{}, d.Name)
	r.domain = r.domainOf(&name)
	r.fallback = r.documentPolicy(new(strict.Field[string]))
	if d.Unknown {
		r.decoder.Warning(strict.Position{}, "has fields that this version of rls does not know and ignores")
	}
	// The fields of a descriptor take far more memory than a Descriptor. So only one tree of
	// them exists at a time.
	list := &strict.Path{Name: "descriptors"}
	for i := range d.Descriptors {
		f := r.fieldOf(&d.Descriptors[i], list, i)
		r.entry(trail{}, &f)
	}
}

// field returns a value as a field that a file sets.
func field[T any](at strict.Position, value T) strict.Field[T] {
	return strict.Field[T]{Position: at, Set: true, Value: value}
}

// fieldOf returns a descriptor with all below it as a rules file has it. It is an item of list.
func (r *rulesReader) fieldOf(d *Descriptor, list *strict.Path, index int) strict.Field[descriptorEntry] {
	at := strict.Position{Path: &strict.Path{Parent: list, Index: index, Key: d.Key, Value: d.Value}}
	e := descriptorEntry{Key: field(at, d.Key)}
	if d.Value != "" {
		e.Value = field(at, strict.Blankable(d.Value))
	}
	for _, f := range []struct {
		to  *strict.Field[strict.Truth]
		set bool
	}{{&e.ShadowMode, d.ShadowMode}, {&e.QuotaMode, d.QuotaMode}, {&e.DetailedMetric, d.Detailed}} {
		if f.set {
			*f.to = field(at, strict.Truth(true))
		}
	}
	if d.Limit != nil {
		e.RateLimit = field(at, d.Limit.field(at))
	}
	if d.Metadata != nil {
		e.Metadata = field(at, metadata(d.Metadata))
		if text, err := json.Marshal(d.Metadata); err != nil || len(text) > maxMetadataBytes {
			metadataTooLarge(r.decoder, at)
			e.Metadata.Bad = true
		}
	}
	if len(d.Descriptors) > 0 {
		below := &strict.Path{Parent: at.Path, Name: "descriptors"}
		e.Descriptors = make([]strict.Field[descriptorEntry], len(d.Descriptors))
		for i := range d.Descriptors {
			e.Descriptors[i] = r.fieldOf(&d.Descriptors[i], below, i)
		}
	}
	return field(at, e)
}

// field returns l as a rules file has it.
func (l *Limit) field(at strict.Position) *rateLimit {
	v := new(rateLimit)
	if l.Unit != "" {
		v.Unit = field(at, l.Unit)
	}
	// Without unlimited, 0 requests are a limit that denies everything.
	if !l.Unlimited || l.RequestsPerUnit != 0 {
		v.RequestsPerUnit = field(at, l.RequestsPerUnit)
	}
	if l.Unlimited {
		v.Unlimited = field(at, strict.Truth(true))
	}
	if l.Name != "" {
		v.Name = field(at, strict.Blankable(l.Name))
	}
	if len(l.Replaces) > 0 {
		v.Replaces = field(at, make([]strict.Field[replacement], len(l.Replaces)))
		for i, name := range l.Replaces {
			v.Replaces.Value[i] = field(at, replacement{Name: field(at, strict.Blankable(name))})
		}
	}
	return v
}
