package windowtest

import (
	"math"

	"github.com/slidegate/slidegate/pkg/window"
)

func orElse(c window.Check) window.Check  { return in(window.Any, c) }
func observe(c window.Check) window.Check { return in(window.Observe, c) }
func always(c window.Check) window.Check  { return in(window.Always, c) }

// cut is an answer to an update of which a part was not recorded.
func cut(d window.Decision) window.Decision { d.Cut = true; return d }
func giveBack(c window.Check) window.Check  { return in(window.Refund, c) }

// modeTables are of all modes, alone and together. Where a comment lists a log,
// it is as second:cost.
var modeTables = []table{
	{"always is charged over the limit, and the debt denies", []step{
		{0, one(always(ask("k", 3, 2))), answers(allowed(1, 10*second))},
		{1 * second, one(always(ask("k", 3, 4))), answers(never(0, 10*second, 10*second))}, // 0:2 1:4
		{2 * second, one(ask("k", 3, 1)), answers(denied(0, 9*second, 9*second, 9*second))},
		{2 * second, one(ask("k", 10, 1)), answers(allowedOf(3, 8*second, 10*second))},
		{3 * second, one(always(ask("k", 3, 2))), answers(cut(denied(0, 8*second, 8*second, 9*second)))}, // nothing: 7 are used
		{3 * second, one(always(ask("k", 3, 0))), answers(denied(0, 8*second, 8*second, 9*second))},
		{11*second - micro, one(ask("k", 3, 1)), answers(denied(0, micro, micro, 1*second+micro))},
		{11 * second, one(ask("k", 3, 1)), answers(allowedOf(1, 1*second, 10*second))},
	}},
	{"always denies the others, and is charged whatever they say", []step{
		{0, one(ask("a", 1, 1)), answers(allowedLast(10*second, 10*second))},
		{1 * second, group(ask("a", 1, 1), always(ask("b", 5, 1))), answers(denied(0, 9*second, 9*second, 9*second), allowed(4, 10*second))},
		{1 * second, group(always(ask("b", 5, 1)), orElse(ask("a", 1, 1))), answers(allowed(3, 10*second), denied(0, 9*second, 9*second, 9*second))},
		{2 * second, group(ask("c", 1, 1), always(ask("b", 5, 9))), answers(allowed(1, 0), cut(never(0, 10*second, 10*second)))}, // 1:2 2:8
		{2 * second, group(always(ask("b", 5, 1)), observe(ask("c", 1, 1))), answers(cut(denied(0, 10*second, 10*second, 10*second)), allowed(1, 0))},
		{2 * second, group(always(ask("b", 5, 1)), always(ask("d", 5, 1)), orElse(ask("c", 1, 1))), answers(
			cut(denied(0, 10*second, 10*second, 10*second)), allowed(4, 10*second), allowed(1, 0),
		)},
		{3 * second, one(ask("b", 20, 1)), answers(allowedOf(9, 8*second, 10*second))}, // 1:2 2:8 3:1
	}},
	{"any: one with room is enough, and those with room are charged", []step{
		{0, group(orElse(ask("a", 1, 1)), orElse(ask("b", 2, 1))), answers(allowedLast(10*second, 10*second), allowed(1, 10*second))},
		{1 * second, group(orElse(ask("a", 1, 1)), orElse(ask("b", 2, 1))), answers(denied(0, 9*second, 9*second, 9*second), allowedLast(9*second, 10*second))},
		{2 * second, group(orElse(ask("a", 1, 1)), orElse(ask("b", 2, 1))), answers(denied(0, 8*second, 8*second, 8*second), denied(0, 8*second, 8*second, 9*second))},
		{2 * second, group(orElse(ask("b", 3, 1)), ask("c", 1, 1), orElse(ask("a", 1, 1))), answers(
			allowedLast(8*second, 10*second), allowedLast(10*second, 10*second), denied(0, 8*second, 8*second, 8*second),
		)},
		// Enforce denies: none of them is charged.
		{3 * second, group(orElse(ask("d", 5, 1)), ask("c", 1, 1)), answers(allowed(5, 0), denied(0, 9*second, 9*second, 9*second))},
		{3 * second, one(ask("d", 5, 0)), answers(allowed(5, 0))},
		// None of them has room: what is enforced is not charged, nor what is observed.
		{3 * second, group(ask("d", 5, 1), orElse(ask("a", 1, 1)), observe(ask("e", 5, 1)), orElse(ask("f", 5, 6))), answers(
			allowed(5, 0), denied(0, 7*second, 7*second, 7*second), allowed(5, 0), never(5, 0, 0),
		)},
		{3 * second, group(ask("d", 5, 5), ask("e", 5, 5), ask("f", 5, 5)), answers(
			allowedLast(10*second, 10*second), allowedLast(10*second, 10*second), allowedLast(10*second, 10*second),
		)},
	}},
	{"any by itself is enforced", []step{
		{0, one(orElse(ask("k", 1, 1))), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(orElse(ask("k", 1, 1))), answers(denied(0, 9*second, 9*second, 9*second))},
		{1 * second, one(orElse(ask("k", 2, 1))), answers(allowedLast(9*second, 10*second))},
		{1 * second, one(orElse(ask("k", 3, 4))), answers(never(1, 9*second, 10*second))},
	}},
	{"observe never denies, and is charged where it has room", []step{
		{0, one(observe(ask("k", 1, 1))), answers(allowedLast(10*second, 10*second))},
		{1 * second, group(observe(ask("k", 1, 1)), ask("a", 2, 1)), answers(denied(0, 9*second, 9*second, 9*second), allowed(1, 10*second))},
		{1 * second, one(observe(ask("k", 2, 0))), answers(allowed(1, 9*second))}, // not charged: no room
		// The group is denied: it is not charged either.
		{2 * second, group(observe(ask("k", 5, 1)), ask("a", 2, 5)), answers(allowed(4, 8*second), never(1, 9*second, 9*second))},
		{2 * second, group(orElse(ask("a", 2, 5)), observe(ask("k", 5, 1))), answers(never(1, 9*second, 9*second), allowed(4, 8*second))},
		{3 * second, group(observe(ask("k", 5, 6)), orElse(ask("a", 2, 1))), answers(never(4, 7*second, 7*second), allowedLast(8*second, 10*second))},
		{3 * second, one(observe(ask("k", 5, 4))), answers(allowedLast(7*second, 10*second))},
	}},
	{"a refund takes the newest first", []step{
		{0, one(ask("k", 5, 2)), answers(allowed(3, 10*second))},
		{1 * second, one(ask("k", 5, 2)), answers(allowedOf(1, 9*second, 10*second))},
		{2 * second, one(giveBack(ask("k", 5, 1))), answers(allowedOf(2, 8*second, 9*second))}, // 0:2 1:1
		{2 * second, one(giveBack(ask("k", 5, 2))), answers(allowed(4, 8*second))},             // 0:1
		{2 * second, one(ask("k", 5, 5)), answers(denied(4, 8*second, 8*second, 8*second))},
		{3 * second, one(ask("k", 5, 2)), answers(allowedOf(2, 7*second, 10*second))}, // 0:1 3:2
		{3 * second, one(giveBack(ask("k", 5, 2))), answers(allowed(4, 7*second))},    // 0:1
		{10 * second, one(giveBack(ask("k", 5, 1))), answers(allowed(5, 0))},
		{10 * second, one(ask("k", 5, 5)), answers(allowedLast(10*second, 10*second))},
	}},
	{"a refund never goes below zero", []step{
		{0, one(giveBack(ask("k", 3, 2))), answers(allowed(3, 0))},
		{0, one(ask("k", 3, 4)), answers(never(3, 0, 0))},
		{0, one(ask("k", 3, 1)), answers(allowed(2, 10*second))},
		{1 * second, one(giveBack(ask("k", 3, math.MaxUint64))), answers(allowed(3, 0))},
		{1 * second, one(ask("k", 3, 3)), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(ask("k", 3, 1)), answers(denied(0, 10*second, 10*second, 10*second))},
		{2 * second, one(giveBack(ask("k", 3, 0))), answers(allowedLast(9*second, 9*second))},
		// What has expired cannot be given back.
		{5 * second, one(giveBack(ask("k", 3, 2))), answers(allowed(2, 6*second))},
		{6 * second, one(ask("k", 3, 2)), answers(allowedLast(5*second, 10*second))},
		{11 * second, one(giveBack(ask("k", 3, 3))), answers(allowed(3, 0))},
		{12 * second, one(ask("k", 3, 3)), answers(allowedLast(10*second, 10*second))},
	}},
	{"a refund under a smaller limit", []step{
		{0, one(ask("k", 5, 2)), answers(allowed(3, 10*second))},
		{1 * second, one(ask("k", 5, 3)), answers(allowedLast(9*second, 10*second))},
		{2 * second, one(giveBack(ask("k", 2, 1))), answers(allowedLast(9*second, 9*second))}, // 0:2 1:2
		{2 * second, one(giveBack(ask("k", 2, 1))), answers(allowedLast(8*second, 9*second))}, // 0:2 1:1
		{2 * second, one(giveBack(ask("k", 2, 2))), answers(allowed(1, 8*second))},
	}},
	{"a refund moves the clock of a log", []step{
		{0, one(ask("k", 3, 1)), answers(allowed(2, 10*second))},
		{1 * second, one(ask("k", 3, 1)), answers(allowedOf(1, 9*second, 10*second))},
		{8 * second, one(giveBack(ask("k", 3, 1))), answers(allowed(2, 2*second))},
		{3 * second, one(ask("k", 3, 1)), answers(allowedOf(1, 7*second, 15*second))}, // recorded at 8
		{10 * second, one(ask("k", 3, 0)), answers(allowed(2, 8*second))},
	}},
	{"a refund of everything keeps the clock of a log", []step{
		{20 * second, one(ask("k", 2, 1)), answers(allowed(1, 10*second))},
		{25 * second, one(giveBack(ask("k", 2, 1))), answers(allowed(2, 0))},
		{10 * second, one(ask("k", 2, 1)), answers(allowed(1, 25*second))}, // recorded at 25
		{30 * second, one(ask("k", 2, 2)), answers(denied(1, 5*second, 5*second, 5*second))},
	}},
	{"a refund of nothing does not move the clock of a log", []step{
		{0, one(ask("k", 2, 1)), answers(allowed(1, 10*second))},
		{30 * second, one(giveBack(ask("k", 2, 1))), answers(allowed(2, 0))},
		{31 * second, one(giveBack(ask("k", 2, 0))), answers(allowed(2, 0))},
		{5 * second, one(ask("k", 2, 1)), answers(allowedLast(5*second, 10*second))},
	}},
	{"a refund and a charge of one log: refunds come first", []step{
		{0, one(ask("k", 2, 2)), answers(allowedLast(10*second, 10*second))},
		{1 * second, group(giveBack(ask("k", 2, 1)), ask("k", 2, 1)), answers(allowedLast(9*second, 10*second), allowedLast(9*second, 10*second))}, // 0:1 1:1
		// The refund stays although the group is denied.
		{2 * second, group(ask("k", 2, 2), giveBack(ask("k", 2, 1))), answers(denied(1, 8*second, 8*second, 8*second), allowed(1, 8*second))}, // 0:1
		{2 * second, group(ask("k", 2, 2), giveBack(ask("k", 2, 1))), answers(allowedLast(10*second, 10*second), allowedLast(10*second, 10*second))},
		{3 * second, group(always(ask("k", 2, 3)), giveBack(ask("k", 2, 9))), answers(never(0, 10*second, 10*second), allowedLast(10*second, 10*second))}, // 3:3
		{4 * second, group(orElse(ask("k", 2, 1)), orElse(ask("a", 1, 1)), giveBack(ask("k", 4, 1))), answers(
			denied(0, 9*second, 9*second, 9*second), allowedLast(10*second, 10*second), allowed(2, 9*second), // 3:2
		)},
		{5 * second, group(giveBack(ask("k", 2, 1)), observe(ask("k", 2, 1)), ask("a", 1, 1)), answers(
			allowed(1, 8*second), allowed(1, 8*second), denied(0, 9*second, 9*second, 9*second), // 3:1, nothing charged
		)},
	}},
	{"a refund between others does not deny, and is not denied", []step{
		{0, group(ask("a", 1, 1), ask("b", 1, 1)), answers(allowedLast(10*second, 10*second), allowedLast(10*second, 10*second))},
		{1 * second, group(ask("a", 1, 1), giveBack(ask("b", 1, 1))), answers(denied(0, 9*second, 9*second, 9*second), allowed(1, 0))},
		{2 * second, group(giveBack(ask("b", 1, 1)), giveBack(ask("new", 1, 1)), ask("c", 1, 1)), answers(
			allowed(1, 0), allowed(1, 0), allowedLast(10*second, 10*second),
		)},
		{2 * second, group(giveBack(ask("b", 1, 1)), orElse(ask("c", 1, 1))), answers(allowed(1, 0), denied(0, 10*second, 10*second, 10*second))},
	}},
	{"always and enforce of one log: always comes first", []step{
		{0, group(always(ask("k", 3, 1)), ask("k", 3, 1)), answers(allowed(1, 10*second), allowed(1, 10*second))},
		// Only one of them has room, and it is not the first of the group.
		{1 * second, group(ask("k", 3, 1), always(ask("k", 3, 1))), answers(denied(0, 9*second, 9*second, 10*second), allowedLast(9*second, 10*second))},
		// The debt denies; what is observed has room, and is not charged.
		{2 * second, group(observe(ask("k", 9, 1)), always(ask("k", 3, 1))), answers(allowedOf(5, 8*second, 10*second), denied(0, 8*second, 8*second, 10*second))}, // 0:2 1:1 2:1
		{3 * second, group(ask("k", 9, 2), always(ask("k", 9, 2)), giveBack(ask("k", 9, 2))), answers(
			allowedOf(3, 7*second, 10*second), allowedOf(3, 7*second, 10*second), allowedOf(3, 7*second, 10*second), // 0:2 3:4
		)},
	}},
	{"always of several logs", []step{
		{0, group(always(ask("a", 1, 1)), always(ask("b", 1, 2)), ask("c", 1, 1)), answers(
			allowedLast(10*second, 10*second), never(0, 10*second, 10*second), allowed(1, 0),
		)},
		{1 * second, group(always(ask("a", 1, 1)), always(ask("b", 1, 1)), ask("c", 1, 1)), answers(
			denied(0, 10*second, 10*second, 10*second), cut(denied(0, 9*second, 9*second, 9*second)), allowed(1, 0),
		)},
		{2 * second, group(ask("a", 9, 1), ask("b", 9, 1)), answers(allowedOf(6, 8*second, 10*second), allowedOf(6, 8*second, 10*second))},
	}},
	{"checks of one log and mode are one", []step{
		{0, group(always(ask("k", 5, 1)), ask("k", 9, 1), always(ask("k", 4, 2))), answers(
			allowedLast(10*second, 10*second), allowed(5, 10*second), allowedLast(10*second, 10*second),
		)},
		{1 * second, group(giveBack(ask("k", 9, 1)), giveBack(ask("k", 5, 1))), answers(allowed(3, 9*second), allowed(3, 9*second))}, // 0:2
		{1 * second, group(giveBack(ask("k", 5, math.MaxUint64)), giveBack(ask("k", 5, 5))), answers(allowed(5, 0), allowed(5, 0))},
		{2 * second, group(orElse(ask("k", 3, 2)), orElse(ask("k", 4, 2)), orElse(ask("b", 1, 1))), answers(
			never(3, 0, 0), never(3, 0, 0), allowedLast(10*second, 10*second),
		)},
		{2 * second, group(observe(ask("k", 3, 1)), observe(ask("k", 3, 2))), answers(allowedLast(10*second, 10*second), allowedLast(10*second, 10*second))},
		{3 * second, group(always(ask("k", 5, math.MaxUint64)), always(ask("k", 4, 1))), answers(cut(never(0, 10*second, 10*second)), cut(never(0, 10*second, 10*second)))},
		{3 * second, one(giveBack(ask("k", 5, 4))), answers(allowedOf(1, 9*second, 10*second))}, // 2:3 and 3:1
	}},
	{"limit zero in all modes", []step{
		{0, one(orElse(ask("k", 0, 1))), answers(never(0, 0, 0))},
		{0, one(observe(ask("k", 0, 1))), answers(never(0, 0, 0))},
		{0, one(giveBack(ask("k", 0, 1))), answers(allowed(0, 0))},
		{0, one(always(ask("k", 0, 2))), answers(cut(never(0, 0, 0)))}, // nothing: no debt is allowed
		{0, one(always(ask("k", 1, 2))), answers(never(0, 10*second, 10*second))},
		{0, one(always(ask("k", 0, 0))), answers(never(0, 0, 10*second))},
		{1 * second, one(ask("k", 5, 1)), answers(allowedOf(2, 9*second, 10*second))}, // 0:2 1:1
		{2 * second, one(observe(ask("k", 0, 1))), answers(never(0, 0, 0))},
		{2 * second, one(giveBack(ask("k", 0, 1))), answers(allowedOf(0, 0*milli, 8*second))}, // 0:2
		{2 * second, group(observe(ask("k", 0, 1)), ask("a", 2, 1)), answers(never(0, 0, 0), allowed(1, 10*second))},
		{2 * second, group(orElse(ask("k", 0, 1)), orElse(ask("a", 2, 1))), answers(never(0, 0, 0), allowedLast(10*second, 10*second))},
		{2 * second, group(orElse(ask("k", 0, 1)), ask("b", 2, 1)), answers(never(0, 0, 0), allowed(2, 0))},
		{2 * second, group(always(ask("k", 0, 1)), ask("b", 2, 1)), answers(cut(never(0, 0, 8*second)), allowed(2, 0))}, // 0:2
		{2 * second, group(ask("c", 0, 1), always(ask("b", 2, 1)), giveBack(ask("a", 2, 1))), answers(never(0, 0, 0), allowed(1, 10*second), allowed(1, 10*second))},
		{2 * second, one(ask("k", 4, 0)), answers(allowedOf(2, 8*second, 8*second))},
	}},
	{"the largest limit in all modes", []step{
		{0, one(always(ask("k", window.MaxHits, 7))), answers(unlimited())},
		{0, one(orElse(ask("k", window.MaxHits, 7))), answers(unlimited())},
		{0, one(observe(ask("k", window.MaxHits, 7))), answers(unlimited())},
		{0, one(ask("k", 2, 2)), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(giveBack(ask("k", window.MaxHits, 1))), answers(unlimited())}, // of nothing
		{1 * second, one(ask("k", 2, 0)), answers(denied(0, 9*second, 9*second, 9*second))},
		{1 * second, group(orElse(ask("a", window.MaxHits, 1)), orElse(ask("b", 1, 2)), ask("c", 2, 1)), answers(unlimited(), never(1, 0, 0), allowed(1, 10*second))},
		{1 * second, group(observe(ask("a", window.MaxHits, 1)), ask("b", 1, 2)), answers(unlimited(), never(1, 0, 0))},
		{1 * second, group(giveBack(ask("k", window.MaxHits, 1)), always(ask("k", window.MaxHits, 1)), ask("k", 3, 1)), answers(
			unlimited(), unlimited(), allowedLast(9*second, 10*second),
		)},
	}},
	{"the debt is one limit, and what is charged beyond is lost", []step{
		{0, one(always(ask("k", 10, 12))), answers(never(0, 10*second, 10*second))},
		{1 * second, one(always(ask("k", 10, 9))), answers(cut(denied(0, 10*second, 9*second, 10*second)))},  // 1:8
		{2 * second, one(always(ask("k", 10, 1))), answers(cut(denied(0, 8*second, 8*second, 9*second)))},    // nothing
		{2 * second, one(always(ask("k", 11, math.MaxUint64))), answers(cut(never(0, 8*second, 10*second)))}, // 2:2
		{2 * second, one(always(ask("k", 5, 1))), answers(cut(denied(0, 9*second, 9*second, 10*second)))},    // nothing
		{10 * second, one(always(ask("k", 10, 1))), answers(denied(0, second, second, 10*second))},           // 10:1
		{11 * second, one(ask("k", 10, 7)), answers(allowedOf(0, second, 10*second))},
	}},
	{"a log holds 2^32-1, and what is charged beyond is lost", []step{
		{0, one(always(ask("k", most, math.MaxUint32-1))), answers(allowedLast(10*second, 10*second))},
		{1 * second, one(always(ask("k", most, 5))), answers(cut(denied(0, 9*second, 9*second, 10*second)))}, // 1:1
		{2 * second, one(always(ask("k", most, 7))), answers(cut(denied(0, 8*second, 8*second, 9*second)))},  // nothing
		{2 * second, one(giveBack(ask("k", 10, 1))), answers(allowedLast(8*second, 8*second))},
		{3 * second, one(ask("k", 10, 1)), answers(denied(0, 7*second, 7*second, 7*second))},
		{3 * second, one(ask("k", most, 1)), answers(denied(0, 7*second, 7*second, 7*second))},
		{4 * second, one(giveBack(ask("k", most, 3))), answers(allowed(3, 6*second))},
		{4 * second, one(ask("k", most, 3)), answers(allowedLast(6*second, 10*second))}, // 0:2^32-5 4:3
		{10 * second, one(ask("k", 10, 7)), answers(allowedLast(4*second, 10*second))},
		{11 * second, one(always(ask("k", 10, math.MaxUint64))), answers(cut(never(0, 10*second, 10*second)))},
	}},
}
