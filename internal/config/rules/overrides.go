package rules

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// Overrides are limits by the name of the rule whose limits they replace, in the language of
// by_tier, and whether they are only observed. How a limit counts stays as the rule has it: its policy, its precision and so on.
type Overrides = strict.Ordered[strict.Field[override]]

type override struct {
	terms
	Until strict.Field[string] `yaml:"until" doc:"when the override ends, such as 2026-01-31T18:00:00Z. Default: never"`
}

// DecodeOverrides reads the overrides of a subject, or returns nil without any. It reports and
// omits those that are wrong.
func DecodeOverrides(d *strict.Decoder, all Overrides) map[string]tier.Override {
	if len(all) == 0 {
		return nil
	}
	read := make(map[string]tier.Override, len(all))
	for i := range all {
		e := &all[i]
		if e.Key == "" {
			d.Problem(e.Position, "the name of a rule is missing")
		}
		if o, ok := readOverride(d, &e.Value); ok {
			read[e.Key] = o
		}
	}
	return read
}

func readOverride(d *strict.Decoder, f *strict.Field[override]) (o tier.Override, ok bool) {
	t := &f.Value.terms
	before := d.Report.Count()
	o.Until = read(d, &f.Value.Until, parseUntil)
	keys := setKeys(t)
	for i := range t.Limits.Value {
		keys = append(keys, setKeys(&t.Limits.Value[i].Value)...)
	}
	for _, k := range keys {
		if !k.ofLimit() && k.name != "observe" {
			d.Problem(k.Position, "only a rule may have %s: an override has only limits, observe and until", k.name)
		}
	}
	o.Observe = read(d, &t.Observe, parseObserve)
	if f.Bad || d.Report.Count() > before {
		return o, false
	}
	if t.Unlimited.Value {
		if len(keys) > 1 {
			d.Problem(t.Unlimited.Position, "a limit or observe with unlimited: give one of the two")
			return o, false
		}
		o.Unlimited = true
		return o, true
	}
	if len(keys) == 1 && t.Observe.Set {
		return o, true
	}
	rules := rulesReader{decoder: d} // reads limits as those of rules
	how := manner{policy: policyChoice{byKeys: true}}
	how.set(&t.limit)
	limits, given := rules.someLimits(t, how, f.Position, false, false)
	if !given {
		d.Problem(f.Position, "no limit: give %s, or rate and burst, or max, or limits, or unlimited, or observe", needsWindow)
	}
	for i := range limits {
		o.Limits = append(o.Limits, limits[i].Limit)
	}
	return o, d.Report.Count() == before
}

func parseObserve(f *strict.Field[string]) (tier.Observe, error) {
	switch is, ok := strict.ParseTruth(f.Value); {
	case !ok:
		return tier.ObserveByRule, fmt.Errorf("not true or false: write one of them, because a percentage has no meaning for one subject")
	case is:
		return tier.ObserveOnly, nil
	default:
		return tier.ObserveNot, nil
	}
}

func parseUntil(f *strict.Field[string]) (time.Time, error) {
	until, err := time.Parse(time.RFC3339, f.Value)
	if err != nil {
		return until, errors.New("not a time: write one with its zone, such as 2026-01-31T18:00:00Z")
	}
	return until, nil
}

// ReadOverrides reads the overrides of a subject as sources keep them: a mapping, in JSON or
// YAML, of names of rules to limits in the language of by_tier,
//
//	{"per-key": {"unit": "minute", "requests_per_unit": 500}, "export": {"unlimited": true}, "search": {"observe": true}}
//
// An empty text, null and an empty mapping give nil. The error is one line with each problem
// and its path in the mapping. It repeats no text of the mapping.
func ReadOverrides(data []byte) (map[string]tier.Override, error) {
	docs, problem := strict.Parse("", data)
	switch {
	case problem != nil:
		return nil, errors.New(problem.Message)
	case len(docs) > 1:
		return nil, errors.New("more than one YAML document")
	case len(docs) == 0 || strict.Root(docs[0]) == nil:
		return nil, nil
	}
	d := &strict.Decoder{Report: new(strict.Report), HideValues: true}
	var all Overrides
	d.Decode(strict.Root(docs[0]), reflect.ValueOf(&all).Elem(), nil)
	read := DecodeOverrides(d, all)
	problems := d.Report.Sorted()
	if problems == nil {
		return read, nil
	}
	var texts []string
	for i, p := range problems {
		if i == maxReported {
			texts = append(texts, fmt.Sprintf("and %d more problems", d.Report.Count()-i))
			break
		}
		p.Line, p.Column = 0, 0 // a record has no lines
		texts = append(texts, p.String())
	}
	return nil, errors.New(strings.Join(texts, "; "))
}

// maxReported bounds the problems in the error of [ReadOverrides], which goes into logs.
const maxReported = 3
