package rules

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// A Limit of a rule, with the name it has in headers.
type Limit struct {
	window.Limit
	// Precision is the unit that times are rounded up to; see [window.Check]. Zero is
	// exact. The default of rules files is [window.Precision].
	Precision time.Duration
	// Lease bounds what a process may reserve ahead; see [window.Check]. Zero reserves
	// nothing.
	Lease window.Lease
	// Name is the limit's name in the RateLimit and RateLimit-Policy headers: the rule's name,
	// followed by FormatLog if the rule has several limits. [Rules.Add] sets it.
	Name string
	// Calendar computes the periods of a limit with [window.Calendar]; nil for others.
	Calendar *calendar.Calendar
	// StartsLabel is the label of a subject that says on which day the periods of Calendar start; see
	// [calendar.Calendar.Starting]. A subject without the label has the periods of Calendar.
	StartsLabel string
	// Budget makes the limit reserve the estimated cost of a stream, and record at its end what it has
	// cost. Nil: a cost is recorded at once.
	Budget *Budget
	// Currency is the currency of a limit whose hits are millionths of it, such as usd. People read
	// them so. Empty: hits are units.
	Currency string
}

// log names the log of the limit, without a key.
func (l *Limit) log() window.LogID { return window.Check{Limit: l.Limit}.Log() }

// LeaseLength is the length of a lease if the rule sets only its size.
const LeaseLength = 50 * time.Millisecond

// Terms are the limits of a tier, and whether they deny. The zero value limits nothing.
type Terms struct {
	// Limits must all have room.
	Limits []Limit
	// Unlimited means that the rule does not limit the tier. Limits is empty then.
	Unlimited bool
	// Observe is the fraction of logs, from 0 to 1, whose limits are only observed (shadow
	// mode): they are decided and reported, but never deny. The name of a log decides
	// whether it is in the fraction, so all processes agree.
	Observe float64
}

func (t *Terms) inFlight() bool {
	return slices.ContainsFunc(t.Limits, func(l Limit) bool { return l.Policy == window.InFlight })
}

// holds reports whether streams hold something in a log: in flight, or of a budget.
func (t *Terms) holds() bool {
	return t.inFlight() || slices.ContainsFunc(t.Limits, func(l Limit) bool { return l.Budget != nil })
}

// Empty reports whether the terms have no limits and are not unlimited.
func (t *Terms) Empty() bool { return len(t.Limits) == 0 && !t.Unlimited }

// FillTime returns how long an empty token bucket takes to fill. exact is false if that is not
// a whole number of nanoseconds; it is then rounded up. The limit must be valid.
func FillTime(l window.Limit) (fill time.Duration, exact bool) {
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
func AppendLimit(b []byte, l window.Limit) []byte { return appendLimit(b, l, "") }

// AppendTo appends what [AppendLimit] does, with the currency of l.
func (l *Limit) AppendTo(b []byte) []byte { return appendLimit(b, l.Limit, l.Currency) }

// Text returns what [Limit.AppendTo] appends.
func (l *Limit) Text() string { return string(l.AppendTo(nil)) }

func appendLimit(b []byte, l window.Limit, currency string) []byte {
	if l.Policy == window.TokenBucket {
		b = appendWindow(append(appendAmount(b, uint64(l.Rate), currency, true), " per "...), l.Window)
		return appendAmount(append(b, ", bursts of "...), l.Hits, currency, true)
	}
	b = appendAmount(b, l.Hits, currency, true)
	switch l.Policy {
	case window.InFlight:
		return append(b, " requests in flight"...)
	case window.Calendar:
		return append(append(b, " per "...), Unit(l.Window)...)
	}
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

// FormatLog returns the part of a limit's name or metric label that differs between the limits of one
// rule: 1m for a sliding window, and with other policies bucket-1s, fixed-1m, month, counter-1m and
// in_flight. Two limits of a rule with the same text share a log.
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

// Rounding returns the step to which a sliding log rounds up the times of hits: the precision in
// whole units of the log. A hit counts for less than Window plus Rounding. Zero: times are exact.
func (l *Limit) Rounding() time.Duration {
	unit := packed.Unit(l.Window)
	if l.Policy != window.Sliding || unit == time.Microsecond && l.Precision <= unit {
		return 0
	}
	return max((l.Precision+unit-1)/unit, 1) * unit
}

// WorstCase returns the most hits that a limit admits in any interval of its window's length,
// whatever the callers do. For a token bucket the interval is the time in which Rate hits come back.
// A lease, a precision and usage updates do not change it: updates charge over the limit.
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

// FormatLease describes a lease. It returns an empty text for the zero value.
func FormatLease(l window.Lease) string {
	switch {
	case l.Length == 0:
		return ""
	case l.Hits == 0:
		return "for " + l.Length.String()
	default:
		return fmt.Sprintf("up to %d for %v", l.Hits, l.Length)
	}
}

// FormatWindow writes a window as rules files do: 10s, 1m, 1d.
func FormatWindow(d time.Duration) string { return string(appendWindow(nil, d)) }

// appendWindow appends what [FormatWindow] writes.
func appendWindow(b []byte, d time.Duration) []byte {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{
		{7 * 24 * time.Hour, "w"},
		{24 * time.Hour, "d"},
		{time.Hour, "h"},
		{time.Minute, "m"},
		{time.Second, "s"},
		{time.Millisecond, "ms"},
	} {
		if d%u.length == 0 {
			return append(strconv.AppendInt(b, int64(d/u.length), 10), u.name...)
		}
	}
	return append(strconv.AppendInt(b, d.Microseconds(), 10), "us"...)
}

// Covering returns how many windows of o cover the longest time that a hit counts in l.
func Covering(o, l *Limit) uint64 {
	return uint64((l.Window + l.Rounding() + o.Window - 1) / o.Window)
}
