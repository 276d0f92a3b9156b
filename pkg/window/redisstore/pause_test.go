package redisstore_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/test/servers"
)

// A pausing is a Take in a coroutine.
type pausing struct {
	next      func() (window.Flusher, bool)
	decision  window.Decision // the first
	decisions []window.Decision
	decided   bool
	err       error
}

// pauser is the Pauser of a coroutine.
type pauser func(window.Flusher) bool

func (p pauser) Pause(f window.Flusher) error {
	if !p(f) {
		return errors.New("given up")
	}
	return nil
}

// takePausing begins a Take of checks without wait. The test's end gives it up if it pauses still.
func takePausing(ctx context.Context, t *testing.T, s *redisstore.Store, checks ...window.Check) *pausing {
	t.Helper()
	one := new(pausing)
	var stop func()
	one.next, stop = iter.Pull(func(yield func(window.Flusher) bool) {
		ctx := context.WithValue(ctx, window.PauserKey{}, window.Pauser(pauser(yield)))
		one.decisions = make([]window.Decision, len(checks))
		one.decided, one.err = s.Take(ctx, window.NoWait, checks, one.decisions)
		one.decision = one.decisions[0]
	})
	t.Cleanup(stop)
	return one
}

// TestPausedTakes has requests of one goroutine pause, and share as few calls as they need.
func TestPausedTakes(t *testing.T) {
	const n = redisstore.MaxRequests + 10
	s := redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient})
	defer s.Close()
	take(t, s, check("k", 1000, 1)) // the script and the clock are known
	before := s.Stats()
	var all []*pausing
	var until window.Flusher
	for range n {
		one := takePausing(t.Context(), t, s, check("k", 1000, 1))
		f, paused := one.next()
		if !paused || until != nil && f != until {
			t.Fatalf("it has not paused, or for something else: %+v", one)
		}
		until, all = f, append(all, one)
	}
	if got := s.Stats(); got.Sent != before.Sent || got.Nodes[0].Queued != n {
		t.Fatalf("%d of %d requests are queued, and %d were sent before the flush", got.Nodes[0].Queued, n, got.Sent-before.Sent)
	}
	until.Flush()
	for i, one := range all {
		if _, paused := one.next(); paused || one.err != nil || !one.decided || !one.decision.Allowed || one.decision.Remaining != uint64(998-i) {
			t.Fatalf("request %d: %+v", i, one)
		}
	}
	if got := s.Stats(); got.Sent-before.Sent != n || got.Batches-before.Batches != 2 {
		t.Errorf("%d requests were sent in %d calls, want %d in 2", got.Sent-before.Sent, got.Batches-before.Batches, n)
	}
}

// TestPausePriorities has requests of two priorities pause for different Flushers, because a message of
// the lower one may stay in the queue. One call takes both all the same.
func TestPausePriorities(t *testing.T) {
	s := redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient})
	defer s.Close()
	take(t, s, check("k", 10, 1))
	before := s.Stats()
	low, normal := check("k", 10, 1), check("k", 10, 1)
	low.Priority = window.PriorityLow
	a, b, c := takePausing(t.Context(), t, s, normal), takePausing(t.Context(), t, s, low), takePausing(t.Context(), t, s, normal)
	of, _ := a.next()
	lower, _ := b.next()
	if same, _ := c.next(); same != of || lower == of {
		t.Error("requests wait with those of another priority, or not with those of their own")
	}
	of.Flush()
	lower.Flush()
	for _, one := range []*pausing{a, b, c} {
		if paused(one) || one.err != nil || !one.decision.Allowed {
			t.Errorf("%+v", one)
		}
	}
	if got := s.Stats(); got.Batches-before.Batches != 1 {
		t.Errorf("%d calls, want 1", got.Batches-before.Batches)
	}
}

// TestPauseGivenUp gives a paused request up. It charges nothing, and takes no later request along.
func TestPauseGivenUp(t *testing.T) {
	s := redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient})
	defer s.Close()
	take(t, s, check("k", 10, 1))
	t.Run("while it pauses", func(t *testing.T) {
		if _, paused := takePausing(t.Context(), t, s, check("k", 10, 5)).next(); !paused {
			t.Fatal("it has not paused")
		}
	})
	if got := take(t, s, check("k", 10, 0))[0].Remaining; got != 9 {
		t.Errorf("%d remain, want 9", got)
	}
	eventually(t, "the queue to be empty", func() bool { return s.Stats().Nodes[0].Queued == 0 })
}

// TestPauseWithLittleTime has requests pause that must be answered before the store's timeout. They
// share a call, and each leaves it when its own time is over.
func TestPauseWithLittleTime(t *testing.T) {
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{Timeout: 2 * patient})
	defer s.Close()
	take(t, s, check("k", 100, 1))
	before := s.Stats()
	flushed := func(times ...time.Duration) (all []*pausing) {
		var until window.Flusher
		for i, left := range times {
			soon, cancel := context.WithTimeout(t.Context(), left)
			t.Cleanup(cancel)
			one := takePausing(soon, t, s, check("k", 100, 1))
			f, ok := one.next()
			if !ok || i > 0 && f != until {
				t.Fatalf("it has not paused, or for something else: %+v", one)
			}
			until, all = f, append(all, one)
		}
		until.Flush()
		return all
	}
	for _, one := range flushed(patient, 2*patient, patient) {
		if paused(one) || !one.decided || one.err != nil || !one.decision.Allowed {
			t.Errorf("%+v", one)
		}
	}
	if got := s.Stats(); got.Batches-before.Batches != 1 {
		t.Errorf("%d calls, want 1", got.Batches-before.Batches)
	}

	g.close() // the server hangs
	for _, one := range flushed(30*time.Millisecond, 60*time.Millisecond) {
		if paused(one) || failure.Of(one.err) != failure.Timeout {
			t.Errorf("%+v", one)
		}
		if n := s.Stats().Nodes[0].InFlight; n != 1 {
			t.Errorf("%d calls are in flight after the end of a request's time, want 1", n)
		}
	}
	close(*g.open.Load())
}

// TestPauseThatCannot has requests that do not pause: they must wait, or are decided at once.
func TestPauseThatCannot(t *testing.T) {
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{Timeout: time.Second, Failures: 1, ProbeInterval: time.Hour})
	defer s.Close()
	take(t, s, check("k", 10, 1))

	if one := takePausing(t.Context(), t, s, window.Check{}); paused(one) || !errors.Is(one.err, window.ErrBadCheck) {
		t.Errorf("a bad check: %+v", one)
	}

	g.close() // the server hangs
	one := takePausing(t.Context(), t, s, check("k", 10, 1))
	f, _ := one.next()
	f.Flush()
	if paused(one) || failure.Of(one.err) != failure.Timeout {
		t.Errorf("after the timeout: %+v", one)
	}
	if one := takePausing(t.Context(), t, s, check("k", 10, 1)); paused(one) || failure.Of(one.err) != failure.Open {
		t.Errorf("a server that is not asked: %+v", one)
	}
	close(*g.open.Load())
}

func paused(one *pausing) bool {
	_, paused := one.next()
	return paused
}

// trips counts the calls of scripts to the nodes of a cluster. What the client sends on new connections is no request's.
type trips struct{ count atomic.Int64 }

func (h *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			h.count.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// taggedOnSlotsOf returns keys whose logs are on slots of each master.
func taggedOnSlotsOf(c *servers.Cluster) []string {
	keys := onSlotsOf(c)
	for i := range keys {
		keys[i] = "{" + keys[i] + "}"
	}
	return keys
}

// TestPauseOnCluster has requests of one slot and of several pause, and share one round trip to each
// server. What a denied request has charged is taken back.
func TestPauseOnCluster(t *testing.T) {
	c := startCluster(t)
	client := newClusterClient(t, c)
	var h trips
	client.OnNewNode(func(node *redis.Client) { node.AddHook(&h) })
	s := redisstore.New(client, redisstore.Options{Timeout: patient})
	t.Cleanup(func() { _ = s.Close() })
	if one := takePausing(t.Context(), t, s, check("k", 10, 1)); paused(one) || one.decided || one.err != nil {
		t.Errorf("before the topology is known: %+v", one)
	}
	keys := taggedOnSlotsOf(c)
	for _, key := range keys { // connections, scripts, clocks
		take(t, s, check(key, 100, 0))
	}
	held := window.Check{Key: "k", Cost: 1, Stream: 7, Limit: window.Limit{Hits: 10, Window: time.Minute, Policy: window.InFlight}}
	if one := takePausing(t.Context(), t, s, held); paused(one) || one.decided || one.err != nil {
		t.Errorf("a request in flight: %+v", one)
	}

	var all []*pausing
	var until window.Flusher
	begin := func(checks ...window.Check) {
		t.Helper()
		one := takePausing(t.Context(), t, s, checks...)
		f, paused := one.next()
		if !paused || until != nil && f != until {
			t.Fatalf("it has not paused, or for something else: %+v", one)
		}
		until, all = f, append(all, one)
	}
	before, sent := h.count.Load(), s.Stats().Sent
	for range 5 {
		begin(check(keys[0], 100, 1), check(keys[1], 100, 1), check(keys[2], 100, 1))
		begin(check(keys[1], 100, 1))
		begin(check(keys[0], 100, 1), check(keys[2], 100, 101)) // denied
	}
	if got := s.Stats().Sent; got != sent {
		t.Fatalf("%d messages were sent before the flush", got-sent)
	}
	until.Flush()
	var settling []*pausing
	for i, one := range all {
		f, paused := one.next()
		if denied := i%3 == 2; paused != denied {
			t.Fatalf("request %d: %+v", i, one)
		} else if paused {
			f.Flush()
			settling = append(settling, one)
		}
	}
	if got := h.count.Load() - before; got < 3 || got > 3+int64(len(settling)) {
		t.Errorf("%d calls, want 3, and at most one to take back each of %d charges", got, len(settling))
	}
	for _, one := range settling {
		if paused(one) {
			t.Error("it pauses again")
		}
	}
	for i, one := range all {
		if allowed := i%3 != 2; one.err != nil || !one.decided || one.decisions[len(one.decisions)-1].Allowed != allowed {
			t.Errorf("request %d: %+v", i, one)
		}
	}
	for i, want := range []uint64{95, 90, 95} {
		if d := take(t, s, check(keys[i], 100, 0))[0]; d.Remaining != want {
			t.Errorf("%s has %d left, want %d", keys[i], d.Remaining, want)
		}
	}
}

// TestPauseOnClusterInTime has a server freeze before the second round of a request. The second flush must not
// wait for it: that could take the store's timeout once more.
func TestPauseOnClusterInTime(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: time.Second})
	t.Cleanup(func() { _ = s.Close() })
	keys := taggedOnSlotsOf(c)
	for _, key := range keys {
		take(t, s, check(key, 100, 0))
	}
	one := takePausing(t.Context(), t, s, mode(check(keys[0], 100, 1), window.Always), check(keys[1], 100, 1))
	f, paused := one.next()
	if !paused {
		t.Fatalf("it has not paused: %+v", one)
	}
	begun := time.Now()
	f.Flush()
	frozen := c.MasterOf(keys[1])
	frozen.Pause()
	eventually(t, "a part of the request's time to be over", func() bool { return time.Since(begun) > time.Second/50 })
	defer frozen.Resume()
	if f, paused = one.next(); !paused {
		t.Fatalf("it has not paused again: %+v", one)
	}
	f.Flush()
	eventually(t, "a call in flight, for which the flush has not waited", func() bool {
		return slices.ContainsFunc(s.Stats().Nodes, func(n redisstore.NodeStats) bool { return n.InFlight > 0 })
	})
	if _, paused := one.next(); paused || failure.Of(one.err) != failure.Timeout {
		t.Errorf("paused once more %v, or another error: %+v", paused, one)
	}
}
