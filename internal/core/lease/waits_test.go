package lease_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

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
