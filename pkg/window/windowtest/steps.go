package windowtest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Step is one call at one time and everything that it must answer.
type Step struct {
	At     time.Duration
	Checks []window.Check
	Want   []window.Decision
}

// The lengths of time in tables.
const (
	Micro       = time.Microsecond
	Millisecond = time.Millisecond
	Second      = time.Second
	Day         = 24 * time.Hour
	Year        = 365 * Day

	// sixDays is the longest window whose times are exact to the microsecond.
	sixDays = 6 * Day

	// Win is the window of most tables.
	Win = 10 * Second

	// Most is the largest limit of a sliding log.
	Most = window.MaxSliding
)

// Ask makes a check on the log (key, win).
func Ask(key string, hits, cost uint64) window.Check { return AskIn(Win, key, hits, cost) }

// AskIn makes a check on the log (key, w).
func AskIn(w time.Duration, key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: w}, Cost: cost}
}

// One is a call with one check.
func One(c window.Check) []window.Check { return []window.Check{c} }

// Group is a call with several checks.
func Group(cs ...window.Check) []window.Check { return cs }

// Answers are the decisions that a call should get.
func Answers(ds ...window.Decision) []window.Decision { return ds }

func in(m window.Mode, c window.Check) window.Check {
	c.Mode = m
	return c
}

// Precise gives a check its precision.
func Precise(p time.Duration, c window.Check) window.Check {
	c.Precision = p
	return c
}

// Allowed is the answer to what was charged. Durations are waits: unit until one unit more has
// room, reset until the log is empty. If the log has one entry, both are the same.
func Allowed(remaining uint64, reset time.Duration) window.Decision {
	return AllowedOf(remaining, reset, reset)
}

// AllowedOf is Allowed where the log has several entries.
func AllowedOf(remaining uint64, unit, reset time.Duration) window.Decision {
	return window.Decision{Allowed: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset}
}

// AllowedLast is the answer to what took the rest.
func AllowedLast(unit, reset time.Duration) window.Decision {
	return window.Decision{Allowed: true, UnitAfter: unit, ResetAfter: reset}
}

// Denied is the answer to what has room after retry.
func Denied(remaining uint64, retry, unit, reset time.Duration) window.Decision {
	return window.Decision{Remaining: remaining, RetryAfter: retry, UnitAfter: unit, ResetAfter: reset}
}

// Never is the answer to what is above the limit.
func Never(remaining uint64, unit, reset time.Duration) window.Decision {
	return window.Decision{Never: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset}
}

// Unlimited is the answer under a limit of window.Unlimited.
func Unlimited() window.Decision {
	return window.Decision{Allowed: true, Remaining: window.Unlimited}
}

// A Table is a history of one or a few logs. Keys need only differ within one.
type Table struct {
	Name  string
	Steps []Step
}

// tables are of checks that enforce exact limits.
var tables = []Table{
	{"the example of package window", []Step{
		{0, One(Ask("k", 3, 1)), Answers(Allowed(2, 10*Second))},
		{4 * Second, One(Ask("k", 3, 1)), Answers(AllowedOf(1, 6*Second, 10*Second))},
		{8 * Second, One(Ask("k", 3, 1)), Answers(AllowedLast(2*Second, 10*Second))},
		{9 * Second, One(Ask("k", 3, 1)), Answers(Denied(0, 1*Second, 1*Second, 9*Second))},
		{9 * Second, One(Ask("k", 3, 2)), Answers(Denied(0, 5*Second, 1*Second, 9*Second))},
		{9 * Second, One(Ask("k", 3, 4)), Answers(Never(0, 1*Second, 9*Second))},
		{10 * Second, One(Ask("k", 3, 1)), Answers(AllowedLast(4*Second, 10*Second))},
	}},
	{"an entry counts until, but not at, its time plus the window", []Step{
		{5 * Second, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{15*Second - Micro, One(Ask("k", 1, 1)), Answers(Denied(0, Micro, Micro, Micro))},
		{15 * Second, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{15*Second + Micro, One(Ask("k", 1, 1)), Answers(Denied(0, 10*Second-Micro, 10*Second-Micro, 10*Second-Micro))},
	}},
	{"the edge of a log's oldest of several entries", []Step{
		{0, One(Ask("k", 3, 1)), Answers(Allowed(2, 10*Second))},
		{0, One(Ask("k", 3, 1)), Answers(Allowed(1, 10*Second))},
		{Micro, One(Ask("k", 3, 1)), Answers(AllowedLast(10*Second-Micro, 10*Second))},
		{10*Second - Micro, One(Ask("k", 3, 1)), Answers(Denied(0, Micro, Micro, 2*Micro))},
		{10 * Second, One(Ask("k", 3, 2)), Answers(AllowedLast(Micro, 10*Second))},
		{10 * Second, One(Ask("k", 3, 1)), Answers(Denied(0, Micro, Micro, 10*Second))},
	}},
	{"weights", []Step{
		{0, One(Ask("k", 10, 4)), Answers(Allowed(6, 10*Second))},
		{1 * Second, One(Ask("k", 10, 3)), Answers(AllowedOf(3, 9*Second, 10*Second))},
		{2 * Second, One(Ask("k", 10, 4)), Answers(Denied(3, 8*Second, 8*Second, 9*Second))},
		{2 * Second, One(Ask("k", 10, 3)), Answers(AllowedLast(8*Second, 10*Second))},
		{3 * Second, One(Ask("k", 10, 4)), Answers(Denied(0, 7*Second, 7*Second, 9*Second))},
		{3 * Second, One(Ask("k", 10, 5)), Answers(Denied(0, 8*Second, 7*Second, 9*Second))},
		{3 * Second, One(Ask("k", 10, 7)), Answers(Denied(0, 8*Second, 7*Second, 9*Second))},
		{3 * Second, One(Ask("k", 10, 8)), Answers(Denied(0, 9*Second, 7*Second, 9*Second))},
	}},
	{"cost zero asks for a unit and records nothing", []Step{
		{0, One(Ask("k", 2, 0)), Answers(Allowed(2, 0))},
		{0, One(Ask("k", 2, 1)), Answers(Allowed(1, 10*Second))},
		{5 * Second, One(Ask("k", 2, 0)), Answers(Allowed(1, 5*Second))},
		{6 * Second, One(Ask("k", 2, 1)), Answers(AllowedLast(4*Second, 10*Second))},
		{7 * Second, One(Ask("k", 2, 0)), Answers(Denied(0, 3*Second, 3*Second, 9*Second))},
		{10 * Second, One(Ask("k", 2, 0)), Answers(Allowed(1, 6*Second))},
		{16 * Second, One(Ask("k", 2, 0)), Answers(Allowed(2, 0))},
	}},
	{"cost equal to the limit", []Step{
		{0, One(Ask("k", 5, 5)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(Ask("k", 5, 5)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{10 * Second, One(Ask("k", 5, 5)), Answers(AllowedLast(10*Second, 10*Second))},
		{20 * Second, One(Ask("k", 5, 1)), Answers(Allowed(4, 10*Second))},
		{25 * Second, One(Ask("k", 5, 5)), Answers(Denied(4, 5*Second, 5*Second, 5*Second))},
	}},
	{"cost above the limit is never, and free", []Step{
		{0, One(Ask("k", 2, 3)), Answers(Never(2, 0, 0))},
		{0, One(Ask("k", 2, math.MaxUint64)), Answers(Never(2, 0, 0))},
		{0, One(Ask("k", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
		{4 * Second, One(Ask("k", 2, 3)), Answers(Never(0, 6*Second, 6*Second))},
		{4 * Second, One(Ask("k", 2, math.MaxUint64)), Answers(Never(0, 6*Second, 6*Second))},
		{4 * Second, One(Ask("k", 2, 1<<53)), Answers(Never(0, 6*Second, 6*Second))},
	}},
	{"limit zero denies everything for ever, and asks no log", []Step{
		{0, One(Ask("k", 0, 1)), Answers(Never(0, 0, 0))},
		{0, One(Ask("k", 0, 0)), Answers(Never(0, 0, 0))},
		{1 * Second, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{2 * Second, One(Ask("k", 0, 1)), Answers(Never(0, 0, 0))},
		{2 * Second, Group(Ask("k", 0, 1), Ask("a", 1, 1)), Answers(Never(0, 0, 0), Allowed(1, 0))},
		{2 * Second, One(Ask("a", 1, 0)), Answers(Allowed(1, 0))},
		{3 * Second, One(Ask("k", 2, 1)), Answers(AllowedLast(8*Second, 10*Second))},
	}},
	{"the largest limit is unlimited, and stores nothing", []Step{
		{0, One(Ask("k", window.Unlimited, 1)), Answers(Unlimited())},
		{0, One(Ask("k", window.Unlimited, math.MaxUint64)), Answers(Unlimited())},
		{0, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(Ask("k", window.Unlimited, 5)), Answers(Unlimited())},
		{1 * Second, Group(Ask("k", window.Unlimited, 5), Ask("a", 2, 1)), Answers(Unlimited(), Allowed(1, 10*Second))},
		{1 * Second, Group(Ask("a", 2, 1), Ask("k", window.Unlimited, 5), Ask("b", 2, 3)), Answers(Allowed(1, 10*Second), Unlimited(), Never(2, 0, 0))},
		// With another limit on the same log it is not the smallest.
		{2 * Second, Group(Ask("k", window.Unlimited, 1), Ask("k", 2, 1)), Answers(Denied(1, 8*Second, 8*Second, 8*Second), Denied(1, 8*Second, 8*Second, 8*Second))},
		{10 * Second, One(Ask("k", 1, 0)), Answers(Allowed(1, 0))},
	}},
	{"the largest limit that is one", []Step{
		{0, One(Ask("k", Most, Most)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(Ask("k", Most, Most)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{1 * Second, One(Ask("k", Most, Most+1)), Answers(Never(0, 9*Second, 9*Second))},
		{10 * Second, One(Ask("k", Most, Most-1)), Answers(Allowed(1, 10*Second))},
		{11 * Second, One(Ask("k", window.Unlimited, 1)), Answers(Unlimited())},
		{11 * Second, One(Ask("k", 7, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		// Sums go round.
		{20 * Second, One(Ask("k", Most, Most)), Answers(AllowedLast(10*Second, 10*Second))},
		{25 * Second, One(Ask("k", Most, 1)), Answers(Denied(0, 5*Second, 5*Second, 5*Second))},
		{30 * Second, One(Ask("k", 7, 4)), Answers(Allowed(3, 10*Second))},
		{30 * Second, One(Ask("k", 7, 4)), Answers(Denied(3, 10*Second, 10*Second, 10*Second))},
	}},
	{"hits of one microsecond expire together", []Step{
		{7 * Second, One(Ask("k", 4, 1)), Answers(Allowed(3, 10*Second))},
		{7 * Second, One(Ask("k", 4, 2)), Answers(Allowed(1, 10*Second))},
		{7 * Second, One(Ask("k", 4, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{8 * Second, One(Ask("k", 4, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{8 * Second, One(Ask("k", 4, 4)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{17 * Second, One(Ask("k", 4, 4)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"equal times after older entries have gone", []Step{
		{0, One(Ask("k", 4, 2)), Answers(Allowed(2, 10*Second))},
		{5 * Second, One(Ask("k", 4, 1)), Answers(AllowedOf(1, 5*Second, 10*Second))},
		{12 * Second, One(Ask("k", 4, 1)), Answers(AllowedOf(2, 3*Second, 10*Second))},
		{12 * Second, One(Ask("k", 4, 1)), Answers(AllowedOf(1, 3*Second, 10*Second))},
		{12 * Second, One(Ask("k", 4, 1)), Answers(AllowedLast(3*Second, 10*Second))},
		{12 * Second, One(Ask("k", 4, 2)), Answers(Denied(0, 10*Second, 3*Second, 10*Second))},
	}},
	{"after exactly RetryAfter it fits, a microsecond earlier it does not", []Step{
		{0, One(Ask("k", 6, 1)), Answers(Allowed(5, 10*Second))},
		{3 * Second, One(Ask("k", 6, 2)), Answers(AllowedOf(3, 7*Second, 10*Second))},
		{5 * Second, One(Ask("k", 6, 3)), Answers(AllowedLast(5*Second, 10*Second))},
		{6 * Second, One(Ask("k", 6, 4)), Answers(Denied(0, 9*Second, 4*Second, 9*Second))},
		{15*Second - Micro, One(Ask("k", 6, 4)), Answers(Denied(3, Micro, Micro, Micro))},
		{15 * Second, One(Ask("k", 6, 4)), Answers(Allowed(2, 10*Second))},
	}},
	{"a wait counts from the first entry that is left", []Step{
		{0, One(Ask("k", 6, 1)), Answers(Allowed(5, 10*Second))},
		{1 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(4, 9*Second, 10*Second))},
		{2 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(3, 8*Second, 10*Second))},
		{3 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(2, 7*Second, 10*Second))},
		{4 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(1, 6*Second, 10*Second))},
		{5 * Second, One(Ask("k", 6, 1)), Answers(AllowedLast(5*Second, 10*Second))},
		// 0, 1 and 2 have expired, and nothing was charged since.
		{12 * Second, One(Ask("k", 6, 4)), Answers(Denied(3, 1*Second, 1*Second, 3*Second))},
		{12 * Second, One(Ask("k", 6, 5)), Answers(Denied(3, 2*Second, 1*Second, 3*Second))},
		{12 * Second, One(Ask("k", 6, 6)), Answers(Denied(3, 3*Second, 1*Second, 3*Second))},
		{12 * Second, One(Ask("k", 2, 1)), Answers(Denied(0, 2*Second, 2*Second, 3*Second))},
	}},
	{"a wait where more entries have gone than are left", []Step{
		{0, One(Ask("k", 6, 1)), Answers(Allowed(5, 10*Second))},
		{1 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(4, 9*Second, 10*Second))},
		{2 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(3, 8*Second, 10*Second))},
		{3 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(2, 7*Second, 10*Second))},
		{8 * Second, One(Ask("k", 6, 1)), Answers(AllowedOf(1, 2*Second, 10*Second))},
		{9 * Second, One(Ask("k", 6, 1)), Answers(AllowedLast(1*Second, 10*Second))},
		{14 * Second, One(Ask("k", 6, 5)), Answers(Denied(4, 4*Second, 4*Second, 5*Second))},
		{14 * Second, One(Ask("k", 6, 6)), Answers(Denied(4, 5*Second, 4*Second, 5*Second))},
	}},
	{"a log that grows after its oldest entries have gone", []Step{
		{0, One(Ask("k", 9, 1)), Answers(Allowed(8, 10*Second))},
		{1 * Second, One(Ask("k", 9, 1)), Answers(AllowedOf(7, 9*Second, 10*Second))},
		{2 * Second, One(Ask("k", 9, 1)), Answers(AllowedOf(6, 8*Second, 10*Second))},
		{3 * Second, One(Ask("k", 9, 1)), Answers(AllowedOf(5, 7*Second, 10*Second))},
		{11 * Second, One(Ask("k", 9, 1)), Answers(AllowedOf(6, 1*Second, 10*Second))}, // 2 3 11
		{11*Second + Micro, One(Ask("k", 9, 1)), Answers(AllowedOf(5, 1*Second-Micro, 10*Second))},
		{11*Second + 2*Micro, One(Ask("k", 9, 1)), Answers(AllowedOf(4, 1*Second-2*Micro, 10*Second))},
		{11*Second + 3*Micro, One(Ask("k", 9, 1)), Answers(AllowedOf(3, 1*Second-3*Micro, 10*Second))},
		{11*Second + 4*Micro, One(Ask("k", 9, 3)), Answers(AllowedLast(1*Second-4*Micro, 10*Second))},
		{11*Second + 4*Micro, One(Ask("k", 9, 2)), Answers(Denied(0, 2*Second-4*Micro, 1*Second-4*Micro, 10*Second))},
		{11*Second + 4*Micro, One(Ask("k", 9, 3)), Answers(Denied(0, 10*Second-4*Micro, 1*Second-4*Micro, 10*Second))},
		{11*Second + 4*Micro, One(Ask("k", 9, 6)), Answers(Denied(0, 10*Second-Micro, 1*Second-4*Micro, 10*Second))},
		{11*Second + 4*Micro, One(Ask("k", 9, 7)), Answers(Denied(0, 10*Second, 1*Second-4*Micro, 10*Second))},
		{21*Second + 2*Micro, One(Ask("k", 9, 0)), Answers(AllowedOf(5, Micro, 2*Micro))},
	}},
	{"a log that has expired entirely is as new", []Step{
		{0, One(Ask("k", 2, 1)), Answers(Allowed(1, 10*Second))},
		{1 * Second, One(Ask("k", 2, 1)), Answers(AllowedLast(9*Second, 10*Second))},
		{11 * Second, One(Ask("k", 2, 0)), Answers(Allowed(2, 0))},
		{50 * Second, One(Ask("k", 2, 3)), Answers(Never(2, 0, 0))},
		{50 * Second, One(Ask("k", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
		{51 * Second, One(Ask("k", 2, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
	}},
	{"a smaller limit counts at once, with the history kept", []Step{
		{0, One(Ask("k", 10, 2)), Answers(Allowed(8, 10*Second))},
		{1 * Second, One(Ask("k", 10, 2)), Answers(AllowedOf(6, 9*Second, 10*Second))},
		{2 * Second, One(Ask("k", 10, 2)), Answers(AllowedOf(4, 8*Second, 10*Second))},
		{3 * Second, One(Ask("k", 10, 2)), Answers(AllowedOf(2, 7*Second, 10*Second))},
		// 8 are used. Under 3, a unit needs 6 of them gone, three units all 8.
		{4 * Second, One(Ask("k", 3, 1)), Answers(Denied(0, 8*Second, 8*Second, 9*Second))},
		{4 * Second, One(Ask("k", 3, 0)), Answers(Denied(0, 8*Second, 8*Second, 9*Second))},
		{4 * Second, One(Ask("k", 3, 2)), Answers(Denied(0, 9*Second, 8*Second, 9*Second))},
		{4 * Second, One(Ask("k", 3, 3)), Answers(Denied(0, 9*Second, 8*Second, 9*Second))},
		{4 * Second, One(Ask("k", 3, 4)), Answers(Never(0, 8*Second, 9*Second))},
		{12*Second - Micro, One(Ask("k", 3, 1)), Answers(Denied(0, Micro, Micro, 1*Second+Micro))},
		{12 * Second, One(Ask("k", 3, 1)), Answers(AllowedLast(1*Second, 10*Second))},
	}},
	{"a larger limit counts at once, with the history kept", []Step{
		{0, One(Ask("k", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(Ask("k", 2, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{1 * Second, One(Ask("k", 5, 1)), Answers(AllowedOf(2, 9*Second, 10*Second))},
		{2 * Second, One(Ask("k", 5, 3)), Answers(Denied(2, 8*Second, 8*Second, 9*Second))},
		{2 * Second, One(Ask("k", 2, 1)), Answers(Denied(0, 8*Second, 8*Second, 9*Second))},
	}},
	{"another window is another log", []Step{
		{0, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(AskIn(20*Second, "k", 1, 1)), Answers(AllowedLast(20*Second, 20*Second))},
		{10 * Second, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{10 * Second, One(AskIn(20*Second, "k", 1, 1)), Answers(Denied(0, 11*Second, 11*Second, 11*Second))},
		{10 * Second, One(AskIn(20*Second+Micro, "k", 1, 0)), Answers(Allowed(1, 0))},
	}},
	{"several windows on one key: all are charged or none", []Step{
		{0, Group(Ask("k", 2, 1), AskIn(60*Second, "k", 3, 1)), Answers(Allowed(1, 10*Second), Allowed(2, 60*Second))},
		{1 * Second, Group(Ask("k", 2, 1), AskIn(60*Second, "k", 3, 1)), Answers(AllowedLast(9*Second, 10*Second), AllowedOf(1, 59*Second, 60*Second))},
		// The short one denies: the long one keeps its remaining unit.
		{2 * Second, Group(Ask("k", 2, 1), AskIn(60*Second, "k", 3, 1)), Answers(Denied(0, 8*Second, 8*Second, 9*Second), AllowedOf(1, 58*Second, 59*Second))},
		{10 * Second, Group(Ask("k", 2, 1), AskIn(60*Second, "k", 3, 1)), Answers(AllowedLast(1*Second, 10*Second), AllowedLast(50*Second, 60*Second))},
		// Now the long one denies: the short one keeps its own.
		{12 * Second, Group(Ask("k", 2, 1), AskIn(60*Second, "k", 3, 1)), Answers(Allowed(1, 8*Second), Denied(0, 48*Second, 48*Second, 58*Second))},
		{12 * Second, One(Ask("k", 2, 1)), Answers(AllowedLast(8*Second, 10*Second))},
	}},
	{"several keys: all are charged or none", []Step{
		{0, Group(Ask("a", 3, 1), Ask("b", 1, 1), Ask("c", 3, 2)), Answers(Allowed(2, 10*Second), AllowedLast(10*Second, 10*Second), Allowed(1, 10*Second))},
		{1 * Second, Group(Ask("a", 3, 1), Ask("b", 1, 1), Ask("c", 3, 2)), Answers(Allowed(2, 9*Second), Denied(0, 9*Second, 9*Second, 9*Second), Denied(1, 9*Second, 9*Second, 9*Second))},
		{1 * Second, Group(Ask("b", 1, 1), Ask("a", 3, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second), Allowed(2, 9*Second))},
		{1 * Second, Group(Ask("a", 3, 1), Ask("new", 3, 4)), Answers(Allowed(2, 9*Second), Never(3, 0, 0))},
		{1 * Second, One(Ask("a", 3, 2)), Answers(AllowedLast(9*Second, 10*Second))},
		{1 * Second, One(Ask("new", 3, 3)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"a denial of one check does not show in the waits of another", []Step{
		{0, Group(Ask("a", 1, 1), Ask("b", 1, 1)), Answers(AllowedLast(10*Second, 10*Second), AllowedLast(10*Second, 10*Second))},
		{5 * Second, Group(Ask("a", 1, 1), Ask("c", 1, 1)), Answers(Denied(0, 5*Second, 5*Second, 5*Second), Allowed(1, 0))},
		{5 * Second, One(Ask("c", 1, 0)), Answers(Allowed(1, 0))},
	}},
	{"cost zero in a group takes part in the decision", []Step{
		{0, Group(Ask("a", 1, 1), Ask("b", 2, 0)), Answers(AllowedLast(10*Second, 10*Second), Allowed(2, 0))},
		{1 * Second, Group(Ask("a", 1, 0), Ask("b", 2, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second), Allowed(2, 0))},
		{1 * Second, One(Ask("b", 2, 0)), Answers(Allowed(2, 0))},
		{2 * Second, Group(Ask("c", 2, 0), Ask("b", 2, 1)), Answers(Allowed(2, 0), Allowed(1, 10*Second))},
		{2 * Second, One(Ask("c", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"denied is free, however often", []Step{
		{0, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{3 * Second, One(Ask("k", 1, 1)), Answers(Denied(0, 7*Second, 7*Second, 7*Second))},
		{6 * Second, One(Ask("k", 1, 1)), Answers(Denied(0, 4*Second, 4*Second, 4*Second))},
		{9 * Second, One(Ask("k", 1, 1)), Answers(Denied(0, 1*Second, 1*Second, 1*Second))},
		{10 * Second, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"a log named twice is decided as one", []Step{
		{0, Group(Ask("k", 3, 1), Ask("k", 3, 1)), Answers(Allowed(1, 10*Second), Allowed(1, 10*Second))},
		// Each would fit alone, together they do not.
		{1 * Second, Group(Ask("k", 3, 1), Ask("k", 3, 1)), Answers(Denied(1, 9*Second, 9*Second, 9*Second), Denied(1, 9*Second, 9*Second, 9*Second))},
		{1 * Second, One(Ask("k", 3, 0)), Answers(Allowed(1, 9*Second))},
		// The smallest limit holds.
		{2 * Second, Group(Ask("k", 9, 0), Ask("k", 2, 1)), Answers(Denied(0, 8*Second, 8*Second, 8*Second), Denied(0, 8*Second, 8*Second, 8*Second))},
		{2 * Second, Group(Ask("k", 9, 4), Ask("k", 4, 1)), Answers(Never(2, 8*Second, 8*Second), Never(2, 8*Second, 8*Second))},
		// The sum saturates instead of wrapping to something that fits.
		{2 * Second, Group(Ask("k", 3, math.MaxUint64), Ask("k", 3, 2)), Answers(Never(1, 8*Second, 8*Second), Never(1, 8*Second, 8*Second))},
		{2 * Second, Group(Ask("k", 3, 1), Ask("k", 3, 0)), Answers(AllowedLast(8*Second, 10*Second), AllowedLast(8*Second, 10*Second))},
	}},
	{"a log named twice between others", []Step{
		{0, Group(Ask("a", 5, 1), Ask("k", 3, 1), Ask("b", 2, 1), Ask("k", 4, 1), Ask("a", 5, 2)), Answers(
			Allowed(2, 10*Second), Allowed(1, 10*Second), Allowed(1, 10*Second), Allowed(1, 10*Second), Allowed(2, 10*Second),
		)},
		{0, Group(Ask("k", 3, 1), Ask("b", 2, 1), Ask("k", 3, 1)), Answers(
			Denied(1, 10*Second, 10*Second, 10*Second), Allowed(1, 10*Second), Denied(1, 10*Second, 10*Second, 10*Second),
		)},
		{0, One(Ask("b", 2, 1)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"a clock that is set back stays at the last charge", []Step{
		{100 * Second, One(Ask("k", 3, 1)), Answers(Allowed(2, 10*Second))},
		{40 * Second, One(Ask("k", 3, 1)), Answers(Allowed(1, 70*Second))},                      // recorded at 100
		{40 * Second, One(Ask("k", 3, 2)), Answers(Denied(1, 70*Second, 70*Second, 70*Second))}, // the clock has to catch up first
		{103 * Second, One(Ask("k", 3, 1)), Answers(AllowedLast(7*Second, 10*Second))},
		{95 * Second, One(Ask("k", 3, 1)), Answers(Denied(0, 15*Second, 15*Second, 18*Second))}, // what counts is seen from 103, the waits are not
		{110*Second - Micro, One(Ask("k", 3, 1)), Answers(Denied(0, Micro, Micro, 3*Second+Micro))},
		{110 * Second, One(Ask("k", 3, 2)), Answers(AllowedLast(3*Second, 10*Second))},
	}},
	{"a clock that is set back holds each log by itself", []Step{
		{100 * Second, One(Ask("ahead", 2, 1)), Answers(Allowed(1, 10*Second))},
		{50 * Second, Group(Ask("ahead", 2, 1), Ask("fresh", 2, 1)), Answers(AllowedLast(60*Second, 60*Second), Allowed(1, 10*Second))},
		{60 * Second, Group(Ask("ahead", 2, 1), Ask("fresh", 2, 1)), Answers(Denied(0, 50*Second, 50*Second, 50*Second), Allowed(2, 0))},
		{60 * Second, One(Ask("fresh", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"an answer does not move the clock of a log", []Step{
		{10 * Second, One(Ask("k", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{15 * Second, One(Ask("k", 1, 1)), Answers(Denied(0, 5*Second, 5*Second, 5*Second))},
		{12 * Second, One(Ask("k", 1, 1)), Answers(Denied(0, 8*Second, 8*Second, 8*Second))},
		{25 * Second, One(Ask("k", 1, 0)), Answers(Allowed(1, 0))},
		{19 * Second, One(Ask("k", 1, 1)), Answers(Denied(0, 1*Second, 1*Second, 1*Second))},
	}},
	{"a clock that is set back stays at a charge that has expired", []Step{
		{100 * Second, One(Ask("k", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
		{300 * Second, One(Ask("k", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
		{310 * Second, One(Ask("k", 2, 0)), Answers(Allowed(2, 0))},
		{50 * Second, One(Ask("k", 2, 0)), Answers(Denied(0, 260*Second, 260*Second, 260*Second))}, // seen from 300
		{310*Second + Micro, One(Ask("k", 2, 1)), Answers(Allowed(1, 10*Second))},
		{50 * Second, One(Ask("k", 2, 1)), Answers(AllowedLast(270*Second+Micro, 270*Second+Micro))}, // recorded at 310
		{320 * Second, One(Ask("k", 2, 1)), Answers(Denied(0, Micro, Micro, Micro))},
	}},
	{"more checks than a small group", []Step{
		{
			0, Group(Ask("a", 1, 1), Ask("b", 2, 1), Ask("c", 3, 1), Ask("d", 4, 1), Ask("e", 5, 1), Ask("f", 6, 1)),
			Answers(AllowedLast(10*Second, 10*Second), Allowed(1, 10*Second), Allowed(2, 10*Second), Allowed(3, 10*Second), Allowed(4, 10*Second), Allowed(5, 10*Second)),
		},
		{
			1 * Second, Group(Ask("f", 6, 1), Ask("e", 5, 1), Ask("d", 4, 1), Ask("c", 3, 1), Ask("b", 2, 1), Ask("a", 1, 1)),
			Answers(Allowed(5, 9*Second), Allowed(4, 9*Second), Allowed(3, 9*Second), Allowed(2, 9*Second), Allowed(1, 9*Second), Denied(0, 9*Second, 9*Second, 9*Second)),
		},
	}},
}

func runSteps(t *testing.T, open func(*testing.T) Harness) {
	for _, table := range slices.Concat(tables, modeTables) {
		t.Run(table.Name, func(t *testing.T) { runTable(t, open(t), 0, table.Steps) })
	}
	for _, table := range precisionTables {
		t.Run(table.name, func(t *testing.T) {
			h := open(t)
			runTable(t, h, h.Aligned(table.align, 0), table.steps)
		})
	}
}

// runTable makes the calls of a table, whose times are relative to origin.
func runTable(t *testing.T, h Harness, origin time.Duration, steps []Step) {
	t.Helper()
	for i, s := range steps {
		RunStep(t, h, i, origin+s.At, s.Checks, s.Want)
	}
}

// RunStep makes the i-th call of a table.
func RunStep(t *testing.T, h Harness, i int, at time.Duration, checks []window.Check, want []window.Decision) {
	t.Helper()
	h.SetNow(at)
	got := Take(t, h.Store, checks)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("step %d at %v: Take(%+v): (-want +got)\n%s", i, at, checks, diff)
	}
}

// Take makes a call that must be decided. The decisions are dirty beforehand:
// a store has to fill in every field.
func Take(t testing.TB, s window.Store, checks []window.Check) []window.Decision {
	t.Helper()
	got, err := Attempt(t, s, checks)
	if err != nil {
		t.Fatalf("Take(%+v): got error %v", checks, err)
	}
	return got
}

// Attempt is Take for a call that may be refused.
func Attempt(t testing.TB, s window.Store, checks []window.Check) ([]window.Decision, error) {
	t.Helper()
	got := make([]window.Decision, len(checks))
	for i := range got {
		got[i] = window.Decision{Allowed: true, Never: true, Remaining: 99, RetryAfter: 99, UnitAfter: 99, ResetAfter: 99}
	}
	_, err := s.Take(t.Context(), window.MayWait, checks, got)
	return got, err
}
