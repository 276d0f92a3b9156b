package local_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// of puts a check into a scope.
func of(scope window.Scope, c window.Check) window.Check {
	c.Scope = scope
	return c
}

// TestSharesOfScopes: each scope has its own number of processes, and logs of one key in two
// scopes are two logs.
func TestSharesOfScopes(t *testing.T) {
	s, err := local.NewShares(local.ShareOptions{Replicas: 2, ScopeReplicas: []int{4, 1}, Memory: memstore.Options{SweepInterval: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []window.LogID
	for scope, want := range []int{4, 2, 8} {
		c := of(window.Scope(scope), ask("{k}r", 8, 1))
		admitted := 0
		for range 10 {
			if take(t, s, c)[0].Allowed {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("scope %d: %d hits are admitted, want %d", scope, admitted, want)
		}
		ids = append(ids, c.Log())
	}
	listed, _, err := s.List(t.Context(), window.Match{Tag: "k"}, "")
	slices.SortFunc(listed, func(a, b window.LogID) int { return int(a.Scope) - int(b.Scope) })
	if err != nil || !slices.Equal(listed, ids) {
		t.Errorf("listed %+v, %v, want %+v", listed, err, ids)
	}
	used := func() (all []uint64) {
		readings, err := s.Read(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range readings {
			if r.ID != ids[i] {
				t.Errorf("the reading is of %+v, want %+v", r.ID, ids[i])
			}
			all = append(all, r.Used(window.Limit{Hits: 8, Window: win}))
		}
		return all
	}
	if got := used(); !slices.Equal(got, []uint64{4, 2, 8}) {
		t.Errorf("the logs have %v hits", got)
	}
	s.Reset(ids[1])
	if got := used(); !slices.Equal(got, []uint64{4, 0, 8}) {
		t.Errorf("after a reset of one scope, the logs have %v hits", got)
	}
}

// TestDebtsOfScopes: only the scope whose call was late owes its cost, and only that one is not
// asked.
func TestDebtsOfScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newCreditorOf(t, local.ShareOptions{Memory: memstore.Options{SweepInterval: -1}})
		near, far, other := ask("near", 8, 1), of(1, ask("far", 8, 1)), of(2, ask("other", 8, 1))
		var late window.PartError
		late.Failed[1], late.Failed[2] = errLate, errors.New("refused")
		d := make([]window.Decision, 2)
		if err := s.TakeAfter(t.Context(), &late, []window.Check{far, other}, d); err != nil || !d[0].Allowed || !d[1].Allowed {
			t.Fatalf("got %+v, error %v", d, err)
		}
		owed := s.Owed([]window.Check{near, far, other})
		if owed == nil || owed.Failed[0] != nil || !errors.Is(owed.Failed[1], window.ErrOwed) || owed.Failed[2] != nil {
			t.Errorf("%v is owed, want the scope 1 alone", owed)
		}
		if got := s.Owed([]window.Check{near, other}); got != nil {
			t.Errorf("a group without the log owes %v", got)
		}
		if got := s.Owed([]window.Check{in(window.Refund, near), far}); got != nil {
			t.Errorf("a group with a refund owes %v", got)
		}
		// What the shares admit for a scope that is not asked is owed too.
		if err := s.TakeAfter(t.Context(), owed, []window.Check{far}, d[:1]); err != nil || !d[0].Allowed {
			t.Fatalf("got %+v, error %v", d[0], err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		if want := []string{"forget far", "far always 2"}; !slices.Equal(store.taken, want) {
			t.Errorf("the store is told %q, want %q", store.taken, want)
		}
		if got := s.Owed([]window.Check{far}); got != nil {
			t.Errorf("after that, %v is owed", got)
		}
	})
}

// returned is what remains in the logs of partly after charges were taken back.
const returned = 77

// partly is a store of two scopes, of which the second fails.
type partly struct {
	*ahead
	backs int
	far   bool // the second scope decides, unless the caller says that it has failed
}

func (p *partly) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	return true, p.TakeBut(ctx, nil, checks, decisions)
}

func (p *partly) TakeBut(ctx context.Context, failed *window.PartError, checks []window.Check, decisions []window.Decision) error {
	part := new(window.PartError)
	for i, c := range checks {
		if failed != nil && failed.Failed[c.Scope] != nil {
			part.Failed[c.Scope] = failed.Failed[c.Scope]
			continue
		}
		if c.Scope > 0 && !p.far {
			part.Failed[c.Scope] = errors.New("away")
			continue
		}
		if _, err := p.ahead.Take(ctx, window.MayWait, []window.Check{c}, decisions[i:i+1]); err != nil {
			return err
		}
	}
	if len(part.Unwrap()) == 0 {
		return nil
	}
	part.Undo = func(context.Context) {
		p.backs++
		for i := range decisions {
			decisions[i].Remaining = returned
		}
	}
	return part
}

// TestLeaseBesideAFailedScope: hits of a lease stay spent while the caller may still allow the
// request, and are put back if it does not.
func TestLeaseBesideAFailedScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partly{ahead: newAhead()}
		p, err := local.New(s, local.Options{Reserver: s.ahead})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		k, far := hot("k", 100, 1), of(1, ask("far", 8, 1))
		warm(t, p, k)
		group := func() *window.PartError {
			d := make([]window.Decision, 2)
			_, err := p.Take(t.Context(), window.MayWait, []window.Check{k, far}, d)
			var part *window.PartError
			if !errors.As(err, &part) || part.Failed[0] != nil || part.Failed[1] == nil || !d[0].Allowed {
				t.Fatalf("got %+v, error %v, want one of the scope 1 alone", d, err)
			}
			return part
		}
		left := func() uint64 {
			d := make([]window.Decision, 1)
			if decided, err := p.Take(t.Context(), window.NoWait, one(k), d); err != nil || !decided {
				t.Fatalf("without waiting: %t, %v, want an answer of the lease", decided, err)
			}
			return d[0].Remaining
		}
		first := left()
		group().GiveBack(t.Context())
		if got := left(); s.backs != 1 || got != first-1 {
			t.Errorf("after a request that was taken back, %d remain, want %d", got, first-1)
		}
		_ = group() // stays
		if got := left(); got != first-3 {
			t.Errorf("after a request that stays, %d remain, want %d", got, first-3)
		}
	})
}

// TestGiveBackReachesTheCaller: what remains after charges were taken back is told for the checks that
// the store has decided, and not for those that a lease has.
func TestGiveBackReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partly{ahead: newAhead()}
		p, err := local.New(s, local.Options{Reserver: s.ahead})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		k, near, far := hot("k", 100, 1), ask("near", 8, 1), of(1, ask("far", 8, 1))
		warm(t, p, k)
		d := make([]window.Decision, 3)
		_, err = p.Take(t.Context(), window.MayWait, []window.Check{k, near, far}, d)
		if left := d[0].Remaining; d[1].Remaining != 7 || left == returned {
			t.Fatalf("got %+v, error %v", d, err)
		}
		window.GiveBack(t.Context(), err)
		if d[0].Remaining == returned || d[1].Remaining != returned {
			t.Errorf("after the charges were taken back: %+v, want %d of the log near", d, returned)
		}
	})
}

// refusing is a reserver that fails.
type refusing struct {
	*ahead
	err error // nil: it does not
}

func (r *refusing) Reserve(ctx context.Context, c window.Check, length time.Duration) (window.Decision, window.Reservation, error) {
	if r.err != nil {
		return window.Decision{}, window.Reservation{}, r.err
	}
	return r.ahead.Reserve(ctx, c, length)
}

// TestLeaseThatFailsInAScope: if a scope does not reserve, it has failed for the request, and the
// other scope decides.
func TestLeaseThatFailsInAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partly{ahead: newAhead(), far: true}
		r := &refusing{ahead: s.ahead}
		p, err := local.New(s, local.Options{Reserver: r})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		near, far := ask("near", 8, 1), of(1, hot("far", 100, 1))
		for range 3 {
			take(t, p, far)
		}
		r.err = errors.New("no reservations")
		d := make([]window.Decision, 2)
		_, err = p.Take(t.Context(), window.MayWait, []window.Check{near, far}, d)
		if window.FailedIn(err, 0) != nil || !errors.Is(window.FailedIn(err, 1), r.err) || !d[0].Allowed || d[0].Remaining != 7 {
			t.Errorf("got %+v, error %v, want one of the scope 1 alone", d, err)
		}
	})
}
