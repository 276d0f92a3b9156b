package admin

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// Tiers answers lookups of keys: a cache.Cache of core/tier. It is safe for concurrent use.
type Tiers interface {
	// Look returns the cached record of a key.
	Look(tier.Key) tier.Inspection
	// Known iterates over the subjects that this process has at hand.
	Known() iter.Seq[*tier.Subject]
	// Lookup asks the source.
	Lookup(context.Context, tier.Key) (tier.Inspection, error)
	// Invalidate marks cached records as outdated, so that the source is asked again.
	Invalidate(tier.Change)
}

// A Customer is what the customer source says of one key or id.
type Customer struct {
	Subject  string `json:"subject,omitempty"`
	Tier     string `json:"tier,omitempty"` // empty: the default tier
	Disabled bool   `json:"disabled,omitempty"`
	// Overrides are limits in words by the name of their rule.
	Overrides map[string]string `json:"overrides,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Limits are those that came with the customer for Envoy, by their keys in its metadata.
	Limits map[string]string `json:"limits,omitempty"`
}

// CustomerOf describes a subject.
func CustomerOf(s *tier.Subject) *Customer {
	c := &Customer{Subject: s.ID, Tier: s.Tier, Disabled: s.Disabled, Labels: s.Labels()}
	if s.Extra == nil {
		return c
	}
	c.Limits = make(map[string]string)
	for _, l := range s.Limits().All() {
		c.Limits[l.Key()] = l.String()
	}
	c.Overrides = make(map[string]string)
	for rule, o := range s.Extra.Overrides {
		var parts []string
		if o.Unlimited {
			parts = append(parts, "unlimited")
		}
		for _, l := range o.Limits {
			parts = append(parts, rules.FormatLimit(l))
		}
		switch o.Observe {
		case tier.ObserveOnly:
			parts = append(parts, "only observed")
		case tier.ObserveNot:
			parts = append(parts, "enforced")
		}
		c.Overrides[rule] = strings.Join(parts, ", ")
	}
	return c
}

// A TierRecord is the record of one key, in the JSON of the admin port.
type TierRecord struct {
	// Known is true if the key has a subject.
	Known bool `json:"known"`
	Customer
	// AgeSeconds is the time since the source returned the record.
	AgeSeconds float64 `json:"age_seconds"`
	// Fresh is true if the next request uses the record without asking the source.
	Fresh bool `json:"fresh"`
}

// A TierLookup is the answer to a lookup.
type TierLookup struct {
	// Cached is the record that this instance had before it asked. Null means none.
	Cached *TierRecord `json:"held"`
	// Source is the record in the source. Null means that the source could not answer.
	Source *TierRecord `json:"source"`
	// Error is why the source could not answer.
	Error string `json:"error,omitempty"`
}

func (a *api) tierLookup(r *http.Request, query url.Values) (any, error) {
	k := tier.Key{Digest: query.Get("digest"), ID: query.Get("id")}
	if (k.Digest == "") == (k.ID == "") {
		return nil, bad("name one of digest and id")
	}
	if k.Digest != "" {
		var err error
		if k.Digest, err = tier.ReadDigest(k.Digest); err != nil {
			return nil, bad("digest: %s", err)
		}
	}
	lookup := TierLookup{Cached: record(a.Tiers.Look(k))}
	now, err := a.Tiers.Lookup(r.Context(), k)
	if err != nil {
		lookup.Error = err.Error()
	} else {
		lookup.Source = record(now)
	}
	return lookup, nil
}

func (a *api) tierInvalidate(r *http.Request, _ url.Values) (any, error) {
	data, err := readJSON(r)
	if err != nil {
		return nil, err
	}
	c, err := tier.ReadChange(data)
	if err != nil {
		return nil, bad(`%s; send {"digest": "..."}, {"subject": "..."} or {"all": true}`, err)
	}
	a.Tiers.Invalidate(c)
	return nil, nil
}

// record returns the record of an inspection, or nil if there is none.
func record(i tier.Inspection) *TierRecord {
	if !i.Cached {
		return nil
	}
	r := &TierRecord{AgeSeconds: i.Age.Seconds(), Fresh: i.Fresh}
	if i.Subject != nil {
		r.Known, r.Customer = true, *CustomerOf(i.Subject)
	}
	return r
}
