package policytest

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
)

// Short names for the tables.
func perSecond(rate uint32, burst, cost uint64) window.Check {
	return bucketOf("k", burst, cost, rate, second)
}
func fixed(hits, cost uint64) window.Check     { return fixedIn(win, "k", hits, cost) }
func estimated(hits, cost uint64) window.Check { return counterIn(win, "k", hits, cost) }

// policyTables are of the policies that count without a log of hits. Their times count from
// an instant at which the store's clock says base, a multiple of a day.
func policyTables(base time.Duration) []table {
	return slices.Concat(bucketTables(), overdraftTables(), bucketGroupTables(), fixedTables(), counterTables(), calendarTables(base), mixedTables(base))
}

func bucketTables() []table {
	return []table{
		{"a bucket admits a burst, and then its rate", []step{
			{0, one(perSecond(10, 50, 0)), answers(allowed(50, 0))},
			{0, one(perSecond(10, 50, 50)), answers(allowedLast(100*milli, 5*second))},
			{0, one(perSecond(10, 50, 1)), answers(denied(0, 100*milli, 100*milli, 5*second))},
			{50 * milli, one(perSecond(10, 50, 0)), answers(denied(0, 50*milli, 50*milli, 4950*milli))},
			{100 * milli, one(perSecond(10, 50, 1)), answers(allowedLast(100*milli, 5*second))},
			{150 * milli, one(perSecond(10, 50, 4)), answers(denied(0, 350*milli, 50*milli, 4950*milli))},
			{450 * milli, one(perSecond(10, 50, 4)), answers(denied(3, 50*milli, 50*milli, 4650*milli))},
			{5100 * milli, one(perSecond(10, 50, 51)), answers(never(50, 0, 0))},
			{5100 * milli, one(perSecond(10, 50, 50)), answers(allowedLast(100*milli, 5*second))},
			{time.Hour, one(perSecond(10, 50, 0)), answers(allowed(50, 0))}, // never more than the burst
		}},
		{"a rate that divides badly loses no part of a hit", []step{
			{0, one(perSecond(7, 3, 3)), answers(allowedLast(142_858*micro, 428_572*micro))},
			{142_857 * micro, one(perSecond(7, 3, 1)), answers(denied(0, micro, micro, 285_715*micro))},
			{142_858 * micro, one(perSecond(7, 3, 1)), answers(allowedLast(142_857*micro, 428_571*micro))}, // 6 millionths remain
			{285_714 * micro, one(perSecond(7, 3, 1)), answers(denied(0, micro, micro, 285_715*micro))},
			{285_715 * micro, one(perSecond(7, 3, 1)), answers(allowedLast(142_857*micro, 428_571*micro))},
			{428_571 * micro, one(perSecond(7, 3, 1)), answers(denied(0, micro, micro, 285_715*micro))},
			{second, one(perSecond(7, 3, 3)), answers(allowedLast(142_858*micro, 428_572*micro))}, // it was full
		}},
		{"a tier change keeps the tokens, up to the new burst", []step{
			{0, one(perSecond(1, 10, 4)), answers(allowedOf(6, second, 4*second))},
			{0, one(perSecond(1, 20, 0)), answers(allowedOf(6, second, 14*second))},
			{0, one(perSecond(1, 4, 0)), answers(allowed(4, 0))},
			{0, one(perSecond(1, 10, 0)), answers(allowedOf(6, second, 4*second))}, // the question changed nothing
			{0, one(perSecond(1, 4, 1)), answers(allowed(3, second))},
			{0, one(perSecond(1, 10, 0)), answers(allowedOf(3, second, 7*second))},
			{second, one(perSecond(2, 10, 0)), answers(allowedOf(5, 500*milli, 2500*milli))},
			{second, one(perSecond(1, 10, 1)), answers(allowedOf(3, second, 7*second))},
			{second, one(bucketOf("k", 10, 0, 60, time.Minute)), answers(allowed(10, 0))}, // another bucket
		}},
		{"a refund fills a bucket up to its burst", []step{
			{10 * second, one(giveBack(perSecond(1, 3, 2))), answers(allowed(3, 0))}, // of nothing
			{5 * second, one(perSecond(1, 3, 2)), answers(allowedOf(1, second, 2*second))},
			{5500 * milli, one(giveBack(perSecond(1, 3, 1))), answers(allowedOf(2, 500*milli, 500*milli))},
			{5500 * milli, one(giveBack(perSecond(1, 3, 1))), answers(allowed(3, 0))},
			{5 * second, one(perSecond(1, 3, 1)), answers(allowedOf(2, 1500*milli, 1500*milli))}, // written at 5.5
			{7 * second, one(giveBack(perSecond(1, 3, 0))), answers(allowed(3, 0))},
		}},
		{"a bucket's clock is set back, and stands still", []step{
			{10 * second, one(perSecond(1, 2, 2)), answers(allowedLast(second, 2*second))},
			{5 * second, one(perSecond(1, 2, 1)), answers(denied(0, 6*second, 6*second, 7*second))},
			{5 * second, one(always(perSecond(1, 2, 1))), answers(denied(0, 7*second, 7*second, 8*second))},
			{12*second - micro, one(perSecond(1, 2, 1)), answers(denied(0, micro, micro, second+micro))},
			{12 * second, one(perSecond(1, 2, 1)), answers(allowedLast(second, 2*second))},
			{12 * second, one(perSecond(1, 2, 1)), answers(denied(0, second, second, 2*second))},
		}},
		{"buckets without a limit, and of nothing", []step{
			{0, one(always(perSecond(1, window.Unlimited, 5))), answers(unlimited())},
			{0, one(perSecond(1, 0, 1)), answers(never(0, 0, 0))},
			{0, one(perSecond(1, 2, 1)), answers(allowed(1, second))},
			{0, one(always(perSecond(1, 0, 2))), answers(cut(never(0, 0, 0)))}, // nothing
			{0, one(perSecond(1, 2, 1)), answers(allowedLast(second, 2*second))},
			{0, one(giveBack(perSecond(1, 0, 1))), answers(allowedOf(0, 0*second, 0))},
		}},
	}
}

func overdraftTables() []table {
	slow := func(cost uint64) window.Check { return bucketOf("k", 1, cost, 1, window.MaxWindow) }
	return []table{
		{"a bucket below zero", []step{
			{0, one(always(perSecond(1, 3, 5))), answers(never(0, 3*second, 5*second))},
			{0, one(perSecond(1, 3, 1)), answers(denied(0, 3*second, 3*second, 5*second))},
			{second, one(always(perSecond(1, 3, 2))), answers(denied(0, 5*second, 4*second, 6*second))},
			{second, one(giveBack(perSecond(1, 3, 4))), answers(allowedOf(1, second, 2*second))},
			{second, one(giveBack(perSecond(1, 3, math.MaxUint64))), answers(allowed(3, 0))},
			{second, one(always(perSecond(1, 3, math.MaxUint64))), answers(cut(never(0, 4*second, 6*second)))}, // 3 below
			{second, one(always(perSecond(1, 3, 1))), answers(cut(denied(0, 4*second, 4*second, 6*second)))},   // nothing
		}},
		{"an excess is no more than the burst", []step{
			{0, one(always(slow(5))), answers(cut(never(0, 2*window.MaxWindow, 2*window.MaxWindow)))},
			{0, one(always(slow(1))), answers(cut(denied(0, 2*window.MaxWindow, 2*window.MaxWindow, 2*window.MaxWindow)))},
			{window.MaxWindow, one(slow(1)), answers(denied(0, window.MaxWindow, window.MaxWindow, window.MaxWindow))},
			{2*window.MaxWindow - micro, one(slow(1)), answers(denied(0, micro, micro, micro))},
			{2 * window.MaxWindow, one(slow(1)), answers(allowedLast(window.MaxWindow, window.MaxWindow))},
		}},
		{"an excess of a larger burst is cut to a smaller one, and then comes back", []step{
			{0, one(always(bucketOf("k", 2, 4, 2, window.MaxWindow))), answers(never(0, window.MaxWindow/2*3, 2*window.MaxWindow))}, // 2 below
			{0, one(slow(1)), answers(denied(0, 2*window.MaxWindow, 2*window.MaxWindow, 2*window.MaxWindow))},                       // 1 below
			{window.MaxWindow / 2, one(slow(1)), answers(denied(0, window.MaxWindow/2*3, window.MaxWindow/2*3, window.MaxWindow/2*3))},
			{window.MaxWindow, one(bucketOf("k", 2, 0, 2, window.MaxWindow)), answers(denied(0, window.MaxWindow/2, window.MaxWindow/2, window.MaxWindow))},
			{2*window.MaxWindow - micro, one(slow(1)), answers(denied(0, micro, micro, micro))},
			{2 * window.MaxWindow, one(slow(1)), answers(allowedLast(window.MaxWindow, window.MaxWindow))},
		}},
	}
}

func bucketGroupTables() []table {
	return []table{
		{"a rate without a limit does not count", []step{
			{0, group(perSecond(1, window.Unlimited, 1), perSecond(2, 3, 2)), answers(allowedLast(500*milli, 1500*milli), allowedLast(500*milli, 1500*milli))},
			{second, group(perSecond(2, 3, 1), perSecond(1, window.Unlimited, 1)), answers(allowedLast(500*milli, 1500*milli), allowedLast(500*milli, 1500*milli))},
		}},
		{"one bucket asked twice: the slower rate counts", []step{
			{0, group(perSecond(7, 10, 2), perSecond(2, 9, 3)), answers(allowedOf(4, 500*milli, 2500*milli), allowedOf(4, 500*milli, 2500*milli))},
			{0, group(perSecond(2, 9, 2), perSecond(2, 9, 3)), answers(denied(4, 500*milli, 500*milli, 2500*milli), denied(4, 500*milli, 500*milli, 2500*milli))},
		}},
	}
}

func fixedTables() []table {
	return []table{
		{"fixed windows", []step{
			{3 * second, one(fixed(3, 2)), answers(allowed(1, 7*second))},
			{4 * second, one(fixed(3, 2)), answers(denied(1, 6*second, 6*second, 6*second))},
			{4 * second, one(fixed(3, 4)), answers(never(1, 6*second, 6*second))},
			{10*second - micro, one(fixed(3, 1)), answers(allowedLast(micro, micro))},
			{10*second - micro, one(fixed(3, 0)), answers(denied(0, micro, micro, micro))},
			{10 * second, one(fixed(3, 3)), answers(allowedLast(10*second, 10*second))}, // six within a microsecond
			{20 * second, one(fixed(3, 0)), answers(allowed(3, 0))},
		}},
		{"the clock is set back into an earlier window", []step{
			{12 * second, one(fixed(3, 1)), answers(allowed(2, 8*second))},
			{9 * second, one(fixed(3, 1)), answers(allowed(1, 11*second))}, // in the window that was open
			{5 * second, one(fixed(3, 2)), answers(denied(1, 15*second, 15*second, 15*second))},
			{20 * second, one(fixed(3, 2)), answers(allowed(1, 10*second))},
		}},
		{"refunds, excess and tiers of a fixed window", []step{
			{12 * second, one(always(fixed(3, 5))), answers(never(0, 8*second, 8*second))},
			{12 * second, one(fixed(6, 1)), answers(allowedLast(8*second, 8*second))},
			{13 * second, one(always(fixed(3, 1))), answers(cut(denied(0, 7*second, 7*second, 7*second)))}, // nothing
			{15 * second, one(giveBack(fixed(3, 5))), answers(allowed(2, 5*second))},
			{15 * second, one(giveBack(fixed(3, 5))), answers(allowed(3, 0))},
			{20 * second, one(giveBack(fixed(3, 1))), answers(allowed(3, 0))}, // nothing: the clock stays at 15
			{14 * second, one(fixed(3, 2)), answers(allowed(1, 6*second))},
			{21 * second, one(always(fixed(0, 2))), answers(cut(never(0, 0, 0)))},
			{22 * second, one(always(fixed(3, math.MaxUint64))), answers(cut(never(0, 8*second, 8*second)))},
			{22 * second, one(always(fixed(3, 1))), answers(cut(denied(0, 8*second, 8*second, 8*second)))}, // nothing
			{22 * second, one(giveBack(fixed(3, 5))), answers(allowed(2, 8*second))},
			{30 * second, one(fixed(3, 0)), answers(allowed(3, 0))}, // excess ends with its window
		}},
	}
}

func counterTables() []table {
	return []table{
		{"the previous window counts by the fraction that is still covered", []step{
			{9 * second, one(estimated(10, 10)), answers(allowedLast(2*second, 11*second))},
			{10 * second, one(estimated(10, 1)), answers(denied(0, second, second, 10*second))},
			{11*second - micro, one(estimated(10, 1)), answers(denied(0, micro, micro, 9*second+micro))},
			{11 * second, one(estimated(10, 3)), answers(denied(1, 2*second, second, 9*second))},
			{11 * second, one(estimated(10, 1)), answers(allowedLast(second, 19*second))},
			{15 * second, one(estimated(10, 4)), answers(allowedLast(second, 15*second))}, // 5 now, 5 of before
			{15 * second, one(estimated(10, 7)), answers(denied(0, 9*second, second, 15*second))},
			{20 * second, one(estimated(10, 0)), answers(allowedOf(5, 2*second, 10*second))},
			{22*second - micro, one(estimated(10, 0)), answers(allowedOf(5, micro, 8*second+micro))},
			{22 * second, one(estimated(10, 0)), answers(allowedOf(6, 2*second, 8*second))},
			{30 * second, one(estimated(10, 10)), answers(allowedLast(11*second, 20*second))},
			{50 * second, one(estimated(10, 0)), answers(allowed(10, 0))},
		}},
		{"refunds, excess and tiers of a sliding counter", []step{
			{0, one(estimated(4, 4)), answers(allowedLast(12500*milli, 20*second))},
			{15 * second, one(estimated(4, 2)), answers(allowedLast(2500*milli, 15*second))},               // 2 now, 2 of 4 before
			{15 * second, one(giveBack(estimated(4, 3))), answers(allowedOf(2, 1666_667*micro, 5*second))}, // 0 now, ceil(1.5) of 3
			{15 * second, one(estimated(2, 1)), answers(denied(0, 1666_667*micro, 1666_667*micro, 5*second))},
			{15 * second, one(giveBack(estimated(4, 9))), answers(allowed(4, 0))},
			{16 * second, one(always(estimated(4, 6))), answers(never(0, 9*second, 14*second))},
			{5 * second, one(estimated(4, 1)), answers(denied(0, 20*second, 20*second, 25*second))}, // seen from 16
			{30 * second, one(always(estimated(4, math.MaxUint64))), answers(cut(never(0, 16250*milli, 20*second)))},
		}},
	}
}

// calendarTables have periods of a day of 23 hours and one of 25.
func calendarTables(base time.Duration) []table {
	const hour = time.Hour
	at := func(times ...time.Duration) window.Period {
		s := func(i int) int64 { return int64((base + times[i]) / second) }
		return window.Period{Start: s(0), End: s(1), Next: s(2)}
	}
	first, next, last := at(0, 23*hour, 48*hour), at(23*hour, 48*hour, 72*hour), at(48*hour, 72*hour, 96*hour)
	of := func(p window.Period, hits, cost uint64) window.Check {
		return calendarIn(day, p, "k", hits, cost)
	}
	return []table{
		{"periods of 23 and 25 hours", []step{
			{hour, one(of(first, 3, 2)), answers(allowed(1, 22*hour))},
			{23*hour - micro, one(of(first, 3, 2)), answers(denied(1, micro, micro, micro))},
			{23 * hour, one(of(next, 3, 3)), answers(allowedLast(25*hour, 25*hour))},
			{47 * hour, one(of(next, 3, 1)), answers(denied(0, hour, hour, hour))},
			{48 * hour, one(of(last, 3, 0)), answers(allowed(3, 0))},
		}},
		{"the caller's clock is a little ahead or behind", []step{
			{hour, one(of(first, 3, 2)), answers(allowed(1, 22*hour))},
			{23*hour - micro, one(of(next, 3, 1)), answers(allowedLast(micro, micro))}, // the period that ends at its start
			{23*hour - 60*milli, one(of(next, 3, 1)), answers(denied(0, 60*milli, 60*milli, 60*milli))},
			{23 * hour, one(of(first, 3, 2)), answers(allowed(1, 25*hour))}, // the period that begins at its end
			{48*hour - micro, one(of(first, 3, 2)), answers(denied(1, micro, micro, micro))},
		}},
		{"a changed anchor never opens a second period early", []step{
			{hour, one(of(first, 3, 3)), answers(allowedLast(22*hour, 22*hour))},
			{2 * hour, one(of(at(0, 2*hour, 26*hour), 3, 1)), answers(denied(0, 21*hour, 21*hour, 21*hour))},
			{3 * hour, one(of(at(2*hour, 26*hour, 50*hour), 3, 1)), answers(denied(0, 20*hour, 20*hour, 20*hour))},
			{4 * hour, one(of(at(2*hour, 26*hour, 50*hour), 4, 1)), answers(allowedLast(22*hour, 22*hour))}, // now until 26
			{23 * hour, one(of(next, 4, 1)), answers(denied(0, 3*hour, 3*hour, 3*hour))},
			{24 * hour, one(giveBack(of(next, 4, 1))), answers(allowed(1, 24*hour))}, // a write: now until 48
			{26 * hour, one(of(at(26*hour, 50*hour, 74*hour), 4, 0)), answers(allowed(1, 22*hour))},
			{48 * hour, one(of(last, 4, 4)), answers(allowedLast(24*hour, 24*hour))},
		}},
		{"refunds, excess and a clock that is set back, in a calendar", []step{
			{24 * hour, one(always(of(next, 3, 5))), answers(never(0, 24*hour, 24*hour))},
			{25 * hour, one(giveBack(of(next, 3, 3))), answers(allowed(1, 23*hour))},
			{24 * hour, one(of(next, 3, 1)), answers(allowedLast(24*hour, 24*hour))},
			{24 * hour, one(of(next, 3, 1)), answers(denied(0, 24*hour, 24*hour, 24*hour))},
			{48 * hour, one(giveBack(of(last, 3, 1))), answers(allowed(3, 0))},
		}},
	}
}

// mixedTables are of groups with one log of each policy.
func mixedTables(base time.Duration) []table {
	period := window.Period{Start: int64(base / second), End: int64((base + day) / second), Next: int64((base + 2*day) / second)}
	// The costs are those of a bucket, a fixed window, a calendar, a counter and a log.
	all := func(costs ...uint64) []window.Check {
		return group(perSecond(1, 3, costs[0]), fixed(3, costs[1]), calendarIn(day, period, "k", 3, costs[2]), estimated(3, costs[3]), ask("k", 3, costs[4]))
	}
	full := func(i int, never window.Decision) []window.Decision {
		free := answers(allowed(3, 0), allowed(3, 0), allowed(3, 0), allowed(3, 0), allowed(3, 0))
		free[i] = never
		return free
	}
	var steps []step
	for i := range 5 { // each denies in turn, and none of the others is charged
		costs := []uint64{1, 1, 1, 1, 1}
		costs[i] = 4
		steps = append(steps, step{second, all(costs...), full(i, never(3, 0, 0))})
	}
	steps = append(steps, step{second, all(1, 1, 1, 1, 1), answers(
		allowed(2, second), allowed(2, 9*second), allowed(2, day-second), allowed(2, 19*second), allowed(2, 10*second),
	)})
	return []table{{"a group of all policies is charged as a whole or not at all", steps}}
}

// runPolicySteps runs the tables.
func runPolicySteps(t *testing.T, open func(*testing.T) windowtest.Harness) {
	h := open(t)
	origin := h.Aligned(day, 2*year)
	for i, tt := range policyTables(origin + h.Epoch) {
		t.Run(tt.name, func(t *testing.T) {
			if i > 0 {
				h = open(t)
			}
			for i, s := range tt.steps {
				windowtest.RunStep(t, h, i, origin+s.at, s.checks, s.want)
			}
		})
	}
}

// runPeriodBounds proves that a call outside the periods of one of its checks is refused,
// and charges nothing.
func runPeriodBounds(t *testing.T, h windowtest.Harness) {
	origin := h.Aligned(day, 2*year)
	base := int64((origin + h.Epoch) / second)
	period := window.Period{Start: base, End: base + 3600, Next: base + 7200}
	steps := []struct {
		at      time.Duration
		refused bool
	}{
		{-2 * time.Hour, true},
		{-time.Hour, true},
		{-oracle.Early, false},
		{-micro, false},
		{0, false},
		{time.Hour - micro, false},
		{time.Hour, false},
		{2*time.Hour - micro, false},
		{2 * time.Hour, true},
		{2*time.Hour + micro, true},
		{day, true},
	}
	for i, s := range steps {
		key := string(rune('a' + i))
		h.SetNow(origin + s.at)
		checks := group(
			always(fixedIn(win, key, 5, 1)), giveBack(ask(key+"back", 5, 1)), ask(key, 5, 1),
			calendarIn(time.Hour, period, key, 5, 1),
		)
		take(t, h.Store, one(ask(key+"back", 5, 2)))
		_, err := windowtest.Attempt(t, h.Store, checks)
		want := []uint64{4, 4, 4}
		if s.refused {
			want = []uint64{5, 3, 5}
		}
		if s.refused != errors.Is(err, window.ErrPeriod) || !s.refused && err != nil {
			t.Errorf("at %v of the period: got error %v, want refused %t", s.at, err, s.refused)
		}
		left := take(t, h.Store, group(fixedIn(win, key, 5, 0), ask(key+"back", 5, 0), ask(key, 5, 0)))
		var got []uint64
		for _, d := range left {
			got = append(got, d.Remaining)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at %v of the period: what remains (-want +got)\n%s", s.at, diff)
		}
	}
	h.SetNow(origin + day)
	for _, c := range group(calendarIn(time.Hour, period, "no", window.Unlimited, 1), calendarIn(time.Hour, period, "no", 0, 1)) {
		if _, err := windowtest.Attempt(t, h.Store, one(c)); err != nil {
			t.Errorf("a limit of %d outside its period: got error %v, but it needs no log", c.Limit.Hits, err)
		}
	}
}

// runBadPolicies proves that checks that contradict their policy are refused, and that
// their group is not charged.
func runBadPolicies(t *testing.T, h windowtest.Harness) {
	origin := h.Aligned(day, 2*year)
	h.SetNow(origin)
	of := func(c window.Check, change func(*window.Check)) window.Check {
		change(&c)
		return c
	}
	seconds := int64((origin + h.Epoch) / second)
	period := window.Period{Start: seconds, End: seconds + 3600, Next: seconds + 7200}
	calendar := calendarIn(time.Hour, period, "k", 2, 1)
	longest := int64(window.MaxWindow / second)
	for _, tt := range []struct {
		name string
		bad  window.Check
	}{
		{"an unknown policy", of(ask("k", 2, 1), func(c *window.Check) { c.Limit.Policy = window.InFlight + 1 })},
		{"a bucket without a rate", of(perSecond(1, 2, 1), func(c *window.Check) { c.Limit.Rate = 0 })},
		{"a rate of a sliding log", of(ask("k", 2, 1), func(c *window.Check) { c.Limit.Rate = 1 })},
		{"a rate of a fixed window", of(fixed(2, 1), func(c *window.Check) { c.Limit.Rate = 1 })},
		{"a bucket that fills too slowly", bucketOf("k", 2, 1, 1, window.MaxWindow)},
		{"a bucket that fills a moment too slowly", bucketOf("k", 34_560_001, 1, 1, second)},
		{"a precision of a bucket", precise(second, perSecond(1, 2, 1))},
		{"a precision of a counter", precise(second, estimated(2, 1))},
		{"a lease of a fixed window", of(fixed(2, 1), func(c *window.Check) { c.Lease.Length = second })},
		{"a period of a fixed window", of(fixed(2, 1), func(c *window.Check) { c.Period = period })},
		{"a calendar without a period", of(calendar, func(c *window.Check) { c.Period = window.Period{} })},
		{"a period that ends when it begins", of(calendar, func(c *window.Check) { c.Period.End = c.Period.Start })},
		{"a period whose next one ends first", of(calendar, func(c *window.Check) { c.Period.Next = c.Period.End })},
		{"a period before 1970", of(calendar, func(c *window.Check) { c.Period.Start = -1 })},
		{"a period that is too long", of(calendar, func(c *window.Check) { c.Period.End, c.Period.Next = seconds+longest+1, seconds+longest+2 })},
		{"a next period that is too long", of(calendar, func(c *window.Check) { c.Period.Next = c.Period.End + longest + 1 })},
		{"a period after all times", of(calendar, func(c *window.Check) { c.Period = window.Period{Start: 1 << 60, End: 1<<60 + 1, Next: 1<<60 + 2} })},
		{"a stream of a bucket", of(perSecond(1, 2, 1), func(c *window.Check) { c.Stream = 1 })},
		{"two modes of one bucket", observe(perSecond(2, 3, 1))},
	} {
		_, err := windowtest.Attempt(t, h.Store, group(perSecond(1, 2, 1), fixed(2, 1), tt.bad))
		if !errors.Is(err, window.ErrBadCheck) {
			t.Errorf("%s: got error %v, want one that wraps %q", tt.name, err, window.ErrBadCheck)
		}
	}
	good := of(calendar, func(c *window.Check) { c.Period.End, c.Period.Next = seconds+longest, seconds+2*longest })
	got := take(t, h.Store, group(perSecond(1, 2, 0), fixed(2, 0), good, bucketOf("slow", 34_560_000, 1, 1, second)))
	want := answers(allowed(2, 0), allowed(2, 0), allowed(1, window.MaxWindow), allowed(34_559_999, second))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after refused calls: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(answers(allowedLast(window.MaxWindow, window.MaxWindow)), take(t, h.Store, one(good))); diff != "" {
		t.Errorf("in the longest period: (-want +got)\n%s", diff)
	}
}
