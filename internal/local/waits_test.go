package local_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// An oracle is a simple store. Its logs have the window win. No group may name a log twice.
type oracle map[string][]spent

type spent struct {
	at   time.Duration
	cost uint64
}

// used returns the sum of the hits that count at a time.
func (o oracle) used(key string, now time.Duration) (used uint64) {
	for _, e := range o[key] {
		if e.at > now-win {
			used += e.cost
		}
	}
	return used
}

// wait returns the time until at most level counts.
func (o oracle) wait(key string, now time.Duration, level uint64) time.Duration {
	if o.used(key, now) <= level {
		return 0
	}
	for _, e := range o[key] {
		if until := e.at + win; until > now && o.used(key, until) <= level {
			return until - now
		}
	}
	panic("a log never empties")
}

func (o oracle) take(now time.Duration, checks []window.Check) []window.Decision {
	var group window.Verdict
	room := make([]bool, len(checks))
	for i, c := range checks {
		room[i] = c.Mode == window.Refund || o.used(c.Key, now)+max(c.Cost, 1) <= c.Limit.Hits
		group.Add(c.Mode, room[i])
	}
	decisions := make([]window.Decision, len(checks))
	for i, c := range checks {
		cut := false
		if answer, ok := window.WithoutLog(&c); ok {
			decisions[i] = answer
			continue
		}
		switch {
		case c.Mode == window.Refund:
			o.refund(&c, now)
		case c.Cost > 0 && c.Mode.Charged(group.Allowed(), room[i]):
			used := o.used(c.Key, now)
			cost := min(c.Cost, max(2*c.Limit.Hits, used)-used) // the debt is at most one limit
			if cut = cost < c.Cost; cost > 0 {
				o[c.Key] = append(o[c.Key], spent{now, cost})
			}
		}
		decisions[i] = o.answer(&c, now, room[i])
		decisions[i].Cut = cut
	}
	return decisions
}

func (o oracle) refund(c *window.Check, now time.Duration) {
	rest, log := c.Cost, o[c.Key]
	for i := len(log) - 1; i >= 0 && log[i].at > now-win; i-- {
		back := min(rest, log[i].cost)
		rest -= back
		if log[i].cost -= back; log[i].cost == 0 {
			log = log[:i]
		}
	}
	o[c.Key] = log
}

func (o oracle) answer(c *window.Check, now time.Duration, room bool) window.Decision {
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	d := window.Decision{
		Allowed:    room,
		Remaining:  limit - min(o.used(c.Key, now), limit),
		ResetAfter: o.wait(c.Key, now, 0),
	}
	switch used := o.used(c.Key, now); {
	case limit == 0 || used == 0:
	case d.Remaining == 0:
		d.UnitAfter = o.wait(c.Key, now, limit-1)
	default:
		d.UnitAfter = o.wait(c.Key, now, used-1)
	}
	switch {
	case room:
	case need > limit:
		d.Never = true
	default:
		d.RetryAfter = o.wait(c.Key, now, limit-need)
	}
	return d
}

// TestWaits proves that answers from memory have the waits of the store, for all costs,
// limits and modes. Only one process spends. Some calls are asked without waiting first.
func TestWaits(t *testing.T) {
	seed := random.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	calls, early, late, locally := 0, 0, 0, uint64(0)
	for range 200 {
		s := newShared(t)
		p := s.process(t, local.Options{})
		want := make(oracle)
		now := time.Duration(0)
		for range 100 {
			if r.IntN(4) == 0 {
				now += pick(r, micro, 50*time.Millisecond, second/2, second-micro, second, 3*second, win/2, win-micro, win)
			}
			s.setNow(now)
			checks := randomGroup(r)
			before := p.Stats().Denials
			got := make([]window.Decision, len(checks))
			decided, err := false, error(nil)
			if r.IntN(2) == 0 {
				decided, err = p.Take(t.Context(), window.NoWait, checks, got)
			}
			if !decided && err == nil {
				_, err = p.Take(t.Context(), window.MayWait, checks, got)
			}
			if err != nil {
				t.Fatal(err)
			}
			calls++
			plain(got)
			alone := p.Stats().Denials > before
			for i, w := range want.take(now, checks) {
				g := got[i]
				switch {
				case g.RetryAfter < w.RetryAfter:
					early++
				case g.RetryAfter > w.RetryAfter:
					late++
				}
				if alone && 0 < g.Remaining && g.Remaining < w.Remaining {
					g.Remaining, g.UnitAfter = w.Remaining, w.UnitAfter // the status may be a second old
				}
				if g != w && early+late < 5 {
					t.Errorf("at %v, without the store %t: %+v: got %+v, want %+v", now, alone, checks[i], g, w)
				}
			}
		}
		locally += p.Stats().Denials
	}
	t.Logf("seed %d: %d calls, %d denials without the store", seed, calls, locally)
	if early+late > 0 {
		t.Errorf("%d waits are too early, %d too late", early, late)
	}
	if locally < uint64(calls)/20 {
		t.Errorf("%d of %d calls were answered without the store: too few to prove anything", locally, calls)
	}
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// randomGroup returns one to three checks of different logs.
func randomGroup(r *rand.Rand) []window.Check {
	first := r.IntN(3)
	checks := make([]window.Check, pick(r, 1, 1, 1, 1, 2, 3))
	for i := range checks {
		checks[i] = window.Check{
			Key:   fmt.Sprint((first + i) % 3),
			Limit: window.Limit{Hits: pick[uint64](r, 10, 10, 10, 10, 10, 10, 25, 6, 3, 0), Window: win},
			Cost:  pick[uint64](r, 1, 1, 1, 1, 2, 3, 4, 7, 0, 11),
			Mode: pick(r, window.Enforce, window.Enforce, window.Enforce, window.Enforce, window.Enforce, window.Enforce,
				window.Any, window.Observe),
		}
		if r.IntN(60) == 0 {
			checks[i].Mode = pick(r, window.Refund, window.Always)
		}
	}
	return checks
}

// TestWaitsBesideLeases proves that a process with leases tells the waits of the store. A
// denied group charges nothing, so the test asks the store about the same group.
func TestWaitsBesideLeases(t *testing.T) {
	seed := random.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	denials, leases := uint64(0), uint64(0)
	for range 100 {
		leasing(t, local.Options{}, func(t *testing.T, s *ahead, p *local.Store) {
			for range 150 {
				if r.IntN(3) == 0 {
					time.Sleep(pick(r, micro, 5*time.Millisecond, length-length/10, length, second/2, 3*second, win-micro))
				}
				synctest.Wait() // the goroutine has given back ended leases
				checks := leasedGroup(r)
				before := p.Stats().Denials
				_, returns := s.counts()
				got := take(t, p, checks...)
				if p.Stats().Denials == before {
					continue
				}
				want := take(t, s, checks...)
				if _, now := s.counts(); now != returns {
					continue // the goroutine gave hits back between the two calls
				}
				for i, w := range want {
					if g := got[i]; g.RetryAfter != w.RetryAfter && (!g.Allowed || checks[i].Lease.Length == 0) {
						t.Errorf("seed %d, at %v: %+v: got %+v, want %+v", seed, s.now(), checks[i], g, w)
					}
				}
			}
			denials += p.Stats().Denials
			leases += p.Stats().Leases
		})
	}
	t.Logf("%d denials without the store, %d leases", denials, leases)
	if denials == 0 || leases == 0 {
		t.Error("nothing was proven")
	}
}

// leasedGroup returns one or two checks. One of them is asked for often.
func leasedGroup(r *rand.Rand) []window.Check {
	checks := one(hot("hot", 60, pick[uint64](r, 1, 1, 1, 1, 2, 3, 9, 25)))
	if r.IntN(4) == 0 {
		other := ask("other", 3, pick[uint64](r, 1, 2, 3))
		checks = pick(r, one(other), append(checks, other))
	}
	return checks
}

// TestWaitsOfAnotherLog proves that a record loses the waits of earlier answers if the last
// answer shows that the log has changed.
func TestWaitsOfAnotherLog(t *testing.T) {
	c := func(cost uint64) window.Check { return ask("a", 4, cost) }
	for _, tt := range []struct {
		name    string
		between func(t *testing.T, s *shared)
		local   bool // memory answers the cost of an earlier answer
	}{
		{"nothing", func(*testing.T, *shared) {}, true},
		{"time", func(_ *testing.T, s *shared) { s.setNow(9 * second) }, true},
		{"a usage report", func(t *testing.T, s *shared) { take(t, s, in(window.Always, c(1))) }, false},
		{"a larger limit", func(t *testing.T, s *shared) { take(t, s, ask("a", 5, 1)) }, false},
		{"a refund", func(t *testing.T, s *shared) {
			take(t, s, in(window.Refund, c(1)))
			s.setNow(8*second + micro)
			take(t, s, c(1))
		}, false},
		{"a refund of what a usage report had charged", func(t *testing.T, s *shared) {
			take(t, s, in(window.Always, c(2)))
			take(t, s, in(window.Refund, c(3)))
			take(t, s, in(window.Always, c(1)))
		}, false},
		{"a refund of debt", func(t *testing.T, s *shared) { take(t, s, in(window.Refund, c(2))) }, false},
		{"a refund of a part of the newest hit", func(t *testing.T, s *shared) { take(t, s, in(window.Refund, c(1))) }, false},
	} {
		s := newShared(t)
		p := s.process(t, local.Options{})
		for i := range 4 {
			s.setNow(time.Duration(4+i) * second)
			take(t, s, c(1))
		}
		switch tt.name {
		case "a refund of debt":
			s.setNow(7*second + second/2)
			take(t, s, in(window.Always, c(2)))
		case "a refund of a part of the newest hit":
			take(t, s, in(window.Refund, c(2)))
			take(t, s, c(2))
		}
		s.setNow(8 * second)
		take(t, p, c(2))
		tt.between(t, s)
		take(t, p, c(3)) // this answer shows that the log has changed
		calls := s.calls.Load()
		got := take(t, p, c(2))
		if local := s.calls.Load() == calls; local != tt.local {
			t.Errorf("%s: answered without the store %t, want %t", tt.name, local, tt.local)
		}
		if want := take(t, s, c(2)); got[0] != want[0] {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
	}
}

// TestWaitsOfOneInstant charges hits between two answers that share the instant of the
// newest hit. So the log empties at the same time as before. The record still loses the
// waits of earlier answers.
func TestWaitsOfOneInstant(t *testing.T) {
	c := func(hits, cost uint64) window.Check {
		check := ask("a", hits, cost)
		check.Precision = 8 * second
		return check
	}
	for _, tt := range []struct {
		name  string
		at    time.Duration // when another process charges other
		other window.Check
		then  window.Check
	}{
		{"there was room", win + micro, c(4, 2), c(4, 1)},
		{"a larger limit", 9600 * time.Millisecond, c(6, 2), c(6, 2)},
	} {
		s := newShared(t)
		p := s.process(t, local.Options{})
		take(t, s, c(4, 2)) // at 0
		s.setNow(second)
		take(t, s, c(4, 1)) // recorded at 8 s
		s.setNow(9500 * time.Millisecond)
		take(t, s, c(4, 1)) // recorded at 16 s
		take(t, p, c(4, 3))
		s.setNow(tt.at)
		if got := take(t, s, tt.other); !got[0].Allowed {
			t.Fatalf("%s: the other process: got %+v", tt.name, got)
		}
		take(t, p, tt.then)
		if got, want := take(t, p, c(4, 3)), take(t, s, c(4, 3)); got[0] != want[0] {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
	}
}
