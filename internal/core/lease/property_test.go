package lease_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// TestProcesses compares two processes on one shared store with a store that gets all calls
// itself. Both allow the same groups, and every answer of a denial from memory is true. Each
// process is told of the other's refunds, as by a watch of the store.
func TestProcesses(t *testing.T) {
	answered := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		s := new(shared)
		s.Store = memstore.New(memstore.Options{Clock: s.clock, SweepInterval: -1})
		defer s.Store.Close()
		plain := memstore.New(memstore.Options{Clock: s.clock, SweepInterval: -1})
		defer plain.Close()
		var processes [2]*lease.Store
		for i := range processes {
			p, err := lease.New(s, lease.Options{Clock: s.clock})
			if err != nil {
				t.Fatal(err)
			}
			processes[i] = p
		}
		var charges [2][]charged // of each process
		now := time.Duration(0)
		s.setNow(now)
		for range rapid.IntRange(1, 150).Draw(t, "calls") {
			// Many calls are at the edge of a window, or just before it.
			now += rapid.SampledFrom([]time.Duration{
				0, 0, micro, second - micro, second, win/2 - micro, win / 2, win - 2*micro, win - micro, win,
			}).Draw(t, "pause")
			s.setNow(now)
			checks := drawGroup(t)
			asked := rapid.IntRange(0, 1).Draw(t, "process")

			got := make([]window.Decision, len(checks))
			denials := processes[asked].Stats().Denials
			if _, err := processes[asked].Take(t.Context(), window.MayWait, checks, got); err != nil {
				t.Fatal(err)
			}
			locally := processes[asked].Stats().Denials > denials
			for i := range got {
				if got[i].Remembered && !locally {
					t.Fatalf("at %v: %+v: the store decided, but the denial is remembered", now, checks[i])
				}
				got[i].Remembered = false
			}
			want := make([]window.Decision, len(checks))
			if _, err := plain.Take(t.Context(), window.MayWait, checks, want); err != nil {
				t.Fatal(err)
			}
			for i, c := range checks {
				if c.Mode == window.Refund {
					processes[1-asked].Forget(c.Log())
				}
				if !locally && got[i] != want[i] {
					t.Fatalf("at %v, asked: %+v: got %+v, want %+v", now, c, got[i], want[i])
				}
			}
			if locally {
				answered++
				compareLocal(t, now, checks, got, want)
				compareWaits(t, now, checks, got, want, charges[1-asked])
			}
			for i, c := range checks {
				if c.Mode != window.Refund && c.Mode.Charged(window.GroupAllowed(checks, want), want[i].Allowed) {
					charges[asked] = append(charges[asked], charged{now, c})
				}
			}
		}
	})
	if answered == 0 {
		t.Error("nothing was answered without the store, so nothing was proven")
	}
	t.Logf("%d denials without the store", answered)
}

// compareLocal compares a denial from memory with the answer of the store.
func compareLocal(t *rapid.T, now time.Duration, checks []window.Check, got, want []window.Decision) {
	if window.GroupAllowed(checks, got) || window.GroupAllowed(checks, want) {
		t.Fatalf("at %v: %+v: got %+v, want %+v, both denied", now, checks, got, want)
	}
	certain := false // one check denies for certain
	for i, c := range checks {
		g, w := got[i], want[i]
		switch {
		case g == w:
			certain = certain || c.Mode == window.Enforce && !g.Allowed
		case g.Never != w.Never:
			t.Fatalf("at %v: %+v: never depends on the check alone: got %+v, want %+v", now, c, g, w)
		case g.Allowed:
			// The other process may have spent what remained within the last second.
			if g.Remaining < max(c.Cost, 1) {
				t.Fatalf("at %v: %+v: allowed, but too little remains: got %+v, want %+v", now, c, g, w)
			}
		case w.Allowed:
			t.Fatalf("at %v: %+v: denied, but the store has room: got %+v, want %+v", now, c, g, w)
		default:
			certain = certain || c.Mode == window.Enforce
			if g.RetryAfter > w.RetryAfter || !g.Never && g.RetryAfter <= 0 {
				t.Fatalf("at %v: %+v: the wait is too long: got %+v, want %+v", now, c, g, w)
			}
			if g.Remaining == 0 && w.Remaining > 0 {
				t.Fatalf("at %v: %+v: something remains: got %+v, want %+v", now, c, g, w)
			}
		}
	}
	if !certain {
		t.Fatalf("at %v: %+v: no check denies for certain: got %+v, want %+v", now, checks, got, want)
	}
}

type charged struct {
	at    time.Duration
	check window.Check
}

// compareWaits proves that a denial from memory equals the answer of the store, unless the
// other process has charged the log since. If something remained, it may have done so within
// a second. If nothing remained, only a larger limit or a usage update can do so. Hits may
// have expired since: then more remains than the denial says, and the next hit expires later.
func compareWaits(t *rapid.T, now time.Duration, checks []window.Check, got, want []window.Decision, elsewhere []charged) {
	for i, c := range checks {
		g, w := got[i], want[i]
		meanwhile := slices.ContainsFunc(elsewhere, func(e charged) bool {
			if e.check.Log() != c.Log() || e.check.Cost == 0 {
				return false
			}
			if g.Remaining > 0 {
				return e.at > now-second-micro
			}
			over := e.check.Mode == window.Always || e.check.Limit.Hits > c.Limit.Hits
			return over && e.at > now-10*second-micro
		})
		if meanwhile {
			continue
		}
		if 0 < g.Remaining && g.Remaining < w.Remaining && g.UnitAfter <= w.UnitAfter {
			g.Remaining, g.UnitAfter = w.Remaining, w.UnitAfter
		}
		if g != w {
			t.Fatalf("at %v: %+v: got %+v, want %+v", now, c, got[i], w)
		}
	}
}

// drawGroup draws a group of checks on a few logs whose limits change.
func drawGroup(t *rapid.T) []window.Check {
	key := rapid.IntRange(0, 2)
	first := key.Draw(t, "key")
	n := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "checks")
	checks := make([]window.Check, n)
	for i := range checks {
		mode := rapid.SampledFrom([]window.Mode{
			window.Enforce, window.Enforce, window.Enforce, window.Enforce, window.Enforce, window.Enforce,
			window.Any, window.Observe, window.Always, window.Refund,
		}).Draw(t, "mode")
		checks[i] = window.Check{
			Key:   fmt.Sprint((first + i) % 3),
			Limit: window.Limit{Hits: rapid.SampledFrom([]uint64{3, 3, 3, 8, 8, 2, 0}).Draw(t, "limit"), Window: win},
			Cost:  rapid.SampledFrom([]uint64{1, 1, 1, 0, 2, 3, 4, 6}).Draw(t, "cost"),
			Mode:  mode,
		}
	}
	return checks
}
