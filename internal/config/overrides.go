package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/slidegate/slidegate/internal/tier"
)

// overrides are limits by the name of the rule whose limits they replace, in the
// language of by_tier. How limits are kept stays the rule's.
type overrides = ordered[field[terms]]

// readOverrides reads the limits that a subject has of its own, or nil if it has none.
// What is wrong is reported and left out.
func readOverrides(d *decoder, all overrides) map[string]tier.Override {
	if len(all) == 0 {
		return nil
	}
	read := make(map[string]tier.Override, len(all))
	for i := range all {
		e := &all[i]
		if e.key == "" {
			d.problem(e.spot, "the name of a rule is missing")
		}
		if o, ok := readOverride(d, &e.value); ok {
			read[e.key] = o
		}
	}
	return read
}

// readOverride reads the limits for one rule.
func readOverride(d *decoder, f *field[terms]) (o tier.Override, ok bool) {
	t := &f.value
	before := d.report.count()
	rulesOwn(d, &t.limit)
	if t.Observe.set {
		d.problem(t.Observe.spot, "observe is the rule's: an override says only how much")
	}
	for i := range t.Limits.value {
		rulesOwn(d, &t.Limits.value[i].value)
	}
	if f.bad || d.report.count() > before {
		return o, false
	}
	if t.Unlimited.value {
		if t.Limits.set || t.Unit.set || t.RequestsPerUnit.set || t.Window.set || t.Requests.set {
			d.problem(t.Unlimited.spot, "unlimited stands alone: give it, or limits")
			return o, false
		}
		return tier.Override{Unlimited: true}, true
	}
	rules := rulesReader{decoder: d} // reads limits as those of rules
	limits, given := rules.someLimits(t, manner{}, f.spot, false)
	if !given {
		d.problem(f.spot, "no limit: give unit and requests_per_unit, or window and requests, or limits, or unlimited")
	}
	for i := range limits {
		o.Limits = append(o.Limits, limits[i].Limit)
	}
	return o, d.report.count() == before
}

// rulesOwn refuses what only the rule says of a limit.
func rulesOwn(d *decoder, l *limit) {
	if l.Precision.set {
		d.problem(l.Precision.spot, "precision is the rule's: an override says only how much")
	}
	if l.Lease.set {
		d.problem(l.Lease.spot, "lease is the rule's: an override says only how much")
	}
}

// ReadOverrides reads the limits that a subject has of its own, as sources keep
// them: a mapping, in JSON or YAML, of names of rules to limits in the language of
// by_tier,
//
//	{"per-key": {"unit": "minute", "requests_per_unit": 500}, "export": {"unlimited": true}}
//
// Nothing, null and an empty mapping give nil. The error says on one line what is
// wrong, each with its place in the mapping. It repeats no text of the mapping.
func ReadOverrides(data []byte) (map[string]tier.Override, error) {
	docs, problem := parse("", data)
	switch {
	case problem != nil:
		return nil, errors.New(problem.Message)
	case len(docs) > 1:
		return nil, errors.New("more than one YAML document")
	case len(docs) == 0 || root(docs[0]) == nil:
		return nil, nil
	}
	d := &decoder{report: new(report), hideValues: true}
	var all overrides
	d.decode(root(docs[0]), reflect.ValueOf(&all).Elem(), nil)
	read := readOverrides(d, all)
	problems := d.report.sorted()
	if problems == nil {
		return read, nil
	}
	var texts []string
	for i, p := range problems {
		if i == maxTold {
			texts = append(texts, fmt.Sprintf("and %d more problems", d.report.count()-i))
			break
		}
		p.Line, p.Column = 0, 0 // the record is no file
		texts = append(texts, p.String())
	}
	return nil, errors.New(strings.Join(texts, "; "))
}

// maxTold is how many problems the error of [ReadOverrides] has: it goes into logs.
const maxTold = 3
