package windowtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// precisionTables are of checks whose times are rounded. Their times count from
// an instant at which the store's clock says a multiple of align.
var precisionTables = []struct {
	name  string
	align time.Duration
	steps []step
}{
	{"times are rounded up to a multiple of the precision", second, []step{
		{0, one(precise(second, ask("k", 3, 1))), answers(allowed(2, 10*second))},
		{micro, one(precise(second, ask("k", 3, 1))), answers(allowedOf(1, 10*second-micro, 11*second-micro))},
		{1 * second, one(precise(second, ask("k", 3, 1))), answers(allowedLast(9*second, 10*second))}, // 0:1 1:2
		{10*second - micro, one(precise(second, ask("k", 3, 1))), answers(denied(0, micro, micro, 1*second+micro))},
		{10 * second, one(precise(second, ask("k", 3, 2))), answers(denied(1, 1*second, 1*second, 1*second))},
		{11*second - micro, one(precise(second, ask("k", 3, 2))), answers(denied(1, micro, micro, micro))},
		{11 * second, one(precise(second, ask("k", 3, 3))), answers(allowedLast(10*second, 10*second))},
	}},
	{"an odd precision", 7 * micro, []step{
		{0, one(precise(7*micro, ask("k", 3, 1))), answers(allowed(2, 10*second))},
		{1 * micro, one(precise(7*micro, ask("k", 3, 1))), answers(allowedOf(1, 10*second-micro, 10*second+6*micro))},
		{8 * micro, one(precise(7*micro, ask("k", 3, 1))), answers(allowedLast(10*second-8*micro, 10*second+6*micro))},
		{10 * second, one(precise(7*micro, ask("k", 3, 2))), answers(denied(1, 7*micro, 7*micro, 14*micro))},
		{10*second + 7*micro, one(precise(7*micro, ask("k", 3, 2))), answers(allowedLast(7*micro, 10*second+4*micro))},
	}},
	{"parts of a microsecond count as a whole one", 2 * micro, []step{
		{1 * micro, one(precise(1500*time.Nanosecond, ask("k", 3, 1))), answers(allowed(2, 10*second+micro))},
		{3 * micro, one(precise(1, ask("k", 3, 1))), answers(allowedOf(1, 10*second-micro, 10*second))},
		{5 * micro, one(precise(micro, ask("k", 3, 1))), answers(allowedLast(10*second-3*micro, 10*second))},
	}},
	{"a precision of the whole window", win, []step{
		{1 * second, one(precise(win, ask("k", 2, 1))), answers(allowed(1, 19*second))},
		{9 * second, one(precise(win, ask("k", 2, 1))), answers(allowedLast(11*second, 11*second))},
		{20*second - micro, one(precise(win, ask("k", 2, 1))), answers(denied(0, micro, micro, micro))},
		{20 * second, one(precise(win, ask("k", 2, 2))), answers(allowedLast(10*second, 10*second))},
	}},
	{"a finer precision after a coarser: the newest entry takes the cost", 5 * second, []step{
		{1 * second, one(precise(5*second, ask("k", 5, 1))), answers(allowed(4, 14*second))},
		{2 * second, one(ask("k", 5, 1)), answers(allowed(3, 13*second))}, // 5:2
		{6 * second, one(ask("k", 5, 1)), answers(allowedOf(2, 9*second, 10*second))},
		{7 * second, one(precise(5*second, ask("k", 5, 1))), answers(allowedOf(1, 8*second, 13*second))}, // 5:2 6:1 10:1
		{15*second - micro, one(ask("k", 5, 4)), answers(denied(1, 1*second+micro, micro, 5*second+micro))},
		{16*second - micro, one(ask("k", 5, 4)), answers(denied(3, micro, micro, 4*second+micro))},
		{16 * second, one(ask("k", 5, 4)), answers(allowedLast(4*second, 10*second))},
	}},
	{"a time that is rounded up is not the clock", win, []step{
		{0, one(ask("k", 4, 1)), answers(allowed(3, 10*second))},
		{1 * second, one(precise(win, ask("k", 4, 1))), answers(allowedOf(2, 9*second, 19*second))},
		{2 * second, one(ask("k", 4, 1)), answers(allowedOf(1, 8*second, 18*second))}, // 0:1 10:2
		{1 * second, one(ask("k", 4, 1)), answers(allowedLast(9*second, 19*second))},  // seen from 2
		{10*second - micro, one(ask("k", 4, 1)), answers(denied(0, micro, micro, 10*second+micro))},
		{10 * second, one(ask("k", 4, 1)), answers(allowedLast(10*second, 10*second))},
		{20*second - micro, one(ask("k", 4, 1)), answers(denied(0, micro, micro, micro))},
		{20 * second, one(ask("k", 4, 4)), answers(allowedLast(10*second, 10*second))},
	}},
	{"the finest precision of one log and mode holds", 5 * second, []step{
		{1 * second, group(precise(5*second, ask("k", 6, 1)), precise(second, ask("k", 6, 1))), answers(allowed(4, 10*second), allowed(4, 10*second))},
		{2*second + micro, group(ask("k", 6, 1), precise(5*second, ask("k", 6, 1))), answers(allowedOf(2, 9*second-micro, 10*second), allowedOf(2, 9*second-micro, 10*second))},
		{3 * second, group(precise(5*second, ask("k", 6, 1)), always(ask("k", 6, 1))), answers(allowedLast(8*second, 12*second), allowedLast(8*second, 12*second))}, // 1:2 2:2 3:1 5:1
	}},
	{"after a refund the next entry may be earlier", 10 * second, []step{
		{1 * second, one(ask("k", 3, 1)), answers(allowed(2, 10*second))},
		{2 * second, one(precise(win, ask("k", 3, 1))), answers(allowedOf(1, 9*second, 18*second))},
		{3 * second, one(giveBack(ask("k", 3, 1))), answers(allowed(2, 8*second))},
		{4 * second, one(ask("k", 3, 1)), answers(allowedOf(1, 7*second, 10*second))},
		{5 * second, one(precise(win, ask("k", 3, 1))), answers(allowedLast(6*second, 15*second))},
		{6 * second, one(precise(win, giveBack(ask("k", 3, 2)))), answers(allowed(2, 5*second))},
	}},
	{"a precision in a window of milliseconds", 10 * milli, []step{
		{1 * micro, one(precise(micro, askIn(sixDays+milli, "k", 5, 1))), answers(allowed(4, sixDays+2*milli-micro))},
		{2*milli + micro, one(precise(milli+1, askIn(sixDays+milli, "k", 5, 1))), answers(allowedOf(3, 518400*second-micro, sixDays+3*milli-micro))},
		{4*milli + micro, one(precise(5*milli, askIn(sixDays+milli, "k", 5, 1))), answers(allowedOf(2, 518400*second-2001*micro, sixDays+2*milli-micro))},
		{6 * milli, one(askIn(sixDays+milli, "k", 5, 1)), answers(allowedOf(1, 518400*second-4*milli, sixDays+milli))},
		{sixDays + 2*milli - micro, one(askIn(sixDays+milli, "k", 5, 2)), answers(denied(1, micro, micro, 5*milli+micro))},
		{sixDays + 2*milli, one(askIn(sixDays+milli, "k", 5, 2)), answers(allowedLast(3*milli, sixDays+milli))},
	}},
}

// runPrecision proves what precision promises without an oracle, from true times. No
// interval of a window's length holds more than the limit, and an entry counts at most a
// precision too long.
func runPrecision(t *testing.T, h Harness) {
	for n, tt := range []struct {
		limit     window.Limit
		precision time.Duration
		most      time.Duration // what the precision is in whole units
	}{
		{window.Limit{Hits: 20_000, Window: win}, 0, 0},
		{window.Limit{Hits: 20_000, Window: win}, milli, milli},
		{window.Limit{Hits: 1_000_000, Window: day}, 8640 * milli, 8640 * milli},
		{window.Limit{Hits: 300, Window: win}, win, win},
		{window.Limit{Hits: 300, Window: win}, win/7 + 1, (win / 7).Truncate(micro) + micro},
		{window.Limit{Hits: 5_000_000, Window: 31 * day}, 267_840 * milli, 267_840 * milli},
		{window.Limit{Hits: 50_000, Window: 400 * day}, 3456 * second, 3456 * second},
		{window.Limit{Hits: 500, Window: sixDays + micro}, micro, milli},
		{window.Limit{Hits: 500, Window: sixDays + micro}, sixDays + micro, sixDays + milli},
		{window.Limit{Hits: 500, Window: 400 * day}, 0, milli},
	} {
		if tt.limit.Hits > window.ExactHits && tt.precision != 0 {
			if got := window.Precision(tt.limit); got != tt.precision {
				t.Errorf("Precision(%+v): got %v, want %v", tt.limit, got, tt.precision)
			}
		}
		type charge struct {
			at   time.Duration
			cost uint64
		}
		var (
			r       = rand.New(rand.NewPCG(uint64(n), 0))
			w, hits = tt.limit.Window, tt.limit.Hits
			now     time.Duration
			charges []charge
			c       = window.Check{Key: fmt.Sprint("precise", n), Limit: tt.limit, Precision: tt.precision}
			denials int
		)
		for i := range 600 {
			now += upTo(r, w/100+micro).Truncate(micro)
			if i%100 == 99 {
				now += w / 3
			}
			c.Cost = 1 + r.Uint64N(hits/30)
			var least, most uint64 // used, and used if all count as long as they may
			for _, e := range charges {
				if e.at+w > now {
					least += e.cost
				}
				if e.at+w+tt.most > now {
					most += e.cost
				}
			}
			h.SetNow(now)
			got := take(t, h.Store, one(c))[0]
			switch {
			case got.Allowed && least+c.Cost > hits:
				t.Fatalf("%+v at %v: allowed, with %d used", c, now, least)
			case !got.Allowed && most+c.Cost <= hits:
				t.Fatalf("%+v at %v: denied, with no more than %d used", c, now, most)
			}
			if got.Allowed {
				charges = append(charges, charge{now, c.Cost})
				least, most = least+c.Cost, most+c.Cost
			} else {
				denials++
			}
			if got.Remaining > hits-least || got.Remaining+most < hits {
				t.Fatalf("%+v at %v: %d remain, with %d to %d used", c, now, got.Remaining, least, most)
			}
		}
		if denials < 20 || len(charges) < 100 {
			t.Errorf("%+v: %d charges and %d denials: too few to prove anything", c, len(charges), denials)
		}
	}
}

// runEntries proves how many entries a precision leaves of many charges. They can be
// counted from outside. If the log is full, there are as many different waits, for costs
// from one to the limit, as there are entries.
func runEntries(t *testing.T, h Harness) {
	const hits = 600
	for _, tt := range []struct {
		precision   time.Duration
		least, most int
	}{
		{0, hits, hits},
		{win / 20, 20, 22},
		{win / 7, 7, 9},
		{win, 1, 2},
	} {
		c := precise(tt.precision, ask(fmt.Sprint(tt.precision), hits, 1))
		for i := range hits {
			h.SetNow(time.Duration(i) * (win / hits).Truncate(micro))
			if got := take(t, h.Store, one(c))[0]; !got.Allowed {
				t.Fatalf("precision %v: charge %d: got %+v, want it allowed", tt.precision, i, got)
			}
		}
		waits := make(map[time.Duration]bool)
		for c.Cost = 1; c.Cost <= hits; c.Cost++ {
			got := take(t, h.Store, one(c))[0]
			if got.Allowed || got.Never || got.RetryAfter <= 0 {
				t.Fatalf("precision %v: cost %d of a full log: got %+v", tt.precision, c.Cost, got)
			}
			waits[got.RetryAfter] = true
		}
		if n := len(waits); n < tt.least || n > tt.most {
			t.Errorf("precision %v: got %d entries, want %d to %d", tt.precision, n, tt.least, tt.most)
		}
	}
}
