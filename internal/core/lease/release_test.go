package lease_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// flying returns a check of a stream for a place under a limit of so many in flight.
func flying(stream window.StreamID, most uint64) window.Check {
	return window.Check{Key: "k", Cost: 1, Stream: stream, Limit: window.Limit{Hits: most, Window: time.Minute, Policy: window.InFlight}}
}

// An away store can be made to fail.
type away struct {
	*memstore.Store
	gone atomic.Bool
	err  error          // nil: errAway
	ends sync.WaitGroup // counts down with each end that arrives
}

var errAway = errors.New("the store is away")

func (s *away) End(ctx context.Context, end window.Ending) (window.Settled, error) {
	if s.gone.Load() {
		return window.Settled{}, cmp.Or(s.err, errAway)
	}
	if end.Stream != 0 {
		defer s.ends.Done()
	}
	return s.Store.End(ctx, end)
}

func admit(t *testing.T, s window.Store, c window.Check) window.Decision {
	t.Helper()
	var d [1]window.Decision
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil {
		t.Fatalf("Take: %v", err)
	}
	return d[0]
}

// TestEndsAreDelivered ends streams while the shared store is away. It hears of them when it is
// back, and nothing is left.
func TestEndsAreDelivered(t *testing.T) {
	shared := &away{Store: memstore.New(memstore.Options{})}
	s, err := lease.New(shared, lease.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const most = 5
	for i := range window.StreamID(most) {
		if !admit(t, s, flying(i+1, most)).Allowed {
			t.Fatalf("stream %d was denied", i+1)
		}
	}
	if admit(t, s, flying(100, most)).Allowed {
		t.Fatal("one too many was allowed")
	}
	shared.gone.Store(true)
	for i := range window.StreamID(most) {
		if _, err := s.End(t.Context(), window.Ending{Stream: i + 1, Deny: time.Second}); !errors.Is(err, errAway) {
			t.Fatalf("End: got error %v, want %v", err, errAway)
		}
	}
	shared.ends.Add(most)
	shared.gone.Store(false)
	shared.ends.Wait()
	if d := admit(t, s, flying(200, most)); !d.Allowed || d.Remaining != most-1 {
		t.Fatalf("after the ends: got %+v, want %d remaining", d, most-1)
	}
	if settled, err := s.End(t.Context(), window.Ending{Deny: time.Second}); settled.Released || !errors.Is(err, window.ErrBadCheck) {
		t.Fatalf("an end of no stream: %+v, error %v", settled, err)
	}
	shared.gone.Store(true)
	if _, err := s.End(t.Context(), window.Ending{Stream: 1, Deny: time.Second}); !errors.Is(err, errAway) { // Close does not wait for it
		t.Fatalf("End: got error %v, want %v", err, errAway)
	}
}

// TestReservationsAreNotRemembered asks again at once when a reservation is settled. What is spent is
// remembered.
func TestReservationsAreNotRemembered(t *testing.T) {
	shared := memstore.New(memstore.Options{})
	s, err := lease.New(shared, lease.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	budget := &window.Budget{Hold: time.Minute}
	reserve := func(stream window.StreamID, cost uint64) window.Decision {
		return admit(t, s, window.Check{Key: "{a}", Limit: window.Limit{Hits: 10, Window: time.Hour}, Cost: cost, Stream: stream, Budget: budget})
	}
	end := func(stream window.StreamID, cost uint64) {
		t.Helper()
		paid := window.Check{Key: "{a}", Limit: window.Limit{Hits: 10, Window: time.Hour}, Cost: cost, Mode: window.Always}
		if _, err := shared.End(t.Context(), window.Ending{Stream: stream, Costs: []window.Check{paid}}); err != nil { // another process hears of it
			t.Fatal(err)
		}
	}
	reserve(1, 10)
	for i := range 3 {
		if reserve(2, 1).Allowed || reserve(3, 9).Allowed {
			t.Fatalf("round %d: allowed beside a reserved limit", i)
		}
	}
	end(1, 4)
	if d := reserve(3, 6); !d.Allowed {
		t.Fatalf("after the settlement: %+v", d)
	}
}

type uncharged struct{ error }

func (uncharged) Uncharged() bool { return true }

// TestDebtsAreDelivered: after an outage, the cost of a stream without a reservation is charged, unless an attempt
// may have charged it so long ago that the store would not know.
func TestDebtsAreDelivered(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		away time.Duration
		left uint64
	}{
		"not sent":         {uncharged{errAway}, time.Minute, 6},
		"ambiguous":        {errAway, time.Minute, 10},
		"ambiguous, brief": {errAway, time.Second, 6},
		"beyond the limit": {uncharged{errAway}, 11 * time.Minute, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := &away{Store: memstore.New(memstore.Options{SweepInterval: -1}), err: tt.err}
				s, err := lease.New(shared, lease.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				log := window.Check{Key: "{a}", Limit: window.Limit{Hits: 10, Window: time.Hour}, Mode: window.Always, Cost: 4}
				shared.gone.Store(true)
				if _, err := s.End(t.Context(), window.Ending{Stream: 1, Deny: time.Second, Costs: []window.Check{log}}); !errors.Is(err, tt.err) {
					t.Fatal(err)
				}
				time.Sleep(tt.away)
				shared.ends.Add(1)
				shared.gone.Store(false)
				time.Sleep(5 * time.Second)
				log.Mode, log.Cost = window.Enforce, 0
				if d := admit(t, shared, log); d.Remaining != tt.left {
					t.Errorf("%d remain, want %d", d.Remaining, tt.left)
				}
			})
		})
	}
}

// TestInFlightIsNotRemembered asks again at once when a place is given back: a denial in flight
// says nothing about the next moment.
func TestInFlightIsNotRemembered(t *testing.T) {
	shared := memstore.New(memstore.Options{})
	s, err := lease.New(shared, lease.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	admit(t, s, flying(1, 1))
	three := flying(3, 1)
	three.Cost = 3
	for i := range 3 {
		if admit(t, s, flying(2, 1)).Allowed || admit(t, s, three).Allowed {
			t.Fatalf("round %d: allowed beside a full limit", i)
		}
	}
	if _, err := shared.End(t.Context(), window.Ending{Stream: 1}); err != nil { // another process hears of it
		t.Fatal(err)
	}
	if d := admit(t, s, flying(2, 1)); !d.Allowed {
		t.Fatalf("after the end: %+v", d)
	}
}
