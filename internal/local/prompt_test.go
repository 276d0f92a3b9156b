package local_test

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

	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestTryTake lets twins live the same life with a store each: one is asked by Take
// alone, the other by TryTake first. Whatever they answer and ask, reserve and give
// back is the same, and TryTake decides just what Take needs no store for.
func TestTryTake(t *testing.T) {
	var met outcomes
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = liveAsTwins(t, seed, &met) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
	if met.denied == 0 || met.leased == 0 || met.mixed == 0 || met.left == 0 || met.refused == 0 {
		t.Errorf("met %+v, so something was not proven", met)
	}
	t.Logf("%+v", met)
}

// outcomes count what TryTake did: denied from memory, spent leases, denied beside a
// lease that was not spent, left it to the store, and left what the store refuses.
type outcomes struct{ denied, leased, mixed, left, refused int }

// A twin is a process with a store of its own.
type twin struct {
	*ahead
	process *local.Store
}

func newTwin(t *testing.T) twin {
	s := newAhead()
	p, err := local.New(s, local.Options{Reserver: s})
	if err != nil {
		t.Fatal(err)
	}
	return twin{s, p}
}

// asked is how often the store was asked, what was given back not counted.
func (w *twin) asked() int {
	calls, returns := w.counts()
	return calls - returns
}

func liveAsTwins(t *testing.T, seed uint64, met *outcomes) string {
	r := rand.New(rand.NewPCG(seed, 1))
	patient, prompt := newTwin(t), newTwin(t)
	defer patient.process.Close()
	defer prompt.process.Close()
	local.Apart([]string{"a", "b", "c", "d", "e", "f"}, patient.process, prompt.process)
	for range 150 {
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Millisecond))))
		if r.IntN(40) == 0 {
			time.Sleep(length)
		}
		synctest.Wait()
		checks := drawLeased(r)
		want, got := make([]window.Decision, len(checks)), make([]window.Decision, len(checks))

		asked, before := patient.asked(), patient.process.Stats()
		_, wantErr := patient.process.Take(t.Context(), window.MayWait, checks, want)
		needless := patient.asked() == asked

		asked = prompt.asked()
		decided, gotErr := prompt.process.Take(t.Context(), window.NoWait, checks, got)
		switch after := patient.process.Stats(); {
		case prompt.asked() != asked:
			return "without waiting, the store was asked"
		case decided != (needless && wantErr == nil):
			return cmp.Diff(checks, nil) + "without waiting, Take decides what it asks the store about, or does not decide what it knows"
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
			_, gotErr = prompt.process.Take(t.Context(), window.MayWait, checks, got)
		}
		if errors.Is(wantErr, window.ErrBadCheck) != errors.Is(gotErr, window.ErrBadCheck) || (wantErr == nil) != (gotErr == nil) {
			return "one fails: " + cmp.Diff(wantErr, gotErr)
		}
		if wantErr == nil && !cmp.Equal(want, got) {
			return "the answers: " + cmp.Diff(want, got)
		}
		synctest.Wait()
		if want, got := patient.process.Stats(), prompt.process.Stats(); want != got {
			return "the counts: " + cmp.Diff(want, got)
		}
		for _, c := range checks {
			u, n := patient.count(c.Log())
			if v, m := prompt.count(c.Log()); u != v || n != m {
				return "the stores: " + cmp.Diff([]any{u, n}, []any{v, m})
			}
		}
		if r.IntN(60) == 0 {
			patient.process.ForgetAll()
			prompt.process.ForgetAll()
		}
	}
	return ""
}

// drawLeased draws a group on few logs, some of which may have leases.
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
			if c.Lease.Length == 0 { // a lease goes back at its own time
				c.Limit.Hits++
			}
		case 2:
			c.Limit.Hits = window.MaxHits
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

// TestTryTakeOfMany proves that callers who meet on leases spend what both have and
// no more.
func TestTryTakeOfMany(t *testing.T) {
	a, b := hot("a", 1000, 1), hot("b", 1000, 1)
	leasing(t, local.Options{}, func(t *testing.T, s *ahead, p *local.Store) {
		warm(t, p, a, b) // four of each are left
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

// spendable spends what is left of a lease.
func spendable(t *testing.T, p *local.Store, c window.Check) (n int) {
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

// TestLeaseOfOneLog proves that a group whose second log has no lease left, or none any
// more, spends nothing of the first one's lease without waiting.
func TestLeaseOfOneLog(t *testing.T) {
	a, b := hot("a", 1000, 1), hot("b", 1000, 1)
	undecided := func(t *testing.T, p *local.Store) {
		t.Helper()
		if decided, err := p.Take(t.Context(), window.NoWait, []window.Check{a, b}, make([]window.Decision, 2)); decided || err != nil {
			t.Errorf("Take = %t, %v, want it undecided", decided, err)
		}
	}
	leasing(t, local.Options{}, func(t *testing.T, _ *ahead, p *local.Store) {
		warm(t, p, a, b)
		spendable(t, p, b)
		undecided(t, p)
		if got := spendable(t, p, a); got != 4 {
			t.Errorf("%d are left of the first, want all four", got)
		}
	})
	leasing(t, local.Options{}, func(t *testing.T, s *ahead, p *local.Store) {
		warm(t, p, a, b)
		used, _ := s.count(a.Log())
		p.Forget(b.Log())
		undecided(t, p)
		synctest.Wait()
		if got, _ := s.count(b.Log()); got != 4 {
			t.Errorf("the store counts %d of the second, want the four that were admitted", got)
		}
		if got, _ := s.count(a.Log()); got != used || spendable(t, p, a) != 4 {
			t.Errorf("the store counts %d of the first, want %d as before", got, used)
		}
	})
}
