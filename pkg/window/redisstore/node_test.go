package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

// patient is a timeout that a slow machine does not reach.
const patient = 30 * time.Second

// A gate is a Client that holds calls until it is opened.
type gate struct {
	redisstore.Client
	open  atomic.Pointer[chan struct{}]
	calls atomic.Int64
}

func newGate(c redisstore.Client) *gate {
	g := &gate{Client: c}
	g.close()
	close(*g.open.Load())
	return g
}

func (g *gate) close() { c := make(chan struct{}); g.open.Store(&c) }

func (g *gate) Process(ctx context.Context, cmd redis.Cmder) error {
	g.calls.Add(1)
	select {
	case <-*g.open.Load():
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.Client.Process(ctx, cmd)
}

// TestSharedCalls proves that two calls are in flight at most, or as many as Options.Calls says,
// and that what comes meanwhile shares the next ones.
func TestSharedCalls(t *testing.T) {
	testSharedCalls(t, 0, 2)
	testSharedCalls(t, 8, 8)
}

func testSharedCalls(t *testing.T, option, calls int) {
	t.Helper()
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{Timeout: patient, Calls: option})
	defer s.Close()
	take(t, s, check("k", 1000, 1)) // the script and the clock are known
	g.calls.Store(0)
	g.close()
	before := s.Stats()

	callers := calls + redisstore.MaxRequests + 10
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { take(t, s, check("k", 1000, 1)) })
	}
	eventually(t, "all but these to wait", func() bool {
		n := s.Stats().Nodes[0]
		return n.InFlight == calls && n.Queued == callers-calls
	})
	if got := g.calls.Load(); got != int64(calls) {
		t.Errorf("%d calls in flight, want %d", got, calls)
	}
	close(*g.open.Load())
	all.Wait()
	if got := g.calls.Load(); got != int64(calls+2) {
		t.Errorf("%d calls for %d requests, want %d", got, callers, calls+2)
	}
	stats := s.Stats()
	if got := [2]uint64{stats.Sent - before.Sent, stats.Batches - before.Batches}; got != [2]uint64{uint64(callers), uint64(calls + 2)} {
		t.Errorf("counted %d requests in %d calls, want %d in %d", got[0], got[1], callers, calls+2)
	}
	if got, want := take(t, s, check("k", 1000, 0))[0].Remaining, uint64(1000-1-callers); got != want {
		t.Errorf("remaining: got %d, want %d", got, want)
	}
}

// TestBusyServer proves that a server whose last call took long has one call in flight if several
// instances ask it, which all requests that come meanwhile share. One instance has two.
func TestBusyServer(t *testing.T) {
	testBusyServer(t, 1, 2)
	testBusyServer(t, 2, 1)
}

func testBusyServer(t *testing.T, instances, inFlight int) {
	t.Helper()
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{Timeout: patient})
	defer s.Close()
	s.SetInstances(instances)
	began := time.Now()
	take(t, s, check("k", 1000, 1))
	usual := time.Since(began) // at least as long as the round trip
	var all sync.WaitGroup
	waiting := func(callers, calls int) {
		g.close()
		began = time.Now()
		for range callers {
			all.Go(func() { take(t, s, check("k", 1000, 1)) })
		}
		eventually(t, fmt.Sprintf("%d calls in flight", calls), func() bool {
			n := s.Stats().Nodes[0]
			return n.InFlight == calls && n.Queued == callers-calls
		})
	}
	waiting(1, 1)
	eventually(t, "that call to take long", func() bool { return time.Since(began) > 9*usual })
	close(*g.open.Load())
	all.Wait()
	g.calls.Store(0)
	waiting(5, inFlight)
	close(*g.open.Load())
	all.Wait()
	if got := g.calls.Load(); got != int64(inFlight+1) {
		t.Errorf("%d instances: %d calls for 5 requests, want %d", instances, got, inFlight+1)
	}
}

// A keyed client notes the largest number of keys that one call of the script had.
type keyed struct {
	redisstore.Client
	most atomic.Int64
}

func (k *keyed) Process(ctx context.Context, cmd redis.Cmder) error {
	if n, ok := cmd.Args()[2].(int); ok && int64(n) > k.most.Load() {
		k.most.Store(int64(n)) // the gate lets two through at a time, which is near enough
	}
	return k.Client.Process(ctx, cmd)
}

// TestSharedCallsAreBounded proves that requests share a call that searches logs 144 times at most, and
// that a request that needs more has a call for itself.
func TestSharedCallsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		checks               int
		cost                 uint64
		callers, calls, most int
	}{
		{checks: 50, cost: 1, callers: 6, calls: 3, most: 100},
		{checks: 15, cost: 2, callers: 9, calls: 3, most: 45},
		{checks: 200, cost: 1, callers: 3, calls: 3, most: 200},
	} {
		k := &keyed{Client: newClient(t, servers.Redis(t))}
		g := newGate(k)
		s := redisstore.New(g, redisstore.Options{Timeout: patient})
		defer s.Close()
		take(t, s, check("k", 1000, 1)) // the script and the clock are known
		g.calls.Store(0)
		g.close()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { take(t, s, check("k", 1000, 1)) })
		}
		eventually(t, "two in flight", func() bool { return s.Stats().Nodes[0].InFlight == 2 })
		for i := range tt.callers {
			all.Go(func() {
				checks := make([]window.Check, tt.checks)
				for j := range checks {
					checks[j] = check(fmt.Sprint(i, "/", j), 10, tt.cost) // small logs
				}
				take(t, s, checks...)
			})
		}
		eventually(t, "the others to wait", func() bool { return s.Stats().Nodes[0].Queued == tt.callers })
		close(*g.open.Load())
		all.Wait()
		if got := int(g.calls.Load()) - 2; got != tt.calls || int(k.most.Load()) != tt.most {
			t.Errorf("%d requests of %d checks: %d calls with up to %d checks, want %d with %d", tt.callers, tt.checks, got, k.most.Load(), tt.calls, tt.most)
		}
	}
}

// TestLeavesTheQueue proves that a request whose caller has gone before it was
// sent is not sent.
func TestLeavesTheQueue(t *testing.T) {
	g := newGate(newClient(t, servers.Redis(t)))
	s := redisstore.New(g, redisstore.Options{Timeout: patient})
	defer s.Close()
	take(t, s, check("k", 100, 1))
	g.close()

	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { take(t, s, check("k", 100, 1)) })
	}
	eventually(t, "two in flight", func() bool { return s.Stats().Nodes[0].InFlight == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	for range 5 {
		all.Go(func() {
			_, err := s.Take(ctx, window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
			if !errors.Is(err, context.Canceled) || failure.Of(err) != failure.Gone {
				t.Errorf("got error %v, want one of class %s", err, failure.Gone)
			}
		})
	}
	all.Go(func() { take(t, s, check("k", 100, 1)) }) // a neighbour that stays
	eventually(t, "six to wait", func() bool { return s.Stats().Nodes[0].Queued == 6 })
	cancel()
	eventually(t, "five to leave", func() bool { return s.Stats().Failures[failure.Gone] == 5 })
	close(*g.open.Load())
	all.Wait()
	if got, want := take(t, s, check("k", 100, 0))[0].Remaining, uint64(96); got != want {
		t.Errorf("remaining: got %d, want %d", got, want)
	}
}

// TestLateCallsAreNotCharged freezes Redis with requests in its sockets, and
// proves that it refuses them when it comes to them.
func TestLateCallsAreNotCharged(t *testing.T) {
	server := servers.StartRedis(t)
	s := redisstore.New(newClient(t, server.Addr()), redisstore.Options{Timeout: 50 * time.Millisecond, Failures: 1000})
	defer s.Close()
	settled := redisstore.New(newClient(t, server.Addr()), redisstore.Options{})
	defer settled.Close()
	var all sync.WaitGroup
	eventually(t, "the clock to be known", func() bool {
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("warm", 100, 1)}, make([]window.Decision, 1))
		return err == nil
	})
	calls := func() int {
		text, err := server.Do("INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(text, "cmdstat_evalsha:calls=")
		var n int
		_, _ = fmt.Sscan(strings.Split(after, ",")[0], &n)
		return n
	}
	before := calls()

	server.Pause()
	for range 20 {
		all.Go(func() {
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
			if !errors.Is(err, context.DeadlineExceeded) || failure.Of(err) != failure.Timeout {
				t.Errorf("got error %v, want one of class %s", err, failure.Timeout)
			}
		})
	}
	all.Wait()
	server.Resume()
	// One or two calls were in the sockets; they are run now, as any other.
	eventually(t, "Redis to come to them", func() bool { return calls() > before })
	if got := take(t, settled, check("k", 100, 0))[0].Remaining; got != 100 {
		t.Errorf("remaining: got %d, want 100: their callers had left", got)
	}
}

// TestClockThatJumps proves that calls are decided although the server's clock
// was set: one that it takes for late is asked once more by the clock as it is.
func TestClockThatJumps(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	counted := &counter{Client: client}
	s := redisstore.NewWithClock(t, counted, redisstore.Options{Timeout: patient}, "clock")
	defer s.Close()
	setClock(t, client, "clock", 0)
	take(t, s, check("k", 10, 1))
	for i, tt := range []struct {
		at       time.Duration
		commands int64
	}{
		{0, 1},
		{time.Hour, 2}, // late by the old clock, in time by the new
		{time.Hour, 1},
		{time.Minute, 1}, // never late by the old clock
		{2 * time.Hour, 2},
	} {
		setClock(t, client, "clock", tt.at)
		counted.n.Store(0)
		if d := take(t, s, check(fmt.Sprint("step", i), 10, 1))[0]; !d.Allowed || d.Remaining != 9 {
			t.Errorf("at %v: got %+v", tt.at, d)
		}
		if got := counted.n.Load(); got != tt.commands {
			t.Errorf("at %v: %d commands, want %d", tt.at, got, tt.commands)
		}
	}
}

// TestBreaker stops a server and starts it again.
func TestBreaker(t *testing.T) {
	server := servers.StartRedis(t)
	var mu sync.Mutex
	var changes []redisstore.Change
	s := redisstore.New(newClient(t, server.Addr()), redisstore.Options{
		Timeout: time.Second, Failures: 3, ProbeInterval: 20 * time.Millisecond,
		Changed: func(c redisstore.Change) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, c)
		},
	})
	defer s.Close()
	ask := func() error {
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	var classes []failure.Class
	for range 5 {
		classes = append(classes, failure.Of(ask()))
	}
	want := []failure.Class{failure.Connect, failure.Connect, failure.Open, failure.Open}
	// The first finds a connection that has ended, if the client has not seen it yet.
	if !slices.Equal(classes[1:], want) {
		t.Errorf("classes of failures: got %q, want %q after the first", classes, want)
	}
	stats := s.Stats()
	if n := stats.Nodes[0]; !n.Open || n.Class != failure.Connect || n.Address != server.Addr() {
		t.Errorf("the server is told to be %+v, want open for %s", n, failure.Connect)
	}
	if got := stats.Failures[failure.Open]; got != 2 {
		t.Errorf("counted %d requests that were not asked, want 2", got)
	}
	server.Start()
	eventually(t, "deciding again", func() bool { return !s.Stats().Nodes[0].Open })
	if err := ask(); err != nil {
		t.Errorf("after it is back: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(changes) != 2 || !changes[0].Open || changes[0].Class != failure.Connect || changes[0].Err == nil || changes[1].Open {
		t.Errorf("told of %+v, want one that opens and one that closes", changes)
	}
}

// TestProbeOfWhatIsNeeded proves that a server which answers but does not decide
// stays open: a user without rights, a replica.
func TestProbeOfWhatIsNeeded(t *testing.T) {
	master := servers.StartRedis(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := servers.StartRedis(t, "--replicaof", host, port)
	if _, err := master.Do("ACL", "SETUSER", "poor", "on", ">pw", "~*", "+@all", "-set", "-setrange"); err != nil {
		t.Fatal(err)
	}
	poor := redis.NewClient(&redis.Options{Addr: master.Addr(), Username: "poor", Password: "pw", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer poor.Close()
	for _, tt := range []struct {
		name   string
		client *redis.Client
		want   failure.Class
		repair func() error
	}{
		{"no right to write", poor, failure.Permission, func() error {
			_, err := master.Do("ACL", "SETUSER", "poor", "+set", "+setrange")
			return err
		}},
		{"a replica", newClient(t, replica.Addr()), failure.ReadOnly, func() error {
			_, err := replica.Do("REPLICAOF", "NO", "ONE")
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var closed atomic.Int64
			s := redisstore.New(tt.client, redisstore.Options{
				Timeout: patient, Failures: 2, ProbeInterval: time.Millisecond,
				Changed: func(c redisstore.Change) {
					if !c.Open {
						closed.Add(1)
					}
				},
			})
			defer s.Close()
			ask := func() error {
				_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
				return err
			}
			for range 2 {
				if err := ask(); failure.Of(err) != tt.want {
					t.Errorf("got error %v, want one of class %s", err, tt.want)
				}
			}
			eventually(t, "a few probes", func() bool { return s.Stats().Probes > 3 })
			if err := ask(); failure.Of(err) != failure.Open || closed.Load() != 0 {
				t.Errorf("after probes: got error %v, and closed %d times, want it open", err, closed.Load())
			}
			if err := tt.repair(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "deciding again", func() bool { return ask() == nil })
		})
	}
}

// TestOutOfMemory proves that of requests which share a call those that write
// nothing are decided although the server refuses to write, that it is asked on,
// and that nothing is charged.
func TestOutOfMemory(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	var changes []redisstore.Change
	s := redisstore.New(client, redisstore.Options{
		Timeout: patient, Failures: 1,
		Changed: func(c redisstore.Change) { changes = append(changes, c) }, // by one at a time, here
	})
	defer s.Close()
	take(t, s, check("full", 1, 1))
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	requests := []redisstore.Request{request(check("full", 1, 1)), request(check("new", 1, 1)), request(check("full", 1, 0))}
	for range 3 {
		err := s.TakeAll(t.Context(), requests)
		if failure.Of(err) != failure.Memory || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("got error %v, want one of class %s", err, failure.Memory)
		}
		for _, i := range []int{0, 2} {
			if d := requests[i].Decisions[0]; d.Allowed || d.RetryAfter <= 0 {
				t.Errorf("request %d, which writes nothing: got %+v, want a denial", i, d)
			}
		}
	}
	// Alone, it is a call of which nothing was decided.
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{check("new", 1, 1)}, make([]window.Decision, 1)); failure.Of(err) != failure.Memory {
		t.Errorf("alone: got error %v, want one of class %s", err, failure.Memory)
	}
	if n := s.Stats().Nodes[0]; n.Open || !n.Refuses || n.Class != failure.Memory {
		t.Errorf("the server is told to be %+v, want it to refuse writes and to be asked on: it answers denials", n)
	}
	if len(changes) != 1 || !changes[0].Refuses || changes[0].Class != failure.Memory {
		t.Errorf("told of %+v, want that it refuses writes", changes)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, check("new", 1, 1))[0]; !d.Allowed {
		t.Errorf("after it: got %+v, want it allowed: nothing was charged", d)
	}
	if n := s.Stats().Nodes[0]; n.Refuses || len(changes) != 2 || changes[1].Refuses {
		t.Errorf("after it: %+v, told of %+v", n, changes)
	}
}

// TestOutOfMemoryEndsWithoutRequests proves that a server that writes again no longer counts as one
// that refuses, although no request shows it.
func TestOutOfMemoryEndsWithoutRequests(t *testing.T) {
	t.Parallel()
	client := newClient(t, servers.StartRedis(t).Addr())
	var changes atomic.Int64
	s := redisstore.New(client, redisstore.Options{Timeout: patient, Changed: func(redisstore.Change) { changes.Add(1) }})
	defer s.Close()
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{check("new", 1, 1)}, make([]window.Decision, 1)); failure.Of(err) != failure.Memory {
		t.Errorf("got error %v, want one of class %s", err, failure.Memory)
	}
	if !s.Stats().Nodes[0].Refuses {
		t.Error("the server does not count as one that refuses to write")
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writing again", func() bool { return !s.Stats().Nodes[0].Refuses })
	if n := changes.Load(); n != 2 {
		t.Errorf("%d changes reported, want 2", n)
	}
}

// TestRefusals makes a real server refuse in different ways.
func TestRefusals(t *testing.T) {
	locked := servers.StartRedis(t)
	if _, err := locked.Do("CONFIG", "SET", "requirepass", "pw"); err != nil {
		t.Fatal(err)
	}
	cautious := servers.StartRedis(t, "--min-replicas-to-write", "1")
	slow := servers.StartRedis(t, "--lua-time-limit", "1") // busy-reply-threshold is Redis 7
	loop := newClient(t, slow.Addr())
	go func() { _ = loop.Eval(context.Background(), "while true do end", nil).Err() }()
	for _, tt := range []struct {
		name, addr string
		want       failure.Class
	}{
		{"no password", locked.Addr(), failure.Auth},
		{"no replica", cautious.Addr(), failure.Replicas},
		{"another's script", slow.Addr(), failure.Busy},
		{"nothing listens", "127.0.0.1:1", failure.Connect},
		{"no such host", "nowhere.invalid:6379", failure.Connect},
	} {
		s := redisstore.New(newClient(t, tt.addr), redisstore.Options{Timeout: patient, Failures: 1000})
		eventually(t, tt.name, func() bool { // until the script of the other runs, and is known to be slow
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
			return err != nil && failure.Of(err) == tt.want
		})
		s.Close()
	}
	if _, err := slow.Do("SCRIPT", "KILL"); err != nil {
		t.Error(err)
	}
}

// TestTooManyClients: a server that has as many clients as it takes decides again when one has left.
// It closes a connection before it is asked anything, so the client may not read the reason.
func TestTooManyClients(t *testing.T) {
	full := servers.StartRedis(t, "--maxclients", "1")
	first := newClient(t, full.Addr())
	// The connection of the helper that started the server may count for a moment.
	eventually(t, "room for the first client", func() bool { return first.Ping(t.Context()).Err() == nil })
	s := redisstore.New(newClient(t, full.Addr()), redisstore.Options{Timeout: patient, Failures: 1, ProbeInterval: time.Millisecond})
	defer s.Close()
	ask := func() error {
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
		return err
	}
	if err := ask(); err == nil {
		t.Fatal("got no error")
	}
	if class := s.Stats().Nodes[0].Class; class != failure.Clients && class != failure.Closed {
		t.Errorf("the reason is %q", class)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deciding", func() bool { return ask() == nil })
}

// TestLeavesTimeToAnswer proves that who has a deadline gets an error before it,
// with some time left to decide otherwise.
func TestLeavesTimeToAnswer(t *testing.T) {
	server := servers.StartRedis(t)
	s := redisstore.New(newClient(t, server.Addr()), redisstore.Options{Timeout: patient})
	defer s.Close()
	take(t, s, check("k", 100, 1))
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := s.Take(ctx, window.MayWait, []window.Check{check("k", 100, 1)}, make([]window.Decision, 1))
	deadline, _ := ctx.Deadline()
	if left := time.Until(deadline); failure.Of(err) != failure.Timeout || left < 50*time.Millisecond {
		t.Errorf("got error %v, and %v left; want one of class %s, and some 400ms", err, left, failure.Timeout)
	}
}

// TestFarServer proves that the breaker closes again for a server whose answer
// takes nearly as long as a caller waits, although making a connection takes longer.
func TestFarServer(t *testing.T) {
	p := servers.StartProxy(t, servers.Redis(t))
	// One round trip more than the decision for a new connection.
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: 2})
	t.Cleanup(func() { _ = client.Close() })
	s := redisstore.New(client, redisstore.Options{Timeout: 200 * time.Millisecond, Failures: 1, ProbeInterval: 10 * time.Millisecond})
	defer s.Close()
	ask := func() error {
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("k", 100, 0)}, make([]window.Decision, 1))
		return err
	}
	eventually(t, "the first decision", func() bool { return ask() == nil })
	p.Latency(80 * time.Millisecond)
	p.Blackhole(true)
	eventually(t, "the breaker to open", func() bool { return ask() != nil && s.Stats().Nodes[0].Open })
	p.CloseAll()
	p.Blackhole(false)
	eventually(t, "the breaker to close", func() bool { return !s.Stats().Nodes[0].Open })
}

func request(checks ...window.Check) redisstore.Request {
	return redisstore.Request{Checks: checks, Decisions: make([]window.Decision, len(checks))}
}

// TestTakeAllMost proves that one call decides as many requests as it may hold.
func TestTakeAllMost(t *testing.T) {
	counted := &counter{Client: newClient(t, servers.Redis(t))}
	s := redisstore.New(counted, redisstore.Options{})
	take(t, s, check("warm", 1, 1))
	counted.n.Store(0)
	var requests []redisstore.Request
	for i := range redisstore.MaxRequests {
		requests = append(requests, request(check(fmt.Sprint(i), 1, 1)))
	}
	if err := s.TakeAll(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	for i, r := range requests {
		if !r.Decisions[0].Allowed {
			t.Errorf("request %d: got %+v", i, r.Decisions[0])
		}
	}
	if got := counted.n.Load(); got != 1 {
		t.Errorf("%d commands, want 1", got)
	}
}

// TestWithoutLog proves that nothing is sent where no log is needed.
func TestWithoutLog(t *testing.T) {
	counted := &counter{Client: newClient(t, servers.Redis(t))}
	s := redisstore.New(counted, redisstore.Options{})
	got := take(t, s, check("a", 0, 1), check("b", window.Unlimited, 1), check("a", 0, 2))
	want := []window.Decision{{Never: true}, {Allowed: true, Remaining: window.Unlimited}, {Never: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := counted.n.Load(); got != 0 {
		t.Errorf("%d commands were sent, want none", got)
	}
}

// TestBatchesLikeMemory compares random batches of groups in all modes with the
// embedded store: the same arithmetic, but in Go, and call by call.
func TestBatchesLikeMemory(t *testing.T) {
	const batches = 4000
	client := newClient(t, servers.Redis(t))
	var now time.Duration
	memory := memstore.New(memstore.Options{Clock: func() time.Duration { return epoch + now }, SweepInterval: -1})
	defer memory.Close()
	s := redisstore.NewWithClock(t, client, redisstore.Options{Corrupt: func(time.Duration) {
		t.Error("a value was taken for corrupt")
	}}, "clock")

	seed := random.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	outcomes := make(map[string]int)
	for n := range batches {
		if n%200 == 0 {
			// New keys: their expiry is real, unlike the clock.
			client.FlushDB(t.Context())
			now += 1000 * time.Hour
		}
		if r.IntN(3) > 0 {
			now += []time.Duration{time.Microsecond, 100 * time.Microsecond, time.Second, 5 * time.Second, 11 * time.Second, -time.Second}[r.IntN(6)]
		}
		setClock(t, client, "clock", now)
		requests := make([]redisstore.Request, 1+r.IntN(4))
		for i := range requests {
			requests[i] = randomRequest(r)
		}
		if err := s.TakeAll(t.Context(), requests); err != nil {
			t.Fatal(err)
		}
		for i, c := range requests {
			want := make([]window.Decision, len(c.Checks))
			if _, err := memory.Take(t.Context(), window.MayWait, c.Checks, want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, c.Decisions); diff != "" {
				t.Fatalf("seed %d, batch %d, request %d, %+v: (-memory +redis)\n%s", seed, n, i, c.Checks, diff)
			}
			for j := range want {
				outcomes[fmt.Sprint(c.Checks[j].Mode, want[j].Allowed)]++
			}
		}
	}
	for _, m := range []window.Mode{window.Enforce, window.Any, window.Observe, window.Always} {
		for _, allowed := range []bool{true, false} {
			if n := outcomes[fmt.Sprint(m, allowed)]; n < batches/20 {
				t.Errorf("only %d checks of mode %v with allowed %t", n, m, allowed)
			}
		}
	}
}

// randomRequest makes a group that Validate accepts, on few logs.
func randomRequest(r *rand.Rand) redisstore.Request {
	for {
		var checks []window.Check
		for range 1 + r.IntN(4) {
			c := window.Check{
				Key:   string(rune('a' + r.IntN(3))),
				Limit: window.Limit{Hits: []uint64{0, 1, 3, 10, 40, window.Unlimited}[r.IntN(6)], Window: []time.Duration{win, 10 * win, 7 * 24 * time.Hour}[r.IntN(3)]},
				Cost:  uint64(r.IntN(5)),
				Mode:  window.Mode(r.IntN(5)),
			}
			switch r.IntN(8) {
			case 0:
				c.Cost = uint64(r.IntN(50))
			case 1:
				c.Precision = 500 * time.Millisecond
			}
			checks = append(checks, c)
		}
		c := request(checks...)
		if window.Validate(c.Checks, c.Decisions) == nil {
			return c
		}
	}
}
