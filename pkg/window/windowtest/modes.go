package windowtest

import (
	"math"

	"github.com/slidegate/slidegate/pkg/window"
)

func orElse(c window.Check) window.Check { return in(window.Any, c) }

// Observe makes a check that never denies.
func Observe(c window.Check) window.Check { return in(window.Observe, c) }

// Always makes a check that is charged in any case.
func Always(c window.Check) window.Check { return in(window.Always, c) }

// Cut is an answer to an update of which a part was not recorded.
func Cut(d window.Decision) window.Decision { d.Cut = true; return d }

// GiveBack makes a check that is a refund.
func GiveBack(c window.Check) window.Check { return in(window.Refund, c) }

// modeTables are of all modes, alone and together. Where a comment lists a log,
// it is as second:cost.
var modeTables = []Table{
	{"always is charged over the limit, and the excess denies", []Step{
		{0, One(Always(Ask("k", 3, 2))), Answers(Allowed(1, 10*Second))},
		{1 * Second, One(Always(Ask("k", 3, 4))), Answers(Never(0, 10*Second, 10*Second))}, // 0:2 1:4
		{2 * Second, One(Ask("k", 3, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{2 * Second, One(Ask("k", 10, 1)), Answers(AllowedOf(3, 8*Second, 10*Second))},
		{3 * Second, One(Always(Ask("k", 3, 2))), Answers(Cut(Denied(0, 8*Second, 8*Second, 9*Second)))}, // nothing: 7 are used
		{3 * Second, One(Always(Ask("k", 3, 0))), Answers(Denied(0, 8*Second, 8*Second, 9*Second))},
		{11*Second - Micro, One(Ask("k", 3, 1)), Answers(Denied(0, Micro, Micro, 1*Second+Micro))},
		{11 * Second, One(Ask("k", 3, 1)), Answers(AllowedOf(1, 1*Second, 10*Second))},
	}},
	{"always denies the others, and is charged whatever they say", []Step{
		{0, One(Ask("a", 1, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, Group(Ask("a", 1, 1), Always(Ask("b", 5, 1))), Answers(Denied(0, 9*Second, 9*Second, 9*Second), Allowed(4, 10*Second))},
		{1 * Second, Group(Always(Ask("b", 5, 1)), orElse(Ask("a", 1, 1))), Answers(Allowed(3, 10*Second), Denied(0, 9*Second, 9*Second, 9*Second))},
		{2 * Second, Group(Ask("c", 1, 1), Always(Ask("b", 5, 9))), Answers(Allowed(1, 0), Cut(Never(0, 10*Second, 10*Second)))}, // 1:2 2:8
		{2 * Second, Group(Always(Ask("b", 5, 1)), Observe(Ask("c", 1, 1))), Answers(Cut(Denied(0, 10*Second, 10*Second, 10*Second)), Allowed(1, 0))},
		{2 * Second, Group(Always(Ask("b", 5, 1)), Always(Ask("d", 5, 1)), orElse(Ask("c", 1, 1))), Answers(
			Cut(Denied(0, 10*Second, 10*Second, 10*Second)), Allowed(4, 10*Second), Allowed(1, 0),
		)},
		{3 * Second, One(Ask("b", 20, 1)), Answers(AllowedOf(9, 8*Second, 10*Second))}, // 1:2 2:8 3:1
	}},
	{"any: one with room is enough, and those with room are charged", []Step{
		{0, Group(orElse(Ask("a", 1, 1)), orElse(Ask("b", 2, 1))), Answers(AllowedLast(10*Second, 10*Second), Allowed(1, 10*Second))},
		{1 * Second, Group(orElse(Ask("a", 1, 1)), orElse(Ask("b", 2, 1))), Answers(Denied(0, 9*Second, 9*Second, 9*Second), AllowedLast(9*Second, 10*Second))},
		{2 * Second, Group(orElse(Ask("a", 1, 1)), orElse(Ask("b", 2, 1))), Answers(Denied(0, 8*Second, 8*Second, 8*Second), Denied(0, 8*Second, 8*Second, 9*Second))},
		{2 * Second, Group(orElse(Ask("b", 3, 1)), Ask("c", 1, 1), orElse(Ask("a", 1, 1))), Answers(
			AllowedLast(8*Second, 10*Second), AllowedLast(10*Second, 10*Second), Denied(0, 8*Second, 8*Second, 8*Second),
		)},
		// Enforce denies: none of them is charged.
		{3 * Second, Group(orElse(Ask("d", 5, 1)), Ask("c", 1, 1)), Answers(Allowed(5, 0), Denied(0, 9*Second, 9*Second, 9*Second))},
		{3 * Second, One(Ask("d", 5, 0)), Answers(Allowed(5, 0))},
		// None of them has room: what is enforced is not charged, nor what is observed.
		{3 * Second, Group(Ask("d", 5, 1), orElse(Ask("a", 1, 1)), Observe(Ask("e", 5, 1)), orElse(Ask("f", 5, 6))), Answers(
			Allowed(5, 0), Denied(0, 7*Second, 7*Second, 7*Second), Allowed(5, 0), Never(5, 0, 0),
		)},
		{3 * Second, Group(Ask("d", 5, 5), Ask("e", 5, 5), Ask("f", 5, 5)), Answers(
			AllowedLast(10*Second, 10*Second), AllowedLast(10*Second, 10*Second), AllowedLast(10*Second, 10*Second),
		)},
	}},
	{"any by itself is enforced", []Step{
		{0, One(orElse(Ask("k", 1, 1))), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(orElse(Ask("k", 1, 1))), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{1 * Second, One(orElse(Ask("k", 2, 1))), Answers(AllowedLast(9*Second, 10*Second))},
		{1 * Second, One(orElse(Ask("k", 3, 4))), Answers(Never(1, 9*Second, 10*Second))},
	}},
	{"observe never denies, and is charged where it has room", []Step{
		{0, One(Observe(Ask("k", 1, 1))), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, Group(Observe(Ask("k", 1, 1)), Ask("a", 2, 1)), Answers(Denied(0, 9*Second, 9*Second, 9*Second), Allowed(1, 10*Second))},
		{1 * Second, One(Observe(Ask("k", 2, 0))), Answers(Allowed(1, 9*Second))}, // not charged: no room
		// The group is denied: it is not charged either.
		{2 * Second, Group(Observe(Ask("k", 5, 1)), Ask("a", 2, 5)), Answers(Allowed(4, 8*Second), Never(1, 9*Second, 9*Second))},
		{2 * Second, Group(orElse(Ask("a", 2, 5)), Observe(Ask("k", 5, 1))), Answers(Never(1, 9*Second, 9*Second), Allowed(4, 8*Second))},
		{3 * Second, Group(Observe(Ask("k", 5, 6)), orElse(Ask("a", 2, 1))), Answers(Never(4, 7*Second, 7*Second), AllowedLast(8*Second, 10*Second))},
		{3 * Second, One(Observe(Ask("k", 5, 4))), Answers(AllowedLast(7*Second, 10*Second))},
	}},
	{"a refund takes the newest first", []Step{
		{0, One(Ask("k", 5, 2)), Answers(Allowed(3, 10*Second))},
		{1 * Second, One(Ask("k", 5, 2)), Answers(AllowedOf(1, 9*Second, 10*Second))},
		{2 * Second, One(GiveBack(Ask("k", 5, 1))), Answers(AllowedOf(2, 8*Second, 9*Second))}, // 0:2 1:1
		{2 * Second, One(GiveBack(Ask("k", 5, 2))), Answers(Allowed(4, 8*Second))},             // 0:1
		{2 * Second, One(Ask("k", 5, 5)), Answers(Denied(4, 8*Second, 8*Second, 8*Second))},
		{3 * Second, One(Ask("k", 5, 2)), Answers(AllowedOf(2, 7*Second, 10*Second))}, // 0:1 3:2
		{3 * Second, One(GiveBack(Ask("k", 5, 2))), Answers(Allowed(4, 7*Second))},    // 0:1
		{10 * Second, One(GiveBack(Ask("k", 5, 1))), Answers(Allowed(5, 0))},
		{10 * Second, One(Ask("k", 5, 5)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"a refund never goes below zero", []Step{
		{0, One(GiveBack(Ask("k", 3, 2))), Answers(Allowed(3, 0))},
		{0, One(Ask("k", 3, 4)), Answers(Never(3, 0, 0))},
		{0, One(Ask("k", 3, 1)), Answers(Allowed(2, 10*Second))},
		{1 * Second, One(GiveBack(Ask("k", 3, math.MaxUint64))), Answers(Allowed(3, 0))},
		{1 * Second, One(Ask("k", 3, 3)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(Ask("k", 3, 1)), Answers(Denied(0, 10*Second, 10*Second, 10*Second))},
		{2 * Second, One(GiveBack(Ask("k", 3, 0))), Answers(AllowedLast(9*Second, 9*Second))},
		// What has expired cannot be given back.
		{5 * Second, One(GiveBack(Ask("k", 3, 2))), Answers(Allowed(2, 6*Second))},
		{6 * Second, One(Ask("k", 3, 2)), Answers(AllowedLast(5*Second, 10*Second))},
		{11 * Second, One(GiveBack(Ask("k", 3, 3))), Answers(Allowed(3, 0))},
		{12 * Second, One(Ask("k", 3, 3)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"a refund under a smaller limit", []Step{
		{0, One(Ask("k", 5, 2)), Answers(Allowed(3, 10*Second))},
		{1 * Second, One(Ask("k", 5, 3)), Answers(AllowedLast(9*Second, 10*Second))},
		{2 * Second, One(GiveBack(Ask("k", 2, 1))), Answers(AllowedLast(9*Second, 9*Second))}, // 0:2 1:2
		{2 * Second, One(GiveBack(Ask("k", 2, 1))), Answers(AllowedLast(8*Second, 9*Second))}, // 0:2 1:1
		{2 * Second, One(GiveBack(Ask("k", 2, 2))), Answers(Allowed(1, 8*Second))},
	}},
	{"a refund moves the clock of a log", []Step{
		{0, One(Ask("k", 3, 1)), Answers(Allowed(2, 10*Second))},
		{1 * Second, One(Ask("k", 3, 1)), Answers(AllowedOf(1, 9*Second, 10*Second))},
		{8 * Second, One(GiveBack(Ask("k", 3, 1))), Answers(Allowed(2, 2*Second))},
		{3 * Second, One(Ask("k", 3, 1)), Answers(AllowedOf(1, 7*Second, 15*Second))}, // recorded at 8
		{10 * Second, One(Ask("k", 3, 0)), Answers(Allowed(2, 8*Second))},
	}},
	{"a refund of everything keeps the clock of a log", []Step{
		{20 * Second, One(Ask("k", 2, 1)), Answers(Allowed(1, 10*Second))},
		{25 * Second, One(GiveBack(Ask("k", 2, 1))), Answers(Allowed(2, 0))},
		{10 * Second, One(Ask("k", 2, 1)), Answers(Allowed(1, 25*Second))}, // recorded at 25
		{30 * Second, One(Ask("k", 2, 2)), Answers(Denied(1, 5*Second, 5*Second, 5*Second))},
	}},
	{"a refund of nothing does not move the clock of a log", []Step{
		{0, One(Ask("k", 2, 1)), Answers(Allowed(1, 10*Second))},
		{30 * Second, One(GiveBack(Ask("k", 2, 1))), Answers(Allowed(2, 0))},
		{31 * Second, One(GiveBack(Ask("k", 2, 0))), Answers(Allowed(2, 0))},
		{5 * Second, One(Ask("k", 2, 1)), Answers(AllowedLast(5*Second, 10*Second))},
	}},
	{"a refund and a charge of one log: refunds come first", []Step{
		{0, One(Ask("k", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, Group(GiveBack(Ask("k", 2, 1)), Ask("k", 2, 1)), Answers(AllowedLast(9*Second, 10*Second), AllowedLast(9*Second, 10*Second))}, // 0:1 1:1
		// The refund stays although the group is denied.
		{2 * Second, Group(Ask("k", 2, 2), GiveBack(Ask("k", 2, 1))), Answers(Denied(1, 8*Second, 8*Second, 8*Second), Allowed(1, 8*Second))}, // 0:1
		{2 * Second, Group(Ask("k", 2, 2), GiveBack(Ask("k", 2, 1))), Answers(AllowedLast(10*Second, 10*Second), AllowedLast(10*Second, 10*Second))},
		{3 * Second, Group(Always(Ask("k", 2, 3)), GiveBack(Ask("k", 2, 9))), Answers(Never(0, 10*Second, 10*Second), AllowedLast(10*Second, 10*Second))}, // 3:3
		{4 * Second, Group(orElse(Ask("k", 2, 1)), orElse(Ask("a", 1, 1)), GiveBack(Ask("k", 4, 1))), Answers(
			Denied(0, 9*Second, 9*Second, 9*Second), AllowedLast(10*Second, 10*Second), Allowed(2, 9*Second), // 3:2
		)},
		{5 * Second, Group(GiveBack(Ask("k", 2, 1)), Observe(Ask("k", 2, 1)), Ask("a", 1, 1)), Answers(
			Allowed(1, 8*Second), Allowed(1, 8*Second), Denied(0, 9*Second, 9*Second, 9*Second), // 3:1, nothing charged
		)},
	}},
	{"a refund between others does not deny, and is not denied", []Step{
		{0, Group(Ask("a", 1, 1), Ask("b", 1, 1)), Answers(AllowedLast(10*Second, 10*Second), AllowedLast(10*Second, 10*Second))},
		{1 * Second, Group(Ask("a", 1, 1), GiveBack(Ask("b", 1, 1))), Answers(Denied(0, 9*Second, 9*Second, 9*Second), Allowed(1, 0))},
		{2 * Second, Group(GiveBack(Ask("b", 1, 1)), GiveBack(Ask("new", 1, 1)), Ask("c", 1, 1)), Answers(
			Allowed(1, 0), Allowed(1, 0), AllowedLast(10*Second, 10*Second),
		)},
		{2 * Second, Group(GiveBack(Ask("b", 1, 1)), orElse(Ask("c", 1, 1))), Answers(Allowed(1, 0), Denied(0, 10*Second, 10*Second, 10*Second))},
	}},
	{"always and enforce of one log: always comes first", []Step{
		{0, Group(Always(Ask("k", 3, 1)), Ask("k", 3, 1)), Answers(Allowed(1, 10*Second), Allowed(1, 10*Second))},
		// Only one of them has room, and it is not the first of the group.
		{1 * Second, Group(Ask("k", 3, 1), Always(Ask("k", 3, 1))), Answers(Denied(0, 9*Second, 9*Second, 10*Second), AllowedLast(9*Second, 10*Second))},
		// The overdrawn limit denies; what is observed has room, and is not charged.
		{2 * Second, Group(Observe(Ask("k", 9, 1)), Always(Ask("k", 3, 1))), Answers(AllowedOf(5, 8*Second, 10*Second), Denied(0, 8*Second, 8*Second, 10*Second))}, // 0:2 1:1 2:1
		{3 * Second, Group(Ask("k", 9, 2), Always(Ask("k", 9, 2)), GiveBack(Ask("k", 9, 2))), Answers(
			AllowedOf(3, 7*Second, 10*Second), AllowedOf(3, 7*Second, 10*Second), AllowedOf(3, 7*Second, 10*Second), // 0:2 3:4
		)},
	}},
	{"always of several logs", []Step{
		{0, Group(Always(Ask("a", 1, 1)), Always(Ask("b", 1, 2)), Ask("c", 1, 1)), Answers(
			AllowedLast(10*Second, 10*Second), Never(0, 10*Second, 10*Second), Allowed(1, 0),
		)},
		{1 * Second, Group(Always(Ask("a", 1, 1)), Always(Ask("b", 1, 1)), Ask("c", 1, 1)), Answers(
			Denied(0, 10*Second, 10*Second, 10*Second), Cut(Denied(0, 9*Second, 9*Second, 9*Second)), Allowed(1, 0),
		)},
		{2 * Second, Group(Ask("a", 9, 1), Ask("b", 9, 1)), Answers(AllowedOf(6, 8*Second, 10*Second), AllowedOf(6, 8*Second, 10*Second))},
	}},
	{"checks of one log and mode are one", []Step{
		{0, Group(Always(Ask("k", 5, 1)), Ask("k", 9, 1), Always(Ask("k", 4, 2))), Answers(
			AllowedLast(10*Second, 10*Second), Allowed(5, 10*Second), AllowedLast(10*Second, 10*Second),
		)},
		{1 * Second, Group(GiveBack(Ask("k", 9, 1)), GiveBack(Ask("k", 5, 1))), Answers(Allowed(3, 9*Second), Allowed(3, 9*Second))}, // 0:2
		{1 * Second, Group(GiveBack(Ask("k", 5, math.MaxUint64)), GiveBack(Ask("k", 5, 5))), Answers(Allowed(5, 0), Allowed(5, 0))},
		{2 * Second, Group(orElse(Ask("k", 3, 2)), orElse(Ask("k", 4, 2)), orElse(Ask("b", 1, 1))), Answers(
			Never(3, 0, 0), Never(3, 0, 0), AllowedLast(10*Second, 10*Second),
		)},
		{2 * Second, Group(Observe(Ask("k", 3, 1)), Observe(Ask("k", 3, 2))), Answers(AllowedLast(10*Second, 10*Second), AllowedLast(10*Second, 10*Second))},
		{3 * Second, Group(Always(Ask("k", 5, math.MaxUint64)), Always(Ask("k", 4, 1))), Answers(Cut(Never(0, 10*Second, 10*Second)), Cut(Never(0, 10*Second, 10*Second)))},
		{3 * Second, One(GiveBack(Ask("k", 5, 4))), Answers(AllowedOf(1, 9*Second, 10*Second))}, // 2:3 and 3:1
	}},
	{"limit zero in all modes", []Step{
		{0, One(orElse(Ask("k", 0, 1))), Answers(Never(0, 0, 0))},
		{0, One(Observe(Ask("k", 0, 1))), Answers(Never(0, 0, 0))},
		{0, One(GiveBack(Ask("k", 0, 1))), Answers(Allowed(0, 0))},
		{0, One(Always(Ask("k", 0, 2))), Answers(Cut(Never(0, 0, 0)))}, // nothing: no charge over the limit is allowed
		{0, One(Always(Ask("k", 1, 2))), Answers(Never(0, 10*Second, 10*Second))},
		{0, One(Always(Ask("k", 0, 0))), Answers(Never(0, 0, 10*Second))},
		{1 * Second, One(Ask("k", 5, 1)), Answers(AllowedOf(2, 9*Second, 10*Second))}, // 0:2 1:1
		{2 * Second, One(Observe(Ask("k", 0, 1))), Answers(Never(0, 0, 0))},
		{2 * Second, One(GiveBack(Ask("k", 0, 1))), Answers(AllowedOf(0, 0*Millisecond, 8*Second))}, // 0:2
		{2 * Second, Group(Observe(Ask("k", 0, 1)), Ask("a", 2, 1)), Answers(Never(0, 0, 0), Allowed(1, 10*Second))},
		{2 * Second, Group(orElse(Ask("k", 0, 1)), orElse(Ask("a", 2, 1))), Answers(Never(0, 0, 0), AllowedLast(10*Second, 10*Second))},
		{2 * Second, Group(orElse(Ask("k", 0, 1)), Ask("b", 2, 1)), Answers(Never(0, 0, 0), Allowed(2, 0))},
		{2 * Second, Group(Always(Ask("k", 0, 1)), Ask("b", 2, 1)), Answers(Cut(Never(0, 0, 8*Second)), Allowed(2, 0))}, // 0:2
		{2 * Second, Group(Ask("c", 0, 1), Always(Ask("b", 2, 1)), GiveBack(Ask("a", 2, 1))), Answers(Never(0, 0, 0), Allowed(1, 10*Second), Allowed(1, 10*Second))},
		{2 * Second, One(Ask("k", 4, 0)), Answers(AllowedOf(2, 8*Second, 8*Second))},
	}},
	{"the largest limit in all modes", []Step{
		{0, One(Always(Ask("k", window.Unlimited, 7))), Answers(Unlimited())},
		{0, One(orElse(Ask("k", window.Unlimited, 7))), Answers(Unlimited())},
		{0, One(Observe(Ask("k", window.Unlimited, 7))), Answers(Unlimited())},
		{0, One(Ask("k", 2, 2)), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(GiveBack(Ask("k", window.Unlimited, 1))), Answers(Unlimited())}, // of nothing
		{1 * Second, One(Ask("k", 2, 0)), Answers(Denied(0, 9*Second, 9*Second, 9*Second))},
		{1 * Second, Group(orElse(Ask("a", window.Unlimited, 1)), orElse(Ask("b", 1, 2)), Ask("c", 2, 1)), Answers(Unlimited(), Never(1, 0, 0), Allowed(1, 10*Second))},
		{1 * Second, Group(Observe(Ask("a", window.Unlimited, 1)), Ask("b", 1, 2)), Answers(Unlimited(), Never(1, 0, 0))},
		{1 * Second, Group(GiveBack(Ask("k", window.Unlimited, 1)), Always(Ask("k", window.Unlimited, 1)), Ask("k", 3, 1)), Answers(
			Unlimited(), Unlimited(), AllowedLast(9*Second, 10*Second),
		)},
	}},
	{"the excess is one limit, and what is charged beyond is lost", []Step{
		{0, One(Always(Ask("k", 10, 12))), Answers(Never(0, 10*Second, 10*Second))},
		{1 * Second, One(Always(Ask("k", 10, 9))), Answers(Cut(Denied(0, 10*Second, 9*Second, 10*Second)))},  // 1:8
		{2 * Second, One(Always(Ask("k", 10, 1))), Answers(Cut(Denied(0, 8*Second, 8*Second, 9*Second)))},    // nothing
		{2 * Second, One(Always(Ask("k", 11, math.MaxUint64))), Answers(Cut(Never(0, 8*Second, 10*Second)))}, // 2:2
		{2 * Second, One(Always(Ask("k", 5, 1))), Answers(Cut(Denied(0, 9*Second, 9*Second, 10*Second)))},    // nothing
		{10 * Second, One(Always(Ask("k", 10, 1))), Answers(Denied(0, Second, Second, 10*Second))},           // 10:1
		{11 * Second, One(Ask("k", 10, 7)), Answers(AllowedOf(0, Second, 10*Second))},
	}},
	{"a log holds 2^32-1, and what is charged beyond is lost", []Step{
		{0, One(Always(Ask("k", Most, math.MaxUint32-1))), Answers(AllowedLast(10*Second, 10*Second))},
		{1 * Second, One(Always(Ask("k", Most, 5))), Answers(Cut(Denied(0, 9*Second, 9*Second, 10*Second)))}, // 1:1
		{2 * Second, One(Always(Ask("k", Most, 7))), Answers(Cut(Denied(0, 8*Second, 8*Second, 9*Second)))},  // nothing
		{2 * Second, One(GiveBack(Ask("k", 10, 1))), Answers(AllowedLast(8*Second, 8*Second))},
		{3 * Second, One(Ask("k", 10, 1)), Answers(Denied(0, 7*Second, 7*Second, 7*Second))},
		{3 * Second, One(Ask("k", Most, 1)), Answers(Denied(0, 7*Second, 7*Second, 7*Second))},
		{4 * Second, One(GiveBack(Ask("k", Most, 3))), Answers(Allowed(3, 6*Second))},
		{4 * Second, One(Ask("k", Most, 3)), Answers(AllowedLast(6*Second, 10*Second))}, // 0:2^32-5 4:3
		{10 * Second, One(Ask("k", 10, 7)), Answers(AllowedLast(4*Second, 10*Second))},
		{11 * Second, One(Always(Ask("k", 10, math.MaxUint64))), Answers(Cut(Never(0, 10*Second, 10*Second)))},
	}},
}
