package policytest

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
)

// A search looks for the charges of a sliding counter that lie closest together. Time is in
// steps, of which a window has some; the steps are microseconds of the counter.
type search struct {
	limit, window uint64
	share         [][]uint64 // by hits of the previous window, and step of the current one
	charges       []uint64   // at each step of two windows
	worst         uint64
	at            []uint64
	calls         int
}

// look tries every cost that has room at a step and at all later ones. current and previous
// are the hits of the two windows.
func (s *search) look(step, current, previous uint64) {
	s.calls++
	if step == s.window {
		current, previous = 0, current
	}
	if step == 2*s.window {
		var sum uint64
		for i, cost := range s.charges { // every interval of a window's length
			if sum += cost; uint64(i) >= s.window {
				sum -= s.charges[uint64(i)-s.window]
			}
			if sum > s.worst {
				s.worst, s.at = sum, append([]uint64(nil), s.charges...)
			}
		}
		return
	}
	used := current + s.share[previous][step%s.window]
	for cost := uint64(0); used+cost <= s.limit; cost++ {
		s.charges[step] = cost
		s.look(step+1, current+cost, previous)
	}
}

// TestWorstOfCounter finds the most that a sliding counter admits in any interval of a
// window's length, by trying everything: 2 * limit - 1, if a window has enough steps.
// An interval meets two fixed windows, so two windows are enough, with any hits in
// the one before them.
func TestWorstOfCounter(t *testing.T) {
	for _, tt := range []struct{ limit, window, want uint64 }{
		{1, 6, 1},
		{2, 6, 3},
		{2, 3, 2}, // the steps are too coarse
		{3, 6, 5},
		{3, 7, 5},
		{4, 8, 7},
		{5, 6, 8}, // 5 + floor(5 * 4/6)
	} {
		s := search{limit: tt.limit, window: tt.window, charges: make([]uint64, 2*tt.window)}
		for previous := range tt.limit + 1 {
			var shares []uint64
			for step := range tt.window {
				shares = append(shares, oracle.Weighted(previous, time.Duration(tt.window-step)*micro, time.Duration(tt.window)*micro))
			}
			s.share = append(s.share, shares)
		}
		for before := range tt.limit + 1 {
			s.look(0, 0, before)
		}
		t.Logf("limit %d, %d steps: worst %d of %d in %v, by %d calls", tt.limit, tt.window, s.worst, tt.limit, s.at, s.calls)
		if want := tt.limit + tt.limit*(tt.window-2)/tt.window; s.worst != tt.want || tt.want != want {
			t.Errorf("limit %d, %d steps: the worst is %d, want %d, and %d by the formula", tt.limit, tt.window, s.worst, tt.want, want)
		}
	}
}
