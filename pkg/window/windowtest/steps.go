package windowtest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// A step is one call at one time and everything that it must answer.
type step struct {
	at     time.Duration
	checks []window.Check
	want   []window.Decision
}

const (
	micro  = time.Microsecond
	milli  = time.Millisecond
	second = time.Second
	day    = 24 * time.Hour
	year   = 365 * day

	// sixDays is the longest window whose times are exact to the microsecond.
	sixDays = 6 * day

	// win is the window of most tables.
	win = 10 * second

	// most is the largest limit that is one: MaxHits is unlimited.
	most = window.MaxHits - 1
)

// ask makes a check on the log (key, win).
func ask(key string, hits, cost uint64) window.Check { return askIn(win, key, hits, cost) }

func askIn(w time.Duration, key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: w}, Cost: cost}
}

func one(c window.Check) []window.Check               { return []window.Check{c} }
func group(cs ...window.Check) []window.Check         { return cs }
func answers(ds ...window.Decision) []window.Decision { return ds }

func in(m window.Mode, c window.Check) window.Check {
	c.Mode = m
	return c
}

func precise(p time.Duration, c window.Check) window.Check {
	c.Precision = p
	return c
}

// The kinds of answer. Durations are waits: unit until one unit more has room, reset until
// the log is empty. If the log has one entry, both are the same.
func allowed(remaining uint64, reset time.Duration) window.Decision {
	return allowedOf(remaining, reset, reset)
}

func allowedOf(remaining uint64, unit, reset time.Duration) window.Decision {
	return window.Decision{Allowed: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset}
}

func allowedLast(unit, reset time.Duration) window.Decision {
	return window.Decision{Allowed: true, UnitAfter: unit, ResetAfter: reset}
}

func denied(remaining uint64, retry, unit, reset time.Duration) window.Decision {
	return window.Decision{Remaining: remaining, RetryAfter: retry, UnitAfter: unit, ResetAfter: reset}
}

func never(remaining uint64, unit, reset time.Duration) window.Decision {
	return window.Decision{Never: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset}
}

// unlimited is the answer under a limit of MaxHits.
func unlimited() window.Decision {
	return window.Decision{Allowed: true, Remaining: window.MaxHits}
}

// A table is a history of one or a few logs. Keys need only differ within one.
type table struct {
	name  string
	steps []step
}

// tables are of checks that enforce exact limits.
var tables = []table{
	{"the example of package window", []step{
		{0, one(ask("k", 3, 1)), answers(allowed(2, 10*second))},
		{4 * second, one(ask("k", 3, 1)), answers(allowedOf(1, 6*second, 10*second))},
		{8 * second, one(ask("k", 3, 1)), answers(allowedLast(2*second, 10*second))},
		{9 * second, one(ask("k", 3, 1)), answers(denied(0, 1*second, 1*second, 9*second))},
		{9 * second, one(ask("k", 3, 2)), answers(denied(0, 5*second, 1*second, 9*second))},
		{9 * second, one(ask("k", 3, 4)), answers(never(0, 1*second, 9*second))},
		{10 * second, one(ask("k", 3, 1)), answers(allowedLast(4*second, 10*second))},
	}},
	{"an entry counts until, but not at, its time plus the window", []step{
		{5 * second, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{15*second - micro, one(ask("k", 1, 1)), answers(denied(0, micro, micro, micro))},
		{15 * second, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{15*second + micro, one(ask("k", 1, 1)), answers(denied(0, 10*second-micro, 10*second-micro, 10*second-micro))},
	}},
	{"the edge of a log's oldest of several entries", []step{
		{0, one(ask("k", 3, 1)), answers(allowed(2, 10*second))},
		{0, one(ask("k", 3, 1)), answers(allowed(1, 10*second))},
		{micro, one(ask("k", 3, 1)), answers(allowedLast(10*second-micro, 10*second))},
		{10*second - micro, one(ask("k", 3, 1)), answers(denied(0, micro, micro, 2*micro))},
		{10 * second, one(ask("k", 3, 2)), answers(allowedLast(micro, 10*second))},
		{10 * second, one(ask("k", 3, 1)), answers(denied(0, micro, micro, 10*second))},
	}},
	{"weights", []step{
		{0, one(ask("k", 10, 4)), answers(allowed(6, 10*second))},
		{1 * second, one(ask("k", 10, 3)), answers(allowedOf(3, 9*second, 10*second))},
		{2 * second, one(ask("k", 10, 4)), answers(denied(3, 8*second, 8*second, 9*second))},
		{2 * second, one(ask("k", 10, 3)), answers(allowedLast(8*second, 10*second))},
		{3 * second, one(ask("k", 10, 4)), answers(denied(0, 7*second, 7*second, 9*second))},
		{3 * second, one(ask("k", 10, 5)), answers(denied(0, 8*second, 7*second, 9*second))},
		{3 * second, one(ask("k", 10, 7)), answers(denied(0, 8*second, 7*second, 9*second))},
		{3 * second, one(ask("k", 10, 8)), answers(denied(0, 9*second, 7*second, 9*second))},
	}},
	{"cost zero asks for a unit and records nothing", []step{
		{0, one(ask("k", 2, 0)), answers(allowed(2, 0))},
		{0, one(ask("k", 2, 1)), answers(allowed(1, 10*second))},
		{5 * second, one(ask("k", 2, 0)), answers(allowed(1, 5*second))},
		{6 * second, one(ask("k", 2, 1)), answers(allowedLast(4*second, 10*second))},
		{7 * second, one(ask("k", 2, 0)), answers(denied(0, 3*second, 3*second, 9*second))},
		{10 * second, one(ask("k", 2, 0)), answers(allowed(1, 6*second))},
		{16 * second, one(ask("k", 2, 0)), answers(allowed(2, 0))},
	}},
	{"cost equal to the limit", []step{
		{0, one(ask("k", 5, 5)), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(ask("k", 5, 5)), answers(denied(0, 9*second, 9*second, 9*second))},
		{10 * second, one(ask("k", 5, 5)), answers(allowedLast(10*second, 10*second))},
		{20 * second, one(ask("k", 5, 1)), answers(allowed(4, 10*second))},
		{25 * second, one(ask("k", 5, 5)), answers(denied(4, 5*second, 5*second, 5*second))},
	}},
	{"cost above the limit is never, and free", []step{
		{0, one(ask("k", 2, 3)), answers(never(2, 0, 0))},
		{0, one(ask("k", 2, math.MaxUint64)), answers(never(2, 0, 0))},
		{0, one(ask("k", 2, 2)), answers(allowedLast(10*second, 10*second))},
		{4 * second, one(ask("k", 2, 3)), answers(never(0, 6*second, 6*second))},
		{4 * second, one(ask("k", 2, math.MaxUint64)), answers(never(0, 6*second, 6*second))},
		{4 * second, one(ask("k", 2, 1<<53)), answers(never(0, 6*second, 6*second))},
	}},
	{"limit zero denies everything for ever, and asks no log", []step{
		{0, one(ask("k", 0, 1)), answers(never(0, 0, 0))},
		{0, one(ask("k", 0, 0)), answers(never(0, 0, 0))},
		{1 * second, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{2 * second, one(ask("k", 0, 1)), answers(never(0, 0, 0))},
		{2 * second, group(ask("k", 0, 1), ask("a", 1, 1)), answers(never(0, 0, 0), allowed(1, 0))},
		{2 * second, one(ask("a", 1, 0)), answers(allowed(1, 0))},
		{3 * second, one(ask("k", 2, 1)), answers(allowedLast(8*second, 10*second))},
	}},
	{"the largest limit is unlimited, and stores nothing", []step{
		{0, one(ask("k", window.MaxHits, 1)), answers(unlimited())},
		{0, one(ask("k", window.MaxHits, math.MaxUint64)), answers(unlimited())},
		{0, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(ask("k", window.MaxHits, 5)), answers(unlimited())},
		{1 * second, group(ask("k", window.MaxHits, 5), ask("a", 2, 1)), answers(unlimited(), allowed(1, 10*second))},
		{1 * second, group(ask("a", 2, 1), ask("k", window.MaxHits, 5), ask("b", 2, 3)), answers(allowed(1, 10*second), unlimited(), never(2, 0, 0))},
		// With another limit on the same log it is not the smallest.
		{2 * second, group(ask("k", window.MaxHits, 1), ask("k", 2, 1)), answers(denied(1, 8*second, 8*second, 8*second), denied(1, 8*second, 8*second, 8*second))},
		{10 * second, one(ask("k", 1, 0)), answers(allowed(1, 0))},
	}},
	{"the largest limit that is one", []step{
		{0, one(ask("k", most, most)), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(ask("k", most, most)), answers(denied(0, 9*second, 9*second, 9*second))},
		{1 * second, one(ask("k", most, most+1)), answers(never(0, 9*second, 9*second))},
		{10 * second, one(ask("k", most, most-1)), answers(allowed(1, 10*second))},
		{11 * second, one(ask("k", window.MaxHits, 1)), answers(unlimited())},
		{11 * second, one(ask("k", 7, 1)), answers(denied(0, 9*second, 9*second, 9*second))},
		// Sums go round.
		{20 * second, one(ask("k", most, most)), answers(allowedLast(10*second, 10*second))},
		{25 * second, one(ask("k", most, 1)), answers(denied(0, 5*second, 5*second, 5*second))},
		{30 * second, one(ask("k", 7, 4)), answers(allowed(3, 10*second))},
		{30 * second, one(ask("k", 7, 4)), answers(denied(3, 10*second, 10*second, 10*second))},
	}},
	{"hits of one microsecond expire together", []step{
		{7 * second, one(ask("k", 4, 1)), answers(allowed(3, 10*second))},
		{7 * second, one(ask("k", 4, 2)), answers(allowed(1, 10*second))},
		{7 * second, one(ask("k", 4, 1)), answers(allowedLast(10*second, 10*second))},
		{8 * second, one(ask("k", 4, 1)), answers(denied(0, 9*second, 9*second, 9*second))},
		{8 * second, one(ask("k", 4, 4)), answers(denied(0, 9*second, 9*second, 9*second))},
		{17 * second, one(ask("k", 4, 4)), answers(allowedLast(10*second, 10*second))},
	}},
	{"equal times after older entries have gone", []step{
		{0, one(ask("k", 4, 2)), answers(allowed(2, 10*second))},
		{5 * second, one(ask("k", 4, 1)), answers(allowedOf(1, 5*second, 10*second))},
		{12 * second, one(ask("k", 4, 1)), answers(allowedOf(2, 3*second, 10*second))},
		{12 * second, one(ask("k", 4, 1)), answers(allowedOf(1, 3*second, 10*second))},
		{12 * second, one(ask("k", 4, 1)), answers(allowedLast(3*second, 10*second))},
		{12 * second, one(ask("k", 4, 2)), answers(denied(0, 10*second, 3*second, 10*second))},
	}},
	{"after exactly RetryAfter it fits, a microsecond earlier it does not", []step{
		{0, one(ask("k", 6, 1)), answers(allowed(5, 10*second))},
		{3 * second, one(ask("k", 6, 2)), answers(allowedOf(3, 7*second, 10*second))},
		{5 * second, one(ask("k", 6, 3)), answers(allowedLast(5*second, 10*second))},
		{6 * second, one(ask("k", 6, 4)), answers(denied(0, 9*second, 4*second, 9*second))},
		{15*second - micro, one(ask("k", 6, 4)), answers(denied(3, micro, micro, micro))},
		{15 * second, one(ask("k", 6, 4)), answers(allowed(2, 10*second))},
	}},
	{"a wait counts from the first entry that is left", []step{
		{0, one(ask("k", 6, 1)), answers(allowed(5, 10*second))},
		{1 * second, one(ask("k", 6, 1)), answers(allowedOf(4, 9*second, 10*second))},
		{2 * second, one(ask("k", 6, 1)), answers(allowedOf(3, 8*second, 10*second))},
		{3 * second, one(ask("k", 6, 1)), answers(allowedOf(2, 7*second, 10*second))},
		{4 * second, one(ask("k", 6, 1)), answers(allowedOf(1, 6*second, 10*second))},
		{5 * second, one(ask("k", 6, 1)), answers(allowedLast(5*second, 10*second))},
		// 0, 1 and 2 have expired, and nothing was charged since.
		{12 * second, one(ask("k", 6, 4)), answers(denied(3, 1*second, 1*second, 3*second))},
		{12 * second, one(ask("k", 6, 5)), answers(denied(3, 2*second, 1*second, 3*second))},
		{12 * second, one(ask("k", 6, 6)), answers(denied(3, 3*second, 1*second, 3*second))},
		{12 * second, one(ask("k", 2, 1)), answers(denied(0, 2*second, 2*second, 3*second))},
	}},
	{"a wait where more entries have gone than are left", []step{
		{0, one(ask("k", 6, 1)), answers(allowed(5, 10*second))},
		{1 * second, one(ask("k", 6, 1)), answers(allowedOf(4, 9*second, 10*second))},
		{2 * second, one(ask("k", 6, 1)), answers(allowedOf(3, 8*second, 10*second))},
		{3 * second, one(ask("k", 6, 1)), answers(allowedOf(2, 7*second, 10*second))},
		{8 * second, one(ask("k", 6, 1)), answers(allowedOf(1, 2*second, 10*second))},
		{9 * second, one(ask("k", 6, 1)), answers(allowedLast(1*second, 10*second))},
		{14 * second, one(ask("k", 6, 5)), answers(denied(4, 4*second, 4*second, 5*second))},
		{14 * second, one(ask("k", 6, 6)), answers(denied(4, 5*second, 4*second, 5*second))},
	}},
	{"a log that grows after its oldest entries have gone", []step{
		{0, one(ask("k", 9, 1)), answers(allowed(8, 10*second))},
		{1 * second, one(ask("k", 9, 1)), answers(allowedOf(7, 9*second, 10*second))},
		{2 * second, one(ask("k", 9, 1)), answers(allowedOf(6, 8*second, 10*second))},
		{3 * second, one(ask("k", 9, 1)), answers(allowedOf(5, 7*second, 10*second))},
		{11 * second, one(ask("k", 9, 1)), answers(allowedOf(6, 1*second, 10*second))}, // 2 3 11
		{11*second + micro, one(ask("k", 9, 1)), answers(allowedOf(5, 1*second-micro, 10*second))},
		{11*second + 2*micro, one(ask("k", 9, 1)), answers(allowedOf(4, 1*second-2*micro, 10*second))},
		{11*second + 3*micro, one(ask("k", 9, 1)), answers(allowedOf(3, 1*second-3*micro, 10*second))},
		{11*second + 4*micro, one(ask("k", 9, 3)), answers(allowedLast(1*second-4*micro, 10*second))},
		{11*second + 4*micro, one(ask("k", 9, 2)), answers(denied(0, 2*second-4*micro, 1*second-4*micro, 10*second))},
		{11*second + 4*micro, one(ask("k", 9, 3)), answers(denied(0, 10*second-4*micro, 1*second-4*micro, 10*second))},
		{11*second + 4*micro, one(ask("k", 9, 6)), answers(denied(0, 10*second-micro, 1*second-4*micro, 10*second))},
		{11*second + 4*micro, one(ask("k", 9, 7)), answers(denied(0, 10*second, 1*second-4*micro, 10*second))},
		{21*second + 2*micro, one(ask("k", 9, 0)), answers(allowedOf(5, micro, 2*micro))},
	}},
	{"a log that has expired entirely is as new", []step{
		{0, one(ask("k", 2, 1)), answers(allowed(1, 10*second))},
		{1 * second, one(ask("k", 2, 1)), answers(allowedLast(9*second, 10*second))},
		{11 * second, one(ask("k", 2, 0)), answers(allowed(2, 0))},
		{50 * second, one(ask("k", 2, 3)), answers(never(2, 0, 0))},
		{50 * second, one(ask("k", 2, 2)), answers(allowedLast(10*second, 10*second))},
		{51 * second, one(ask("k", 2, 1)), answers(denied(0, 9*second, 9*second, 9*second))},
	}},
	{"a smaller limit counts at once, with the history kept", []step{
		{0, one(ask("k", 10, 2)), answers(allowed(8, 10*second))},
		{1 * second, one(ask("k", 10, 2)), answers(allowedOf(6, 9*second, 10*second))},
		{2 * second, one(ask("k", 10, 2)), answers(allowedOf(4, 8*second, 10*second))},
		{3 * second, one(ask("k", 10, 2)), answers(allowedOf(2, 7*second, 10*second))},
		// 8 are used. Under 3, a unit needs 6 of them gone, three units all 8.
		{4 * second, one(ask("k", 3, 1)), answers(denied(0, 8*second, 8*second, 9*second))},
		{4 * second, one(ask("k", 3, 0)), answers(denied(0, 8*second, 8*second, 9*second))},
		{4 * second, one(ask("k", 3, 2)), answers(denied(0, 9*second, 8*second, 9*second))},
		{4 * second, one(ask("k", 3, 3)), answers(denied(0, 9*second, 8*second, 9*second))},
		{4 * second, one(ask("k", 3, 4)), answers(never(0, 8*second, 9*second))},
		{12*second - micro, one(ask("k", 3, 1)), answers(denied(0, micro, micro, 1*second+micro))},
		{12 * second, one(ask("k", 3, 1)), answers(allowedLast(1*second, 10*second))},
	}},
	{"a larger limit counts at once, with the history kept", []step{
		{0, one(ask("k", 2, 2)), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(ask("k", 2, 1)), answers(denied(0, 9*second, 9*second, 9*second))},
		{1 * second, one(ask("k", 5, 1)), answers(allowedOf(2, 9*second, 10*second))},
		{2 * second, one(ask("k", 5, 3)), answers(denied(2, 8*second, 8*second, 9*second))},
		{2 * second, one(ask("k", 2, 1)), answers(denied(0, 8*second, 8*second, 9*second))},
	}},
	{"another window is another log", []step{
		{0, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(askIn(20*second, "k", 1, 1)), answers(allowedLast(20*second, 20*second))},
		{10 * second, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{10 * second, one(askIn(20*second, "k", 1, 1)), answers(denied(0, 11*second, 11*second, 11*second))},
		{10 * second, one(askIn(20*second+micro, "k", 1, 0)), answers(allowed(1, 0))},
	}},
	{"several windows on one key: all are charged or none", []step{
		{0, group(ask("k", 2, 1), askIn(60*second, "k", 3, 1)), answers(allowed(1, 10*second), allowed(2, 60*second))},
		{1 * second, group(ask("k", 2, 1), askIn(60*second, "k", 3, 1)), answers(allowedLast(9*second, 10*second), allowedOf(1, 59*second, 60*second))},
		// The short one denies: the long one keeps its remaining unit.
		{2 * second, group(ask("k", 2, 1), askIn(60*second, "k", 3, 1)), answers(denied(0, 8*second, 8*second, 9*second), allowedOf(1, 58*second, 59*second))},
		{10 * second, group(ask("k", 2, 1), askIn(60*second, "k", 3, 1)), answers(allowedLast(1*second, 10*second), allowedLast(50*second, 60*second))},
		// Now the long one denies: the short one keeps its own.
		{12 * second, group(ask("k", 2, 1), askIn(60*second, "k", 3, 1)), answers(allowed(1, 8*second), denied(0, 48*second, 48*second, 58*second))},
		{12 * second, one(ask("k", 2, 1)), answers(allowedLast(8*second, 10*second))},
	}},
	{"several keys: all are charged or none", []step{
		{0, group(ask("a", 3, 1), ask("b", 1, 1), ask("c", 3, 2)), answers(allowed(2, 10*second), allowedLast(10*second, 10*second), allowed(1, 10*second))},
		{1 * second, group(ask("a", 3, 1), ask("b", 1, 1), ask("c", 3, 2)), answers(allowed(2, 9*second), denied(0, 9*second, 9*second, 9*second), denied(1, 9*second, 9*second, 9*second))},
		{1 * second, group(ask("b", 1, 1), ask("a", 3, 1)), answers(denied(0, 9*second, 9*second, 9*second), allowed(2, 9*second))},
		{1 * second, group(ask("a", 3, 1), ask("new", 3, 4)), answers(allowed(2, 9*second), never(3, 0, 0))},
		{1 * second, one(ask("a", 3, 2)), answers(allowedLast(9*second, 10*second))},
		{1 * second, one(ask("new", 3, 3)), answers(allowedLast(10*second, 10*second))},
	}},
	{"a denial of one check does not show in the waits of another", []step{
		{0, group(ask("a", 1, 1), ask("b", 1, 1)), answers(allowedLast(10*second, 10*second), allowedLast(10*second, 10*second))},
		{5 * second, group(ask("a", 1, 1), ask("c", 1, 1)), answers(denied(0, 5*second, 5*second, 5*second), allowed(1, 0))},
		{5 * second, one(ask("c", 1, 0)), answers(allowed(1, 0))},
	}},
	{"cost zero in a group takes part in the decision", []step{
		{0, group(ask("a", 1, 1), ask("b", 2, 0)), answers(allowedLast(10*second, 10*second), allowed(2, 0))},
		{1 * second, group(ask("a", 1, 0), ask("b", 2, 1)), answers(denied(0, 9*second, 9*second, 9*second), allowed(2, 0))},
		{1 * second, one(ask("b", 2, 0)), answers(allowed(2, 0))},
		{2 * second, group(ask("c", 2, 0), ask("b", 2, 1)), answers(allowed(2, 0), allowed(1, 10*second))},
		{2 * second, one(ask("c", 2, 2)), answers(allowedLast(10*second, 10*second))},
	}},
	{"denied is free, however often", []step{
		{0, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{3 * second, one(ask("k", 1, 1)), answers(denied(0, 7*second, 7*second, 7*second))},
		{6 * second, one(ask("k", 1, 1)), answers(denied(0, 4*second, 4*second, 4*second))},
		{9 * second, one(ask("k", 1, 1)), answers(denied(0, 1*second, 1*second, 1*second))},
		{10 * second, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
	}},
	{"a log named twice is decided as one", []step{
		{0, group(ask("k", 3, 1), ask("k", 3, 1)), answers(allowed(1, 10*second), allowed(1, 10*second))},
		// Each would fit alone, together they do not.
		{1 * second, group(ask("k", 3, 1), ask("k", 3, 1)), answers(denied(1, 9*second, 9*second, 9*second), denied(1, 9*second, 9*second, 9*second))},
		{1 * second, one(ask("k", 3, 0)), answers(allowed(1, 9*second))},
		// The smallest limit holds.
		{2 * second, group(ask("k", 9, 0), ask("k", 2, 1)), answers(denied(0, 8*second, 8*second, 8*second), denied(0, 8*second, 8*second, 8*second))},
		{2 * second, group(ask("k", 9, 4), ask("k", 4, 1)), answers(never(2, 8*second, 8*second), never(2, 8*second, 8*second))},
		// The sum saturates instead of wrapping to something that fits.
		{2 * second, group(ask("k", 3, math.MaxUint64), ask("k", 3, 2)), answers(never(1, 8*second, 8*second), never(1, 8*second, 8*second))},
		{2 * second, group(ask("k", 3, 1), ask("k", 3, 0)), answers(allowedLast(8*second, 10*second), allowedLast(8*second, 10*second))},
	}},
	{"a log named twice between others", []step{
		{0, group(ask("a", 5, 1), ask("k", 3, 1), ask("b", 2, 1), ask("k", 4, 1), ask("a", 5, 2)), answers(
			allowed(2, 10*second), allowed(1, 10*second), allowed(1, 10*second), allowed(1, 10*second), allowed(2, 10*second),
		)},
		{0, group(ask("k", 3, 1), ask("b", 2, 1), ask("k", 3, 1)), answers(
			denied(1, 10*second, 10*second, 10*second), allowed(1, 10*second), denied(1, 10*second, 10*second, 10*second),
		)},
		{0, one(ask("b", 2, 1)), answers(allowedLast(10*second, 10*second))},
	}},
	{"a clock that is set back is held at the last charge", []step{
		{100 * second, one(ask("k", 3, 1)), answers(allowed(2, 10*second))},
		{40 * second, one(ask("k", 3, 1)), answers(allowed(1, 70*second))},                      // recorded at 100
		{40 * second, one(ask("k", 3, 2)), answers(denied(1, 70*second, 70*second, 70*second))}, // the clock has to catch up first
		{103 * second, one(ask("k", 3, 1)), answers(allowedLast(7*second, 10*second))},
		{95 * second, one(ask("k", 3, 1)), answers(denied(0, 15*second, 15*second, 18*second))}, // what counts is seen from 103, the waits are not
		{110*second - micro, one(ask("k", 3, 1)), answers(denied(0, micro, micro, 3*second+micro))},
		{110 * second, one(ask("k", 3, 2)), answers(allowedLast(3*second, 10*second))},
	}},
	{"a clock that is set back holds each log by itself", []step{
		{100 * second, one(ask("ahead", 2, 1)), answers(allowed(1, 10*second))},
		{50 * second, group(ask("ahead", 2, 1), ask("fresh", 2, 1)), answers(allowedLast(60*second, 60*second), allowed(1, 10*second))},
		{60 * second, group(ask("ahead", 2, 1), ask("fresh", 2, 1)), answers(denied(0, 50*second, 50*second, 50*second), allowed(2, 0))},
		{60 * second, one(ask("fresh", 2, 2)), answers(allowedLast(10*second, 10*second))},
	}},
	{"an answer does not move the clock of a log", []step{
		{10 * second, one(ask("k", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{15 * second, one(ask("k", 1, 1)), answers(denied(0, 5*second, 5*second, 5*second))},
		{12 * second, one(ask("k", 1, 1)), answers(denied(0, 8*second, 8*second, 8*second))},
		{25 * second, one(ask("k", 1, 0)), answers(allowed(1, 0))},
		{19 * second, one(ask("k", 1, 1)), answers(denied(0, 1*second, 1*second, 1*second))},
	}},
	{"a clock that is set back is held at a charge that has expired", []step{
		{100 * second, one(ask("k", 2, 2)), answers(allowedLast(10*second, 10*second))},
		{300 * second, one(ask("k", 2, 2)), answers(allowedLast(10*second, 10*second))},
		{310 * second, one(ask("k", 2, 0)), answers(allowed(2, 0))},
		{50 * second, one(ask("k", 2, 0)), answers(denied(0, 260*second, 260*second, 260*second))}, // seen from 300
		{310*second + micro, one(ask("k", 2, 1)), answers(allowed(1, 10*second))},
		{50 * second, one(ask("k", 2, 1)), answers(allowedLast(270*second+micro, 270*second+micro))}, // recorded at 310
		{320 * second, one(ask("k", 2, 1)), answers(denied(0, micro, micro, micro))},
	}},
	{"more checks than a small group", []step{
		{
			0, group(ask("a", 1, 1), ask("b", 2, 1), ask("c", 3, 1), ask("d", 4, 1), ask("e", 5, 1), ask("f", 6, 1)),
			answers(allowedLast(10*second, 10*second), allowed(1, 10*second), allowed(2, 10*second), allowed(3, 10*second), allowed(4, 10*second), allowed(5, 10*second)),
		},
		{
			1 * second, group(ask("f", 6, 1), ask("e", 5, 1), ask("d", 4, 1), ask("c", 3, 1), ask("b", 2, 1), ask("a", 1, 1)),
			answers(allowed(5, 9*second), allowed(4, 9*second), allowed(3, 9*second), allowed(2, 9*second), allowed(1, 9*second), denied(0, 9*second, 9*second, 9*second)),
		},
	}},
}

func runSteps(t *testing.T, open func(*testing.T) Harness) {
	for _, table := range slices.Concat(tables, modeTables) {
		t.Run(table.name, func(t *testing.T) { runTable(t, open(t), 0, table.steps) })
	}
	for _, table := range precisionTables {
		t.Run(table.name, func(t *testing.T) {
			h := open(t)
			runTable(t, h, h.aligned(table.align, 0), table.steps)
		})
	}
}

// runTable makes the calls of a table, whose times are relative to origin.
func runTable(t *testing.T, h Harness, origin time.Duration, steps []step) {
	t.Helper()
	for i, s := range steps {
		h.SetNow(origin + s.at)
		got := take(t, h.Store, s.checks)
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Fatalf("step %d at %v: Take(%+v): (-want +got)\n%s", i, s.at, s.checks, diff)
		}
	}
}

// take makes a call that must be decided. The decisions are dirty beforehand:
// a store has to fill in every field.
func take(t *testing.T, s window.Store, checks []window.Check) []window.Decision {
	t.Helper()
	got, err := attempt(t, s, checks)
	if err != nil {
		t.Fatalf("Take(%+v): got error %v", checks, err)
	}
	return got
}

// attempt is take for a call that may be refused.
func attempt(t *testing.T, s window.Store, checks []window.Check) ([]window.Decision, error) {
	t.Helper()
	got := make([]window.Decision, len(checks))
	for i := range got {
		got[i] = window.Decision{Allowed: true, Never: true, Remaining: 99, RetryAfter: 99, UnitAfter: 99, ResetAfter: 99}
	}
	_, err := s.Take(t.Context(), window.MayWait, checks, got)
	return got, err
}
