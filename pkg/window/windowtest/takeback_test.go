package windowtest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// A backPair is a packed log and a ledger that it must agree with.
type backPair struct {
	t      testing.TB
	win    time.Duration
	log    []byte
	ledger *ledger
	clock  time.Duration
	steps  []string
	met    map[string]int
}

func newBackPair(t testing.TB, win time.Duration, met map[string]int) *backPair {
	return &backPair{t: t, win: win, ledger: &ledger{win: win}, met: met}
}

// fail reports what differs, after the last steps.
func (p *backPair) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("window %v\n%s\n%s", p.win, strings.Join(p.steps[max(0, len(p.steps)-30):], "\n"), fmt.Sprintf(format, args...))
}

// take charges both, or gives back to both.
func (p *backPair) take(c window.Check, ahead time.Duration) {
	p.t.Helper()
	c.Limit.Window = p.win
	l := p.ledger
	used, room := l.used(p.clock), c.Mode == window.Refund || l.hasRoom(p.clock, c)
	var got window.Decision
	recorded := c.Cost
	p.log = TakeAhead(p.log, p.clock.Microseconds(), &c, ahead, &got)
	switch {
	case c.Mode == window.Refund:
		l.refund(p.clock, c)
	case !room && c.Mode != window.Always:
	case ahead == 0:
		recorded = l.charge(p.clock, c)
	default:
		// The answer has the place of the charge.
		if recorded = min(withinDebt(c, used), math.MaxUint32-used); recorded > 0 {
			l.wrote = l.now(p.clock)
			l.spent = append(l.spent, spent{p.clock + got.ResetAfter - p.win, recorded})
		}
	}
	p.steps = append(p.steps, fmt.Sprintf("%v: %v cost %d of %d precision %v ahead %v: %+v", p.clock, c.Mode, c.Cost, c.Limit.Hits, c.Precision, ahead, got))
	want := l.answer(p.clock, c, room)
	if want.Cut = c.Mode == window.Always && recorded < c.Cost; got != want {
		p.fail("the decision differs: (-ledger +log)\n%s", cmp.Diff(want, got))
	}
}

// entries returns the ledger's entries that have not expired, one for each instant.
func (p *backPair) entries() []window.Entry {
	var all []window.Entry
	for _, e := range p.ledger.spent {
		switch n := len(all); {
		case p.ledger.now(p.clock) >= e.at+p.win:
		case n > 0 && all[n-1].At == e.at:
			all[n-1].Cost += uint32(e.cost)
		default:
			all = append(all, window.Entry{At: e.at, Cost: uint32(e.cost)})
		}
	}
	return all
}

// takeBackNaively takes from the ledger's entries of one instant.
func (p *backPair) takeBackNaively(at time.Duration, cost uint64) (taken uint64, reset time.Duration) {
	all := p.entries()
	for i, e := range all {
		if e.At == at && len(all)-i <= 65 {
			taken = min(cost, uint64(e.Cost))
		}
	}
	left := taken
	for i := range p.ledger.spent {
		if e := &p.ledger.spent[i]; e.at == at {
			back := min(left, e.cost)
			e.cost -= back
			left -= back
		}
	}
	p.ledger.spent = slices.DeleteFunc(p.ledger.spent, func(e spent) bool { return e.cost == 0 })
	if all := p.entries(); len(all) > 0 {
		reset = all[len(all)-1].At + p.win - p.clock
	}
	return taken, reset
}

// takeBack takes back from both, and compares all bytes.
func (p *backPair) takeBack(at time.Duration, cost uint64) {
	p.t.Helper()
	before := slices.Clone(p.log)
	wantTaken, wantReset := p.takeBackNaively(at, cost)
	left, taken, reset := TakeBack(p.log, p.clock.Microseconds(), p.win, at.Microseconds(), cost)
	p.steps = append(p.steps, fmt.Sprintf("%v: taken back %d of %d at %v", p.clock, wantTaken, cost, at))
	switch {
	case !bytes.Equal(before, p.log):
		p.fail("TakeBack has changed the bytes that it was given")
	case taken != wantTaken || reset != wantReset:
		p.fail("got %d taken back, empty in %v, want %d, %v", taken, reset, wantTaken, wantReset)
	case taken == 0:
		p.met["nothing"]++
		if !bytes.Equal(before, left) {
			p.fail("nothing was taken back, but the bytes changed:\n%x\n%x", before, left)
		}
		return
	}
	p.log = left
	was, _ := window.Decode(before)
	is, err := window.Decode(left)
	if err != nil {
		p.fail("%v\n%x\n%x", err, before, left)
	}
	if is.Clock != was.Clock || is.Base != was.Base || is.Ring && is.Capacity != was.Capacity {
		p.fail("the header was\n%+v, now it is\n%+v", was, is)
	}
	if (len(is.Entries) > 6) != is.Ring && was.Ring {
		p.fail("%d entries, ring %t", len(is.Entries), is.Ring)
	}
	// What has expired is still there, as it was.
	expired := func(all []window.Entry) []window.Entry {
		n := 0
		for n < len(all) && all[n].At+p.win <= p.ledger.now(p.clock) {
			n++
		}
		return all[:n]
	}
	gone := expired(was.Entries)
	if !slices.Equal(gone, expired(is.Entries)) {
		p.fail("the expired entries were\n%v, now they are\n%v", gone, expired(is.Entries))
	}
	if want := p.entries(); !slices.Equal(want, is.Entries[len(gone):]) {
		p.fail("the entries differ: (-ledger +log)\n%s", cmp.Diff(want, is.Entries[len(gone):]))
	}
	p.met["in part"] += len(is.Entries) - len(was.Entries) + 1
	p.met["all"] += len(was.Entries) - len(is.Entries)
	for what, yes := range map[string]bool{
		"ring becomes small": was.Ring && !is.Ring,
		"ring":               is.Ring,
		"some expired":       len(gone) > 0,
		"empty":              len(is.Entries) == 0,
		"not the newest":     was.Entries[len(was.Entries)-1].At > at,
	} {
		if yes {
			p.met[what]++
		}
	}
}

// choose takes back from an entry, most often one of the newest.
func (p *backPair) choose(r *rand.Rand) {
	c, _ := window.Decode(p.log)
	all := c.Entries // some may have expired
	if len(all) == 0 {
		return
	}
	i := len(all) - 1 - pick(r, 0, 0, r.IntN(3), r.IntN(10), r.IntN(100), 63, 64, 65)
	e := all[max(i, 0)]
	held := uint64(e.Cost)
	cost := pick(r, held, held, 1, held/2, held+1, 0)
	at := e.At + pick(r, 0, 0, 0, 0, 0, 0, micro, -micro, p.ledger.step(0))
	p.takeBack(at, cost)
}

// randomBacks makes one history of charges, refunds and charges that are taken back.
func randomBacks(t testing.TB, r *rand.Rand, met map[string]int) (steps int) {
	var (
		win       = pick(r, window.MinWindow, 10*time.Second, 10*time.Second+7*micro, 6*24*time.Hour, 6*24*time.Hour+micro, window.MaxWindow)
		p         = newBackPair(t, win, met)
		hits      = pick(r, 2, 5, 14, 30, 100, 400, 400)
		pace      = win / time.Duration(pick(r, hits, 2*hits, hits/2+1))
		precision = pick(r, 0, 0, 0, win/50, win/3, 1500*time.Nanosecond)
		aheads    = pick(r, 0, 0, win/100, win/10, min(win, window.MaxAhead)).Truncate(micro)
		often     = pick(r, 2, 10, 50)
		wrap      = p.ledger.step(0) << 40
	)
	p.clock = pick(r, 0, wrap-(win/2).Truncate(micro), 1_700_000_000*time.Second)
	if r.IntN(4) == 0 { // sums that wrap
		p.take(window.Check{Limit: window.Limit{Hits: window.MaxHits - 1}, Cost: window.MaxHits - 1 - r.Uint64N(uint64(4*hits))}, 0)
		p.clock += win + p.ledger.step(0)
	}
	for range 5 * hits {
		switch r.IntN(60) {
		case 0:
			p.clock += pick(r, win/2, win, win-micro, 3*win)
		case 1:
			p.clock = max(p.clock-win/10, 0)
		case 2, 3, 4:
			if all := p.entries(); len(all) > 0 { // an entry expires, or is about to
				p.clock = max(p.clock, all[r.IntN(min(len(all), 20))].At+win-time.Duration(r.IntN(2))*micro)
			}
		default:
			p.clock += upTo(r, 2*pace+1) * time.Duration(r.IntN(4)/2)
		}
		p.clock = p.clock.Truncate(micro)
		if p.clock > lastClock {
			break
		}
		for r.IntN(often) == 0 {
			p.choose(r)
		}
		c := window.Check{
			Limit:     window.Limit{Hits: uint64(hits)},
			Cost:      1 + r.Uint64N(pick[uint64](r, 1, 1, 3, 10)),
			Mode:      pick(r, window.Enforce, window.Enforce, window.Enforce, window.Enforce, window.Always, window.Enforce, window.Enforce, window.Enforce),
			Precision: precision,
		}
		if r.IntN(30) == 0 {
			c.Mode = window.Refund
		}
		p.take(c, aheads*time.Duration(r.IntN(2)))
	}
	return len(p.steps)
}

// TestRandomTakeBack compares with the ledger in random histories.
func TestRandomTakeBack(t *testing.T) {
	steps := random.Steps(t, 15_000, 400_000)
	r := newRandom(t)
	met := make(map[string]int)
	for made := 0; made < steps; {
		made += randomBacks(t, r, met)
	}
	t.Logf("%v", met)
	for _, what := range []string{"nothing", "in part", "all", "ring", "ring becomes small", "some expired", "empty", "not the newest"} {
		// A ring rarely becomes small at random. TestTakeBackShapes does it on purpose.
		if met[what] == 0 && (what != "ring becomes small" || random.Long()) {
			t.Errorf("no history has %q", what)
		}
	}
}

// newRandom returns a source whose seed a failed test prints.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(random.Seed(t), 0))
}

// TestTakeBackShapes takes slot after slot from logs of many lengths until they are
// empty. So it meets every change of shape, wherever the ring begins in its circle.
func TestTakeBackShapes(t *testing.T) {
	for _, fill := range []int{1, 2, 6, 7, 13, 14, 15, 20, 40, 66} {
		for _, turn := range []int{0, 1, 5, 11, 30} { // as many have expired before
			for order, next := range map[string]func(n int) int{
				"newest first": func(n int) int { return n - 1 },
				"oldest first": func(n int) int { return max(n-65, 0) },
				"middle first": func(n int) int { return n / 2 },
			} {
				met := make(map[string]int)
				p := newBackPair(t, time.Second, met)
				c := window.Check{Limit: window.Limit{Hits: 1000}, Cost: 3}
				for range turn {
					p.clock += micro
					p.take(c, 0)
				}
				p.clock += p.win
				for range fill {
					p.clock += micro
					p.take(c, 0)
				}
				for n := fill; n > 0; n-- {
					at := p.entries()[next(n)].At
					p.takeBack(at, 1)
					p.takeBack(at, 3)
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
	r := newRandom(t)
	for range random.Steps(t, 300, 2000) {
		var (
			win       = pick(r, 100*time.Microsecond, 10*time.Second, 7*24*time.Hour)
			w         = win.Microseconds()
			hits      = pick(r, 3, 12, 30, 200)
			precision = pick(r, 0, 0, win/50)
			pace      = max(w/int64(hits), 1)
			clock     = pick[int64](r, 0, 1<<40, 1_700_000_000_000_000)
			with      []byte
			without   []byte
		)
		both := func(c window.Check) {
			t.Helper()
			var d, want window.Decision
			c.Precision, c.Limit.Window = precision, win
			with = Take(with, clock, &c, &d)
			without = Take(without, clock, &c, &want)
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
				with = Take(with, clock, &c, &d)
				without = Take(without, clock, &c, &d)
			}
		}
		charge(r.IntN(3 * hits))
		ours := window.Check{Limit: window.Limit{Hits: window.MaxHits - 1, Window: win}, Cost: 1 + r.Uint64N(5), Precision: precision}
		var d window.Decision
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
			for _, limit := range []uint64{0, 1, 3, uint64(hits), uint64(2 * hits), window.MaxHits - 1} {
				for _, cost := range []uint64{0, 1, 2, limit} {
					var d, want window.Decision
					c := window.Check{Limit: window.Limit{Hits: limit, Window: win}, Cost: cost, Precision: precision}
					Take(slices.Clone(with), clock, &c, &d)
					Take(slices.Clone(without), clock, &c, &want)
					if d != want {
						t.Fatalf("window %v, %d hits, precision %v, %+v at %d: (-without +with)\n%s", win, hits, precision, c, clock, cmp.Diff(want, d))
					}
				}
			}
			both(window.Check{Limit: window.Limit{Hits: uint64(hits)}, Cost: 1 + r.Uint64N(3), Mode: pick(r, window.Enforce, window.Always, window.Refund)})
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
			win   = pick(r, 100*time.Microsecond, 10*time.Second, 7*24*time.Hour)
			w     = win.Microseconds()
			limit = 1 + r.Uint64N(100)
			ahead = min(pick(r, 0, win/100, win/10).Truncate(time.Microsecond), window.MaxAhead)
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
			c := &window.Check{Limit: window.Limit{Hits: limit, Window: win}, Cost: 1 + r.Uint64N(max(limit/4, 1))}
			var d window.Decision
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
		c := &window.Check{Limit: window.Limit{Hits: 100_000, Window: win}, Cost: 2}
		for i := range n {
			var d window.Decision
			log = Take(log, int64(1000*(i+1)), c, &d)
		}
		return log
	}
	const week = 7 * 24 * time.Hour
	short := 14_500
	for len(fill(short, time.Hour)) > maxBackBytes {
		short -= 500
	}
	long := fill(14_600, time.Hour)
	if len(long) <= maxBackBytes {
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
		{"a moment before it expires", hour, 98_000 + time.Hour.Microseconds() - 1, time.Hour, 98_000, 2, 2*time.Millisecond + time.Microsecond},
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
			var d window.Decision
			log = Take(log, int64(1000+i), &window.Check{Limit: window.Limit{Hits: 100, Window: time.Hour}, Cost: 2}, &d)
		}
		f.Add(log, int64(2000), int64(1000+n/2), uint64(2), false)
	}
	f.Fuzz(func(t *testing.T, log []byte, clock, at int64, cost uint64, long bool) {
		win := time.Hour
		if long {
			win = 7 * 24 * time.Hour
		}
		left, taken, _ := TakeBack(log, clock, win, at, cost)
		if _, err := window.Decode(log); err != nil || taken == 0 {
			return
		}
		if _, err := window.Decode(left); err != nil {
			t.Errorf("%d of %d taken at %d: %v\n%x\n%x", taken, cost, at, err, log, left)
		}
	})
}
