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
	steps []Step
}{
	{"times are rounded up to a multiple of the precision", Second, []Step{
		{0, One(Precise(Second, Ask("k", 3, 1))), Answers(Allowed(2, 10*Second))},
		{Micro, One(Precise(Second, Ask("k", 3, 1))), Answers(AllowedOf(1, 10*Second-Micro, 11*Second-Micro))},
		{1 * Second, One(Precise(Second, Ask("k", 3, 1))), Answers(AllowedLast(9*Second, 10*Second))}, // 0:1 1:2
		{10*Second - Micro, One(Precise(Second, Ask("k", 3, 1))), Answers(Denied(0, Micro, Micro, 1*Second+Micro))},
		{10 * Second, One(Precise(Second, Ask("k", 3, 2))), Answers(Denied(1, 1*Second, 1*Second, 1*Second))},
		{11*Second - Micro, One(Precise(Second, Ask("k", 3, 2))), Answers(Denied(1, Micro, Micro, Micro))},
		{11 * Second, One(Precise(Second, Ask("k", 3, 3))), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"an odd precision", 7 * Micro, []Step{
		{0, One(Precise(7*Micro, Ask("k", 3, 1))), Answers(Allowed(2, 10*Second))},
		{1 * Micro, One(Precise(7*Micro, Ask("k", 3, 1))), Answers(AllowedOf(1, 10*Second-Micro, 10*Second+6*Micro))},
		{8 * Micro, One(Precise(7*Micro, Ask("k", 3, 1))), Answers(AllowedLast(10*Second-8*Micro, 10*Second+6*Micro))},
		{10 * Second, One(Precise(7*Micro, Ask("k", 3, 2))), Answers(Denied(1, 7*Micro, 7*Micro, 14*Micro))},
		{10*Second + 7*Micro, One(Precise(7*Micro, Ask("k", 3, 2))), Answers(AllowedLast(7*Micro, 10*Second+4*Micro))},
	}},
	{"parts of a microsecond count as a whole one", 2 * Micro, []Step{
		{1 * Micro, One(Precise(1500*time.Nanosecond, Ask("k", 3, 1))), Answers(Allowed(2, 10*Second+Micro))},
		{3 * Micro, One(Precise(1, Ask("k", 3, 1))), Answers(AllowedOf(1, 10*Second-Micro, 10*Second))},
		{5 * Micro, One(Precise(Micro, Ask("k", 3, 1))), Answers(AllowedLast(10*Second-3*Micro, 10*Second))},
	}},
	{"a precision of the whole window", Win, []Step{
		{1 * Second, One(Precise(Win, Ask("k", 2, 1))), Answers(Allowed(1, 19*Second))},
		{9 * Second, One(Precise(Win, Ask("k", 2, 1))), Answers(AllowedLast(11*Second, 11*Second))},
		{20*Second - Micro, One(Precise(Win, Ask("k", 2, 1))), Answers(Denied(0, Micro, Micro, Micro))},
		{20 * Second, One(Precise(Win, Ask("k", 2, 2))), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"a finer precision after a coarser: the newest entry takes the cost", 5 * Second, []Step{
		{1 * Second, One(Precise(5*Second, Ask("k", 5, 1))), Answers(Allowed(4, 14*Second))},
		{2 * Second, One(Ask("k", 5, 1)), Answers(Allowed(3, 13*Second))}, // 5:2
		{6 * Second, One(Ask("k", 5, 1)), Answers(AllowedOf(2, 9*Second, 10*Second))},
		{7 * Second, One(Precise(5*Second, Ask("k", 5, 1))), Answers(AllowedOf(1, 8*Second, 13*Second))}, // 5:2 6:1 10:1
		{15*Second - Micro, One(Ask("k", 5, 4)), Answers(Denied(1, 1*Second+Micro, Micro, 5*Second+Micro))},
		{16*Second - Micro, One(Ask("k", 5, 4)), Answers(Denied(3, Micro, Micro, 4*Second+Micro))},
		{16 * Second, One(Ask("k", 5, 4)), Answers(AllowedLast(4*Second, 10*Second))},
	}},
	{"a time that is rounded up is not the clock", Win, []Step{
		{0, One(Ask("k", 4, 1)), Answers(Allowed(3, 10*Second))},
		{1 * Second, One(Precise(Win, Ask("k", 4, 1))), Answers(AllowedOf(2, 9*Second, 19*Second))},
		{2 * Second, One(Ask("k", 4, 1)), Answers(AllowedOf(1, 8*Second, 18*Second))}, // 0:1 10:2
		{1 * Second, One(Ask("k", 4, 1)), Answers(AllowedLast(9*Second, 19*Second))},  // seen from 2
		{10*Second - Micro, One(Ask("k", 4, 1)), Answers(Denied(0, Micro, Micro, 10*Second+Micro))},
		{10 * Second, One(Ask("k", 4, 1)), Answers(AllowedLast(10*Second, 10*Second))},
		{20*Second - Micro, One(Ask("k", 4, 1)), Answers(Denied(0, Micro, Micro, Micro))},
		{20 * Second, One(Ask("k", 4, 4)), Answers(AllowedLast(10*Second, 10*Second))},
	}},
	{"the finest precision of one log and mode holds", 5 * Second, []Step{
		{1 * Second, Group(Precise(5*Second, Ask("k", 6, 1)), Precise(Second, Ask("k", 6, 1))), Answers(Allowed(4, 10*Second), Allowed(4, 10*Second))},
		{2*Second + Micro, Group(Ask("k", 6, 1), Precise(5*Second, Ask("k", 6, 1))), Answers(AllowedOf(2, 9*Second-Micro, 10*Second), AllowedOf(2, 9*Second-Micro, 10*Second))},
		{3 * Second, Group(Precise(5*Second, Ask("k", 6, 1)), Always(Ask("k", 6, 1))), Answers(AllowedLast(8*Second, 12*Second), AllowedLast(8*Second, 12*Second))}, // 1:2 2:2 3:1 5:1
	}},
	{"after a refund the next entry may be earlier", 10 * Second, []Step{
		{1 * Second, One(Ask("k", 3, 1)), Answers(Allowed(2, 10*Second))},
		{2 * Second, One(Precise(Win, Ask("k", 3, 1))), Answers(AllowedOf(1, 9*Second, 18*Second))},
		{3 * Second, One(GiveBack(Ask("k", 3, 1))), Answers(Allowed(2, 8*Second))},
		{4 * Second, One(Ask("k", 3, 1)), Answers(AllowedOf(1, 7*Second, 10*Second))},
		{5 * Second, One(Precise(Win, Ask("k", 3, 1))), Answers(AllowedLast(6*Second, 15*Second))},
		{6 * Second, One(Precise(Win, GiveBack(Ask("k", 3, 2)))), Answers(Allowed(2, 5*Second))},
	}},
	{"a precision in a window of milliseconds", 10 * Millisecond, []Step{
		{1 * Micro, One(Precise(Micro, AskIn(sixDays+Millisecond, "k", 5, 1))), Answers(Allowed(4, sixDays+2*Millisecond-Micro))},
		{2*Millisecond + Micro, One(Precise(Millisecond+1, AskIn(sixDays+Millisecond, "k", 5, 1))), Answers(AllowedOf(3, 518400*Second-Micro, sixDays+3*Millisecond-Micro))},
		{4*Millisecond + Micro, One(Precise(5*Millisecond, AskIn(sixDays+Millisecond, "k", 5, 1))), Answers(AllowedOf(2, 518400*Second-2001*Micro, sixDays+2*Millisecond-Micro))},
		{6 * Millisecond, One(AskIn(sixDays+Millisecond, "k", 5, 1)), Answers(AllowedOf(1, 518400*Second-4*Millisecond, sixDays+Millisecond))},
		{sixDays + 2*Millisecond - Micro, One(AskIn(sixDays+Millisecond, "k", 5, 2)), Answers(Denied(1, Micro, Micro, 5*Millisecond+Micro))},
		{sixDays + 2*Millisecond, One(AskIn(sixDays+Millisecond, "k", 5, 2)), Answers(AllowedLast(3*Millisecond, sixDays+Millisecond))},
	}},
}

// promisedPrecisions are limits with a precision, and what it is in whole units.
var promisedPrecisions = []struct {
	limit     window.Limit
	precision time.Duration
	most      time.Duration // what the precision is in whole units
}{
	{window.Limit{Hits: 20_000, Window: Win}, 0, 0},
	{window.Limit{Hits: 20_000, Window: Win}, Millisecond, Millisecond},
	{window.Limit{Hits: 1_000_000, Window: Day}, 8640 * Millisecond, 8640 * Millisecond},
	{window.Limit{Hits: 300, Window: Win}, Win, Win},
	{window.Limit{Hits: 300, Window: Win}, Win/7 + 1, (Win / 7).Truncate(Micro) + Micro},
	{window.Limit{Hits: 5_000_000, Window: 31 * Day}, 267_840 * Millisecond, 267_840 * Millisecond},
	{window.Limit{Hits: 50_000, Window: 400 * Day}, 3456 * Second, 3456 * Second},
	{window.Limit{Hits: 500, Window: sixDays + Micro}, Micro, Millisecond},
	{window.Limit{Hits: 500, Window: sixDays + Micro}, sixDays + Micro, sixDays + Millisecond},
	{window.Limit{Hits: 500, Window: 400 * Day}, 0, Millisecond},
}

// runPrecision proves what precision promises without an oracle, from true times. No
// interval of a window's length holds more than the limit, and an entry counts at most a
// precision too long.
func runPrecision(t *testing.T, h Harness) {
	for n, tt := range promisedPrecisions {
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
			now += UpTo(r, w/100+Micro).Truncate(Micro)
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
			got := Take(t, h.Store, One(c))[0]
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
		{Win / 20, 20, 22},
		{Win / 7, 7, 9},
		{Win, 1, 2},
	} {
		c := Precise(tt.precision, Ask(fmt.Sprint(tt.precision), hits, 1))
		for i := range hits {
			h.SetNow(time.Duration(i) * (Win / hits).Truncate(Micro))
			if got := Take(t, h.Store, One(c))[0]; !got.Allowed {
				t.Fatalf("precision %v: charge %d: got %+v, want it allowed", tt.precision, i, got)
			}
		}
		waits := make(map[time.Duration]bool)
		for c.Cost = 1; c.Cost <= hits; c.Cost++ {
			got := Take(t, h.Store, One(c))[0]
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
