package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

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
	got := take(t, s, check("a", 0, 1), check("b", window.MaxHits, 1), check("a", 0, 2))
	want := []window.Decision{{Never: true}, {Allowed: true, Remaining: window.MaxHits}, {Never: true}}
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
				Limit: window.Limit{Hits: []uint64{0, 1, 3, 10, 40, window.MaxHits}[r.IntN(6)], Window: []time.Duration{win, 10 * win, 7 * 24 * time.Hour}[r.IntN(3)]},
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
