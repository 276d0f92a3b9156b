package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// TestResetInEveryInstance has two instances on one Redis. A reset by one ends what both
// remember, and what both have admitted without Redis.
func TestResetInEveryInstance(t *testing.T) {
	addr := servers.Redis(t)
	s := redisSettings(t, "redis://"+addr)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	type instance struct {
		*opened
		store *store
	}
	var instances []instance
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 2 {
		o := open(t, s)
		instances = append(instances, instance{o, o.asStore(prometheus.NewRegistry())})
		go func() { ended <- o.Hear(ctx) }()
	}
	defer func() {
		cancel()
		for range instances {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	const channel = "slidegate:" + redisstore.RefundsChannel
	waitFor(t, "both instances to listen", func() bool {
		n, err := client.PubSubNumSub(t.Context(), channel).Result()
		return err == nil && n[channel] == 2
	})

	c := window.Check{Key: "{id.acme}:edge|r", Limit: window.Limit{Hits: 1, Window: time.Hour}, Cost: 1}
	marker := c
	marker.Key = "{id.marker}:edge|r"
	ask := func(by window.Store, c window.Check) bool {
		t.Helper()
		d := make([]window.Decision, 1)
		if _, err := by.Take(t.Context(), window.MayWait, []window.Check{c}, d); err != nil {
			t.Fatal(err)
		}
		return d[0].Allowed
	}
	for _, i := range instances {
		for _, c := range []window.Check{c, marker} {
			ask(i.store.decides, c)
			before := i.Local.Stats().Denials
			if ask(i.store.decides, c); i.Local.Stats().Denials == before {
				// The answer of an allowed call is believed for a moment only.
				if ask(i.store.decides, c); i.Local.Stats().Denials == before {
					t.Fatal("no denial from memory")
				}
			}
		}
		ask(i.store.local, c)
	}

	got, err := instances[0].store.keeper.Remove(t.Context(), []window.LogID{c.Log()})
	if err != nil || len(got) != 1 || got[0].Contents.Used() != 1 {
		t.Fatalf("Remove: got %+v, %v", got, err)
	}
	// An instance that hears of a refund has heard of the reset before.
	if err := client.Del(t.Context(), "slidegate:"+marker.Key+":3600000000").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Publish(t.Context(), channel, "slidegate:"+marker.Key+":3600000000").Err(); err != nil {
		t.Fatal(err)
	}
	other := instances[1]
	marker.Cost = 0
	waitFor(t, "the other instance to hear", func() bool { return ask(other.store.decides, marker) })
	if !ask(other.store.decides, c) {
		t.Error("the other instance still denies from memory")
	}
	for n, i := range instances {
		logs, err := i.store.localKeeper.Read(t.Context(), []window.LogID{c.Log()})
		if err != nil || logs[0].Contents.Used() != 0 {
			t.Errorf("instance %d: its share has %+v, %v, want nothing", n, logs, err)
		}
	}
}

// TestKeeperOfMemory proves that the memory store can be read and reset.
func TestKeeperOfMemory(t *testing.T) {
	registry := prometheus.NewRegistry()
	s, err := openStore(t.Context(), settings.Default(), metrics.New(registry, metrics.Options{}), registry, zap.NewNop(), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	c := window.Check{Key: "{id.acme}:edge|r", Limit: window.Limit{Hits: 1, Window: time.Hour}, Cost: 1}
	for range 2 {
		d := make([]window.Decision, 1)
		if _, err := s.decides.Take(t.Context(), window.MayWait, []window.Check{c}, d); err != nil || !d[0].Allowed {
			t.Errorf("got %+v, %v, want allowed", d, err)
		}
		if got, err := s.keeper.Remove(t.Context(), []window.LogID{c.Log()}); err != nil || got[0].Contents.Used() != 1 {
			t.Errorf("Remove: got %+v, %v", got, err)
		}
	}
}
