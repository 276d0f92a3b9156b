package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// A slowSecond is a client that holds the second of its calls.
type slowSecond struct {
	redisstore.Client
	calls atomic.Int64
	hold  chan struct{}
}

func (c *slowSecond) Process(ctx context.Context, cmd redis.Cmder) error {
	if c.calls.Add(1) == 2 {
		<-c.hold
	}
	return c.Client.Process(ctx, cmd)
}

// TestTakeBackAfterTake: a caller may use its checks for another request after Take has returned. What the store
// takes back later is still the charge of the first request.
func TestTakeBackAfterTake(t *testing.T) {
	held := &slowSecond{Client: newClient(t, servers.Redis(t)), hold: make(chan struct{})}
	held.calls.Store(2)
	stores := []*redisstore.Store{
		redisstore.New(held, redisstore.Options{Timeout: patient}),
		redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient}),
	}
	s := redisstore.NewScopes([]string{"region", "global"}, stores)
	defer s.Close()
	of := func(key string, hits, cost uint64, scope window.Scope) window.Check {
		return window.Check{Key: "{" + key + "}x", Limit: window.Limit{Hits: hits, Window: time.Hour, Policy: window.Fixed}, Cost: cost, Scope: scope}
	}
	take(t, s, of("other", 9, 3, 0))
	take(t, s, of("full", 1, 1, 1))

	held.calls.Store(0) // of the charge, and of taking it back
	checks := []window.Check{of("first", 9, 1, 0), of("full", 1, 1, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Take(ctx, window.MayWait, checks, make([]window.Decision, 2)); err != nil {
		t.Fatal(err)
	}
	checks[0] = of("other", 9, 1, 0) // the next request of the caller
	close(held.hold)
	eventually(t, "the charge to be taken back", func() bool { return take(t, s, of("first", 9, 0, 0))[0].Remaining == 9 })
	for key, want := range map[string]uint64{"first": 9, "other": 6} {
		if got := take(t, s, of(key, 9, 0, 0))[0].Remaining; got != want {
			t.Errorf("%s: %d remain, want %d", key, got, want)
		}
	}
}
