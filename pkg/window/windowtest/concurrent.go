package windowtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const callers = 32

// concurrently runs f in every one of the callers and waits for all.
func concurrently(f func(n int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for n := range callers {
		wg.Go(func() {
			<-begin // so that they really meet
			f(n)
		})
	}
	close(begin)
	wg.Wait()
}

// try is take for goroutines, which must not end the test.
func try(t *testing.T, s window.Store, checks []window.Check) []window.Decision {
	got := make([]window.Decision, len(checks))
	if err := s.Take(t.Context(), checks, got); err != nil {
		t.Errorf("Take(%+v): got error %v", checks, err)
		return nil
	}
	return got
}

// runPhases lets many callers meet on few keys while the clock stands still,
// moves it, and so on. What was admitted is known exactly: everything that was
// asked for, up to what the window has room for.
func runPhases(t *testing.T, h Harness) {
	const (
		keys  = 3
		limit = 100
		each  = 5 // calls of every caller in a phase, spread over the keys
	)
	// Steps of time: the same instant again, parts of a window, exact edges.
	moves := []time.Duration{0, win / 4, 0, win / 4, win / 4, win/4 - micro, micro, win / 2, win, 3 * win}

	type phase struct {
		at       time.Duration
		admitted [keys]int64
	}
	var (
		past []phase
		now  time.Duration
	)
	for _, move := range moves {
		now += move
		h.SetNow(now)
		var admitted, asked [keys]atomic.Int64
		concurrently(func(n int) {
			for i := range each {
				k := (n + i) % keys
				asked[k].Add(1)
				got := try(t, h.Store, one(ask(fmt.Sprint(k), limit, 1)))
				if window.Allowed(got) && got != nil {
					admitted[k].Add(1)
				}
			}
		})
		p := phase{at: now}
		for k := range keys {
			p.admitted[k] = admitted[k].Load()
			room := int64(limit)
			for _, q := range past {
				if q.at > now-win {
					room -= q.admitted[k]
				}
			}
			if want := min(room, asked[k].Load()); p.admitted[k] != want {
				t.Errorf("key %d at %v: admitted %d, want %d of %d asked with room for %d", k, now, p.admitted[k], want, asked[k].Load(), room)
			}
		}
		past = append(past, p)
	}
}

// runRunningClock lets callers meet while the clock moves on under them, so
// that the store sees times in between two readings of each caller. A charge
// lies between the two readings around it; every interval of a window's length
// that certainly contains more than the limit is a broken promise.
func runRunningClock(t *testing.T, h Harness) {
	const (
		limit = 20
		each  = 40
		tick  = win / 200
	)
	var (
		mu    sync.Mutex // the clock is set in order
		clock time.Duration
	)
	advance := func(by time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if by > 0 {
			clock += by
			h.SetNow(clock)
		}
		return clock
	}
	h.SetNow(0)

	type charge struct {
		from, to time.Duration
		cost     uint64
	}
	var charges [callers][]charge
	concurrently(func(n int) {
		for i := range each {
			cost := uint64(1 + (n+i)%3)
			from := advance(tick)
			got := try(t, h.Store, one(ask("k", limit, cost)))
			to := advance(0)
			if got != nil && window.Allowed(got) {
				charges[n] = append(charges[n], charge{from, to, cost})
			}
		}
	})

	var all []charge
	var total uint64
	for _, cs := range charges {
		for _, c := range cs {
			all = append(all, c)
			total += c.cost
		}
	}
	for _, last := range all {
		var sum uint64
		for _, c := range all {
			if c.from > last.to-win && c.to <= last.to {
				sum += c.cost
			}
		}
		if sum > limit {
			t.Errorf("the window of %v that ends at %v holds at least %d, limit %d", win, last.to, sum, limit)
		}
	}
	if total < limit {
		t.Errorf("admitted %d in all, want at least the limit of %d", total, limit)
	}
}

// runConcurrentGroups lets groups that name the same logs in different orders
// meet. They must neither wait for each other for ever nor charge one log
// without the other.
func runConcurrentGroups(t *testing.T, h Harness) {
	const (
		groups = 10
		large  = 200
		small  = 70 // the log that ends it
	)
	h.SetNow(0)
	var admitted atomic.Uint64
	concurrently(func(n int) {
		checks := group(ask("a", large, 1), ask("b", small, 1), askIn(2*win, "a", large, 1), ask("c", large, 1))
		for i := range groups {
			// Rotated, so that every log comes first for somebody.
			k := (n + i) % len(checks)
			rotated := append(append([]window.Check(nil), checks[k:]...), checks[:k]...)
			if got := try(t, h.Store, rotated); got != nil && window.Allowed(got) {
				admitted.Add(1)
			}
		}
	})
	if got := admitted.Load(); got != small {
		t.Errorf("groups admitted: got %d, want %d", got, small)
	}
	for _, c := range group(ask("a", large, 0), askIn(2*win, "a", large, 0), ask("c", large, 0)) {
		if got, want := take(t, h.Store, one(c))[0].Remaining, uint64(large-small); got != want {
			t.Errorf("log %s/%v: remaining %d, want %d: a group was charged in part", c.Key, c.Limit.Window, got, want)
		}
	}
}
