package lease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
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
	ends sync.WaitGroup // counts down with each end that arrives
}

var errAway = errors.New("the store is away")

func (s *away) End(ctx context.Context, end window.Ending) (window.Settled, error) {
	if s.gone.Load() {
		return window.Settled{}, errAway
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
