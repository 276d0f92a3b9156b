package servers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/process"
)

// clusterClient follows the cluster like any client does.
func clusterClient(t *testing.T, c *Cluster) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestCluster(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := StartCluster(t)
	t.Logf("started in %v", time.Since(start))
	if m, r := c.Masters(), c.Replicas(); len(m) != 3 || len(r) != 3 {
		t.Fatalf("got %d masters and %d replicas, want 3 and 3", len(m), len(r))
	}
	if got := len(c.Addrs()); got != 6 {
		t.Errorf("got %d addresses, want 6", got)
	}
	client := clusterClient(t, c)
	for i := range 100 {
		if err := client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err(); err != nil {
			t.Fatalf("SET: %v", err)
		}
	}
	t.Run("migration", func(t *testing.T) { testMigration(t, c, client) })
	t.Run("agreed failover", func(t *testing.T) { testFailover(t, c, client, FailoverAgreed) })
	t.Run("forced failover", func(t *testing.T) { testFailover(t, c, client, FailoverForce) })
	t.Run("takeover", func(t *testing.T) { testFailover(t, c, client, FailoverTakeover) })
	t.Run("dead master", func(t *testing.T) { testDeadMaster(t, c) })
}

// testMigration looks at a slot with two keys while one is here and one there.
func testMigration(t *testing.T, c *Cluster, client *redis.ClusterClient) {
	keys := []string{"{moving}1", "{moving}2"}
	for _, k := range keys {
		if err := client.Set(t.Context(), k, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slot := c.Slot(keys[0])
	from := c.MasterOfSlot(slot)
	if got := c.MasterOf(keys[1]); got != from {
		t.Errorf("the masters of %q: got %s and %s, want the same", keys, from.Addr(), got.Addr())
	}
	others := slices.DeleteFunc(c.Masters(), func(s *RedisServer) bool { return s == from })
	to := others[0]
	ask, moved := fmt.Sprintf("ASK %d %s", slot, to.Addr()), fmt.Sprintf("MOVED %d ", slot)

	// reply is what a client is told that asks this node for a key.
	reply := func(s *RedisServer, key string) string {
		t.Helper()
		got, err := s.do(stateTimeout, "GET", key)
		if err != nil {
			return err.Error()
		}
		return replyText(got)
	}
	c.BeginMigration(slot, from, to)
	if n := c.MigrateKeys(slot, from, to, 1); n != 1 {
		t.Errorf("moving one key: got %d", n)
	}
	got := []string{reply(from, keys[0]), reply(from, keys[1])}
	slices.Sort(got)
	if want := []string{ask, "v"}; !slices.Equal(got, want) {
		t.Errorf("the old master half way: got %q, want %q", got, want)
	}
	if got, want := reply(to, keys[0]), moved+from.Addr(); got != want {
		t.Errorf("the new master half way, without ASKING: got %q, want %q", got, want)
	}
	for _, k := range keys {
		if got, err := client.Get(t.Context(), k).Result(); got != "v" {
			t.Errorf("a client that follows ASK: GET %s: got %q, %v, want v", k, got, err)
		}
	}

	c.FinishMigration(slot, from, to)
	for _, k := range keys {
		if got, want := reply(from, k), moved+to.Addr(); got != want {
			t.Errorf("the old master afterwards: got %q, want %q", got, want)
		}
		if got := reply(to, k); got != "v" {
			t.Errorf("the new master afterwards: got %q, want v", got)
		}
	}
	if got := c.MasterOfSlot(slot); got != to {
		t.Errorf("the master afterwards: got %s, want %s", got.Addr(), to.Addr())
	}
	c.MigrateSlot(slot, to, from)
	if got := reply(from, keys[0]); got != "v" {
		t.Errorf("back again: got %q, want v", got)
	}
	c.WaitOK()
}

func testFailover(t *testing.T, c *Cluster, client *redis.ClusterClient, mode string) {
	master := c.MasterOf("key1")
	replica := c.ReplicaOf(master)
	// FORCE and TAKEOVER are for a master that is in trouble.
	if mode != FailoverAgreed {
		master.Pause()
	}
	c.Failover(replica, mode)
	if got := c.MasterOf("key1"); got != replica {
		t.Errorf("the master: got %s, want %s", got.Addr(), replica.Addr())
	}
	if mode != FailoverAgreed {
		master.Resume()
	}
	c.WaitOK()
	if got := c.ReplicaOf(replica); got != master {
		t.Errorf("the replica: got %s, want %s, which was the master", got.Addr(), master.Addr())
	}
	for i := range 100 {
		key := fmt.Sprint("key", i)
		if got, err := client.Get(t.Context(), key).Int(); got != i {
			t.Errorf("GET %s: got %d, %v, want %d", key, got, err, i)
		}
	}
}

// testDeadMaster waits for what the cluster does by itself.
func testDeadMaster(t *testing.T, c *Cluster) {
	master := c.MasterOf("key1")
	replica := c.ReplicaOf(master)
	slot := c.Slot("key1")
	master.Stop()
	err := eventually(t, func() error {
		if got, v := c.mastersOf(slot); len(got) != 1 || got[0] != replica {
			return fmt.Errorf("it has not:\n%s", v)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("waiting for %s to take over: %v", replica.Addr(), err)
	}
	c.WaitOK()
	master.Start()
	c.WaitOK()
	if got := c.ReplicaOf(replica); got != master {
		t.Errorf("after the restart: got replica %s, want %s", got.Addr(), master.Addr())
	}
}

// TestClusterInAProgram proves that a program that is interrupted stops waiting for its
// cluster.
func TestClusterInAProgram(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var nodes []*RedisServer
	err := process.Run(ctx, func(tb process.TB) {
		cancel()
		c := StartCluster(tb)
		nodes = c.Nodes()
	})
	if err == nil {
		t.Error("got no error, want that it was interrupted")
	}
	if nodes != nil {
		t.Error("it went on after the interruption")
	}
}
