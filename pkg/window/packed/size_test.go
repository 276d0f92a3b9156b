package packed

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestLogBytes fills logs and compares.
func TestLogBytes(t *testing.T) {
	for _, c := range []window.Check{
		{Limit: window.Limit{Hits: 1, Window: time.Minute}},
		{Limit: window.Limit{Hits: 13, Window: time.Minute}},
		{Limit: window.Limit{Hits: 14, Window: time.Minute}},
		{Limit: window.Limit{Hits: 100, Window: time.Minute}},
		{Limit: window.Limit{Hits: 3000, Window: time.Minute}},
		{Limit: window.Limit{Hits: 1000, Window: time.Minute}, Precision: time.Second},
		{Limit: window.Limit{Hits: 100_000, Window: time.Hour}, Precision: window.Precision(window.Limit{Hits: 100_000, Window: time.Hour})},
	} {
		c.Cost = 1
		var log []byte
		var d window.Decision
		most := 0
		// Three windows at an even pace: as many hits in each as there are allowed.
		step := max(1, c.Limit.Window.Microseconds()/int64(c.Limit.Hits))
		for clock := int64(1e6); clock < 3*c.Limit.Window.Microseconds(); clock += step {
			log = take(log, clock, &c, &d)
			most = max(most, len(log))
		}
		if want := LogBytes(&c); most > want || most < want*9/10 {
			t.Errorf("%+v: a full log has %d bytes, LogBytes says %d", c, most, want)
		}
	}
	for _, hits := range []uint64{0, window.Unlimited} {
		if got := LogBytes(&window.Check{Limit: window.Limit{Hits: hits, Window: time.Minute}}); got != 0 {
			t.Errorf("limit %d: %d bytes, want none", hits, got)
		}
	}
}

// TestGrowth charges logs of random histories and compares the capacity of their
// bytes with what Growth has said before. Growth must leave them alone.
func TestGrowth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	windows := []time.Duration{10 * time.Second, 7 * 24 * time.Hour}
	met := make(map[string]int)
	for trial := range 400 {
		// Few slots are small logs only, many are rings that grow and shrink.
		c := window.Check{Limit: window.Limit{Hits: uint64(1 + r.IntN(1<<r.IntN(12))), Window: windows[trial%2]}}
		if trial%4 >= 2 {
			c.Precision = c.Limit.Window / time.Duration(1+r.IntN(200))
		}
		var (
			log   []byte
			clock = int64(1e6)
		)
		for range 600 {
			pace := c.Limit.Window.Microseconds() / int64(c.Limit.Hits)
			switch r.IntN(60) {
			case 0:
				clock += r.Int64N(2 * c.Limit.Window.Microseconds())
			case 1:
				clock = max(clock-r.Int64N(pace+1), 0)
			default:
				clock += r.Int64N(3) * r.Int64N(pace+1)
			}
			ask := c
			ask.Cost = uint64(r.IntN(4))
			if r.IntN(20) == 0 {
				ask.Precision = 0
			}
			if r.IntN(200) == 0 {
				ask.Cost = maxUsed - uint64(r.IntN(2)) // nearly all that a log can hold
			}
			var v View
			v.Look(log, clock, c.Limit.Window)
			if r.IntN(8) == 0 {
				v.Refund(&ask)
				log = v.Log()
				continue
			}
			before, size := string(log), cap(log)
			got := v.Growth(&ask)
			if string(log) != before || string(v.Log()) != before {
				t.Fatal("Growth has changed the log")
			}
			small := len(log) > 0 && !v.ring
			v.Charge(&ask)
			log = v.Log()
			if want := max(cap(log)-size, 0); got != want {
				t.Fatalf("trial %d: cost %d of %+v: Growth says %d bytes, the log grows by %d from %d", trial, ask.Cost, c.Limit, got, want, size)
			}
			met[kindOfGrowth(size, cap(log), small, v.ring)]++
		}
	}
	for _, kind := range []string{"made", "small as it is", "small larger", "small becomes a ring", "ring as it is", "ring larger", "ring smaller", "ring becomes small"} {
		if met[kind] < 20 {
			t.Errorf("%q was met %d times only: %v", kind, met[kind], met)
		}
	}
}

// TestGrowthCorrupt proves that bytes which are not a log are not counted: a
// charge leaves them alone.
func TestGrowthCorrupt(t *testing.T) {
	c := window.Check{Limit: window.Limit{Hits: 5, Window: time.Minute}, Cost: 1}
	for _, log := range [][]byte{nil, {}, make([]byte, 0, 500), []byte("something else of whatever length")} {
		var v View
		v.Look(log, 1e6, c.Limit.Window)
		got := v.Growth(&c)
		if v.Charge(&c); got != cap(v.Log()) {
			t.Errorf("%q: got %d, want the %d bytes of a new log", log, got, cap(v.Log()))
		}
	}
}

// kindOfGrowth says what a charge has done to a log.
func kindOfGrowth(from, to int, wasSmall, isRing bool) string {
	kind := "ring"
	if wasSmall {
		kind = "small"
	}
	switch {
	case from == 0:
		return "made"
	case wasSmall && isRing:
		return "small becomes a ring"
	case !wasSmall && !isRing:
		return "ring becomes small"
	case to == from:
		return kind + " as it is"
	case to > from:
		return kind + " larger"
	default:
		return kind + " smaller"
	}
}

// TestDebtIsBounded proves that a log which is charged over its limit all the time
// keeps a bounded number of slots, and that no charge expires early because of that.
func TestDebtIsBounded(t *testing.T) {
	const charges = 16_000 // twice the limit
	win := time.Second
	c := window.Check{Limit: window.Limit{Hits: charges / 2, Window: win}, Cost: 1, Mode: window.Always}
	var log []byte
	var d window.Decision
	start := int64(1_000_000_000_000)
	for i := range int64(charges) {
		log = take(log, start+9*i, &c, &d)
	}
	// From ExactHits slots on, 11 charges share one. A log has up to a quarter of room.
	if most := 131 + 9*(window.ExactHits+(charges-window.ExactHits)/11+2)*5/4; len(log) > most {
		t.Errorf("the log has %d bytes, want at most %d", len(log), most)
	}
	// At each instant at least as much is used as was charged within the
	free := c
	free.Mode, free.Cost, free.Limit.Hits = window.Enforce, 0, 2*charges
	for at := start + 9*(charges-1); at < start+9*charges+win.Microseconds(); at += 997 {
		expired := max((at-win.Microseconds()-start)/9+1, 0)
		take(log, at, &free, &d)
		if used := int64(free.Limit.Hits - d.Remaining); used < charges-expired {
			t.Fatalf("%d µs after the first charge: %d used, want at least %d", at-start, used, charges-expired)
		}
	}
}

// TestLevels: a level is exact below 255 * 2^24, and above that less than 2^-19 too small, in the order of limits.
func TestLevels(t *testing.T) {
	last := Level(0)
	for _, limit := range []uint64{0, 1, 1 << 31, 0xff<<24 - 1, 0xff << 24, 1<<32 - 2, 1 << 32, 1<<32 + 1<<14, 500_000e6, 1<<52 - 1, 1 << 52, window.MaxHits} {
		l := LevelOf(limit)
		if got := l.Limit(); got > limit || limit-got > limit>>19 || limit < 0xff<<24 && got != limit || l < last || l == NoLevel {
			t.Errorf("the level of %d is %#x, of %d, after %#x", limit, uint32(l), got, uint32(last))
		}
		last = l
	}
}
