package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/inspecttest"
	"github.com/slidegate/slidegate/test/servers"
)

func TestInspector(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	n := 0 // every harness has its own keys and clock on the one server
	inspecttest.Run(t, func(t *testing.T) windowtest.Harness {
		n++
		clockKey := fmt.Sprintf("clock%d", n)
		s := redisstore.NewWithClock(t, client, redisstore.Options{Prefix: fmt.Sprintf("*test[%d]:", n)}, clockKey)
		t.Cleanup(func() { s.Close() })
		return windowtest.Harness{
			Store:  s,
			SetNow: func(now time.Duration) { setClock(t, client, clockKey, now) },
			Epoch:  epoch,
		}
	})
}

// listAll returns the ids of all logs that match, in the order of their keys.
func listAll(t *testing.T, s *redisstore.Store, m inspect.Match) []window.LogID {
	t.Helper()
	var all []window.LogID
	for cursor, calls := "", 0; calls == 0 || cursor != ""; calls++ {
		ids, next, err := s.List(t.Context(), m, cursor)
		if err != nil {
			t.Fatal(err)
		}
		all, cursor = append(all, ids...), next
	}
	slices.SortFunc(all, func(a, b window.LogID) int { return cmp.Compare(a.Key, b.Key) })
	return slices.Compact(all)
}

// used returns what the logs of readings hold.
func used(readings []inspect.Reading) (hits []uint64) {
	for _, r := range readings {
		hits = append(hits, r.Contents.Used())
	}
	return hits
}

// TestInspectorOnACluster reads, lists and removes logs on all servers of a cluster, also while
// a slot moves, and while a server is away.
func TestInspectorOnACluster(t *testing.T) {
	c := startCluster(t)
	client := newClusterClient(t, c)
	n := 0
	inspecttest.RunInRealTime(t, func(t *testing.T) windowtest.Harness {
		n++
		s := redisstore.New(client, redisstore.Options{Prefix: fmt.Sprintf("test%d:", n), Timeout: patient})
		t.Cleanup(func() { s.Close() })
		began := time.Duration(time.Now().Add(-time.Hour).Unix()) * time.Second // the suite sets the clock to an hour
		return windowtest.Harness{Store: s, SetNow: func(time.Duration) {}, Epoch: began}
	})

	s := redisstore.New(client, redisstore.Options{Prefix: "own:", Timeout: patient})
	t.Cleanup(func() { s.Close() })
	var ids []window.LogID
	var want []uint64
	for i, key := range onSlotsOf(c) {
		for j := range 5 {
			charge := check(fmt.Sprintf("{%s}:r%d", key, j), 100, uint64(10*i+j+1))
			take(t, s, charge)
			ids, want = append(ids, charge.Log()), append(want, charge.Cost)
		}
	}
	t.Run("Slots", func(t *testing.T) {
		got, err := s.Read(t.Context(), ids)
		if err != nil || !slices.Equal(used(got), want) {
			t.Errorf("Read: got %v, %v, want %v", used(got), err, want)
		}
		for i := range got {
			if got[i].ID != ids[i] || got[i].Now <= 0 || time.Since(time.UnixMicro(got[i].Now.Microseconds())).Abs() > time.Minute {
				t.Errorf("got %v at %v, want %v", got[i].ID, got[i].Now, ids[i])
			}
		}
		if got, err = s.Remove(t.Context(), ids[:7]); err != nil || !slices.Equal(used(got), want[:7]) {
			t.Errorf("Remove: got %v, %v, want %v", used(got), err, want[:7])
		}
		if left := listAll(t, s, inspect.Match{}); len(left) != len(ids)-7 {
			t.Errorf("after 7 of %d logs were removed, %d are listed", len(ids), len(left))
		}
		if _, _, err := s.List(t.Context(), inspect.Match{}, "127.0.0.1:1/0"); !errors.Is(err, inspect.ErrCursor) {
			t.Errorf("a cursor of an unknown server: got %v, want ErrCursor", err)
		}
	})

	t.Run("MovingSlot", func(t *testing.T) {
		const tag = "{moves}"
		slot := c.Slot(tag)
		from := c.MasterOfSlot(slot)
		to := c.Masters()[0]
		if to.Addr() == from.Addr() {
			to = c.Masters()[1]
		}
		var moving []window.LogID
		charge := func() {
			moving = nil
			for i := range 4 {
				charge := check(fmt.Sprint(tag, ":r", i), 100, 3)
				take(t, s, charge)
				moving = append(moving, charge.Log())
			}
		}
		charge()
		c.BeginMigration(slot, from, to)
		c.MigrateKeys(slot, from, to, 2) // two are here, two there
		for _, f := range []func() ([]inspect.Reading, error){
			func() ([]inspect.Reading, error) { return s.Read(t.Context(), moving) },
			func() ([]inspect.Reading, error) { return s.Remove(t.Context(), moving) },
		} {
			if got, err := f(); err != nil || !slices.Equal(used(got), []uint64{3, 3, 3, 3}) {
				t.Errorf("while the slot moves: got %v, %v", used(got), err)
			}
		}
		charge()
		c.FinishMigration(slot, from, to)
		if got, err := s.Read(t.Context(), moving); err != nil || !slices.Equal(used(got), []uint64{3, 3, 3, 3}) {
			t.Errorf("after the slot has moved: got %v, %v", used(got), err)
		}
		// The client learns of the new server a moment later.
		eventually(t, "the logs to be listed", func() bool { return slices.Equal(listAll(t, s, inspect.Match{Tag: "moves"}), moving) })
	})

	t.Run("OneServerDown", func(t *testing.T) {
		down := c.MasterOf("own:" + ids[len(ids)-1].Key)
		down.Stop()
		got, err := s.Read(t.Context(), ids)
		if err == nil || len(got) != 10 {
			t.Errorf("Read: got %d logs and the error %v, want those of the other two servers and an error", len(got), err)
		}
	})
}

// TestInspectorOnSentinel removes logs from the master of a set, and from the next one after a
// failover.
func TestInspectorOnSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("a set of Sentinels takes long to start")
	}
	set := servers.StartSentinel(t, servers.SentinelOptions{})
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: set.MasterName(), SentinelAddrs: set.Sentinels(), MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { client.Close() })
	s := redisstore.New(client, redisstore.Options{Prefix: "p:", Timeout: patient})
	t.Cleanup(func() { s.Close() })
	for round := range 2 {
		charge := check(fmt.Sprintf("{a}:r%d", round), 10, 4)
		eventually(t, "the master to decide", func() bool {
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{charge}, make([]window.Decision, 1))
			return err == nil
		})
		if got := listAll(t, s, inspect.Match{Tag: "a"}); !slices.Contains(got, charge.Log()) {
			t.Errorf("round %d: listed %v, want also %v", round, got, charge.Log())
		}
		got, err := s.Remove(t.Context(), []window.LogID{charge.Log()})
		if err != nil || len(got) != 1 || got[0].Contents.Used() < 4 {
			t.Errorf("round %d: removed %+v, %v", round, got, err)
		}
		if round == 0 {
			set.Failover()
		}
	}
}

// TestInspectorReadsAnyValue reads and removes values that are not logs, and one that is too large.
// Probes are not listed.
func TestInspectorReadsAnyValue(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{Prefix: "p:", Timeout: patient})
	t.Cleanup(func() { s.Close() })
	set := func(id window.LogID, value string) {
		t.Helper()
		if err := client.Set(t.Context(), redisstore.KeyName("p:", id), value, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	large := window.LogID{Key: "{large}:r", Window: win}
	set(large, strings.Repeat("x", 2<<20))
	text := window.LogID{Key: "{text}:r", Window: win}
	set(text, "text")
	list := window.LogID{Key: "{list}:r", Window: win}
	if err := client.LPush(t.Context(), redisstore.KeyName("p:", list), "x").Err(); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"p:probe:1000000", "p:{a}probe:1000000", "p:no window", "p:{a}:r:0", "q:{a}:r:1000000", "p::1000000"} {
		if err := client.Set(t.Context(), other, "x", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ids := []window.LogID{large, list, text}
	if got := listAll(t, s, inspect.Match{}); !slices.Equal(got, ids) {
		t.Errorf("listed %v, want %v", got, ids)
	}
	for _, f := range []func() ([]inspect.Reading, error){
		func() ([]inspect.Reading, error) { return s.Read(t.Context(), ids) },
		func() ([]inspect.Reading, error) { return s.Remove(t.Context(), ids) },
	} {
		got, err := f()
		if err != nil || !slices.Equal(used(got), []uint64{0, 0, 0}) {
			t.Errorf("got %v, %v", used(got), err)
		}
	}
	if got := listAll(t, s, inspect.Match{}); len(got) != 0 {
		t.Errorf("after the removal: listed %v", got)
	}
}

// TestRemovalTimesOut: a call to a frozen server does not open its breaker.
func TestRemovalTimesOut(t *testing.T) {
	server := servers.StartRedis(t)
	s := redisstore.New(newClient(t, server.Addr()), redisstore.Options{Timeout: 10 * time.Millisecond, Failures: 1})
	t.Cleanup(func() { s.Close() })
	charge := check("{a}:r", 10, 4)
	eventually(t, "a charge", func() bool {
		d := make([]window.Decision, 1)
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{charge}, d)
		return err == nil && d[0].Allowed
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	server.Pause()
	got, err := s.Remove(ctx, []window.LogID{charge.Log()})
	server.Resume()
	if failure.Of(err) != failure.Timeout || len(got) != 0 {
		t.Errorf("Remove: got %v, %v, want a timeout", got, err)
	}
	for _, n := range s.Stats().Nodes {
		if n.Open {
			t.Error("the breaker is open")
		}
	}
}

// TestInspectorWithoutItsScript flushes the scripts. The next call sends the text.
func TestInspectorWithoutItsScript(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	s := redisstore.New(client, redisstore.Options{Prefix: "p:"})
	t.Cleanup(func() { s.Close() })
	charge := check("{a}:r", 10, 4)
	for range 2 {
		take(t, s, charge)
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Remove(t.Context(), []window.LogID{charge.Log()}); err != nil || !slices.Equal(used(got), []uint64{4}) {
			t.Errorf("got %v, %v", used(got), err)
		}
	}
}

// TestListWithoutCluster: a call for a person fails soon, with the address that does not answer.
func TestListWithoutCluster(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true, DisableRoutingPolicies: true})
	defer client.Close()
	s := redisstore.New(client, redisstore.Options{Prefix: "p:", Timeout: time.Second})
	defer s.Close()
	for what, call := range map[string]func() error{
		"List": func() error { _, _, err := s.List(t.Context(), inspect.Match{}, ""); return err },
		"Read": func() error {
			_, err := s.Read(t.Context(), []window.LogID{{Key: "a", Window: time.Second}})
			return err
		},
	} {
		if err := call(); failure.Of(err) != failure.Connect || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s: got %v, want an error that names the address", what, err)
		}
	}
}
