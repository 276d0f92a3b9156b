package reference_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
)

// newRandom returns a source whose seed a failed test prints.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	return random.Rand(t, 0)
}

// TestTakeBackAsIfNever charges two logs alike, and one of them with something that
// is taken back. Then both must answer alike, whatever they are asked, and whatever
// they are charged with later.
func TestTakeBackAsIfNever(t *testing.T) {
	r := newRandom(t)
	for range random.Steps(t, 300, 2000) {
		var (
			win       = windowtest.Pick(r, 100*time.Microsecond, 10*time.Second, 7*24*time.Hour)
			w         = win.Microseconds()
			hits      = windowtest.Pick(r, 3, 12, 30, 200)
			precision = windowtest.Pick(r, 0, 0, win/50)
			pace      = max(w/int64(hits), 1)
			clock     = windowtest.Pick[int64](r, 0, 1<<40, 1_700_000_000_000_000)
			with      []byte
			without   []byte
		)
		both := func(c window.Check) {
			t.Helper()
			var d, want window.Decision
			c.Precision, c.Limit.Window = precision, win
			with = reference.Take(with, clock, &c, &d)
			without = reference.Take(without, clock, &c, &want)
			if d != want {
				t.Fatalf("window %v, %d hits, precision %v, %+v at %d: (-without +with)\n%s", win, hits, precision, c, clock, cmp.Diff(want, d))
			}
		}
		// Others charge. Their limit is large, because twice the limit is the most that a log holds:
		// the charge that is taken back would leave less room for them.
		charge := func(times int) {
			for range times {
				clock += r.Int64N(2*pace) * int64(r.IntN(2))
				var d window.Decision
				c := window.Check{Limit: window.Limit{Hits: 1000, Window: win}, Cost: 1 + r.Uint64N(3), Mode: window.Always, Precision: precision}
				with = reference.Take(with, clock, &c, &d)
				without = reference.Take(without, clock, &c, &d)
			}
		}
		charge(r.IntN(3 * hits))
		ours := window.Check{Limit: window.Limit{Hits: window.Unlimited - 1, Window: win}, Cost: 1 + r.Uint64N(5), Precision: precision}
		var d window.Decision
		with = reference.Take(with, clock, &ours, &d)
		at := clock + d.ResetAfter.Microseconds() - w
		began := clock
		charge(r.IntN(20))
		if clock >= began+w {
			continue // it may have expired
		}
		left, taken, _ := reference.TakeBack(with, clock, win, at, ours.Cost)
		if taken != ours.Cost {
			t.Fatalf("window %v, %d hits: %d were taken back of %d", win, hits, taken, ours.Cost)
		}
		with = left
		for range 10 {
			for _, limit := range []uint64{0, 1, 3, uint64(hits), uint64(2 * hits), window.Unlimited - 1} {
				for _, cost := range []uint64{0, 1, 2, limit} {
					var d, want window.Decision
					c := window.Check{Limit: window.Limit{Hits: limit, Window: win}, Cost: cost, Precision: precision}
					reference.Take(slices.Clone(with), clock, &c, &d)
					reference.Take(slices.Clone(without), clock, &c, &want)
					if d != want {
						t.Fatalf("window %v, %d hits, precision %v, %+v at %d: (-without +with)\n%s", win, hits, precision, c, clock, cmp.Diff(want, d))
					}
				}
			}
			both(window.Check{Limit: window.Limit{Hits: uint64(hits)}, Cost: 1 + r.Uint64N(3), Mode: windowtest.Pick(r, window.Enforce, window.Always, window.Refund)})
			clock += r.Int64N(2 * pace)
		}
	}
}

// TestTakeBackNeverTooMany lets several processes reserve units some time ahead,
// spend a part of them at random times until then, and give the rest back: no
// window ever holds more than the limit of what was spent. It looks at what was
// spent only, not at the log.
func TestTakeBackNeverTooMany(t *testing.T) {
	r := newRandom(t)
	type reservation struct {
		at, ends int64  // where it is recorded, and when the rest is given back
		cost     uint64 // of the rest
	}
	given, full := 0, 0
	for range 300 {
		var (
			win   = windowtest.Pick(r, 100*time.Microsecond, 10*time.Second, 7*24*time.Hour)
			w     = win.Microseconds()
			limit = 1 + r.Uint64N(100)
			ahead = min(windowtest.Pick(r, 0, win/100, win/10).Truncate(time.Microsecond), window.MaxAhead)
			pace  = max(w/int64(limit), 1)
			clock = int64(1_000_000)
			log   []byte
			spent []int64 // a unit each
			open  []reservation
		)
		for range 400 {
			clock += r.Int64N(pace) + 1
			open = slices.DeleteFunc(open, func(o reservation) bool {
				if clock < o.ends && r.IntN(20) > 0 { // some end before their time
					return false
				}
				left, taken, _ := reference.TakeBack(log, clock, win, o.at, o.cost)
				if clock < o.at+w && taken != o.cost {
					t.Fatalf("window %v: %d were taken back of %d", win, taken, o.cost)
				}
				log = left
				given += int(taken)
				return true
			})
			c := &window.Check{Limit: window.Limit{Hits: limit, Window: win}, Cost: 1 + r.Uint64N(max(limit/4, 1))}
			var d window.Decision
			until := ahead * time.Duration(r.IntN(2))
			if log = reference.TakeAhead(log, clock, c, until, &d); !d.Allowed {
				full++
				continue
			}
			back := r.Uint64N(c.Cost + 1)
			open = append(open, reservation{at: clock + d.ResetAfter.Microseconds() - w, ends: clock + until.Microseconds() + r.Int64N(pace), cost: back})
			for range c.Cost - back {
				spent = append(spent, clock+r.Int64N(until.Microseconds()+1))
			}
		}
		slices.Sort(spent)
		for i := range spent {
			if j := i + int(limit); j < len(spent) && spent[j]-spent[i] < w {
				t.Fatalf("window %v: %d units between %d and %d, limit %d", win, limit+1, spent[i], spent[j], limit)
			}
		}
	}
	if given < 1000 || full < 1000 {
		t.Errorf("%d given back, %d denials: the test does too little", given, full)
	}
}
