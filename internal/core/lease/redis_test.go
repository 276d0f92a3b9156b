package lease_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// onRedis returns a process with leases on the Redis at addr.
func onRedis(t *testing.T, addr string) *lease.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	// A busy machine must not fail the test.
	store := redisstore.New(client, redisstore.Options{Timeout: 5 * time.Second})
	p, err := lease.New(store, lease.Options{Reserver: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := client.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return p
}

// TestLeasesOnRedis makes calls of three processes for one key of a real Redis. For each hit
// it knows two times between which the hit was admitted. No window certainly has more hits
// than the limit.
func TestLeasesOnRedis(t *testing.T) {
	const (
		win     = 500 * time.Millisecond
		limit   = 2000
		callers = 4 // of each process
	)
	addr := servers.Redis(t)
	check := window.Check{
		Key: "hot", Limit: window.Limit{Hits: limit, Window: win}, Cost: 1,
		Lease: window.Lease{Length: 20 * time.Millisecond},
	}
	processes := []*lease.Store{onRedis(t, addr), onRedis(t, addr), onRedis(t, addr)}

	type hit struct{ from, to time.Duration }
	var (
		start    = time.Now()
		wg       sync.WaitGroup
		mu       sync.Mutex
		admitted []hit
		asked    int
	)
	for _, p := range processes {
		for range callers {
			wg.Go(func() {
				var own []hit
				n := 0
				d := make([]window.Decision, 1)
				for time.Since(start) < 3*win {
					from := time.Since(start)
					if _, err := p.Take(t.Context(), window.MayWait, one(check), d); err != nil {
						t.Errorf("Take: %v", err)
						return
					}
					if n++; d[0].Allowed {
						own = append(own, hit{from, time.Since(start)})
					}
				}
				mu.Lock()
				defer mu.Unlock()
				admitted = append(admitted, own...)
				asked += n
			})
		}
	}
	wg.Wait()
	for _, last := range admitted {
		n := 0
		for _, h := range admitted {
			if h.from > last.to-win && h.to <= last.to {
				n++
			}
		}
		if n > limit {
			t.Fatalf("the window of %v that ends at %v holds at least %d, limit %d", win, last.to, n, limit)
		}
	}
	var sum lease.Stats
	for _, p := range processes {
		s := p.Stats()
		sum.Denials += s.Denials
		sum.Leases += s.Leases
		sum.LeasedHits += s.LeasedHits
		sum.ReturnedHits += s.ReturnedHits
	}
	t.Logf("%d asked, %d admitted: %+v", asked, len(admitted), sum)
	if sum.LeasedHits == 0 || sum.Denials == 0 {
		t.Errorf("got %+v: nothing was proven", sum)
	}
}

// TestReturnsToRedis proves that Redis counts exactly the admitted hits once a lease has
// ended.
func TestReturnsToRedis(t *testing.T) {
	addr := servers.Redis(t)
	p, other := onRedis(t, addr), onRedis(t, addr)
	check := window.Check{
		Key: "k", Limit: window.Limit{Hits: 1000, Window: time.Minute}, Cost: 1,
		Lease: window.Lease{Length: time.Second},
	}
	for range 10 {
		if got := take(t, p, check); !got[0].Allowed {
			t.Fatalf("got %+v", got)
		}
	}
	question := check
	question.Cost, question.Lease = 0, window.Lease{}
	if got := take(t, other, question); got[0].Remaining >= 990 || got[0].ResetAfter <= time.Minute {
		t.Errorf("while something is reserved another process is told %+v", got)
	}
	p.Forget(check.Log()) // as after a refund by another process: the lease goes back
	for deadline := time.Now().Add(30 * time.Second); ; {
		got := take(t, other, question)
		// Redis has the hits back a moment before the process counts them as returned.
		if got[0].Remaining == 990 && p.Stats().ReturnedHits > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after all was given back another process is told %+v", got)
		}
	}
	if got := p.Stats(); got.Leases == 0 || got.ReturnedHits == 0 {
		t.Errorf("got %+v", got)
	}
}
