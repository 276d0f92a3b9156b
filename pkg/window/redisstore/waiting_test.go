package redisstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/test/servers"
)

// TestMaxWaiting fills the queue of a server. Of one request too many, the newest of the lowest
// priority is refused at once and charges nothing. Those of the highest priority are decided first.
func TestMaxWaiting(t *testing.T) {
	const most, limit = 4, 100
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{MaxWaiting: most, Timeout: patient})
	defer s.Close()
	take(t, s, check("warm", 1, 1)) // the script and the clock are known
	g.close()

	type answer struct {
		remaining uint64
		err       error
	}
	var all sync.WaitGroup
	ask := func(checks ...window.Check) chan answer {
		answered := make(chan answer, 1)
		all.Go(func() {
			d := make([]window.Decision, len(checks))
			_, err := s.Take(t.Context(), window.MayWait, checks, d)
			answered <- answer{d[0].Remaining, err}
		})
		return answered
	}
	of := func(p window.Priority, key string) window.Check {
		c := check(key, limit, 1)
		c.Priority = p
		return c
	}
	low, normal, high := of(window.PriorityLow, "k"), of(window.PriorityNormal, "k"), of(window.PriorityHigh, "k")
	queued := func() int { return s.Stats().Nodes[0].Queued }
	refused := func(from chan answer) {
		t.Helper()
		err := (<-from).err
		if failure.Of(err) != failure.Overload {
			t.Errorf("got %v, want the class %s", err, failure.Overload)
		}
		if n := queued(); n != most {
			t.Errorf("%d requests wait, want %d", n, most)
		}
	}

	for i := range 2 {
		ask(of(window.PriorityLow, fmt.Sprint("first ", i)))
		eventually(t, "a call of the script to be under way", func() bool { return s.Stats().Nodes[0].InFlight == i+1 && queued() == 0 })
	}
	var lows []chan answer
	for range most {
		lows = append(lows, ask(low))
		eventually(t, "the request to wait", func() bool { return queued() == len(lows) })
	}
	refused(ask(low))
	var normals, highs []chan answer
	for i := range most {
		if i < most/2 {
			normals = append(normals, ask(normal))
		} else {
			// The highest priority of the checks counts, wherever it stands.
			all := []window.Check{of(window.PriorityLow, "k"), of(window.PriorityHigh, "other"), of(window.PriorityLow, "third")}
			highs = append(highs, ask(all...))
		}
		refused(lows[most-1-i]) // the newest first
	}
	refused(ask(low))
	refused(ask(normal))
	highs = append(highs, ask(high))
	refused(normals[1])

	stats := s.Stats()
	if want := map[window.Priority]uint64{window.PriorityLow: 6, window.PriorityNormal: 2, window.PriorityHigh: 0}; !cmp.Equal(want, stats.Refused) {
		t.Errorf("refused: got %v, want %v", stats.Refused, want)
	}
	if got := stats.Failures[failure.Overload]; got != 8 {
		t.Errorf("failures of the class %s: got %d, want 8", failure.Overload, got)
	}
	if stats.Nodes[0].Open {
		t.Error("the breaker is open")
	}

	close(*g.open.Load())
	all.Wait()
	for i, h := range highs {
		if a := <-h; a.err != nil || a.remaining < limit-3 {
			t.Errorf("request %d of the priority high: got %d remaining and the error %v, want %d or more", i, a.remaining, a.err, limit-3)
		}
	}
	if a := <-normals[0]; a.err != nil || a.remaining != limit-4 {
		t.Errorf("the request of the priority normal: got %d remaining and the error %v, want %d: refused requests are not charged", a.remaining, a.err, limit-4)
	}
}
