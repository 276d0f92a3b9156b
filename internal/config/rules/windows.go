package rules

import (
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// units are the units of envoyproxy/ratelimit, with their lengths.
var units = []struct {
	name   string
	length time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", strict.Day},
	{"week", strict.Week},
	{"month", 30 * strict.Day},
	{"year", 365 * strict.Day},
}

// windowed reads hits in a window. With bad, it does not report that half of a pair is missing.
// override: the unit may be one of a calendar.
func (r *rulesReader) windowed(l *limit, override bool, at strict.Position, bad bool) (window.Limit, bool) {
	d := r.decoder
	unit, inUnit := l.Unit.Set, l.RequestsPerUnit.Set
	win, requests := l.Window.Set, l.Requests.Set
	if l.Unit.Bad || l.Window.Bad {
		return window.Limit{}, false
	}
	if l.RequestsPerUnit.Bad || l.Requests.Bad {
		// Check the length beside a bad number, too.
		switch {
		case unit && !win && !requests:
			r.perUnit(l, override)
		case win && !unit && !inUnit:
			r.perWindow(l)
		}
		return window.Limit{}, false
	}
	switch {
	case bad && (unit != inUnit || win != requests || !unit && !win):
	case !unit && !inUnit && !win && !requests:
		d.Problem(at, "no limit: give unit and requests_per_unit, or window and requests")
	case (unit || inUnit) && (win || requests):
		d.Problem(at, "unit and requests_per_unit belong together, and so do window and requests: give one of the two pairs")
	case unit && !inUnit:
		d.Problem(l.Unit.Position, "unit without requests_per_unit")
	case !unit && inUnit:
		d.Problem(l.RequestsPerUnit.Position, "requests_per_unit without unit")
	case win && !requests:
		d.Problem(l.Window.Position, "window without requests")
	case !win && requests:
		d.Problem(l.Requests.Position, "requests without window")
	case unit:
		return r.perUnit(l, override)
	default:
		return r.perWindow(l)
	}
	return window.Limit{}, false
}

// perUnit reads a unit of envoyproxy/ratelimit, or of a calendar in an override.
func (r *rulesReader) perUnit(l *limit, override bool) (window.Limit, bool) {
	length, ok := unitNamed(l.Unit.Value)
	if unit, is := calendar.ParseUnit(l.Unit.Value); is && override {
		length, ok = unit.Nominal(), true
	}
	if ok {
		return r.bounded(window.Limit{Hits: l.RequestsPerUnit.Value, Window: length}, l, l.RequestsPerUnit.Position, l.Unit.Position)
	}
	if unit, is := calendar.ParseUnit(l.Unit.Value); is {
		r.decoder.Problem(l.Unit.Position, "only the policy calendar has the unit %v: add policy: calendar, or write a window", unit)
		return window.Limit{}, false
	}
	name, names := strings.ToLower(l.Unit.Value), make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	r.decoder.Problem(l.Unit.Position, "unknown unit %s, expected one of %s%s", r.decoder.Quote(l.Unit.Value), strings.Join(names, ", "), strict.DidYouMean(name, names))
	return window.Limit{}, false
}

func (r *rulesReader) perWindow(l *limit) (window.Limit, bool) {
	length, err := strict.ParseDuration(l.Window.Value)
	if err != nil {
		if r.decoder.HideValues { // the error quotes the value
			err = strict.ErrNoTime
		}
		r.decoder.Problem(l.Window.Position, "%s", err)
		return window.Limit{}, false
	}
	return r.bounded(window.Limit{Hits: l.Requests.Value, Window: length}, l, l.Requests.Position, l.Window.Position)
}

// bounded checks that the stores can hold a limit.
func (r *rulesReader) bounded(l window.Limit, written *limit, hits, length strict.Position) (window.Limit, bool) {
	ok := r.countable(l.Hits, hits)
	if !ok {
		l.Hits = 0
	}
	if l.Valid() != nil {
		problem := "not a whole number of microseconds"
		if l.Window < window.MinWindow {
			problem = "shorter than " + rules.FormatWindow(window.MinWindow)
		} else if l.Window > window.MaxWindow {
			problem = "longer than " + rules.FormatWindow(window.MaxWindow)
		}
		r.decoder.Problem(length, "window %s is %s", written.length(l.Window), problem)
		ok = false
	}
	return l, ok
}

// length returns a window as the file has it.
func (l *limit) length(length time.Duration) string {
	if l.Window.Set {
		return strict.Quoteless(l.Window.Value)
	}
	return rules.FormatWindow(length)
}

// unitNamed returns the length of a unit of envoyproxy/ratelimit, in any case.
func unitNamed(name string) (time.Duration, bool) {
	for _, u := range units {
		if u.name == strings.ToLower(name) {
			return u.length, true
		}
	}
	return 0, false
}

// countable refuses more hits than a limit can have.
func (r *rulesReader) countable(hits uint64, at strict.Position) bool {
	if hits > window.MaxHits {
		r.decoder.Problem(at, "%s is above %d, the largest number that Envoy's protocol can carry", r.decoder.Quote(strconv.FormatUint(hits, 10)), uint64(window.MaxHits))
		return false
	}
	return true
}
