package calendar

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// zones are those of the tests: usual ones, and those that have done something unusual since
// 1970.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata", "America/Sao_Paulo",
	"Australia/Lord_Howe",  // half an hour of summer time
	"Asia/Pyongyang",       // half an hour back in 2015, forward in 2018
	"Pacific/Apia",         // no 30 December 2011
	"Pacific/Fakaofo",      // no 30 December 2011
	"Pacific/Kwajalein",    // no 21 August 1993
	"Pacific/Kiritimati",   // no 31 December 1994
	"Africa/Casablanca",    // an hour back in Ramadan
	"Africa/El_Aaiun",      // likewise
	"Africa/Cairo",         // skips midnight
	"Africa/Monrovia",      // 44 minutes and 30 seconds until 1972
	"Africa/Juba",          // an hour back in 2021
	"America/Havana",       // midnight comes twice
	"America/Asuncion",     // summer time for ever since 2024
	"America/St_Johns",     // changed at 00:01
	"America/Caracas",      // half an hour back in 2007, forward in 2016
	"America/Scoresbysund", // other rules since 2024
	"America/Nuuk",         // likewise, at an hour before midnight
	"Antarctica/Troll",     // two hours of summer time
	"Antarctica/Casey",     // three hours, several times
	"Asia/Gaza",            // other dates each year
	"Asia/Beirut",          // midnight to 01:00
	"Asia/Tehran",          // no summer time since 2022
	"Asia/Amman",           // likewise
	"Asia/Kathmandu",       // a quarter of an hour in 1986
	"Europe/Volgograd",     // changed four times since 2010
	"Asia/Pontianak",
	"Atlantic/Azores",
	"Europe/Dublin", // summer time is its standard time
	"Europe/Istanbul",
	"Europe/Lisbon",
	"Europe/London",
	"Pacific/Chatham", // three quarters of an hour
	"Pacific/Norfolk",
	"Pacific/Bougainville",
	"Pacific/Guam",
	"Etc/GMT+12", "Etc/GMT-14",
}

// A walker finds the starts of periods in another way than the package does: it walks through
// time, reads the local clock at each step as people read it, and asks whether the clock has
// come to an anchor that it has not been at before. It shares no arithmetic with the package.
type walker struct {
	unit   Unit
	zone   *time.Location
	anchor anchor
}

// clock returns what the local clock shows, as a time in UTC.
func (w *walker) clock(at time.Time) time.Time {
	l := at.In(w.zone)
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
}

// isAnchor reports whether periods start when the clock shows so.
func (w *walker) isAnchor(clock time.Time) bool {
	a := &w.anchor
	if clock.Second() != 0 || clock.Minute() != a.minute {
		return false
	}
	if w.unit == Hour {
		return true
	}
	if clock.Hour() != a.hour {
		return false
	}
	lastOfMonth := clock.AddDate(0, 0, 1).Month() != clock.Month()
	day := clock.Day() == a.day || lastOfMonth && clock.Day() < a.day
	switch w.unit {
	case Day:
		return true
	case Week:
		return clock.Weekday() == a.weekday
	case Month:
		return day
	case Quarter:
		return day && (int(clock.Month())+12-int(a.month))%3 == 0
	default:
		return day && clock.Month() == a.month
	}
}

// crosses reports whether the clock comes to an anchor after it shows from, until it shows to.
func (w *walker) crosses(from, to time.Time) bool {
	// Anchors are at one minute of each hour.
	c := from.Truncate(time.Hour).Add(time.Duration(w.anchor.minute) * time.Minute)
	for ; !c.After(to); c = c.Add(time.Hour) {
		if !c.After(from) {
			continue
		}
		if w.isAnchor(c) {
			return true
		}
	}
	return false
}

// starts returns when periods start, after from and until to. It walks by the hour, and by the
// minute or the second through each hour in which a period may start.
func (w *walker) starts(from, to time.Time) (found []int64) {
	latest := w.clock(from) // the latest that the clock has shown
	step := func(at time.Time) {
		clock := w.clock(at)
		if !clock.After(latest) {
			// The clock has gone back. Only hours begin a second time.
			if w.unit == Hour {
				latest = clock
				if w.isAnchor(clock) {
					found = append(found, at.Unix())
				}
			}
			return
		}
		if w.crosses(latest, clock) {
			found = append(found, at.Unix())
		}
		latest = clock
	}
	for at := from; at.Before(to); at = at.Add(time.Hour) {
		next := at.Add(time.Hour)
		clock := w.clock(next)
		even := clock.Sub(w.clock(at)) == time.Hour
		if even && !clock.Before(latest) && !w.crosses(latest, clock) {
			latest = clock
			continue
		}
		fine := time.Minute
		if !even || clock.Second() != 0 {
			fine = time.Second
		}
		for sub := at.Add(fine); !sub.After(next); sub = sub.Add(fine) {
			step(sub)
		}
	}
	return found
}

// anyStarts returns any start that a unit can have.
func anyStarts(rng *rand.Rand, u Unit) (s Starts) {
	if u >= Quarter {
		s.Month = time.Month(1 + rng.IntN(12)).String()
	}
	if u >= Month {
		s.Day = ptr(1 + rng.IntN(31))
		if rng.IntN(3) == 0 {
			s.Day = ptr(28 + rng.IntN(4))
		}
	}
	if u == Week {
		s.Weekday = time.Weekday(rng.IntN(7)).String()
	}
	if u > Hour {
		// Most clocks change in the first hours of the day.
		s.Hour = ptr(rng.IntN(4))
		if rng.IntN(3) == 0 {
			s.Hour = ptr(rng.IntN(24))
		}
	}
	if rng.IntN(2) == 0 {
		s.Minute = ptr(rng.IntN(60))
	}
	return s
}

// check compares the periods of a calendar with those that a walk has found.
func check(tb testing.TB, c *Calendar, from, to time.Time) (periods int) {
	tb.Helper()
	w := &walker{unit: c.unit, zone: c.zone, anchor: c.anchor}
	starts := w.starts(from, to)
	for i := 0; i+2 < len(starts); i++ {
		want := window.Period{Start: starts[i], End: starts[i+1], Next: starts[i+2]}
		for _, at := range []int64{want.Start, want.Start + (want.End-want.Start)/3, want.End - 1} {
			if got := c.Period(time.Unix(at, 999_999_999)); got != want {
				tb.Fatalf("%v at %v:\n got %v\nwant %v", c, time.Unix(at, 0).UTC(), write(got), write(want))
			}
		}
	}
	return len(starts) - 2
}

// TestPeriodsAreThoseOfAWalk compares every zone and unit with the walk, over years chosen at
// random and over the days of the changes that are famous. make test takes a twentieth of them at random.
func TestPeriodsAreThoseOfAWalk(t *testing.T) {
	famous := []string{
		"1972-01-05", "1993-08-18", "1994-12-28", "2007-12-07", "2011-12-28", "2015-08-13", "2016-04-29", "2018-05-02",
		"2026-02-13", "2026-03-20", "2026-03-26", "2026-04-02", "2026-10-01", "2026-10-22", "2026-10-29",
	}
	rng := random.Rand(t, 26)
	periods := 0
	for _, zone := range zones {
		for u := Hour; u <= Year; u++ {
			if !random.Long() && rng.IntN(20) > 0 {
				continue
			}
			c := calendarOf(t, Spec{Unit: u.String(), TimeZone: zone, Starts: anyStarts(rng, u)})
			length := max(5*u.Nominal(), Year.Nominal()+u.Nominal())
			if u < Week {
				length = 3 * u.Nominal()
			}
			for range 2 {
				from := time.Unix(rng.Int64N(75*365*secondsPerDay), 0).Truncate(24 * time.Hour)
				periods += check(t, c, from, from.Add(length+24*time.Hour))
			}
			if u > Week {
				continue
			}
			for _, day := range famous {
				from := instantOf(t, day+" 00:00:00")
				periods += check(t, c, from, from.Add(7*24*time.Hour+2*u.Nominal()))
			}
		}
	}
	t.Logf("%d periods", periods)
}

// FuzzPeriod compares one period with the walk, and follows the periods from there: each
// begins where the one before it ends.
func FuzzPeriod(f *testing.F) {
	f.Add(uint8(2), uint8(8), int64(1325239200), uint64(1))
	f.Add(uint8(1), uint8(6), int64(1775314800), uint64(2))
	f.Add(uint8(6), uint8(1), int64(0), uint64(3))
	f.Add(uint8(0x95), uint8(0xd9), int64(1775314683), uint64(31)) // 31 December of a leap year
	f.Add(uint8(42), uint8(8), int64(1325239255), uint64(0))       // an hour that a skipped day begins
	f.Fuzz(func(t *testing.T, unit, zone uint8, at int64, seed uint64) {
		u := Hour + Unit(unit)%Year
		rng := rand.New(rand.NewPCG(seed, 0))
		spec := Spec{Unit: u.String(), TimeZone: zones[int(zone)%len(zones)], Starts: anyStarts(rng, u)}
		c := calendarOf(t, spec)
		p := c.Period(time.Unix(at, 0))
		at = min(max(at, 0), maxInstant)
		if at < p.Start || at >= p.End || p.End >= p.Next {
			t.Fatalf("%v: Period(%d) = %v", c, at, p)
		}
		if last := c.Period(time.Unix(p.End-1, 0)); last != p {
			t.Fatalf("%v: the last second of %v is in %v", c, p, last)
		}
		if at := time.Unix(p.Start-1, 0); p.Start > 0 && c.Period(at).End != p.Start {
			t.Fatalf("%v: the second before %v is in %v", c, p, c.Period(at))
		}
		for range 20 {
			next := c.Period(time.Unix(p.End, 0))
			if next.Start != p.End || next.End != p.Next {
				t.Fatalf("%v: %v follows %v", c, next, p)
			}
			p = next
		}
		// The walk follows the clock until 2100; later rules only repeat.
		if at < secondsPerDay*366 || at > 130*365*secondsPerDay {
			return
		}
		from := time.Unix(at, 0).Add(-u.Nominal() - 2*24*time.Hour).Truncate(24 * time.Hour)
		check(t, c, from, from.Add(4*u.Nominal()+4*24*time.Hour))
	})
}
