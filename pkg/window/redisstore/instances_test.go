package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/instances"
	"github.com/slidegate/slidegate/test/servers"
)

// An instance counts in the background.
type instance struct {
	*redisstore.Store
	leave    func()       // ends it
	answered atomic.Int64 // heartbeats with an answer
	failed   atomic.Int64 // those without
}

// instances starts instances that count, each with a client of its own.
func startInstances(t *testing.T, n int, falls time.Duration, client func() redis.UniversalClient) []*instance {
	t.Helper()
	var all []*instance
	for range n {
		own := client()
		s := redisstore.New(own, redisstore.Options{Prefix: "p:"})
		ctx, cancel := context.WithCancel(context.Background())
		i := &instance{Store: s}
		done := make(chan error, 1)
		go func() {
			done <- s.CountEvery(ctx, 2*time.Millisecond, falls, func(_, _ int, err error) {
				if err != nil {
					i.failed.Add(1)
					return
				}
				i.answered.Add(1)
			})
		}()
		i.leave = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Count: %v", err)
			}
		})
		t.Cleanup(func() {
			i.leave()
			own.Close()
			s.Close()
		})
		all = append(all, i)
	}
	return all
}

// wantInstances waits until each instance counts n.
func wantInstances(t *testing.T, n int, all ...*instance) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d instances", n), func() bool {
		for _, i := range all {
			if i.Instances() != n {
				return false
			}
		}
		return true
	})
}

// TestInstances starts three instances and ends them.
func TestInstances(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) func() redis.UniversalClient{
		"single": func(t *testing.T) func() redis.UniversalClient {
			server := servers.StartRedis(t)
			return func() redis.UniversalClient { return newClient(t, server.Addr()) }
		},
		"Sentinel": func(t *testing.T) func() redis.UniversalClient {
			set := servers.StartSentinel(t, servers.SentinelOptions{})
			return func() redis.UniversalClient {
				return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: set.MasterName(), SentinelAddrs: set.Sentinels(), MaxRetries: -1, ContextTimeoutEnabled: true})
			}
		},
		"Cluster": func(t *testing.T) func() redis.UniversalClient {
			c := startCluster(t)
			return func() redis.UniversalClient { return newClusterClient(t, c) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := start(t)
			if i := redisstore.New(client(), redisstore.Options{}); i.Instances() != 1 || i.Stats().Instances != 1 {
				t.Errorf("before Count: %d instances, want 1", i.Instances())
			}
			all := startInstances(t, 3, 100*time.Millisecond, client)
			wantInstances(t, 3, all...)
			all[0].leave()
			wantInstances(t, 2, all[1:]...)
			all[1].leave()
			wantInstances(t, 1, all[2])
			all[2].leave()
			own := client()
			defer own.Close()
			if n, err := own.Exists(t.Context(), "p:instances").Result(); err != nil || n != 0 {
				t.Errorf("after the last instance: the key exists %d times, %v", n, err)
			}
		})
	}
}

// TestInstancesInAnOutage: the last number lasts while Redis is away, and when it comes back empty.
func TestInstancesInAnOutage(t *testing.T) {
	server := servers.StartRedis(t)
	all := startInstances(t, 3, time.Hour, func() redis.UniversalClient { return newClient(t, server.Addr()) })
	wantInstances(t, 3, all...)
	server.Stop()
	for _, i := range all {
		failed := i.failed.Load()
		eventually(t, "without an answer", func() bool { return i.failed.Load() > failed })
	}
	wantInstances(t, 3, all...)
	server.Start() // empty
	for _, i := range all {
		answered := i.answered.Load()
		eventually(t, "an answer", func() bool { return i.answered.Load() > answered })
		if n := i.Instances(); n != 3 {
			t.Errorf("after Redis has lost the entries: %d instances, want 3", n)
		}
	}
	client := newClient(t, server.Addr())
	eventually(t, "three entries", func() bool { return client.ZCard(t.Context(), "p:instances").Val() == 3 })

	// The entries are no log, and no call asks for a log of their name.
	ids, _, err := all[0].List(t.Context(), inspect.Match{}, "")
	if err != nil || len(ids) != 0 {
		t.Errorf("List: got %v, %v; want no log", ids, err)
	}
	// A value of another program under the key is an error, and the number stays.
	if err := client.Set(t.Context(), "p:instances", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	failed := all[0].failed.Load()
	eventually(t, "an error", func() bool { return all[0].failed.Load() > failed })
	wantInstances(t, 3, all...)
}

// TestInstancesByTheClockOfRedis: an entry expires by the server's time. The script gets no time from the
// instance.
func TestInstancesByTheClockOfRedis(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	script := redisstore.BeatScriptAt(t, "redis.call('GET', 'p:clock')")
	const epoch, expires = 1_750_000_000, int(instances.Expires / time.Second)
	for _, step := range []struct {
		at    int // seconds
		entry string
		want  int
	}{
		{0, "a", 1},
		{0, "b", 2},
		{expires - 1, "a", 2},
		{expires, "a", 1},
		{expires, "c", 2},
		{1 - expires, "c", 1}, // the clock was set back: an entry far ahead of it does not count
		{0, "a", 2},
	} {
		if err := client.Set(t.Context(), "p:clock", epoch+step.at, 0).Err(); err != nil {
			t.Fatal(err)
		}
		n, err := client.Eval(t.Context(), script, []string{"p:instances"}, step.entry, expires).Int()
		if err != nil || n != step.want {
			t.Errorf("%s at %d s: got %d, %v; want %d", step.entry, step.at, n, err, step.want)
		}
	}
	// What another program has planted neither counts nor keeps Redis busy.
	plant := `for i = 1, 10001 do redis.call('ZADD', KEYS[1], i % 2 * 9e15, i) end`
	if err := client.Eval(t.Context(), plant, []string{"p:instances"}).Err(); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	if n, err := client.Eval(t.Context(), script, []string{"p:instances"}, "a", expires).Int(); err != nil || n != 1 {
		t.Errorf("10,001 planted entries: got %d, %v; want 1", n, err)
	}
	if stats := client.Info(t.Context(), "commandstats").Val(); !strings.Contains(stats, "cmdstat_unlink:calls=1,") {
		t.Errorf("Redis does nothing else while it removes 10,001 planted entries:\n%s", stats)
	}
	if left := client.TTL(t.Context(), "p:instances").Val(); left <= 0 || left > instances.Expires {
		t.Errorf("the key expires in %v, want %v", left, instances.Expires)
	}
}

// TestInstancesOverTime notes answers at the times of heartbeats. A 0 says that there was no answer.
func TestInstancesOverTime(t *testing.T) {
	type answer struct {
		n, want int
	}
	for _, tt := range []struct {
		name    string
		answers []answer
	}{
		{"a larger one counts at once", []answer{{1, 1}, {3, 3}, {1000, 1000}}},
		{"a smaller one 12 s after the first one", []answer{{3, 3}, {2, 3}, {2, 3}, {2, 3}, {2, 2}, {2, 2}}},
		{"a rolling update", []answer{{4, 4}, {3, 4}, {4, 4}, {5, 5}, {4, 5}, {4, 5}, {4, 5}, {4, 4}}},
		{"two end one after the other", []answer{{5, 5}, {4, 5}, {3, 5}, {3, 5}, {3, 4}, {3, 3}}},
		{"the last number lasts in an outage", []answer{{3, 3}, {0, 3}, {0, 3}, {0, 3}, {0, 3}, {0, 3}, {0, 3}}},
		{"Redis comes back empty", []answer{{3, 3}, {3, 3}, {3, 3}, {3, 3}, {0, 3}, {1, 3}, {3, 3}, {3, 3}, {3, 3}, {3, 3}}},
		{"Redis comes back empty, again and again", []answer{{3, 3}, {0, 3}, {1, 3}, {2, 3}, {0, 3}, {1, 3}, {2, 3}, {0, 3}}},
		{"one ended in the outage", []answer{{3, 3}, {0, 3}, {1, 3}, {2, 3}, {2, 3}, {2, 2}}},
		{"Redis is flushed", []answer{{3, 3}, {3, 3}, {3, 3}, {3, 3}, {1, 3}, {3, 3}, {3, 3}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := instances.New(failing{}, "", instances.Expires, nil)
			for i, a := range tt.answers {
				if got := c.Note(int64(time.Duration(i)*instances.Every), a.n, a.n > 0); got != a.want {
					t.Errorf("heartbeat %d: got %d, want %d", i, got, a.want)
				}
			}
		})
	}
	if instances.Every > 5*time.Second || 2*instances.Expires+2*instances.Every > 30*time.Second {
		t.Error("a new instance must count within 5 s, and one that ended must not count after 30 s")
	}
	c := instances.New(failing{}, "", instances.Expires, nil)
	c.Note(0, 3, true)
	for i := range 10 {
		if got := c.Note(int64(time.Duration(i)*instances.Every), 2, false); got != 3 {
			t.Errorf("a smaller answer while another server is away: got %d, want 3", got)
		}
	}
	if got := c.Note(int64(time.Minute), 4, false); got != 4 {
		t.Errorf("a larger answer while another server is away: got %d, want 4", got)
	}
}

// TestPublishedAddresses: an instance with Publish writes its address, and lists what the others have
// written, in part if that is long. One without it writes as before, and counts.
func TestPublishedAddresses(t *testing.T) {
	server := servers.StartRedis(t)
	client := newClient(t, server.Addr())
	beat := func(address func() string) *instances.Counter {
		return instances.New(client, "p:", instances.Expires, address)
	}
	known := ""
	a, b, plain := beat(func() string { return known }), beat(func() string { return "192.0.2.2:6070" }), beat(nil)
	server.Stop()
	if _, _, err := a.Beat(t.Context()); err == nil {
		t.Error("a heartbeat without Redis has no error")
	}
	server.Start()
	known = "192.0.2.1:6070" // it is known before the first entry is written, and stays
	want := func(c *instances.Counter, n int, addresses ...string) {
		t.Helper()
		got, others, err := c.Beat(t.Context())
		slices.Sort(others)
		if err != nil || got != n || !slices.Equal(others, addresses) {
			t.Errorf("got %d and %q, %v; want %d and %q", got, others, err, n, addresses)
		}
	}
	want(a, 1)
	known = "192.0.2.9:6070"
	want(b, 2, "192.0.2.1:6070")
	want(plain, 3)
	want(a, 3, "", "192.0.2.2:6070")
	now := float64(client.Time(t.Context()).Val().Unix())
	if err := client.ZAdd(t.Context(), "p:instances", redis.Z{Score: now, Member: "0123456789abcdef " + strings.Repeat("x", 1<<20)}).Err(); err != nil {
		t.Fatal(err)
	}
	want(a, 4, "", "192.0.2.2:6070", strings.Repeat("x", 65))
	for i := range 300 {
		if err := client.ZAdd(t.Context(), "p:instances", redis.Z{Score: now + 1, Member: fmt.Sprint(i)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n, others, err := a.Beat(t.Context()); err != nil || n != 304 || len(others) < 255 || len(others) > 256 {
		t.Errorf("got %d entries and %d addresses, %v; want 304 and about 255", n, len(others), err)
	}
}
