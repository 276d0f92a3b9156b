package rules

import (
	"encoding/json"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
)

// A Domain is the rules of one domain that were not read from a file.
type Domain struct {
	// Source names where the domain comes from, in problems and locations.
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
	return r.rules, r.locations
}

func (r *rulesReader) given(d *Domain) {
	r.Report.File(d.Source)
	r.Warn.File(d.Source)
	r.decoder = &strict.Decoder{File: d.Source, Report: r.Report, Warn: r.Warn, Hides: r.hides}
	r.begin(&rulesDoc{Domain: strict.FieldOf(strict.Position{}, d.Name)})
	if d.Unknown {
		r.decoder.Warning(strict.Position{}, "has fields that this version of rls does not know and ignores")
	}
	// The written form takes far more memory than a Descriptor. So only one tree of it exists at
	// a time.
	list := &strict.Path{Name: "descriptors"}
	for i := range d.Descriptors {
		f := r.written(&d.Descriptors[i], list, i)
		r.entry(trail{}, &f)
	}
}

// written returns the written form of a descriptor with all below it. It is an item of list.
func (r *rulesReader) written(d *Descriptor, list *strict.Path, index int) strict.Field[descriptorEntry] {
	at := strict.Position{Path: &strict.Path{Parent: list, Index: index, Key: d.Key, Value: d.Value}}
	e := descriptorEntry{
		Key:            strict.FieldOf(at, d.Key),
		Value:          unlessZero(at, strict.Blankable(d.Value)),
		ShadowMode:     unlessZero(at, strict.Truth(d.ShadowMode)),
		QuotaMode:      unlessZero(at, strict.Truth(d.QuotaMode)),
		DetailedMetric: unlessZero(at, strict.Truth(d.Detailed)),
	}
	if d.Limit != nil {
		e.RateLimit = strict.FieldOf(at, d.Limit.written(at))
	}
	if d.Metadata != nil {
		e.Metadata = strict.FieldOf(at, metadata(d.Metadata))
		if text, err := json.Marshal(d.Metadata); err != nil || len(text) > maxMetadataBytes {
			metadataTooLarge(r.decoder, at)
			e.Metadata.Bad = true
		}
	}
	if len(d.Descriptors) > 0 {
		below := &strict.Path{Parent: at.Path, Name: "descriptors"}
		e.Descriptors = make([]strict.Field[descriptorEntry], len(d.Descriptors))
		for i := range d.Descriptors {
			e.Descriptors[i] = r.written(&d.Descriptors[i], below, i)
		}
	}
	return strict.FieldOf(at, e)
}

func (l *Limit) written(at strict.Position) *rateLimit {
	v := &rateLimit{Name: unlessZero(at, strict.Blankable(l.Name))}
	v.Unit, v.Unlimited = unlessZero(at, l.Unit), unlessZero(at, strict.Truth(l.Unlimited))
	// Without unlimited, 0 requests are a limit that denies everything.
	if !l.Unlimited || l.RequestsPerUnit != 0 {
		v.RequestsPerUnit = strict.FieldOf(at, l.RequestsPerUnit)
	}
	if len(l.Replaces) > 0 {
		v.Replaces = strict.FieldOf(at, make([]strict.Field[replacement], len(l.Replaces)))
		for i, name := range l.Replaces {
			v.Replaces.Value[i] = strict.FieldOf(at, replacement{Name: strict.FieldOf(at, strict.Blankable(name))})
		}
	}
	return v
}

func unlessZero[T comparable](at strict.Position, value T) (f strict.Field[T]) {
	if value != *new(T) {
		f = strict.FieldOf(at, value)
	}
	return f
}
