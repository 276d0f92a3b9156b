package window

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// takeBack takes from the entries of one instant, whichever of them.
func (n *naiveLog) takeBack(clock, at int64, cost uint64) (taken uint64, reset time.Duration) {
	clock = max(clock, 0)
	now := max(clock, n.clock)
	counts := merged(n.counts(now))
	for i, e := range counts {
		if e.At == time.Duration(at)*us && len(counts)-i <= 65 {
			taken = min(cost, uint64(e.Cost))
		}
	}
	left := taken
	for i := range n.spent {
		if e := &n.spent[i]; e.at == at && left > 0 {
			back := min(left, e.cost)
			e.cost -= back
			left -= back
		}
	}
	n.spent = slices.DeleteFunc(n.spent, func(e naiveEntry) bool { return e.cost == 0 })
	if after := n.counts(now); len(after) > 0 {
		reset = time.Duration(after[len(after)-1].at+n.win-clock) * us
	}
	return taken, reset
}

// takeBack takes back from both logs and compares.
func (p *pair) takeBack(clock, at int64, cost uint64, met map[string]int) bool {
	p.t.Helper()
	before := slices.Clone(p.log)
	wantTaken, wantReset := p.naive.takeBack(clock, at, cost)
	left, taken, reset := TakeBack(p.log, clock, p.win, at, cost)
	p.steps = append(p.steps, fmt.Sprintf("%d: taken back %d of %d at %d", clock, wantTaken, cost, at))
	switch {
	case !bytes.Equal(before, p.log):
		return p.fail("TakeBack has changed the bytes that it was given")
	case taken != wantTaken || reset != wantReset:
		return p.fail("got %d taken back, empty in %v, want %d, %v", taken, reset, wantTaken, wantReset)
	case taken == 0:
		met["nothing"]++
		if !bytes.Equal(before, left) {
			return p.fail("nothing was taken back, but the bytes changed:\n%x\n%x", before, left)
		}
		return true
	}
	p.log = left
	was, _ := Decode(before)
	is, err := Decode(left)
	if err != nil {
		return p.fail("%v\n%x\n%x", err, before, left)
	}
	if is.Clock != was.Clock || is.Base != was.Base || is.Ring && is.Capacity != was.Capacity {
		return p.fail("the header was\n%+v, now it is\n%+v", was, is)
	}
	if (len(is.Entries) > 6) != is.Ring && was.Ring {
		return p.fail("%d entries, ring %t", len(is.Entries), is.Ring)
	}
	// What has expired is still there, as it was.
	now := time.Duration(max(clock, p.naive.clock)) * us
	expired := func(all []Entry) int {
		return len(slices.DeleteFunc(slices.Clone(all), func(e Entry) bool { return e.At+p.win > now }))
	}
	n := expired(was.Entries)
	if !slices.Equal(was.Entries[:n], is.Entries[:expired(is.Entries)]) {
		return p.fail("the expired entries were\n%v, now they are\n%v", was.Entries, is.Entries)
	}
	if want := merged(p.naive.counts(max(clock, p.naive.clock))); !slices.Equal(want, is.Entries[n:]) {
		return p.fail("the entries differ: (-want +got)\n%s", cmp.Diff(want, is.Entries[n:]))
	}
	met["in part"] += len(is.Entries) - len(was.Entries) + 1
	met["all"] += len(was.Entries) - len(is.Entries)
	if was.Ring && !is.Ring {
		met["ring becomes small"]++
	}
	if is.Ring {
		met["ring"]++
	}
	if n > 0 {
		met["some expired"]++
	}
	if len(is.Entries) == 0 {
		met["empty"]++
	}
	if was.Entries[len(was.Entries)-1].At > time.Duration(at)*us {
		met["not the newest"]++
	}
	return true
}

// givingBack makes the histories of h with charges that are taken back.
func givingBack(h history, met map[string]int) history {
	return func(r *rand.Rand, start func(time.Duration) *pair) *pair {
		often := pick(r, 2, 10, 50)
		return h(r, func(win time.Duration) *pair {
			p := start(win)
			p.before = func(clock int64) {
				if r.IntN(often) > 0 || p.t.Failed() {
					return
				}
				for range 1 + r.IntN(3) {
					counts := merged(p.naive.counts(0)) // expired ones too
					if len(counts) == 0 {
						return
					}
					i := len(counts) - 1 - pick(r, 0, 0, r.IntN(3), r.IntN(10), r.IntN(100), 63, 64, 65)
					e := counts[max(i, 0)]
					cost := pick(r, uint64(e.Cost), uint64(e.Cost), 1, uint64(e.Cost)/2, uint64(e.Cost)+1, 0)
					at := e.At.Microseconds() + pick[int64](r, 0, 0, 0, 0, 0, 0, 1, -1, p.naive.unit)
					if !p.takeBack(min(pick(r, clock, clock, p.now, p.edge(r)), maxClock), at, cost, met) {
						return
					}
				}
			}
			return p
		})
	}
}

// TestRandomTakeBack compares with a naive list of entries in histories of all
// kinds, with charges that are ahead and without.
func TestRandomTakeBack(t *testing.T) {
	met := make(map[string]int)
	runRandom(t, 60_000, givingBack(dense, met))
	runRandom(t, 60_000, givingBack(rings, met))
	runRandom(t, 60_000, givingBack(ahead(dense), met))
	runRandom(t, 60_000, givingBack(ahead(rings), met))
	t.Logf("%v", met)
	for _, what := range []string{"nothing", "in part", "all", "ring", "ring becomes small", "some expired", "empty", "not the newest"} {
		if met[what] == 0 {
			t.Errorf("%q was not met", what)
		}
	}
}

// TestTakeBackShapes takes slot after slot from logs of many lengths until nothing
// is left, so that every change of shape is met at its edge, wherever the ring
// begins in its circle.
func TestTakeBackShapes(t *testing.T) {
	for _, fill := range []int{1, 2, 6, 7, 13, 14, 15, 20, 40, 66} {
		for _, turn := range []int{0, 1, 5, 11, 30} { // so many have expired before
			for order, next := range map[string]func(n int) int{
				"newest first": func(n int) int { return n - 1 },
				"oldest first": func(n int) int { return max(n-65, 0) },
				"middle first": func(n int) int { return n / 2 },
			} {
				p := newPair(t, time.Second)
				c := Check{Limit: Limit{Hits: 1000}, Cost: 3}
				clock := int64(0)
				for range turn {
					clock++
					p.step(clock, &c)
				}
				clock += p.win.Microseconds()
				for range fill {
					clock++
					p.step(clock, &c)
				}
				met := make(map[string]int)
				for n := fill; n > 0; n-- {
					all := merged(p.naive.counts(clock))
					at := all[next(n)].At.Microseconds()
					if !p.takeBack(clock, at, 1, met) || !p.takeBack(clock, at, 3, met) {
						t.Fatalf("%d slots after %d, %s, at slot %d of %d", fill, turn, order, next(n), n)
					}
				}
				if met["empty"] == 0 {
					t.Fatalf("%d slots after %d, %s: something is left", fill, turn, order)
				}
			}
		}
	}
}

// TestTakeBackAsIfNever charges two logs alike, and one of them with something that
// is taken back. Then both must answer alike, whatever they are asked, and whatever
// they are charged with later.
func TestTakeBackAsIfNever(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	for range 2000 {
		var (
			win       = pick(r, 100*us, 10*time.Second, 7*24*time.Hour)
			w         = win.Microseconds()
			hits      = pick(r, 3, 12, 30, 200)
			precision = pick(r, 0, 0, win/50)
			pace      = max(w/int64(hits), 1)
			clock     = pick[int64](r, 0, 1<<40, 1_700_000_000_000_000)
			with      []byte
			without   []byte
		)
		both := func(c Check) {
			t.Helper()
			var d, want Decision
			c.Precision, c.Limit.Window = precision, win
			with = Take(with, clock, &c, &d)
			without = Take(without, clock, &c, &want)
			if d != want {
				t.Fatalf("window %v, %d hits, precision %v, %+v at %d: (-without +with)\n%s", win, hits, precision, c, clock, cmp.Diff(want, d))
			}
		}
		// Others charge whatever the limit says.
		charge := func(times int) {
			for range times {
				clock += r.Int64N(2*pace) * int64(r.IntN(2))
				var d Decision
				c := Check{Limit: Limit{Hits: 9, Window: win}, Cost: 1 + r.Uint64N(3), Mode: Always, Precision: precision}
				with = Take(with, clock, &c, &d)
				without = Take(without, clock, &c, &d)
			}
		}
		charge(r.IntN(3 * hits))
		ours := Check{Limit: Limit{Hits: MaxHits - 1, Window: win}, Cost: 1 + r.Uint64N(5), Precision: precision}
		var d Decision
		with = Take(with, clock, &ours, &d)
		at := clock + d.ResetAfter.Microseconds() - w
		began := clock
		charge(r.IntN(20))
		if clock >= began+w {
			continue // it may have expired
		}
		left, taken, _ := TakeBack(with, clock, win, at, ours.Cost)
		if taken != ours.Cost {
			t.Fatalf("window %v, %d hits: %d were taken back of %d", win, hits, taken, ours.Cost)
		}
		with = left
		for range 10 {
			for _, limit := range []uint64{0, 1, 3, uint64(hits), uint64(2 * hits), MaxHits - 1} {
				for _, cost := range []uint64{0, 1, 2, limit} {
					var d, want Decision
					c := Check{Limit: Limit{Hits: limit, Window: win}, Cost: cost, Precision: precision}
					Take(slices.Clone(with), clock, &c, &d)
					Take(slices.Clone(without), clock, &c, &want)
					if d != want {
						t.Fatalf("window %v, %d hits, precision %v, %+v at %d: (-without +with)\n%s", win, hits, precision, c, clock, cmp.Diff(want, d))
					}
				}
			}
			both(Check{Limit: Limit{Hits: uint64(hits)}, Cost: 1 + r.Uint64N(3), Mode: pick(r, Enforce, Always, Refund)})
			clock += r.Int64N(2 * pace)
		}
	}
}

// TestTakeBackNeverTooMany lets several processes reserve units some time ahead,
// spend a part of them at random times until then, and give the rest back: no
// window ever holds more than the limit of what was spent. It looks at what was
// spent only, not at the log.
func TestTakeBackNeverTooMany(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	type reservation struct {
		at, ends int64  // where it is recorded, and when the rest is given back
		cost     uint64 // of the rest
	}
	given, full := 0, 0
	for range 300 {
		var (
			win   = pick(r, 100*us, 10*time.Second, 7*24*time.Hour)
			w     = win.Microseconds()
			limit = 1 + r.Uint64N(100)
			ahead = min(pick(r, 0, win/100, win/10).Truncate(us), MaxAhead)
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
				left, taken, _ := TakeBack(log, clock, win, o.at, o.cost)
				if clock < o.at+w && taken != o.cost {
					t.Fatalf("window %v: %d were taken back of %d", win, taken, o.cost)
				}
				log = left
				given += int(taken)
				return true
			})
			c := &Check{Limit: Limit{Hits: limit, Window: win}, Cost: 1 + r.Uint64N(max(limit/4, 1))}
			var d Decision
			until := ahead * time.Duration(r.IntN(2))
			if log = TakeAhead(log, clock, c, until, &d); !d.Allowed {
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

// TestTakeBackBounds proves what is left alone.
func TestTakeBackBounds(t *testing.T) {
	fill := func(n int, win time.Duration) []byte {
		var log []byte
		c := &Check{Limit: Limit{Hits: 100_000, Window: win}, Cost: 2}
		for i := range n {
			var d Decision
			log = Take(log, int64(1000*(i+1)), c, &d)
		}
		return log
	}
	const week = 7 * 24 * time.Hour
	short := 14_500
	for len(fill(short, time.Hour)) > maxBack {
		short -= 500
	}
	long := fill(14_600, time.Hour)
	if len(long) <= maxBack {
		t.Fatalf("%d bytes are too few for this test", len(long))
	}
	hour, weekLog := fill(100, time.Hour), fill(100, week)
	for _, tt := range []struct {
		name  string
		log   []byte
		clock int64
		win   time.Duration
		at    int64
		taken uint64
		reset time.Duration
	}{
		{"the newest", hour, 100_000, time.Hour, 100_000, 2, time.Hour - time.Millisecond},
		{"64 before it", hour, 100_000, time.Hour, 36_000, 2, time.Hour},
		{"65 before it", hour, 100_000, time.Hour, 35_000, 0, time.Hour},
		{"between", hour, 100_000, time.Hour, 99_999, 0, time.Hour},
		{"later than the newest", hour, 100_000, time.Hour, 100_001, 0, time.Hour},
		{"a moment before it expires", hour, 98_000 + time.Hour.Microseconds() - 1, time.Hour, 98_000, 2, 2*time.Millisecond + us},
		{"expired just now", hour, 98_000 + time.Hour.Microseconds(), time.Hour, 98_000, 0, 2 * time.Millisecond},
		{"all expired", hour, 100_000 + time.Hour.Microseconds(), time.Hour, 100_000, 0, 0},
		{"milliseconds", weekLog, 100_000, week, 100_000, 2, week - time.Millisecond},
		{"not a whole millisecond", weekLog, 100_000, week, 100_001, 0, week},
		{"a log of another unit", weekLog, 100_000, time.Hour, 100_000, 0, 0},
		{"no log", nil, 100_000, time.Hour, 100_000, 0, 0},
		{"something else", []byte("something else"), 100_000, time.Hour, 100_000, 0, 0},
		{"a large log", fill(short, time.Hour), int64(short) * 1000, time.Hour, int64(short) * 1000, 2, time.Hour - time.Millisecond},
		{"a log that is too large", long, 14_600_000, time.Hour, 14_600_000, 0, time.Hour},
	} {
		before := slices.Clone(tt.log)
		left, taken, reset := TakeBack(tt.log, tt.clock, tt.win, tt.at, 2)
		if taken != tt.taken || reset != tt.reset {
			t.Errorf("%s: got %d taken, empty in %v, want %d, %v", tt.name, taken, reset, tt.taken, tt.reset)
		}
		if !bytes.Equal(tt.log, before) || bytes.Equal(left, before) != (taken == 0) {
			t.Errorf("%s: the bytes are wrong", tt.name)
		}
	}
}

// FuzzTakeBack proves that no bytes make it panic, and that what it leaves of a log
// is one.
func FuzzTakeBack(f *testing.F) {
	for _, n := range []int{1, 7, 13, 14, 40} {
		var log []byte
		for i := range n {
			var d Decision
			log = Take(log, int64(1000+i), &Check{Limit: Limit{Hits: 100, Window: time.Hour}, Cost: 2}, &d)
		}
		f.Add(log, int64(2000), int64(1000+n/2), uint64(2), false)
	}
	f.Fuzz(func(t *testing.T, log []byte, clock, at int64, cost uint64, long bool) {
		win := time.Hour
		if long {
			win = 7 * 24 * time.Hour
		}
		left, taken, _ := TakeBack(log, clock, win, at, cost)
		if _, err := Decode(log); err != nil || taken == 0 {
			return
		}
		if _, err := Decode(left); err != nil {
			t.Errorf("%d of %d taken at %d: %v\n%x\n%x", taken, cost, at, err, log, left)
		}
	})
}
