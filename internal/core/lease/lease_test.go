package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

const length = 50 * time.Millisecond

// hot returns a check that may have a lease.
func hot(key string, hits, cost uint64) window.Check {
	c := ask(key, hits, cost)
	c.Lease = window.Lease{Length: length}
	return c
}

// leasing runs f in a bubble, with a process that may make leases.
func leasing(t *testing.T, o lease.Options, f func(t *testing.T, s *ahead, p *lease.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newAhead()
		o.Reserver = s
		p, err := lease.New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		f(t, s, p)
	})
}

// expect takes a check, and compares the answer, the number of calls to the store, and the
// use that the store counts afterwards.
func expect(t *testing.T, s *ahead, p *lease.Store, c window.Check, want window.Decision, calls int, used uint64) {
	t.Helper()
	_, before := s.count(c.Log())
	got := take(t, p, c)
	if diff := cmp.Diff(answers(want), got); diff != "" {
		t.Errorf("at %v: (-want +got)\n%s", s.now(), diff)
	}
	if u, n := s.count(c.Log()); u != used || n-before != calls {
		t.Errorf("at %v: the store counts %d after %d calls, want %d after %d", s.now(), u, n-before, used, calls)
	}
}

func roomy(remaining uint64, reset time.Duration) window.Decision {
	return window.Decision{Allowed: true, Remaining: remaining, ResetAfter: reset}
}

// warm takes the checks four times. Then each has four hits admitted and four reserved.
func warm(t *testing.T, p *lease.Store, checks ...window.Check) {
	t.Helper()
	for range 4 {
		for _, c := range checks {
			if got := take(t, p, c); !got[0].Allowed {
				t.Fatalf("%+v: got %+v", c, got)
			}
		}
	}
}

// TestLease follows one lease from the first call until the rest is given back.
func TestLease(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		a := hot("a", 100, 1)
		expect(t, s, p, a, roomy(99, win), 1, 1)
		expect(t, s, p, a, roomy(98, win), 1, 2)
		expect(t, s, p, a, roomy(97, win), 1, 3)
		time.Sleep(10 * time.Millisecond)
		// The fourth hit within the length of a lease reserves four more. They are not
		// spent yet, so they remain.
		expect(t, s, p, a, roomy(96, win+length), 1, 4+4)
		time.Sleep(10 * time.Millisecond)
		expect(t, s, p, a, roomy(95, win+length-10*time.Millisecond), 0, 8)
		// A cost of zero spends nothing.
		expect(t, s, p, hot("a", 100, 0), roomy(95, win+length-10*time.Millisecond), 0, 8)
		expect(t, s, p, a, roomy(94, win+length-10*time.Millisecond), 0, 8)
		expect(t, s, p, a, roomy(93, win+length-10*time.Millisecond), 0, 8)
		expect(t, s, p, a, roomy(92, win+length-10*time.Millisecond), 0, 8)
		// The lease is spent, so the store answers a cost of zero.
		expect(t, s, p, hot("a", 100, 0), roomy(92, win+length-10*time.Millisecond), 1, 8)
		// The next call is the ninth hit in the length of a lease.
		expect(t, s, p, a, roomy(91, win+length), 1, 9+9)
		expect(t, s, p, a, roomy(90, win+length), 0, 18)
		time.Sleep(length)
		synctest.Wait()
		if used, _ := s.count(a.Log()); used != 10 {
			t.Errorf("after the end: the store counts %d, want the 10 that were admitted", used)
		}
		if got, want := p.Stats(), (lease.Stats{Leases: 2, LeasedHits: 5, ReturnedHits: 8}); got != want {
			t.Errorf("Stats: got %+v, want %+v", got, want)
		}
		// After a pause the store decides again.
		time.Sleep(2 * length)
		expect(t, s, p, a, roomy(89, win), 1, 11)
	})
}

// TestLeaseEnds ends a lease with four hits left, for every reason. Six hits were admitted,
// two of them by another process.
func TestLeaseEnds(t *testing.T) {
	a := hot("a", 100, 1)
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, s *ahead, p *lease.Store)
		used uint64 // afterwards
	}{
		{"nothing", func(*testing.T, *ahead, *lease.Store) {}, 10},
		{"nine tenths of its length", func(*testing.T, *ahead, *lease.Store) { time.Sleep(length - length/10) }, 6},
		{"just before that", func(*testing.T, *ahead, *lease.Store) { time.Sleep(length - length/10 - 1) }, 10},
		{"another limit", func(t *testing.T, _ *ahead, p *lease.Store) { take(t, p, hot("a", 101, 0)) }, 6},
		{"another precision", func(t *testing.T, _ *ahead, p *lease.Store) {
			c := hot("a", 100, 0)
			c.Precision = time.Millisecond
			take(t, p, c)
		}, 6},
		{"a refund here", func(t *testing.T, s *ahead, p *lease.Store) {
			take(t, p, in(window.Refund, ask("a", 100, 1)))
			if _, returns := s.counts(); returns != 1 {
				t.Errorf("got %d returns before the refund had ended, want 1", returns)
			}
		}, 5},
		{"another log", func(_ *testing.T, _ *ahead, p *lease.Store) { p.Forget(window.LogID{Key: "b", Window: win}) }, 10},
		{"a denial", func(t *testing.T, _ *ahead, p *lease.Store) {
			if got := take(t, p, hot("a", 100, 99)); got[0].Allowed {
				t.Errorf("got %+v, want a denial", got)
			}
		}, 6},
		{"a larger cost with room does not end it", func(t *testing.T, _ *ahead, p *lease.Store) {
			c := hot("a", 100, 50) // more than a lease may reserve
			take(t, p, c)
		}, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
				take(t, s, a)
				warm(t, p, a)
				if used, _ := s.count(a.Log()); used != 1+4+4 {
					t.Fatalf("the store counts %d, want 9", used)
				}
				take(t, s, a) // another process
				tt.do(t, s, p)
				synctest.Wait()
				if used, _ := s.count(a.Log()); used != tt.used {
					t.Errorf("the store counts %d, want %d", used, tt.used)
				}
			})
		})
	}
}

// TestLeaseAndClose proves that Close gives leases back.
func TestLeaseAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAhead()
		p, err := lease.New(s, lease.Options{Reserver: s})
		if err != nil {
			t.Fatal(err)
		}
		warm(t, p, hot("a", 100, 1), hot("b", 100, 1))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b"} {
			if used, _ := s.count(ask(key, 1, 1).Log()); used != 4 {
				t.Errorf("key %s: the store counts %d, want the 4 that were admitted", key, used)
			}
		}
	})
}

// TestLeaseAndSlowClose proves that Close does not wait long for a slow store.
func TestLeaseAndSlowClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAhead()
		p, err := lease.New(s, lease.Options{Reserver: s})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			warm(t, p, hot(fmt.Sprint(i), 100, 1))
		}
		s.slow(100*time.Millisecond, 0)
		began := s.now()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if took := s.now() - began; took > 1500*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

// TestLeaseBounds proves the bounds of a reservation. A log that is rarely asked for, or has
// little left, gets no lease.
func TestLeaseBounds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		check window.Check
		calls int // in one instant
		want  int // calls of the store
	}{
		{"a tenth of the limit", hot("a", 200, 1), 60, 3 + 5}, // reserves 1+4, 1+9, and 20 three times
		{"a tenth of a small limit", hot("a", 40, 1), 20, 20},
		{"what the rule says", func() window.Check { c := hot("a", 1000, 1); c.Lease.Hits = 5; return c }(), 3 + 5 + 5 + 1, 3 + 3},
		{"a quarter of what remains", func() window.Check { c := hot("used", 100, 1); c.Lease.Hits = 50; return c }(), 18, 3 + 3}, // 1+4, 1+8 and 1+5
		{"fewer than four hits", func() window.Check { c := hot("a", 1000, 1); c.Lease.Hits = 4; return c }(), 10, 10},
		{"a cost above the lease", func() window.Check { c := hot("a", 1000, 6); c.Lease.Hits = 5; return c }(), 10, 10},
		{"a cost of zero", hot("a", 1000, 0), 10, 10},
		{"only observed", in(window.Observe, hot("a", 1000, 1)), 10, 10},
		{"no lease", ask("a", 1000, 1), 10, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
				take(t, s, ask("used", 100, 60))
				_, before := s.count(tt.check.Log())
				for range tt.calls {
					if got := take(t, p, tt.check); !got[0].Allowed {
						t.Fatalf("got %+v", got)
					}
				}
				if _, got := s.count(tt.check.Log()); got-before != tt.want {
					t.Errorf("got %d calls of the store, want %d", got-before, tt.want)
				}
			})
		})
	}
}

// TestLeaseIsForHotKeys proves that a key gets no lease if it is asked for once in the
// length of a lease.
func TestLeaseIsForHotKeys(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, _ *ahead, p *lease.Store) {
		for range 20 {
			take(t, p, hot("a", 1000, 5))
			time.Sleep(2 * length)
		}
		if got := p.Stats(); got.Leases != 0 {
			t.Errorf("got %+v, want no lease", got)
		}
	})
}

// TestLeaseGoesOn proves that the first call after a lease reserves as much as was asked for
// during the lease.
func TestLeaseGoesOn(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		a := hot("a", 100, 1)
		warm(t, p, a)
		time.Sleep(length + length/5) // a fifth of the next length passes without a call
		synctest.Wait()
		expect(t, s, p, a, roomy(95, win+length), 1, 4+1+5)
		time.Sleep(length)
		synctest.Wait()
		time.Sleep(length) // one hit was asked for, long ago
		expect(t, s, p, a, roomy(94, win), 1, 6)
	})
}

// TestLeasesAreBounded proves the bound on the number of leases.
func TestLeasesAreBounded(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, _ *ahead, p *lease.Store) {
		p.SetLeases(3)
		for i := range 10 {
			warm(t, p, hot(fmt.Sprint(i), 100, 1))
		}
		if got := p.Stats(); got.Leases != 3 {
			t.Errorf("got %+v, want 3 leases", got)
		}
		time.Sleep(2 * length)
		warm(t, p, hot("later", 100, 1))
		if got := p.Stats(); got.Leases != 4 {
			t.Errorf("after the others ended: got %+v, want 4 leases", got)
		}
	})
}

// TestLeasesOfDifferentLengths proves that each lease ends at its own time. It proves too
// that no call spends an ended lease while the goroutine is busy with another one.
func TestLeasesOfDifferentLengths(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		var checks []window.Check
		for i, length := range []time.Duration{500 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, time.Second, 40 * time.Millisecond} {
			c := hot(fmt.Sprint(i), 1000, 1)
			c.Lease.Length = length
			checks = append(checks, c)
			warm(t, p, c)
		}
		for _, at := range []time.Duration{18, 36, 90, 450, 900} {
			time.Sleep(at*time.Millisecond - s.now())
			synctest.Wait()
			for _, c := range checks {
				want := uint64(4)
				if s.now() < c.Lease.Length-c.Lease.Length/10 {
					want = 4 + 4
				}
				if used, _ := s.count(c.Log()); used != want {
					t.Errorf("at %v: the store counts %d for a lease of %v, want %d", s.now(), used, c.Lease.Length, want)
				}
			}
		}

		a, b := hot("a", 100, 1), hot("b", 100, 1)
		warm(t, p, a)
		time.Sleep(length / 2)
		warm(t, p, b)
		s.slow(time.Second, 0) // while the rest of a is given back
		time.Sleep(length)
		synctest.Wait()
		s.slow(0, 0)
		before, _ := s.counts()
		take(t, p, b)
		if calls, _ := s.counts(); calls != before+1 {
			t.Error("a lease was spent after its end")
		}
	})
}

// TestLeaseTooSmall proves that a lease is given back when a new one replaces it.
func TestLeaseTooSmall(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		warm(t, p, hot("a", 100, 1))
		for range 3 {
			take(t, p, hot("a", 100, 1)) // one hit of the lease is left
		}
		take(t, p, hot("a", 100, 2)) // reserves ten
		synctest.Wait()
		if used, _ := s.count(ask("a", 1, 1).Log()); used != 9+8 {
			t.Errorf("the store counts %d, want nine that were admitted and eight that are reserved", used)
		}
	})
}

// TestLeaseOfTheLast proves that the call which spends the last hit is told when the next
// one has room.
func TestLeaseOfTheLast(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		lease := func(cost uint64) window.Check {
			c := hot("a", 100, cost)
			c.Lease.Hits = 50
			return c
		}
		take(t, s, ask("a", 100, 83))
		time.Sleep(10 * time.Millisecond)
		take(t, p, lease(1))
		take(t, p, lease(12)) // and the last four
		time.Sleep(10 * time.Millisecond)
		expect(t, s, p, lease(4), window.Decision{
			Allowed: true, UnitAfter: win - 20*time.Millisecond, ResetAfter: win + length - 10*time.Millisecond,
		}, 0, 100)
	})
}

// TestOneReservationAtATime makes calls while a reservation is under way.
func TestOneReservationAtATime(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		for range 3 {
			take(t, p, hot("a", 100, 1))
		}
		s.slow(5*time.Millisecond, 0)
		done := make(chan bool)
		for range 3 {
			go func() {
				d := make([]window.Decision, 1)
				_, err := p.Take(t.Context(), window.MayWait, one(hot("a", 100, 1)), d)
				done <- err == nil && d[0].Allowed
			}()
		}
		for range 3 {
			if !<-done {
				t.Error("a caller was not allowed")
			}
		}
		if got := p.Stats(); got.Leases != 1 {
			t.Errorf("got %+v, want one lease", got)
		}
	})
}

// TestReturnEndsDenial proves that the process forgets a denial that counted hits which it
// gives back.
func TestReturnEndsDenial(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, _ *ahead, p *lease.Store) {
		warm(t, p, hot("a", 100, 1))
		if got := take(t, p, hot("a", 100, 95)); got[0].Allowed {
			t.Fatalf("got %+v", got)
		}
		synctest.Wait()
		if got := take(t, p, hot("a", 100, 95)); !got[0].Allowed {
			t.Errorf("after they were given back: got %+v", got)
		}
	})
}

// TestLeaseAndBadCalls proves that the store refuses an invalid call although a lease covers
// it. The call spends nothing.
func TestLeaseAndBadCalls(t *testing.T) {
	a := hot("a", 100, 1)
	leasing(t, lease.Options{}, func(t *testing.T, _ *ahead, p *lease.Store) {
		warm(t, p, a)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Take(done, window.MayWait, one(a), make([]window.Decision, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that is done: got error %v", err)
		}
		for _, n := range []int{0, 2} {
			if _, err := p.Take(t.Context(), window.MayWait, one(a), make([]window.Decision, n)); !errors.Is(err, window.ErrBadCheck) {
				t.Errorf("%d decisions: got error %v", n, err)
			}
		}
		if got := take(t, p, a); got[0].Remaining != 95 {
			t.Errorf("got %+v, want 95 that remain", got)
		}
	})
}

// TestLeaseInGroup proves that only the checks without a lease go to the store. If they are
// denied or fail, the lease gets its hits back.
func TestLeaseInGroup(t *testing.T) {
	a, b, few := hot("a", 100, 1), ask("b", 100, 1), ask("few", 2, 1)
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		warm(t, p, a)
		before, _ := s.counts()
		if got, want := take(t, p, a, b), answers(roomy(95, win+length), roomy(99, win)); !cmp.Equal(want, got) {
			t.Errorf("allowed: got %+v, want %+v", got, want)
		}
		take(t, s, few)
		take(t, s, few)
		want := answers(roomy(95, win+length), denied(win, win, win))
		for range 3 { // the first call asks the store, the others use memory
			if got := take(t, p, a, few); !cmp.Equal(want, got) {
				t.Errorf("denied: got %+v, want %+v", got, want)
			}
		}
		if got, _ := s.counts(); got-before != 1+2+1 {
			t.Errorf("got %d calls of the store, want 4", got-before)
		}
		gone := errors.New("gone")
		s.fail(gone)
		if _, err := p.Take(t.Context(), window.MayWait, []window.Check{a, b}, make([]window.Decision, 2)); !errors.Is(err, gone) {
			t.Errorf("got error %v, want %v", err, gone)
		}
		// Three hits are left, so calls need no store.
		for left := uint64(94); left >= 92; left-- {
			if got, want := take(t, p, a), answers(roomy(left, win+length)); !cmp.Equal(want, got) {
				t.Errorf("what was put back: got %+v, want %+v", got, want)
			}
		}
		if _, err := p.Take(t.Context(), window.MayWait, []window.Check{a}, make([]window.Decision, 1)); !errors.Is(err, gone) {
			t.Errorf("got error %v, want %v: the lease is spent", err, gone)
		}
		s.fail(nil)
		// With two logs, each call makes one lease at most.
		for range 5 {
			take(t, p, hot("x", 100, 1), hot("y", 100, 1))
		}
		x, _ := s.count(ask("x", 1, 1).Log())
		y, _ := s.count(ask("y", 1, 1).Log())
		if x != 4+4 || y != 5+5 {
			t.Errorf("the store counts %d and %d, want 8 and 10", x, y)
		}
		// A group that names a log twice gets no lease.
		z := hot("z", 100, 1)
		warm(t, p, z)
		if got, want := take(t, p, z, z), answers(roomy(90, win+length), roomy(90, win+length)); !cmp.Equal(want, got) {
			t.Errorf("a log twice: got %+v, want %+v", got, want)
		}
	})
}

// TestLeaseOfAnotherCaller proves that hits go back to the store if their lease has ended
// before they are put back.
func TestLeaseOfAnotherCaller(t *testing.T) {
	a, few := hot("a", 100, 1), ask("few", 1, 1)
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		take(t, s, few)
		warm(t, p, a)
		s.slow(2*length, 0)
		if got := take(t, p, a, few); got[1].Allowed {
			t.Errorf("got %+v", got)
		}
		time.Sleep(4 * length) // calls that give back are slow too
		synctest.Wait()
		if used, _ := s.count(a.Log()); used != 4 {
			t.Errorf("the store counts %d, want the 4 that were admitted", used)
		}
	})
}

// TestLeaseRoundTrip proves that the length of a lease counts from before the call.
func TestLeaseRoundTrip(t *testing.T) {
	a := hot("a", 100, 1)
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		for range 3 {
			take(t, p, a)
		}
		s.slow(0, 10*time.Millisecond)
		take(t, p, a)
		s.slow(0, 0)
		time.Sleep(length - 10*time.Millisecond - length/10 - 1)
		before, _ := s.counts()
		take(t, p, a)
		if calls, _ := s.counts(); calls != before {
			t.Error("before its end the store was asked")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if used, _ := s.count(a.Log()); used != 5 {
			t.Errorf("at its end the store counts %d, want 5", used)
		}
	})
}

// TestDenialBesideLeases proves that a denial is believed for the length of a lease if it
// counts the reservations of others. Other denials are believed for longer.
func TestDenialBesideLeases(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		asked := func(c window.Check, want int) {
			t.Helper()
			before, _ := s.counts()
			if got := take(t, p, c); got[0].Allowed {
				t.Errorf("got %+v, want a denial", got)
			}
			if got, _ := s.counts(); got-before != want {
				t.Errorf("at %v: got %d calls of the store, want %d", s.now(), got-before, want)
			}
		}
		if _, _, err := s.Reserve(t.Context(), ask("a", 2, 2), second); err != nil {
			t.Fatal(err)
		}
		asked(hot("a", 2, 1), 1)
		time.Sleep(length - 2*micro)
		asked(hot("a", 2, 1), 0)
		time.Sleep(micro)
		asked(hot("a", 2, 1), 1)
		take(t, s, ask("b", 2, 2))
		asked(hot("b", 2, 1), 1)
		time.Sleep(second / 2)
		asked(hot("b", 2, 1), 0)
	})
}

// TestLeasesNeverExceed makes random calls of several processes with leases. It proves that
// no window has more hits than the limit. It proves too that no hit is lost: when all leases
// have ended, the store counts exactly the admitted hits.
func TestLeasesNeverExceed(t *testing.T) {
	var total lease.Stats
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		n := rapid.IntRange(1, 4).Draw(rt, "processes")
		limit := rapid.Uint64Range(4, 200).Draw(rt, "limit")
		pause := rapid.SampledFrom([]time.Duration{50 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}).Draw(rt, "pause")
		var failure string
		synctest.Test(t, func(t *testing.T) {
			failure = neverExceeds(t, seed, n, limit, pause, &total)
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
	if total.LeasedHits == 0 || total.ReturnedHits == 0 {
		t.Errorf("got %+v, so nothing was proven", total)
	}
	t.Logf("%+v", total)
}

func neverExceeds(t *testing.T, seed uint64, n int, limit uint64, pause time.Duration, total *lease.Stats) string {
	const win = time.Second
	r := rand.New(rand.NewPCG(seed, 1))
	s := newAhead()
	var processes []*lease.Store
	for range n {
		p, err := lease.New(s, lease.Options{Reserver: s})
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, p)
	}
	closed := false
	closeAll := func() {
		for _, p := range processes {
			st := p.Stats()
			total.Leases += st.Leases
			total.LeasedHits += st.LeasedHits
			total.ReturnedHits += st.ReturnedHits
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		closed = true
	}
	defer func() {
		if !closed {
			closeAll()
		}
	}()
	var admitted []charge
	check := window.Check{Key: "k", Limit: window.Limit{Hits: limit, Window: win}, Lease: window.Lease{Length: length}}
	other := window.Check{Key: "other", Limit: window.Limit{Hits: limit * 3 / 4, Window: win / 2}, Cost: 1}
	for range 2000 {
		time.Sleep(time.Duration(r.Int64N(int64(2 * pause))))
		if r.IntN(200) == 0 {
			time.Sleep(length) // leases end with hits left
		}
		check.Cost = 1 + r.Uint64N(3)
		checks := []window.Check{check}
		if r.IntN(4) == 0 {
			checks = append(checks, other)
		}
		d := make([]window.Decision, len(checks))
		if _, err := processes[r.IntN(n)].Take(t.Context(), window.MayWait, checks, d); err != nil {
			return err.Error()
		}
		if !reference.Allowed(d) {
			continue
		}
		now := s.now()
		admitted = append(admitted, charge{now, check.Cost})
		var sum uint64
		for _, c := range admitted {
			if c.at > now-win {
				sum += c.cost
			}
		}
		if sum > limit {
			return fmt.Sprintf("at %v: %d admitted within %v, limit %d", now, sum, win, limit)
		}
	}
	closeAll()
	now := s.now()
	var counts uint64
	for _, c := range admitted {
		if c.at > now-win+length {
			counts += c.cost
		}
	}
	if used, _ := s.count(check.Log()); used < counts || used > limit {
		return fmt.Sprintf("at the end the store counts %d, want %d at least", used, counts)
	}
	time.Sleep(win + length)
	if used, _ := s.count(check.Log()); used != 0 {
		return fmt.Sprintf("the store counts %d when all has expired", used)
	}
	return ""
}

// TestReservationEndsStatus proves that a reservation ends the status from before it. A
// check that lost its room counts for the wait of its group.
func TestReservationEndsStatus(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, _ *ahead, p *lease.Store) {
		full := ask("full", 1, 1)
		take(t, p, full)
		for range 3 {
			take(t, p, hot("a", 100, 1))
		}
		if got := take(t, p, full, ask("a", 100, 94)); !got[1].Allowed || got[1].Remaining != 97 {
			t.Fatalf("before: got %+v", got)
		}
		take(t, p, hot("a", 100, 1)) // reserves four
		if got := take(t, p, full, hot("a", 100, 94)); got[1].Allowed || got[1].RetryAfter == 0 {
			t.Errorf("after a reservation: got %+v, want a denial", got)
		}
	})
}
