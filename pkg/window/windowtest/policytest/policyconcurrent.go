package policytest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// limited is a check of every policy with one limit, for the time at of the store's clock.
func limited(at time.Duration, limit, cost uint64) []window.Check {
	return group(
		bucketOf("k", limit, cost, uint32(limit), win),
		fixedIn(win, "k", limit, cost),
		calendarIn(Cycles[0].Nominal, Cycles[0].In(at, 7), "k", limit, cost),
		counterIn(win, "k", limit, cost),
		ask("k", limit, cost),
	)
}

// runPolicyPhases lets many callers use one log of each policy while the clock stands
// still, moves it, and so on. What was admitted is known exactly: everything that was asked
// for, up to what remained.
func runPolicyPhases(t *testing.T, h windowtest.Harness) {
	const (
		limit = 101
		each  = 5
	)
	f := windowtest.Follow(&h)
	now := h.Aligned(time.Hour, 2*year) + 6*time.Minute
	for _, move := range []time.Duration{0, win / 8, 0, win - micro, win / 4, win/2 + micro, win, time.Minute, 0, 2 * time.Hour} {
		now += move
		for i := range limited(now+h.Epoch, limit, 0) {
			left := f.Take(t, now, limited(now+h.Epoch, limit, 0)[i])[0].Remaining
			c := limited(now+h.Epoch, limit, 1)[i]
			var admitted atomic.Uint64
			windowtest.Concurrently(func(int) {
				for range each {
					if got := windowtest.Try(t, h.Store, one(c)); got != nil && got[0].Allowed {
						admitted.Add(1)
					}
				}
			})
			if got, want := admitted.Load(), min(left, windowtest.Callers*each); got != want {
				t.Errorf("%v at %v: admitted %d, want %d of %d asked", c.Limit.Policy, now, got, want, windowtest.Callers*each)
			}
			c.Cost = admitted.Load()
			f.Oracle.Take(now, one(c))
			c.Cost = 0
			f.Take(t, now, c)
		}
	}
}

// runPolicyGroups lets groups that name a log of each policy in different orders run at once. The
// smallest limit ends all of them, and all logs are charged alike.
func runPolicyGroups(t *testing.T, h windowtest.Harness) {
	const (
		large = 200
		small = 70
		each  = 10
	)
	now := h.Aligned(time.Hour, 2*year) + 6*time.Minute
	h.SetNow(now)
	checks := limited(now+h.Epoch, large, 1)
	checks[1].Limit.Hits = small
	windowtest.AdmitRotated(t, h, checks, each, small)
	var left []uint64
	for _, d := range take(t, h.Store, limited(now+h.Epoch, large, 0)) {
		left = append(left, d.Remaining)
	}
	rest := uint64(large - small)
	if diff := cmp.Diff([]uint64{rest, rest, rest, rest, rest}, left); diff != "" {
		t.Errorf("what remains: a group was charged in part: (-want +got)\n%s", diff)
	}
}
