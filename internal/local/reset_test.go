package local_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// An instance is a process that hears of resets by others, with a clock of its own.
type instance struct {
	*local.Store
	redis  *redisstore.Store
	now    atomic.Int64
	marked chan struct{} // has a value for each message about the log "marker"
}

const channel = "p:refunds"

// newInstance returns an instance on the Redis of client. It hears already.
func newInstance(t *testing.T, client *redis.Client) *instance {
	t.Helper()
	p := &instance{marked: make(chan struct{}, 10)}
	p.redis = redisstore.New(client, redisstore.Options{Prefix: "p:", Timeout: 5 * time.Second, Refunds: channel})
	var err error
	p.Store, err = local.New(p.redis, local.Options{Clock: func() time.Duration { return time.Duration(p.now.Load()) }, Reserver: p.redis})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	listens, ended := make(chan struct{}, 10), make(chan error, 1)
	go func() {
		ended <- p.redis.Watch(ctx, redisstore.Heard{
			Refunded: func(id window.LogID) {
				p.Forget(id)
				if id.Key == "marker" {
					p.marked <- struct{}{}
				}
			},
			Removed: p.Reset,
			Missed:  func() { p.ForgetAll(); listens <- struct{}{} },
		})
	}()
	<-listens
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestResetIsHeardByAll resets a log in one of two instances that remember a denial. Both
// ask Redis again at once. After a DEL by hand they deny for ten seconds more.
func TestResetIsHeardByAll(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.Redis(t), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	a, b := newInstance(t, client), newInstance(t, client)
	c := ask("{id.acme}:r", 1, 1)
	c.Limit.Window = time.Hour
	full := func() {
		t.Helper()
		take(t, a, c)
		for _, p := range []*instance{a, b} {
			p.now.Add(int64(time.Second)) // an allowed answer denies for less
			take(t, p, c)
			before := p.Stats().Denials
			if got := take(t, p, c); got[0].Allowed || p.Stats().Denials != before+1 {
				t.Fatalf("got %+v, want a denial from memory", got)
			}
		}
	}
	full()
	if got, err := a.redis.Remove(t.Context(), []window.LogID{c.Log()}); err != nil || got[0].Contents.Used() != 1 {
		t.Fatalf("Remove: got %+v, %v", got, err)
	}
	// Messages arrive in order. So an instance that has heard this one has heard of the reset.
	if err := client.Publish(t.Context(), channel, "p:marker:1000000").Err(); err != nil {
		t.Fatal(err)
	}
	<-a.marked
	<-b.marked
	for i, p := range []*instance{b, a} {
		got := take(t, p, c)
		if want := i == 0; got[0].Allowed != want {
			t.Errorf("instance %d after the reset: got %+v, want the decision of Redis, allowed %t", i, got, want)
		}
	}

	full()
	if err := client.Del(t.Context(), redisstore.KeyName("p:", c.Log())).Err(); err != nil {
		t.Fatal(err)
	}
	b.now.Add(int64(local.DefaultMaxAge - time.Millisecond))
	if got := take(t, b, c); got[0].Allowed {
		t.Errorf("without a message: got %+v, want a denial from memory for %v", got, local.DefaultMaxAge)
	}
	b.now.Add(int64(time.Millisecond))
	if got := take(t, b, c); !got[0].Allowed {
		t.Errorf("without a message, after %v: got %+v, want it allowed", local.DefaultMaxAge, got)
	}
}

// TestResetOfALease removes a log with a lease. The rest of the lease is neither spent nor
// given back: another process may have charged the new log at the same instant.
func TestResetOfALease(t *testing.T) {
	a := hot("a", 100, 1)
	for _, tt := range []struct {
		name string
		end  func(p *local.Store) // ends the lease before the reset
	}{
		{"it runs", func(*local.Store) {}},
		{"it has ended, and its rest is on the way", func(p *local.Store) { p.Forget(a.Log()) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leasing(t, local.Options{}, func(t *testing.T, s *ahead, p *local.Store) {
				warm(t, p, a)
				tt.end(p)
				s.remove(a.Log())
				p.Reset(a.Log())
				synctest.Wait()
				if _, returns := s.counts(); returns != 0 {
					t.Errorf("%d returns of hits that were removed, want none", returns)
				}
				// The store decides, not the lease.
				expect(t, s, p, a, roomy(99, win), 1, 1)
				time.Sleep(2 * length)
				synctest.Wait()
				if used, _ := s.count(a.Log()); used != 1 {
					t.Errorf("the store counts %d, want 1", used)
				}
				if got := p.Stats().ReturnedHits; got != 0 {
					t.Errorf("%d hits were returned, want none", got)
				}
			})
		})
	}
}

// TestResetWhileReserving removes a log while a reservation for it is under way. It becomes
// no lease.
func TestResetWhileReserving(t *testing.T) {
	leasing(t, local.Options{}, func(t *testing.T, s *ahead, p *local.Store) {
		a := hot("a", 100, 1)
		for range 3 {
			take(t, p, a)
		}
		s.slow(5*time.Millisecond, 5*time.Millisecond)
		done := make(chan []window.Decision)
		go func() { done <- take(t, p, a) }()
		time.Sleep(7 * time.Millisecond) // the store has reserved, and its answer is on the way
		s.remove(a.Log())
		p.Reset(a.Log())
		if got := <-done; !got[0].Allowed {
			t.Errorf("got %+v, want the caller allowed", got)
		}
		s.slow(0, 0)
		// The next call makes a lease of its own: five hits more.
		expect(t, s, p, a, roomy(99, win+length), 1, 1+5)
		if got := p.Stats(); got.Leases != 2 || got.LeasedHits != 0 || got.ReturnedHits != 0 {
			t.Errorf("got %+v, want two reservations, and nothing spent or returned", got)
		}
	})
}

// TestResetOfShares removes a log of the shares: what was admitted, and the known use.
func TestResetOfShares(t *testing.T) {
	s := newShares(t, always(1), &clock{now: time.Hour})
	k := ask("k", 4, 4)
	id := k.Log()
	s.Learn(&k, &window.Decision{Remaining: 1, ResetAfter: win})
	if got := take(t, s, ask("k", 4, 1)); !got[0].Allowed {
		t.Fatalf("got %+v", got)
	}
	got, err := s.Read(t.Context(), []window.LogID{id})
	if err != nil || got[0].Contents.Used() != 1 {
		t.Errorf("Read: got %+v, %v, want the hit that was admitted", got, err)
	}
	if got, err = s.Remove(t.Context(), []window.LogID{id}); err != nil || got[0].Contents.Used() != 1 {
		t.Errorf("Remove: got %+v, %v", got, err)
	}
	// The whole share has room again.
	if got := take(t, s, k); !got[0].Allowed {
		t.Errorf("after the reset: got %+v, want allowed", got)
	}
	if got := take(t, s, ask("k", 4, 1)); got[0].Allowed {
		t.Errorf("got %+v, want denied: the share is spent", got)
	}
}

// TestResetFindsItsLeases resets a log whose account was evicted twice, among other logs. Its
// leases are dropped, and no others. Nothing is kept of leases whose time is over.
func TestResetFindsItsLeases(t *testing.T) {
	leasing(t, local.Options{}, func(t *testing.T, s *ahead, p *local.Store) {
		a, b := hot("a", 100, 1), hot("b", 100, 1)
		check := func(want int) {
			t.Helper()
			if ends, byLog := local.Leases(p); ends != want || byLog != want {
				t.Errorf("%d leases in order and %d by log, want %d", ends, byLog, want)
			}
		}
		for n := range 2 {
			warm(t, p, a, b)
			local.ForgetAccounts(p)
			check(2 * (n + 1))
		}
		s.remove(a.Log())
		p.Reset(a.Log())
		time.Sleep(2 * length)
		synctest.Wait()
		if used, _ := s.count(a.Log()); used != 0 {
			t.Errorf("the store counts %d of the log that was reset, want 0", used)
		}
		if _, returns := s.counts(); returns != 2 {
			t.Errorf("%d returns, want the 2 of the other log", returns)
		}
		check(0)
		warm(t, p, a)
		check(1)
		p.ForgetAll()
		check(0)
	})
}
