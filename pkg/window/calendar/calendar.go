package calendar

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Calendar has periods of one unit in one time zone. [New] makes it. It is safe for
// concurrent use, and must not be copied.
type Calendar struct {
	unit   Unit
	zone   *time.Location
	anchor anchor

	// current is the period that the last caller asked for.
	current atomic.Pointer[window.Period]
	// days are the calendars that [Calendar.Starting] has returned, by day of the month or
	// by day of the week. All of them together are in the first one.
	days [maxDay + 1]atomic.Pointer[Calendar]
}

// maxDay is the largest day of the month.
const maxDay = 31

// An anchor is where a period starts in the local clock. What the unit does not have is zero.
type anchor struct {
	month   time.Month // of a year; a month in which a quarter starts
	day     int        // of the month, 1 to 31
	weekday time.Weekday
	hour    int
	minute  int
}

// Unit returns the unit of the periods.
func (c *Calendar) Unit() Unit { return c.unit }

// TimeZone returns the name of the time zone.
func (c *Calendar) TimeZone() string { return c.zone.String() }

// Local returns an instant in the calendar's time zone, such as the start of a period.
func (c *Calendar) Local(unix int64) time.Time { return time.Unix(unix, 0).In(c.zone) }

// Period returns the period in which at is, and the end of the following one. It does not
// allocate while at stays in the same period. An at before 1970 or after the year 9000 counts
// as the nearest instant between, and no Start is below zero.
func (c *Calendar) Period(at time.Time) window.Period {
	now := min(max(at.Unix(), 0), maxInstant)
	if p := c.current.Load(); p != nil && p.Start <= now && now < p.End {
		return *p
	}
	p := c.compute(now)
	c.current.Store(&p)
	return p
}

// Shortened reports whether the periods start on a day that some months do not have. In such a
// month they start on the last day.
func (c *Calendar) Shortened() bool {
	const shortest = 28 // days of a month
	return c.unit >= Month && c.anchor.day > shortest
}

// Labelled reports whether the periods can start on a day that [Calendar.Starting] takes: those
// of a week, a month, a quarter or a year.
func (c *Calendar) Labelled() bool { return c.unit >= Week }

// The errors of [Calendar.Starting].
var (
	errNoDay      = errors.New("calendar: periods of hours and days do not start on a day of their own")
	errNotWeekday = errors.New("calendar: the text is not a day of the week: write monday to sunday")
	errNotDay     = errors.New("calendar: the text is not a day of the month: write 1 to 31")
)

// Starting returns a calendar like c whose periods start on another day: a day of the week for
// weeks, and a day of the month for months, quarters and years. The error says what day must be,
// without its text. The same day gives the same calendar. It allocates only the first time that
// it is asked for a day.
func (c *Calendar) Starting(day string) (*Calendar, error) {
	a := c.anchor
	slot := 0
	switch {
	case !c.Labelled():
		return nil, errNoDay
	case c.unit == Week:
		weekday, ok := parseWeekday(day)
		if !ok {
			return nil, errNotWeekday
		}
		a.weekday, slot = weekday, int(weekday)
	default:
		n, ok := parseDay(day)
		if !ok {
			return nil, errNotDay
		}
		a.day, slot = n, n
	}
	if a == c.anchor {
		return c, nil
	}
	if known := c.days[slot].Load(); known != nil {
		return known, nil
	}
	c.days[slot].CompareAndSwap(nil, &Calendar{unit: c.unit, zone: c.zone, anchor: a})
	return c.days[slot].Load(), nil
}

// String describes the calendar: month from day 15 at 09:00, Europe/Berlin.
func (c *Calendar) String() string {
	return c.unit.String() + " from " + c.start() + ", " + c.zone.String()
}

// start describes the anchor.
func (c *Calendar) start() string {
	a := &c.anchor
	clock := fmt.Sprintf("%02d:%02d", a.hour, a.minute)
	switch c.unit {
	case Hour:
		return "minute " + strconv.Itoa(a.minute)
	case Day:
		return clock
	case Week:
		return a.weekday.String() + " " + clock
	case Month:
		return fmt.Sprintf("day %d at %s", a.day, clock)
	default:
		return fmt.Sprintf("%v %d at %s", a.month, a.day, clock)
	}
}
