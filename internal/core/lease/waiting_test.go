package lease_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// TestTakeWithoutWaitingLeavesNoTrace makes the same random calls to two processes, each with
// a store of its own. One process is asked with waiting. The other is asked without waiting
// first, and with waiting if it stays undecided. Both give the same answers, and reserve and
// give back the same. Take without waiting decides exactly the groups that need no store.
func TestTakeWithoutWaitingLeavesNoTrace(t *testing.T) {
	var met outcomes
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = compareTwins(t, seed, &met) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
	if met.denied == 0 || met.leased == 0 || met.mixed == 0 || met.left == 0 || met.refused == 0 {
		t.Errorf("met %+v, so something was not proven", met)
	}
	t.Logf("%+v", met)
}

// TestUndecidedCallsDoNotAllocate asks without waiting for a group of a check that a lease
// covers and a check without a lease. Only the store can decide the second one.
func TestUndecidedCallsDoNotAllocate(t *testing.T) {
	p, err := lease.New(stock{}, lease.Options{Reserver: stock{}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	leased := window.Check{Key: "a", Limit: window.Limit{Hits: 1 << 31, Window: time.Hour}, Cost: 1, Lease: window.Lease{Length: time.Hour}}
	for range 100 {
		take(t, p, leased)
	}
	if p.Stats().Leases == 0 {
		t.Fatal("there is no lease")
	}
	checks := []window.Check{leased, ask("b", 10, 1)}
	decisions := make([]window.Decision, len(checks))
	n := testing.AllocsPerRun(100, func() {
		if decided, err := p.Take(t.Context(), window.NoWait, checks, decisions); decided || err != nil {
			t.Errorf("got %v, %v, want an undecided group", decided, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// outcomes counts the results of Take without waiting. denied: from memory. leased: leases
// covered the group. mixed: denied although a lease covered a part. left: undecided.
// refused: undecided, and the store returns an error.
type outcomes struct{ denied, leased, mixed, left, refused int }

// A twin is a process and its store.
type twin struct {
	*ahead
	process *lease.Store
}

func newTwin(t *testing.T) twin {
	s := newAhead()
	p, err := lease.New(s, lease.Options{Reserver: s})
	if err != nil {
		t.Fatal(err)
	}
	return twin{s, p}
}

// asked returns the number of calls of the store, without those that give back.
func (w *twin) asked() int {
	calls, returns := w.counts()
	return calls - returns
}

// compareTwins makes random calls to two processes. It returns the first difference.
func compareTwins(t *testing.T, seed uint64, met *outcomes) string {
	r := rand.New(rand.NewPCG(seed, 1))
	direct, twoStep := newTwin(t), newTwin(t)
	defer direct.process.Close()
	defer twoStep.process.Close()
	lease.Apart([]string{"a", "b", "c", "d", "e", "f"}, direct.process, twoStep.process)
	for range 150 {
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Millisecond))))
		if r.IntN(40) == 0 {
			time.Sleep(length)
		}
		synctest.Wait()
		checks := drawLeased(r)
		want, got := make([]window.Decision, len(checks)), make([]window.Decision, len(checks))

		asked, before := direct.asked(), direct.process.Stats()
		_, wantErr := direct.process.Take(t.Context(), window.MayWait, checks, want)
		withoutStore := direct.asked() == asked

		asked = twoStep.asked()
		decided, gotErr := twoStep.process.Take(t.Context(), window.NoWait, checks, got)
		switch after := direct.process.Stats(); {
		case twoStep.asked() != asked:
			return "without waiting, the store was asked"
		case decided != (withoutStore && wantErr == nil):
			return cmp.Diff(checks, nil) + "without waiting, Take decides a group that needs the store, or leaves one that needs no store"
		case wantErr != nil:
			met.refused++
		case !decided:
			met.left++
		case after.LeasedHits > before.LeasedHits:
			met.leased++
		case after.Denials > before.Denials && len(checks) > 1 && got[0].Allowed && checks[0].Lease.Length > 0:
			met.mixed++
		case after.Denials > before.Denials:
			met.denied++
		}
		if !decided {
			_, gotErr = twoStep.process.Take(t.Context(), window.MayWait, checks, got)
		}
		if errors.Is(wantErr, window.ErrBadCheck) != errors.Is(gotErr, window.ErrBadCheck) || (wantErr == nil) != (gotErr == nil) {
			return "one fails: " + cmp.Diff(wantErr, gotErr)
		}
		if wantErr == nil && !cmp.Equal(want, got) {
			return "the answers: " + cmp.Diff(want, got)
		}
		synctest.Wait()
		if want, got := direct.process.Stats(), twoStep.process.Stats(); want != got {
			return "the counts: " + cmp.Diff(want, got)
		}
		for _, c := range checks {
			u, n := direct.count(c.Log())
			if v, m := twoStep.count(c.Log()); u != v || n != m {
				return "the stores: " + cmp.Diff([]any{u, n}, []any{v, m})
			}
		}
		if r.IntN(60) == 0 {
			direct.process.ForgetAll()
			twoStep.process.ForgetAll()
		}
	}
	return ""
}

// drawLeased draws a group of checks on a few logs. Some may have leases.
func drawLeased(r *rand.Rand) []window.Check {
	n := []int{1, 1, 1, 2, 2, 3, 6}[r.IntN(7)]
	checks := make([]window.Check, 0, n)
	for _, i := range r.Perm(6)[:n] {
		c := []window.Check{
			hot("a", 100, 1), hot("b", 300, 1), hot("c", 60, 1),
			ask("d", 20, 1), ask("e", 4, 1), hot("f", 5, 1),
		}[i]
		c.Limit.Window = time.Second
		c.Cost = []uint64{1, 1, 1, 1, 0, 2, 3}[r.IntN(7)]
		switch r.IntN(80) {
		case 0:
			c.Mode = window.Refund
		case 1:
			if c.Lease.Length == 0 { // leases end only at their time
				c.Limit.Hits++
			}
		case 2:
			c.Limit.Hits = window.Unlimited
		case 3:
			c.Limit.Hits = 0
		case 4:
			c.Key = ""
		case 5:
			if len(checks) > 0 {
				c = checks[0]
			}
		}
		checks = append(checks, c)
	}
	return checks
}

// TestManyCallersWithoutWaiting makes many calls at once for two logs with leases. They spend
// only what both leases have.
func TestManyCallersWithoutWaiting(t *testing.T) {
	a, b := hot("a", 1000, 1), hot("b", 1000, 1)
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		warm(t, p, a, b) // four hits of each lease are left
		take(t, p, b)
		before, _ := s.counts()
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				d := make([]window.Decision, 2)
				if decided, err := p.Take(t.Context(), window.NoWait, []window.Check{a, b}, d); err != nil {
					t.Error(err)
				} else if decided {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		if got := admitted.Load(); got != 3 {
			t.Errorf("%d were admitted, want the three that both had left", got)
		}
		if got := spendable(t, p, a); got != 1 {
			t.Errorf("%d are left of the other, want 1", got)
		}
		if after, _ := s.counts(); after != before {
			t.Errorf("the store was asked %d times", after-before)
		}
	})
}

// spendable spends the rest of a lease, and returns how many hits that were.
func spendable(t *testing.T, p *lease.Store, c window.Check) (n int) {
	t.Helper()
	for {
		decided, err := p.Take(t.Context(), window.NoWait, []window.Check{c}, make([]window.Decision, 1))
		if err != nil {
			t.Fatal(err)
		}
		if !decided {
			return n
		}
		n++
	}
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// TestWaitsBesideLeases proves that a process with leases tells the waits of the store. A
// denied group charges nothing, so the test asks the store about the same group.
func TestWaitsBesideLeases(t *testing.T) {
	seed := random.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	denials, leases := uint64(0), uint64(0)
	for range 100 {
		leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
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
