package rules

import (
	"fmt"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

func (r *rulesReader) calendar(l *limit, how manner, at strict.Position, bad bool) (out rules.Limit, ok bool) {
	before := r.Report.Count()
	spec, positions := r.calendarSpec(l, how, at)
	c, err := calendar.New(spec)
	for _, e := range calendar.FieldErrors(err) {
		if e.Field == "unit" && !l.Unit.Set {
			continue // reported below
		}
		r.decoder.Problem(positions[e.Field].position, "%s%s", positions[e.Field].prefix, e.Message)
	}
	switch {
	case l.Unit.Bad, l.RequestsPerUnit.Bad:
	case !l.RequestsPerUnit.Set:
		if !bad {
			r.decoder.Problem(l.Unit.Position, "unit without requests_per_unit")
		}
	case !l.Unit.Set:
		if !bad {
			r.decoder.Problem(l.RequestsPerUnit.Position, "requests_per_unit without unit")
		}
	case r.countable(l.RequestsPerUnit.Value, l.RequestsPerUnit.Position):
		ok = true
	}
	if !ok || c == nil || r.Report.Count() > before {
		return out, false
	}
	out.Limit = window.Limit{Policy: window.Calendar, Hits: l.RequestsPerUnit.Value, Window: c.Unit().Nominal()}
	out.Calendar = c
	if strict.Given(&how.StartsLabel) {
		switch out.StartsLabel = how.StartsLabel.Value; {
		case out.StartsLabel == "":
			r.decoder.Problem(how.StartsLabel.Position, "the name of a label is missing")
		case !c.Labelled():
			r.decoder.Problem(how.StartsLabel.Position, "a period of one %v does not start on a day: remove it, or choose the unit week, month, quarter or year", c.Unit())
		}
	}
	return out, r.Report.Count() == before
}

// A fieldPosition is where a message about a part of a calendar belongs.
type fieldPosition struct {
	position strict.Position
	prefix   string
}

// calendarSpec returns the parts of a calendar as they are written, and their positions. A problem
// with what a limit inherits belongs to the limit, because another limit may take it.
func (r *rulesReader) calendarSpec(l *limit, how manner, at strict.Position) (calendar.Spec, map[string]fieldPosition) {
	spec := calendar.Spec{Unit: l.Unit.Value, TimeZone: how.TimeZone.Value}
	positions := map[string]fieldPosition{"unit": {position: l.Unit.Position}}
	put := func(name string, of strict.Position, inherited bool) {
		if !inherited {
			positions[name] = fieldPosition{position: of}
			return
		}
		positions[name] = fieldPosition{at, fmt.Sprintf("%s%s: ", name, onLine(of.Line))}
	}
	put("time_zone", how.TimeZone.Position, !l.TimeZone.Set)
	if strict.Given(&how.TimeZone) && how.TimeZone.Value == "" {
		r.decoder.Problem(how.TimeZone.Position, "the name of a time zone is missing: remove the key for UTC")
	}
	s := how.Starts.Value
	if s == nil || how.Starts.Bad {
		return spec, positions
	}
	inherited := !l.Starts.Set
	spec.Starts = calendar.Starts{Month: s.Month.Value, Weekday: s.Weekday.Value}
	put("starts.month", s.Month.Position, inherited)
	put("starts.weekday", s.Weekday.Position, inherited)
	for _, f := range []struct {
		name  string
		field *strict.Field[int]
		to    **int
	}{{"starts.day", &s.Day, &spec.Starts.Day}, {"starts.hour", &s.Hour, &spec.Starts.Hour}, {"starts.minute", &s.Minute, &spec.Starts.Minute}} {
		put(f.name, f.field.Position, inherited)
		if f.field.Set {
			*f.to = &f.field.Value
		}
	}
	return spec, positions
}
