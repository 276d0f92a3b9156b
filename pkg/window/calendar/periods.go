package calendar

import (
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// maxInstant is the last instant that has a period, in seconds since 1970: some day of the
// year 9000.
const maxInstant = 7031 * 365 * secondsPerDay

const (
	secondsPerHour = 60 * 60
	secondsPerDay  = 24 * secondsPerHour
)

// compute returns the period in which an instant is.
func (c *Calendar) compute(now int64) (p window.Period) {
	if c.unit == Hour {
		p.Start = c.hourAt(now)
		p.End = c.hourAfter(now)
		p.Next = c.hourAfter(p.End)
	} else {
		// The guess is at most one period late, where the clock has skipped back over an
		// anchor, and never early. Instants do not decrease with the number of the period.
		n := c.number(now + c.offset(now))
		for c.instant(n) > now {
			n--
		}
		for c.instant(n+1) <= now {
			n++
		}
		p.Start, p.End = c.instant(n), c.instant(n+1)
		// A period is empty if the clock skips all of it.
		for n += 2; ; n++ {
			if p.Next = c.instant(n); p.Next > p.End {
				break
			}
		}
	}
	p.Start = max(p.Start, 0)
	return p
}

// offset returns how far the local clock is ahead of UTC at an instant, in seconds.
func (c *Calendar) offset(at int64) int64 {
	_, offset := time.Unix(at, 0).In(c.zone).Zone()
	return int64(offset)
}

// span returns the offset at an instant, and a span around it in which the offset is the same:
// begin is in it, and end is not. The offset may stay the same beyond. A span without a
// beginning or an end has a far one.
func (c *Calendar) span(at int64) (offset, begin, end int64) {
	t := time.Unix(at, 0).In(c.zone)
	first, last := t.ZoneBounds()
	begin, end = -1<<62, 1<<62
	if !first.IsZero() {
		begin = first.Unix()
	}
	if !last.IsZero() {
		end = last.Unix()
	}
	if end <= at {
		// On 31 December of a leap year, time.Time.ZoneBounds returns an end that is over,
		// because it gives every year 365 days. A clock changes at a whole minute.
		end = at - at%60 + 60
	}
	_, seconds := t.Zone()
	return int64(seconds), begin, end
}

// maxOffset is more than any offset of a time zone, in seconds.
const maxOffset = 26 * secondsPerHour

// instant returns when period n begins: the first instant at which the local clock shows its
// anchor or a later time.
func (c *Calendar) instant(n int64) int64 {
	anchor := c.local(n)
	at := anchor - maxOffset
	for {
		offset, _, end := c.span(at)
		at = max(at, anchor-offset)
		if at < end {
			return at
		}
		at = end
	}
}

// local returns the anchor of period n as the seconds that UTC would count for it.
func (c *Calendar) local(n int64) int64 {
	a := &c.anchor
	var day int64
	switch c.unit {
	case Day:
		day = n
	case Week:
		// 1970-01-01 was a Thursday.
		day = n*7 + int64(a.weekday-time.Thursday)
	case Month:
		day = dayOf(n, a.day)
	case Quarter:
		day = dayOf(n*3+int64(a.month-time.January)%3, a.day)
	default:
		day = dayOf(n*12+int64(a.month-time.January), a.day)
	}
	return day*secondsPerDay + int64(a.hour)*secondsPerHour + int64(a.minute)*60
}

// number returns the number of a period that begins near a local time.
func (c *Calendar) number(local int64) int64 {
	day := floor(local, secondsPerDay)
	switch c.unit {
	case Day:
		return day
	case Week:
		return floor(day-int64(c.anchor.weekday-time.Thursday), 7)
	}
	t := time.Unix(local, 0).UTC()
	month := int64(t.Year()-1970)*12 + int64(t.Month()-time.January)
	switch c.unit {
	case Month:
		return month
	case Quarter:
		return floor(month, 3)
	default:
		return floor(month, 12)
	}
}

// dayOf returns a day of a month as days since 1970, or the month's last day if it has no such
// day. month counts from January 1970.
func dayOf(month int64, day int) int64 {
	first := time.Date(1970, time.January+time.Month(month), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return floor(first.Unix(), secondsPerDay) + int64(min(day, last)) - 1
}

// hourAt returns when the hour of an instant begins.
func (c *Calendar) hourAt(at int64) int64 {
	minute := int64(c.anchor.minute) * 60
	for {
		offset, begin, _ := c.span(at)
		hour := floor(at+offset-minute, secondsPerHour)*secondsPerHour + minute - offset
		if hour >= begin {
			return hour
		}
		// The clock has changed since the anchor. If it has skipped the anchor, the hour
		// begins there. Otherwise it began before the change.
		before := c.offset(begin - 1)
		if hour+offset >= begin+before {
			return begin
		}
		at = begin - 1
	}
}

// hourAfter returns when the hour after that of an instant begins.
func (c *Calendar) hourAfter(at int64) int64 {
	minute := int64(c.anchor.minute) * 60
	for {
		offset, _, end := c.span(at)
		next := (floor(at+offset-minute, secondsPerHour)+1)*secondsPerHour + minute - offset
		if next < end {
			return next
		}
		// The clock changes first. If it skips the anchor or changes to one, the hour begins
		// there.
		local := end + c.offset(end)
		if next+offset <= local || (local-minute)%secondsPerHour == 0 {
			return end
		}
		at = end
	}
}

// floor returns a / b rounded down. b is above zero.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
