package tiertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// override is one override as rules files write it.
type override struct {
	Limits    []limit `json:"limits,omitempty"`
	Unlimited bool    `json:"unlimited,omitempty"`
	Observe   *bool   `json:"observe,omitempty"`
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

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, numbers and truth values
	}
	return data
}

// ReadOverrides reads what [Overrides] writes.
func ReadOverrides(data []byte) (map[string]tier.Override, error) {
	var all map[string]override
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, errors.New("they are no overrides")
	}
	overrides := make(map[string]tier.Override)
	for rule, written := range all {
		o := tier.Override{Unlimited: written.Unlimited}
		if written.Observe != nil {
			o.Observe = tier.ObserveNot
			if *written.Observe {
				o.Observe = tier.ObserveOnly
			}
		}
		for _, l := range written.Limits {
			length, err := time.ParseDuration(l.Window)
			if err != nil {
				return nil, fmt.Errorf("%s: it has no window", rule)
			}
			o.Limits = append(o.Limits, window.Limit{Hits: l.Requests, Window: length})
		}
		overrides[rule] = o
	}
	return overrides, nil
}
