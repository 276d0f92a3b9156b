package packed

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// A step is one call on a log and what must come of it. Times are microseconds.
type step struct {
	at   int64
	c    window.Check
	want window.Decision
}

const us = time.Microsecond

func check(limit, cost uint64) window.Check {
	return window.Check{Limit: window.Limit{Hits: limit, Window: 100 * us}, Cost: cost}
}

func precise(p time.Duration, limit, cost uint64) window.Check {
	c := check(limit, cost)
	c.Precision = p
	return c
}

// TestEdges has the edges that the random tests are likely to meet as tables to
// read. The window is 100 us, below what a store accepts, so that the numbers
// are short.
func TestEdges(t *testing.T) {
	mode := func(m window.Mode, limit, cost uint64) window.Check { return inMode(m, check(limit, cost)) }
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"expiry at the exact edge", []step{
			{0, check(1, 1), window.Decision{Allowed: true, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{99, check(1, 1), window.Decision{RetryAfter: us, UnitAfter: us, ResetAfter: us}},
			{100, check(1, 1), window.Decision{Allowed: true, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
		{"the wait is for the entry that frees enough", []step{
			{0, check(5, 1), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{10, check(5, 2), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 90 * us, ResetAfter: 100 * us}},
			{20, check(5, 2), window.Decision{Allowed: true, UnitAfter: 80 * us, ResetAfter: 100 * us}},
			{30, check(5, 1), window.Decision{RetryAfter: 70 * us, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, check(5, 2), window.Decision{RetryAfter: 80 * us, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, check(5, 3), window.Decision{RetryAfter: 80 * us, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, check(5, 4), window.Decision{RetryAfter: 90 * us, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, check(5, 6), window.Decision{Never: true, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, check(5, 0), window.Decision{RetryAfter: 70 * us, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, check(6, 0), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, check(2, 1), window.Decision{RetryAfter: 90 * us, UnitAfter: 90 * us, ResetAfter: 90 * us}},
			{30, check(0, 0), window.Decision{Never: true, ResetAfter: 90 * us}},
		}},
		{"a clock that is set back is held", []step{
			{500, check(2, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{450, check(2, 1), window.Decision{Allowed: true, UnitAfter: 150 * us, ResetAfter: 150 * us}},
			{300, check(2, 1), window.Decision{RetryAfter: 300 * us, UnitAfter: 300 * us, ResetAfter: 300 * us}}, // it has to catch up first
			{599, check(2, 1), window.Decision{RetryAfter: us, UnitAfter: us, ResetAfter: us}},
		}},
		{"rounding up does not expire others early", []step{
			{1, precise(10*us, 3, 1), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 109 * us, ResetAfter: 109 * us}},
			{101, precise(10*us, 3, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 9 * us, ResetAfter: 109 * us}},
			// The newest entry is at 110, where the first one expires. It is 105.
			{105, precise(10*us, 3, 2), window.Decision{RetryAfter: 5 * us, UnitAfter: 5 * us, ResetAfter: 105 * us, Remaining: 1}},
			{109, precise(10*us, 3, 2), window.Decision{RetryAfter: 1 * us, UnitAfter: us, ResetAfter: 101 * us, Remaining: 1}},
			{110, precise(10*us, 3, 2), window.Decision{Allowed: true, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
		{"the clock is held at the time of the call, not at the rounded one", []step{
			{101, precise(50*us, 3, 1), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 149 * us, ResetAfter: 149 * us}},
			{90, check(3, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 160 * us, ResetAfter: 160 * us}},
			{120, check(3, 2), window.Decision{RetryAfter: 130 * us, Remaining: 1, UnitAfter: 130 * us, ResetAfter: 130 * us}},
		}},
		{"a finer precision does not go back behind a coarser one", []step{
			{1, precise(50*us, 3, 1), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 149 * us, ResetAfter: 149 * us}},
			{2, precise(0, 3, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 148 * us, ResetAfter: 148 * us}}, // at 50, not at 2
			{102, precise(0, 3, 2), window.Decision{Remaining: 1, RetryAfter: 48 * us, UnitAfter: 48 * us, ResetAfter: 48 * us}},
		}},
		{"a precision of the window", []step{
			{1, precise(100*us, 3, 1), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 199 * us, ResetAfter: 199 * us}},
			{100, precise(100*us, 3, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{101, precise(100*us, 3, 1), window.Decision{Allowed: true, UnitAfter: 99 * us, ResetAfter: 199 * us}},
			{200, precise(100*us, 3, 2), window.Decision{Allowed: true, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
		{"refund, newest first and never below zero", []step{
			{0, check(9, 2), window.Decision{Allowed: true, Remaining: 7, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{10, check(9, 3), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 90 * us, ResetAfter: 100 * us}},
			{20, check(9, 4), window.Decision{Allowed: true, UnitAfter: 80 * us, ResetAfter: 100 * us}},
			{30, mode(window.Refund, 9, 0), window.Decision{Allowed: true, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, mode(window.Refund, 9, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 70 * us, ResetAfter: 90 * us}},
			{30, mode(window.Refund, 9, 3), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 70 * us, ResetAfter: 80 * us}},
			{30, mode(window.Refund, 9, 2), window.Decision{Allowed: true, Remaining: 6, UnitAfter: 70 * us, ResetAfter: 80 * us}},
			{30, mode(window.Refund, 9, 2), window.Decision{Allowed: true, Remaining: 8, UnitAfter: 70 * us, ResetAfter: 70 * us}},
			{30, mode(window.Refund, 9, 7), window.Decision{Allowed: true, Remaining: 9}},
			{30, mode(window.Refund, 9, 7), window.Decision{Allowed: true, Remaining: 9}},
			{30, check(9, 9), window.Decision{Allowed: true, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
		{"a refund keeps the clock", []step{
			{100, check(9, 1), window.Decision{Allowed: true, Remaining: 8, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{150, check(9, 1), window.Decision{Allowed: true, Remaining: 7, UnitAfter: 50 * us, ResetAfter: 100 * us}},
			{170, mode(window.Refund, 9, 1), window.Decision{Allowed: true, Remaining: 8, UnitAfter: 30 * us, ResetAfter: 30 * us}},
			{120, check(9, 0), window.Decision{Allowed: true, Remaining: 8, UnitAfter: 80 * us, ResetAfter: 80 * us}},
		}},
		{"a refund of an empty log", []step{
			{0, mode(window.Refund, 9, 5), window.Decision{Allowed: true, Remaining: 9}},
			{0, mode(window.Refund, 0, 5), window.Decision{Allowed: true}},
		}},
		{"debt", []step{
			{0, mode(window.Always, 5, 3), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{10, mode(window.Always, 5, 4), window.Decision{RetryAfter: 100 * us, UnitAfter: 90 * us, ResetAfter: 100 * us}},
			{20, check(5, 1), window.Decision{RetryAfter: 80 * us, UnitAfter: 80 * us, ResetAfter: 90 * us}},
			{20, mode(window.Always, 5, 0), window.Decision{RetryAfter: 80 * us, UnitAfter: 80 * us, ResetAfter: 90 * us}},
			// Twice the limit is used at most: 3 of the 6 are recorded, and then nothing.
			{20, mode(window.Always, 5, 6), window.Decision{Never: true, UnitAfter: 90 * us, ResetAfter: 100 * us, Cut: true}},
			{30, mode(window.Always, 5, 1), window.Decision{RetryAfter: 80 * us, UnitAfter: 80 * us, ResetAfter: 90 * us, Cut: true}},
			{110, check(6, 1), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 10 * us, ResetAfter: 100 * us}},
			{119, mode(window.Refund, 5, 3), window.Decision{Allowed: true, Remaining: 4, UnitAfter: us, ResetAfter: us}},
		}},
		{"debt ends at 2^32-1", []step{
			{0, mode(window.Always, window.Unlimited-1, window.Unlimited-3), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{10, mode(window.Always, window.Unlimited-1, 100), window.Decision{RetryAfter: 90 * us, UnitAfter: 90 * us, ResetAfter: 100 * us, Cut: true}},
			{20, mode(window.Always, window.Unlimited-1, 1), window.Decision{RetryAfter: 80 * us, UnitAfter: 80 * us, ResetAfter: 90 * us, Cut: true}},
			{100, check(5, 2), window.Decision{Allowed: true, UnitAfter: 10 * us, ResetAfter: 100 * us}},
		}},
		{"observe", []step{
			{0, mode(window.Observe, 2, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{0, mode(window.Observe, 2, 2), window.Decision{Remaining: 1, RetryAfter: 100 * us, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{0, mode(window.Observe, 2, 1), window.Decision{Allowed: true, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
	} {
		var log []byte
		for i, s := range tt.steps {
			// Dirty: every field must be filled in.
			got := window.Decision{Allowed: true, Never: true, Remaining: 9, RetryAfter: 9, UnitAfter: 9, ResetAfter: 9, Unsettled: true, Remembered: true, Cut: true, Repeated: true}
			log = take(log, s.at, &s.c, &got)
			if diff := cmp.Diff(s.want, got); diff != "" {
				t.Errorf("%s: step %d at %d, %v cost %d of %d: (-want +got)\n%s", tt.name, i, s.at, s.c.Mode, s.c.Cost, s.c.Limit.Hits, diff)
			}
		}
	}
}

// TestCoarseUnit proves that times above six days are rounded up to whole
// milliseconds: an entry counts a little too long, never too short.
func TestCoarseUnit(t *testing.T) {
	const win = 7*24*time.Hour + 500*us
	c := &window.Check{Limit: window.Limit{Hits: 1, Window: win}, Cost: 1}
	var d window.Decision
	log := take(nil, 1_000_001, c, &d) // kept as 1.001 s
	if want := win + 999*us; d.ResetAfter != want {
		t.Errorf("reset after: got %v, want %v", d.ResetAfter, want)
	}
	edge := 1_001_000 + win.Microseconds()
	if log = take(log, edge-1, c, &d); d.Allowed || d.RetryAfter != us {
		t.Errorf("a microsecond before expiry: got %+v", d)
	}
	if take(log, edge, c, &d); !d.Allowed {
		t.Errorf("at expiry: got %+v", d)
	}
}

// TestExactly proves where the layouts and the units change.
func TestExactly(t *testing.T) {
	for _, tt := range []struct {
		win  time.Duration
		n    int
		kind byte
		size int
	}{
		{time.Hour, 1, 0x90, 27},
		{time.Hour, 13, 0x90, 135},
		{time.Hour, 14, 0x91, 131 + 16*9},
		{coarseAbove, 1, 0x90, 27},
		{coarseAbove + us, 1, 0x92, 27},
		{window.MaxWindow, 14, 0x93, 131 + 16*9},
	} {
		log := sample(t, tt.n, tt.win)
		if log[0] != tt.kind || len(log) != tt.size {
			t.Errorf("%d entries, window %v: got kind %#x and %d bytes, want %#x and %d", tt.n, tt.win, log[0], len(log), tt.kind, tt.size)
		}
	}
}

// TestMemory proves how large logs get: not larger than the limit or the
// precision needs.
func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		limit     uint64
		precision bool
		most      int
	}{
		{1, false, 27},
		{10, false, 18 + 90},
		{100, false, 131 + 99*9},
		{3000, false, 131 + 2999*9},
		{1_000_000, true, 131 + 10_001*9},
	} {
		win := 10 * time.Minute
		var p time.Duration
		if tt.precision {
			p = window.Precision(window.Limit{Hits: tt.limit, Window: win})
		}
		log, _ := fill(t, tt.limit, win, p)
		if len(log) > tt.most {
			t.Errorf("limit %d: got %d bytes, want at most %d", tt.limit, len(log), tt.most)
		}
	}
}

// TestGrowthIsBounded proves that copies stay rare while a log grows, also where
// debt leaves the limit behind.
func TestGrowthIsBounded(t *testing.T) {
	for _, m := range []window.Mode{window.Enforce, window.Always} {
		c := &window.Check{Limit: window.Limit{Hits: 5, Window: time.Hour}, Cost: 1, Mode: m}
		if m == window.Enforce {
			c.Limit.Hits = 100_000
		}
		var (
			log    []byte
			copied int
			d      window.Decision
		)
		const n = 50_000
		for i := range int64(n) {
			before := len(log)
			log = take(log, i, c, &d)
			if len(log) != before {
				copied += before
			}
		}
		if most := 6 * n * slotBytes; copied > most {
			t.Errorf("%v: copied %d bytes to charge %d times, want at most %d", m, copied, n, most)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for _, limit := range []uint64{1, 5, 13, 14, 100, 5000} {
		log, now := fill(t, limit, 10*time.Minute, 0)
		pace := (10 * time.Minute).Microseconds() / int64(limit)
		var d window.Decision
		allowed := &window.Check{Limit: window.Limit{Hits: limit, Window: 10 * time.Minute}, Cost: 1}
		denied := &window.Check{Limit: allowed.Limit, Cost: 1}
		refund := &window.Check{Limit: allowed.Limit, Cost: 1, Mode: window.Refund}
		got := testing.AllocsPerRun(100, func() {
			now += pace + 1
			log = take(log, now, allowed, &d)
			log = take(log, now, denied, &d)
			log = take(log, now, refund, &d)
			log = take(log, now, allowed, &d)
		})
		if got != 0 {
			t.Errorf("limit %d: got %v allocations, want none", limit, got)
		}
	}
}

// TestClockBounds proves that no clock makes a log that cannot be read.
func TestClockBounds(t *testing.T) {
	for _, clock := range []int64{-1 << 63, -1, 0, window.MaxClock - 1, window.MaxClock, window.MaxClock + 1, 1<<63 - 1} {
		for _, win := range []time.Duration{window.MinWindow, window.MaxWindow} {
			c := &window.Check{Limit: window.Limit{Hits: 5, Window: win}, Cost: 1, Precision: win}
			var d window.Decision
			log := take(nil, clock, c, &d)
			log = take(log, clock, c, &d)
			if d.Remaining != 3 || d.ResetAfter < win || d.ResetAfter > 2*win {
				t.Errorf("clock %d, window %v: got %+v", clock, win, d)
			}
			if _, err := Decode(log); err != nil {
				t.Errorf("clock %d, window %v: %v", clock, win, err)
			}
		}
	}
}

// TestDeniedIsARead proves that looking and answering write nothing.
func TestDeniedIsARead(t *testing.T) {
	for _, n := range []uint64{5, 40} {
		log, now := fill(t, n, 10*time.Minute, 0)
		before := slices.Clone(log)
		c := &window.Check{Limit: window.Limit{Hits: n, Window: 10 * time.Minute}, Cost: n / 2}
		for _, at := range []int64{0, now, now + 200_000_000} {
			var v View
			v.Look(log, at, c.Limit.Window)
			var d window.Decision
			v.Answer(c, v.Room(n, n), &d)
		}
		if !slices.Equal(before, log) {
			t.Errorf("limit %d: the bytes changed", n)
		}
	}
}
