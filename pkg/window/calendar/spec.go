package calendar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Unit says how long a period is. The zero value is no unit.
type Unit uint8

// The units, from the shortest to the longest.
const (
	Hour Unit = iota + 1
	Day
	Week
	Month
	Quarter
	Year
)

var units = [...]struct {
	name    string
	nominal time.Duration
}{
	Hour:    {"hour", time.Hour},
	Day:     {"day", 24 * time.Hour},
	Week:    {"week", 7 * 24 * time.Hour},
	Month:   {"month", 30 * 24 * time.Hour},
	Quarter: {"quarter", 91 * 24 * time.Hour},
	Year:    {"year", 365 * 24 * time.Hour},
}

// ParseUnit returns the unit of a name, in any case.
func ParseUnit(name string) (Unit, bool) {
	for u := Hour; u <= Year; u++ {
		if strings.EqualFold(name, units[u].name) {
			return u, true
		}
	}
	return 0, false
}

// String returns the unit's name, as rules files write it.
func (u Unit) String() string {
	if u >= Hour && u <= Year {
		return units[u].name
	}
	return fmt.Sprintf("Unit(%d)", uint8(u))
}

// Nominal returns the length that a limit of the unit has as its window: 30 days for a month,
// 91 for a quarter, 365 for a year. The periods themselves are as long as the calendar says. It
// returns 0 for what is not a unit.
func (u Unit) Nominal() time.Duration {
	if u >= Hour && u <= Year {
		return units[u].nominal
	}
	return 0
}

// A Spec says which periods a calendar has, in the words of a rules file.
type Spec struct {
	// Unit is the name of a unit: hour, day, week, month, quarter or year.
	Unit string
	// TimeZone is a name of the IANA database, such as Europe/Berlin. Empty: UTC.
	TimeZone string
	Starts   Starts
}

// Starts says where in the local clock periods start. What is empty or nil has the first value
// there is; a week starts on Monday.
type Starts struct {
	// Month is the month in which a year starts, or in which one of the quarters does: 1 to
	// 12, or an English name.
	Month string
	// Day is the day of the month on which months, quarters and years start. A month that
	// has no such day has the start on its last day.
	Day *int
	// Weekday is the day on which weeks start: an English name.
	Weekday string
	// Hour, 0 to 23, is for all units but the hour. Minute, 0 to 59, is for all.
	Hour, Minute *int
}

// A FieldError says what is wrong with one field of a [Spec].
type FieldError struct {
	// Field names the field as a rules file does: unit, time_zone, starts.day.
	Field string
	// Message says what is wrong and what to write. It does not name the field.
	Message string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// New returns the calendar of a spec. The error joins a [*FieldError] for each mistake;
// [FieldErrors] returns them.
func New(s Spec) (*Calendar, error) {
	var r reader
	c := &Calendar{unit: r.unit(s.Unit), zone: r.zone(s.TimeZone)}
	if c.unit != 0 {
		c.anchor = r.anchor(c.unit, s.Starts)
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return c, nil
}

// FieldErrors returns the mistakes that an error of [New] joins.
func FieldErrors(err error) (mistakes []*FieldError) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, e := range joined.Unwrap() {
		if mistake, ok := errors.AsType[*FieldError](e); ok {
			mistakes = append(mistakes, mistake)
		}
	}
	return mistakes
}

// A reader reads a spec and keeps every mistake.
type reader struct{ errs []error }

func (r *reader) fail(field, format string, args ...any) {
	r.errs = append(r.errs, &FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) unit(name string) Unit {
	u, ok := ParseUnit(name)
	switch {
	case name == "":
		r.fail("unit", "is missing; write hour, day, week, month, quarter or year")
	case !ok:
		r.fail("unit", "%.64q is not a unit of a calendar; write hour, day, week, month, quarter or year", name)
	}
	return u
}

func (r *reader) zone(name string) *time.Location {
	if name == "" {
		return time.UTC
	}
	zone, err := time.LoadLocation(name)
	switch {
	case name == "Local":
		r.fail("time_zone", "Local is another zone on each machine; write a name of the IANA database, such as Europe/Berlin")
	case err != nil:
		r.fail("time_zone", "unknown time zone %.64q; write a name of the IANA database, such as Europe/Berlin, America/New_York or UTC", name)
	}
	return zone
}

// anchor reads starts, and refuses what a unit does not have.
func (r *reader) anchor(u Unit, s Starts) (a anchor) {
	a = anchor{month: time.January, day: 1, weekday: time.Monday}
	if s.Month != "" && r.has(u >= Quarter, u, "month", "a quarter or a year") {
		month, ok := parseMonth(s.Month)
		if !ok {
			r.fail("starts.month", "%.64q is not a month; write 1 to 12 or january to december", s.Month)
		}
		a.month = month
	}
	if s.Day != nil && r.has(u >= Month, u, "day", "a month, a quarter or a year") {
		a.day = r.within("starts.day", *s.Day, 1, maxDay)
	}
	if s.Weekday != "" && r.has(u == Week, u, "weekday", "a week") {
		weekday, ok := parseWeekday(s.Weekday)
		if !ok {
			r.fail("starts.weekday", "%.64q is not a day of the week; write monday to sunday", s.Weekday)
		}
		a.weekday = weekday
	}
	if s.Hour != nil && r.has(u > Hour, u, "hour", "a day or a longer unit") {
		a.hour = r.within("starts.hour", *s.Hour, 0, 23)
	}
	if s.Minute != nil {
		a.minute = r.within("starts.minute", *s.Minute, 0, 59)
	}
	// What the unit does not have is the same in all its calendars.
	if u != Week {
		a.weekday = 0
	}
	return a
}

// has refuses a field that a unit does not have.
func (r *reader) has(ok bool, u Unit, field, units string) bool {
	if !ok {
		r.fail("starts."+field, "only %s has it, and the unit is %v; remove it", units, u)
	}
	return ok
}

func (r *reader) within(field string, n, low, high int) int {
	if n < low || n > high {
		r.fail(field, "%d is not between %d and %d", n, low, high)
	}
	return n
}

// parseMonth reads a month: 1 to 12, or an English name of at least three letters.
func parseMonth(text string) (time.Month, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return time.Month(n), n >= 1 && n <= 12
	}
	for m := time.January; m <= time.December; m++ {
		if isName(text, m.String()) {
			return m, true
		}
	}
	return 0, false
}

// parseWeekday reads an English name of at least three letters.
func parseWeekday(text string) (time.Weekday, bool) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if isName(text, d.String()) {
			return d, true
		}
	}
	return 0, false
}

// isName reports whether a text is a name or its first three letters, in any case.
func isName(text, name string) bool {
	return strings.EqualFold(text, name) || strings.EqualFold(text, name[:3])
}

// parseDay reads a day of the month: 1 to 31, with or without a leading zero.
func parseDay(text string) (int, bool) {
	if len(text) < 1 || len(text) > 2 {
		return 0, false
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = n*10 + int(text[i]-'0')
	}
	return n, n >= 1 && n <= maxDay
}
