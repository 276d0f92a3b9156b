package redisstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// A slowUndo is a client that holds calls which take a receipt back.
type slowUndo struct {
	redisstore.Client
	hold chan struct{}
}

func (c *slowUndo) Process(ctx context.Context, cmd redis.Cmder) error {
	if slices.Contains(cmd.Args(), any("made")) {
		<-c.hold
	}
	return c.Client.Process(ctx, cmd)
}

// TestTakeBackAfterTake: a caller may use its checks for another request after Take has returned. What the store
// takes back later is still the charge of the first request.
func TestTakeBackAfterTake(t *testing.T) {
	held := &slowUndo{newClient(t, servers.Redis(t)), make(chan struct{})}
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

	first := of("first", 9, 1, 0)
	first.Once = window.Once{ID: 1, For: time.Hour, Repeats: 1}
	checks := []window.Check{first, of("full", 1, 1, 1)}
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
