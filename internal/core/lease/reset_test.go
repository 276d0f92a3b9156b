package lease_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// TestResetCountsWithinASecond: three instances remember a denial on one Redis. After a reset by one of
// them, a refund by another store, a DEL by hand and a FLUSHALL, every one of them allows a request
// within a second.
func TestResetCountsWithinASecond(t *testing.T) {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	var now atomic.Int64 // the clock of the instances
	var instances []*lease.Store
	var shared *redisstore.Store
	for range 3 {
		shared = redisstore.New(client, redisstore.Options{Prefix: "p:", Timeout: 5 * time.Second})
		p, err := lease.New(shared, lease.Options{Clock: func() time.Duration { return time.Duration(now.Load()) }, Reserver: shared})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		instances = append(instances, p)
	}
	c := ask("{id.acme}:r", uint64(len(instances)), 3)
	c.Limit.Window = time.Hour
	for name, empty := range map[string]func() error{
		"a reset": func() error {
			_, err := shared.Remove(t.Context(), []window.LogID{c.Log()})
			instances[2].Reset(c.Log())
			return err
		},
		"a refund": func() error {
			_, err := shared.Take(t.Context(), window.MayWait, one(in(window.Refund, c)), make([]window.Decision, 1))
			return err
		},
		"DEL":      func() error { return client.Del(t.Context(), redisstore.KeyName("p:", c.Log())).Err() },
		"FLUSHALL": func() error { _, err := server.Do("FLUSHALL"); return err },
	} {
		now.Add(int64(time.Hour))
		single := c
		single.Cost = 1
		take(t, instances[0], c)
		now.Add(int64(time.Second)) // an allowed answer denies for less
		for i, p := range instances {
			take(t, p, single)
			before := p.Stats().Denials
			if got := take(t, p, single); got[0].Allowed || p.Stats().Denials != before+1 {
				t.Fatalf("%s: instance %d: got %+v, want a denial from memory", name, i, got)
			}
		}
		if err := empty(); err != nil {
			t.Fatal(name, err)
		}
		now.Add(int64(time.Second - time.Millisecond))
		if got := take(t, instances[0], single); got[0].Allowed {
			t.Errorf("%s: instance 0 asks Redis before a second has passed: %+v", name, got)
		}
		now.Add(int64(time.Millisecond))
		for i, p := range instances {
			if got := take(t, p, single); !got[0].Allowed {
				t.Errorf("%s: instance %d: a second later, got %+v, want it allowed", name, i, got)
			}
		}
		if _, err := shared.Remove(t.Context(), []window.LogID{c.Log()}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResetOfALease removes a log with a lease. The rest of the lease is neither spent nor
// given back: another process may have charged the new log at the same instant.
func TestResetOfALease(t *testing.T) {
	a, b := hot("a", 100, 1), hot("b", 100, 1)
	for _, tt := range []struct {
		name     string
		end      func(s *ahead, p *lease.Store) // ends the lease before the reset
		returned uint64                         // hits of b
	}{
		{"it runs", func(*ahead, *lease.Store) {}, 0},
		{"it has ended, and its rest waits behind that of another log", func(s *ahead, p *lease.Store) {
			s.slow(time.Millisecond, 0)
			p.Forget(b.Log())
			synctest.Wait() // the rest of b is given back
			p.Forget(a.Log())
		}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
				warm(t, p, a)
				warm(t, p, b)
				tt.end(s, p)
				s.remove(a.Log())
				p.Reset(a.Log())
				s.slow(0, 0)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				// The store decides, not the lease.
				expect(t, s, p, a, roomy(99, win), 1, 1)
				s.remove(b.Log())
				p.Reset(b.Log())
				time.Sleep(2 * length)
				synctest.Wait()
				if used, _ := s.count(a.Log()); used != 1 {
					t.Errorf("the store counts %d, want 1", used)
				}
				if got := p.Stats().ReturnedHits; got != tt.returned {
					t.Errorf("%d hits were returned, want %d", got, tt.returned)
				}
			})
		})
	}
}

// TestResetWhileReserving removes a log while a reservation for it is under way. It becomes
// no lease.
func TestResetWhileReserving(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
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

// TestResetFindsItsLeases resets a log whose account was evicted twice, among other logs. Its
// leases are dropped, and no others. Nothing is kept of leases whose time is over.
func TestResetFindsItsLeases(t *testing.T) {
	leasing(t, lease.Options{}, func(t *testing.T, s *ahead, p *lease.Store) {
		a, b := hot("a", 100, 1), hot("b", 100, 1)
		check := func(want int) {
			t.Helper()
			if got := lease.Leases(p); got != want {
				t.Errorf("%d leases, want %d", got, want)
			}
		}
		for n := range 2 {
			warm(t, p, a, b)
			lease.ForgetAccounts(p)
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
