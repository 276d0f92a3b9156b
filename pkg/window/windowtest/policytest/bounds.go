package policytest

import (
	"math/rand/v2"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A cycle is a naive maker of the periods of a calendar: it counts them from 1970.
type cycle struct {
	name    string
	Nominal time.Duration          // the window that names the log
	bound   func(n, a int64) int64 // the start of period n with the anchor a, in seconds
	anchor  int64                  // anchors are below it
}

const hourSeconds, daySeconds = int64(3600), int64(86400)

// saved is what clocks are set forward by on a day, counted from 1970: an hour for half of
// each year of 364 days. So one day has 23 hours and another 25.
func saved(day int64) int64 {
	if d := day % 364; d > 86 && d <= 300 {
		return hourSeconds
	}
	return 0
}

// month returns the first second of a day in the month n. A month that has no such day uses
// its last one.
func month(n, first int64) int64 {
	year, in := 1970+int(n/12), time.Month(n%12+1)
	last := time.Date(year, in+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return time.Date(year, in, min(int(first)+1, last), 0, 0, 0, 0, time.UTC).Unix()
}

// Cycles are the units of calendars.
var Cycles = []cycle{
	{"hour", time.Hour, func(n, a int64) int64 { return n*hourSeconds + a*60 }, 60},
	{"day", day, func(n, a int64) int64 { return n*daySeconds - saved(n) + a*hourSeconds }, 24},
	{"week", 7 * day, func(n, a int64) int64 { return (7*n+a)*daySeconds - saved(7*n+a) }, 7},
	{"month", 30 * day, month, 31},
	{"quarter", 91 * day, func(n, a int64) int64 { return month(3*n, a) }, 31},
	{"year", 365 * day, func(n, a int64) int64 { return month(12*n+a, 0) }, 12},
}

// at returns the period in which a second is, and the end of the next one.
func (c *cycle) at(seconds, anchor int64) window.Period {
	n := seconds / int64(c.Nominal/second)
	for c.bound(n, anchor) > seconds {
		n--
	}
	for c.bound(n+1, anchor) <= seconds {
		n++
	}
	return window.Period{Start: c.bound(n, anchor), End: c.bound(n+1, anchor), Next: c.bound(n+2, anchor)}
}

// In returns the period of a store's clock.
func (c *cycle) In(clock time.Duration, anchor int64) window.Period {
	return c.at(int64(clock/second), anchor)
}

// anyAnchor picks an anchor.
func (c *cycle) anyAnchor(r *rand.Rand) int64 { return r.Int64N(c.anchor) }

// The checks of each policy.

func bucketOf(key string, burst, cost uint64, rate uint32, w time.Duration) window.Check {
	c := askIn(w, key, burst, cost)
	c.Limit.Policy, c.Limit.Rate = window.TokenBucket, rate
	return c
}

func fixedIn(w time.Duration, key string, hits, cost uint64) window.Check {
	c := askIn(w, key, hits, cost)
	c.Limit.Policy = window.Fixed
	return c
}

func counterIn(w time.Duration, key string, hits, cost uint64) window.Check {
	c := askIn(w, key, hits, cost)
	c.Limit.Policy = window.SlidingCounter
	return c
}

func calendarIn(w time.Duration, p window.Period, key string, hits, cost uint64) window.Check {
	c := askIn(w, key, hits, cost)
	c.Limit.Policy, c.Period = window.Calendar, p
	return c
}
