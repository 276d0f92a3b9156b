package policy

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// inFlightRetry is the wait that answers tell if a limit of requests in flight is full. It is
// the shortest that they can tell: any of these requests may end at any time.
const inFlightRetry = time.Second

// fillTime returns how long an empty token bucket takes to fill. exact is false if that is not
// a whole number of nanoseconds; it is then rounded up. The limit must be valid.
func fillTime(l window.Limit) (fill time.Duration, exact bool) {
	hi, lo := bits.Mul64(l.Hits, uint64(l.Window))
	if l.Rate == 0 || hi >= uint64(l.Rate) {
		return window.MaxWindow, false // not a valid limit
	}
	q, rest := bits.Div64(hi, lo, uint64(l.Rate))
	if rest > 0 {
		q++
	}
	return time.Duration(min(q, uint64(window.MaxWindow))), rest == 0
}

// AppendLimit appends a limit as operators read it: "100 per 1m" for a sliding window, and
// with other policies "10 per 1s, bursts of 50", "100 per 1m fixed", "100 per month",
// "100 per 1m sliding_counter" and "20 requests in flight".
func AppendLimit(b []byte, l window.Limit) []byte {
	number := func(n uint64) { b = strconv.AppendUint(b, n, 10) }
	switch l.Policy {
	case window.TokenBucket:
		number(uint64(l.Rate))
		b = appendWindow(append(b, " per "...), l.Window)
		b = append(b, ", bursts of "...)
		number(l.Hits)
		return b
	case window.InFlight:
		number(l.Hits)
		return append(b, " requests in flight"...)
	case window.Calendar:
		number(l.Hits)
		return append(append(b, " per "...), Unit(l.Window)...)
	}
	number(l.Hits)
	b = appendWindow(append(b, " per "...), l.Window)
	if l.Policy != window.Sliding {
		b = append(append(b, ' '), l.Policy.String()...)
	}
	return b
}

// FormatLimit returns what [AppendLimit] appends.
func FormatLimit(l window.Limit) string { return string(AppendLimit(nil, l)) }

// Unit returns the unit of a calendar whose periods usually have this length: month. It
// returns "period" for any other length.
func Unit(length time.Duration) string {
	for u := calendar.Hour; u <= calendar.Year; u++ {
		if u.Nominal() == length {
			return u.String()
		}
	}
	return "period"
}

// FormatLog names what tells one limit of a rule from its others, in names of limits and in
// metrics: 1m for a sliding window, and with other policies bucket-1s, fixed-1m, month,
// counter-1m and in_flight. Two limits with one text share a log.
func FormatLog(p window.Policy, win time.Duration) string {
	switch p {
	case window.TokenBucket:
		return "bucket-" + FormatWindow(win)
	case window.Fixed:
		return "fixed-" + FormatWindow(win)
	case window.Calendar:
		return Unit(win)
	case window.SlidingCounter:
		return "counter-" + FormatWindow(win)
	case window.InFlight:
		return window.InFlight.String()
	default:
		return FormatWindow(win)
	}
}

// ParsePolicy returns the policy with a name that [window.Policy.String] returns. It returns
// window.Sliding for any other text.
func ParsePolicy(name string) window.Policy {
	for p := window.Sliding; p <= window.InFlight; p++ {
		if p.String() == name {
			return p
		}
	}
	return window.Sliding
}

// Span returns the time that the hits of the limit are for, which answers tell as its window:
//
//   - sliding, fixed and sliding_counter: the window
//   - token_bucket: how long an empty bucket takes to fill
//   - calendar: the length of the present period. After a change of the calendar the old period
//     may be longer; Span is then the wait until it ends.
//   - in_flight: zero, because hits are for no time
//
// exact is false if the time is rounded up.
func (s *LimitStatus) Span() (span time.Duration, exact bool) {
	l := &s.Limit.Limit
	switch l.Policy {
	case window.TokenBucket:
		return fillTime(*l)
	case window.InFlight:
		return 0, true
	case window.Calendar:
		if span = time.Duration(s.Period.End-s.Period.Start) * time.Second; span <= 0 {
			return l.Window, false // not asked
		}
		if wait := s.Decision.ResetAfter; wait > span {
			return wait, false
		}
	default:
		return l.Window, true
	}
	return span, true
}

// Rounding returns the time to a multiple of which a sliding log rounds up the times of hits: the
// precision in whole units of the log. So a hit counts for less than Window and Rounding together.
// Zero: times are exact.
func (l *Limit) Rounding() time.Duration {
	unit := packed.Unit(l.Window)
	if l.Policy != window.Sliding || unit == time.Microsecond && l.Precision <= unit {
		return 0
	}
	return max((l.Precision+unit-1)/unit, 1) * unit
}

// WorstCase returns the most hits that a limit admits in any interval of its window's length,
// with any callers. For a token bucket it is the most in the time in which Rate hits come back.
// A lease, a precision and usage reports do not change it: reports add debt.
func WorstCase(l window.Limit) uint64 {
	switch l.Policy {
	case window.TokenBucket:
		return l.Hits + uint64(l.Rate)
	case window.Fixed, window.Calendar:
		return 2 * l.Hits
	case window.SlidingCounter:
		// All of one window at its end, and then all but one hit of the next: one hit of the
		// previous window counts until its last instant.
		return max(2*l.Hits, 1) - 1
	default:
		return l.Hits
	}
}
