package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
)

// of puts a check into a scope.
func of(scope window.Scope, c window.Check) window.Check {
	c.Scope = scope
	return c
}

// returned is what remains in the logs of partly after charges were taken back.
const returned = 77

// partly is a store of two scopes, of which the second fails.
type partly struct {
	*ahead
	backs int
	far   bool // the second scope decides
}

func (p *partly) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	part := new(window.PartError)
	for i, c := range checks {
		if c.Scope > 0 && !p.far {
			part.Failed[c.Scope] = errors.New("away")
			continue
		}
		if _, err := p.ahead.Take(ctx, window.MayWait, []window.Check{c}, decisions[i:i+1]); err != nil {
			return true, err
		}
	}
	if len(part.Unwrap()) == 0 {
		return true, nil
	}
	part.Undo = func(context.Context) {
		p.backs++
		for i := range decisions {
			decisions[i].Remaining = returned
		}
	}
	return true, part
}

// newPartly returns a store and the leases on it.
func newPartly(t *testing.T) (*partly, *lease.Store) {
	t.Helper()
	s := &partly{ahead: newAhead()}
	p, err := lease.New(s, lease.Options{Reserver: s.ahead})
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// TestLeaseBesideAFailedScope: hits of a lease stay spent while the caller may still allow the
// request, and are put back if it does not.
func TestLeaseBesideAFailedScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newPartly(t)
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
		_, p := newPartly(t)
		defer p.Close()
		k, near, far := hot("k", 100, 1), ask("near", 8, 1), of(1, ask("far", 8, 1))
		warm(t, p, k)
		d := make([]window.Decision, 3)
		_, err := p.Take(t.Context(), window.MayWait, []window.Check{k, near, far}, d)
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

// TestLeaseThatFailsInAScope: if a scope does not reserve, that request fails as a whole. The next
// one makes no reservation, so the other scope decides.
func TestLeaseThatFailsInAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partly{ahead: newAhead(), far: true}
		r := &refusing{ahead: s.ahead}
		p, err := lease.New(s, lease.Options{Reserver: r})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		near, far := ask("near", 8, 1), of(1, hot("far", 100, 1))
		for range 3 {
			take(t, p, far)
		}
		r.err, s.far = errors.New("no reservations"), false
		d := make([]window.Decision, 2)
		if _, err = p.Take(t.Context(), window.MayWait, []window.Check{near, far}, d); !errors.Is(err, r.err) {
			t.Errorf("the first request: error %v, want that of the reservation", err)
		}
		for i := range 3 {
			_, err = p.Take(t.Context(), window.MayWait, []window.Check{near, far}, d)
			if window.FailedIn(err, 0) != nil || window.FailedIn(err, 1) == nil || errors.Is(err, r.err) || d[0].Remaining != uint64(7-i) {
				t.Errorf("request %d after it: got %+v, error %v, want one of the scope 1 alone", i, d, err)
			}
		}
	})
}
