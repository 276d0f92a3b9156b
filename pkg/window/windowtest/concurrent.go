package windowtest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// Callers is how many goroutines call a store at once.
const Callers = 32

// Concurrently runs f in every one of the callers and waits for all.
func Concurrently(f func(n int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for n := range Callers {
		wg.Go(func() {
			<-begin // so that they run at once
			f(n)
		})
	}
	close(begin)
	wg.Wait()
}

// Try is take for goroutines, which must not end the test.
func Try(t *testing.T, s window.Store, checks []window.Check) []window.Decision {
	got := make([]window.Decision, len(checks))
	if _, err := s.Take(t.Context(), window.MayWait, checks, got); err != nil {
		t.Errorf("Take(%+v): got error %v", checks, err)
		return nil
	}
	return got
}

// runPhases lets many callers use few keys while the clock stands still,
// moves it, and so on. What was admitted is known exactly: everything that was
// asked for, up to what the window has room for.
func runPhases(t *testing.T, h Harness) {
	const (
		keys  = 3
		limit = 100
		each  = 5 // calls of every caller in a phase, spread over the keys
	)
	// Steps of time: the same instant again, parts of a window, exact edges.
	moves := []time.Duration{0, Win / 4, 0, Win / 4, Win / 4, Win/4 - Micro, Micro, Win / 2, Win, 3 * Win}

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
		Concurrently(func(n int) {
			for i := range each {
				k := (n + i) % keys
				asked[k].Add(1)
				got := Try(t, h.Store, One(Ask(fmt.Sprint(k), limit, 1)))
				if reference.Allowed(got) && got != nil {
					admitted[k].Add(1)
				}
			}
		})
		p := phase{at: now}
		for k := range keys {
			p.admitted[k] = admitted[k].Load()
			room := int64(limit)
			for _, q := range past {
				if q.at > now-Win {
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

// runRunningClock lets callers run while the clock moves on under them, so
// that the store sees times in between two readings of each caller. A charge
// lies between the two readings around it. Every interval of a window's length
// that certainly contains more than the limit is a broken promise.
func runRunningClock(t *testing.T, h Harness) {
	const (
		limit = 20
		each  = 40
		tick  = Win / 200
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
	var charges [Callers][]charge
	Concurrently(func(n int) {
		for i := range each {
			cost := uint64(1 + (n+i)%3)
			from := advance(tick)
			got := Try(t, h.Store, One(Ask("k", limit, cost)))
			to := advance(0)
			if got != nil && reference.Allowed(got) {
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
			if c.from > last.to-Win && c.to <= last.to {
				sum += c.cost
			}
		}
		if sum > limit {
			t.Errorf("the window of %v that ends at %v holds at least %d, limit %d", Win, last.to, sum, limit)
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
	checks := Group(Ask("a", large, 1), Ask("b", small, 1), AskIn(2*Win, "a", large, 1), Ask("c", large, 1))
	AdmitRotated(t, h, checks, groups, small)
	for _, c := range Group(Ask("a", large, 0), AskIn(2*Win, "a", large, 0), Ask("c", large, 0)) {
		if got, want := Take(t, h.Store, One(c))[0].Remaining, uint64(large-small); got != want {
			t.Errorf("log %s/%v: remaining %d, want %d: a group was charged in part", c.Key, c.Limit.Window, got, want)
		}
	}
}

// AdmitRotated lets every caller ask for checks as often as each says. Every check comes first for
// some caller. want groups must be admitted.
func AdmitRotated(t *testing.T, h Harness, checks []window.Check, each int, want uint64) {
	t.Helper()
	var admitted atomic.Uint64
	Concurrently(func(n int) {
		for i := range each {
			k := (n + i) % len(checks)
			if got := Try(t, h.Store, slices.Concat(checks[k:], checks[:k])); got != nil && reference.Allowed(got) {
				admitted.Add(1)
			}
		}
	})
	if got := admitted.Load(); got != want {
		t.Errorf("groups admitted: got %d, want %d", got, want)
	}
}

// countAllowed lets every caller ask the same checks each times. It returns how often each
// check had room, and in the last element how often the group was allowed.
func countAllowed(t *testing.T, h Harness, each int, checks []window.Check) []int64 {
	counts := make([]atomic.Int64, len(checks)+1)
	Concurrently(func(int) {
		for range each {
			got := Try(t, h.Store, checks)
			for i := range got {
				if got[i].Allowed {
					counts[i].Add(1)
				}
			}
			if got != nil && window.GroupAllowed(checks, got) {
				counts[len(checks)].Add(1)
			}
		}
	})
	had := make([]int64, len(counts))
	for i := range counts {
		had[i] = counts[i].Load()
	}
	return had
}

// runConcurrentModes lets callers use all modes at once while the clock stands still. So
// the logs must hold the same in every order of the calls.
func runConcurrentModes(t *testing.T, h Harness) {
	const (
		each  = 10
		calls = Callers * each
	)
	h.SetNow(0)
	all := func(checks ...window.Check) []int64 { return countAllowed(t, h, each, checks) }
	used := func(key string) uint64 {
		t.Helper()
		return Most - Take(t, h.Store, One(Ask(key, Most, 0)))[0].Remaining
	}
	expect := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", what, diff)
		}
	}

	expect("always, with room", all(Always(Ask("over", 50, 1))), []int64{50, 50})
	expect("always, charged", used("over"), uint64(100)) // twice the limit
	expect("refunds", all(GiveBack(Ask("over", 50, 1)), GiveBack(Ask("none", 50, 1)), Ask("asked", 2*calls, 1)), []int64{calls, calls, calls, calls})
	expect("after as many refunds as charges", used("over"), uint64(0))
	expect("what was asked next to refunds", used("asked"), uint64(calls))

	// A refund and its charge in either order, where there is room enough.
	Take(t, h.Store, One(Ask("both", Most, calls)))
	Concurrently(func(n int) {
		for i := range each {
			both := Group(Ask("both", Most, 3), GiveBack(Ask("both", Most, 3)))
			Try(t, h.Store, One(both[(n+i)%2]))
			Try(t, h.Store, One(both[(n+i+1)%2]))
		}
	})
	expect("after equal charges and refunds", used("both"), uint64(calls))

	// Refunds of more than there is.
	Concurrently(func(int) {
		for range each {
			Try(t, h.Store, One(GiveBack(Ask("both", Most, 3))))
		}
	})
	expect("after more refunds than charges", used("both"), uint64(0))

	expect("a group of modes, with room", all(
		orElse(Ask("a", 70, 1)), orElse(Ask("b", 200, 1)), Ask("c", 150, 1), Observe(Ask("d", 100, 1)), Always(Ask("e", 2*calls, 1)),
	), []int64{
		70,    // charged while it has room
		calls, // is charged 150 times only
		150,   // ends it
		100,
		calls,
		150,
	})
	for _, log := range []struct {
		key  string
		want uint64
	}{{"a", 70}, {"b", 150}, {"c", 150}, {"d", 100}, {"e", calls}} {
		expect("a group of modes, charged to "+log.key, used(log.key), log.want)
	}
}

// runConcurrentSwaps lets callers give a unit of a full log back and spend it again in one
// call. No other call can come in between, so each call is allowed. The newest unit is
// given back first, so only one unit is as young as the last call.
func runConcurrentSwaps(t *testing.T, h Harness) {
	const limit = 20
	h.SetNow(0)
	Take(t, h.Store, One(Ask("k", limit, limit)))
	for i := range time.Duration(4) {
		now := i * Win / 4
		h.SetNow(now)
		Concurrently(func(n int) {
			for j := range 5 {
				swap := Group(GiveBack(Ask("k", limit, 1)), Ask("k", limit, 1))
				if (n+j)%2 == 0 {
					swap[0], swap[1] = swap[1], swap[0]
				}
				if got := Try(t, h.Store, swap); got != nil && !reference.Allowed(got) {
					t.Errorf("swap at %v: got %+v, want both allowed", now, got)
				}
				if got := Try(t, h.Store, One(Ask("k", limit, 1))); got != nil && got[0].Allowed {
					t.Errorf("at %v: a full log had room between the halves of a swap", now)
				}
			}
		})
		want := Answers(Denied(0, Win-now, Win-now, Win))
		if diff := cmp.Diff(want, Take(t, h.Store, One(Ask("k", limit, 1)))); diff != "" {
			t.Errorf("after the swaps at %v: (-want +got)\n%s", now, diff)
		}
	}
}
