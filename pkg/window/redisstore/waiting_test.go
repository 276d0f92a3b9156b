package redisstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// TestMaxWaiting fills the queue of a server: requests of low priority are refused first, and
// no refused request is charged.
func TestMaxWaiting(t *testing.T) {
	const most = 8
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{MaxWaiting: most, Timeout: patient})
	defer s.Close()
	take(t, s, check("warm", 1, 1)) // the script and the clock are known
	g.close()
	var (
		all     sync.WaitGroup
		waiting int
	)
	of := func(p window.Priority, key string) window.Check {
		c := check(key, 100, 1)
		c.Priority = p
		return c
	}
	queued := func() int { return s.Stats().Nodes[0].Queued }
	// joins starts a request that must wait.
	joins := func(checks ...window.Check) {
		t.Helper()
		all.Go(func() {
			d := make([]window.Decision, len(checks))
			if _, err := s.Take(t.Context(), window.MayWait, checks, d); err != nil || !d[0].Allowed {
				t.Errorf("Take(%+v) = %+v, %v", checks, d, err)
			}
		})
		waiting++
		eventually(t, "the request to wait", func() bool { return queued() == waiting })
	}
	// refused makes a request that must be refused at once.
	refused := func(checks ...window.Check) {
		t.Helper()
		_, err := s.Take(t.Context(), window.MayWait, checks, make([]window.Decision, len(checks)))
		if redisstore.ClassOf(err) != redisstore.ClassOverload {
			t.Errorf("with %d in the queue: got %v, want the class %s", queued(), err, redisstore.ClassOverload)
		}
		if d, known := redisstore.DoubtOf(err); !known || d.Since != redisstore.Never {
			t.Errorf("DoubtOf(%v) = %+v, %t; want a call that was certainly not charged", err, d, known)
		}
	}

	for i := range 2 { // both calls of the script are under way
		all.Go(func() { take(t, s, of(window.PriorityLow, fmt.Sprint("first ", i))) })
	}
	eventually(t, "two calls to be under way", func() bool { return s.Stats().Nodes[0].InFlight == 2 && queued() == 0 })
	low, normal, high := of(window.PriorityLow, "k"), of(window.PriorityNormal, "k"), of(window.PriorityHigh, "k")
	for range most / 2 {
		joins(low)
	}
	refused(low)
	joins(normal)
	joins(normal, of(window.PriorityLow, "other"))
	refused(normal)
	refused(of(window.PriorityLow, "other"), normal)
	joins(high)
	joins(of(window.PriorityLow, "other"), high)
	refused(high)
	refused(low)

	stats := s.Stats()
	if want := map[window.Priority]uint64{window.PriorityLow: 2, window.PriorityNormal: 2, window.PriorityHigh: 1}; !cmp.Equal(want, stats.Refused) {
		t.Errorf("refused: got %v, want %v", stats.Refused, want)
	}
	if got := stats.Failures[redisstore.ClassOverload]; got != 5 {
		t.Errorf("failures of the class overload: got %d, want 5", got)
	}
	if stats.Nodes[0].Open {
		t.Error("the breaker is open")
	}
	close(*g.open.Load())
	all.Wait()
	if d := take(t, s, of(window.PriorityLow, "k")); d[0].Remaining != 100-most-1 {
		t.Errorf("got %d remaining, want %d: refused requests are not charged", d[0].Remaining, 100-most-1)
	}
}
