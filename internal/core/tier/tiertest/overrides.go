package tiertest

import (
	"encoding/json"
	"time"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// override is one override as rules files write it.
type override struct {
	Limits    []limit `json:"limits,omitempty"`
	Unlimited bool    `json:"unlimited,omitempty"`
	Observe   *bool   `json:"observe,omitempty"`
	Until     string  `json:"until,omitempty"`
}

type limit struct {
	Window   string `json:"window"`
	Requests uint64 `json:"requests"`
}

// Overrides returns the overrides of a subject as a source keeps them, or nil.
func Overrides(s tier.Subject) []byte {
	if s.Extra == nil || len(s.Extra.Overrides) == 0 {
		return nil
	}
	all := make(map[string]override)
	for rule, o := range s.Extra.Overrides {
		written := override{Unlimited: o.Unlimited}
		for _, l := range o.Limits {
			written.Limits = append(written.Limits, limit{l.Window.String(), l.Hits})
		}
		if o.Observe != tier.ObserveByRule {
			written.Observe = new(o.Observe == tier.ObserveOnly)
		}
		if !o.Until.IsZero() {
			written.Until = o.Until.Format(time.RFC3339)
		}
		all[rule] = written
	}
	return marshal(all)
}

// Labels returns the labels of a subject as a source keeps them, or nil.
func Labels(s tier.Subject) []byte {
	if len(s.Labels()) == 0 {
		return nil
	}
	return marshal(s.Labels())
}

// Limits returns the limits that came with a subject as a source keeps them, or nil.
func Limits(s tier.Subject) []byte {
	if s.Limits() == nil {
		return nil
	}
	all, named := make(map[string]any), make(map[string]any)
	for _, l := range s.Limits().All() {
		one := map[string]any{"unit": l.Unit, "requests_per_unit": l.Requests}
		if l.Name == "" {
			all["limit"] = one
		} else {
			named[l.Name] = one
		}
	}
	all["limits"] = named
	return marshal(all)
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, numbers and truth values
	}
	return data
}

// ReadOverrides reads what [Overrides] writes.
var ReadOverrides = rules.ReadOverrides
