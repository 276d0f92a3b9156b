package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// sharded is a testbed on a Cluster of six nodes.
func sharded(do func(c *servers.Cluster, f *fault)) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		c := servers.StartCluster(t)
		return &testbed{
			url:     "redis-cluster://" + strings.Join(c.Addrs(), ","),
			masters: c.Masters,
			fault:   func(f *fault) { do(c, f) },
		}
	}
}

// replaced is a testbed on a Cluster in which a replica becomes master by command.
func replaced(mode string, loses bool) func(t process.TB) *testbed {
	return sharded(func(c *servers.Cluster, f *fault) {
		old := c.Masters()[0]
		replica := c.ReplicaOf(old)
		// Its replica can follow at any time from now on.
		var roles sync.WaitGroup
		roles.Go(func() { promoted(f, replica) })
		roles.Go(func() { f.during(becomes(f.ctx, "slave", old)) })
		f.begin(func() {})
		c.Failover(replica, mode)
		roles.Wait()
		if loses {
			f.loses()
		}
	})
}

func clusterScenarios() []scenario {
	return []scenario{
		{name: "CLUSTER FAILOVER", partial: true, start: replaced(servers.FailoverAgreed, false)},
		{name: "CLUSTER FAILOVER FORCE", partial: true, start: replaced(servers.FailoverForce, true)},
		{name: "Cluster: one master killed", degrades: true, partial: true, start: sharded(func(c *servers.Cluster, f *fault) {
			old := c.Masters()[0]
			replica := c.ReplicaOf(old)
			f.begin(old.Stop)
			f.loses()
			promoted(f, replica)
		})},
		{name: "Cluster: one master frozen", degrades: true, partial: true, start: sharded(func(c *servers.Cluster, f *fault) {
			old := c.Masters()[0]
			replica := c.ReplicaOf(old)
			f.begin(old.Pause)
			f.loses()
			promoted(f, replica)
			traffic.Pause(f.ctx, f.lasts)
			f.moment(old.Resume)
			f.during(becomes(f.ctx, "slave", old))
		})},
		{name: "slots migrate", partial: true, start: migrating},
	}
}

// migrating is a testbed on a Cluster whose slots migrate.
func migrating(t process.TB) *testbed {
	return sharded(func(c *servers.Cluster, f *fault) {
		f.begin(func() {})
		if err := migrate(f.ctx, c, 3*f.lasts); err != nil {
			t.Fatalf("%w", err)
		}
		f.over()
	})(t)
}

// halfMoved is how long a slot stays as it is before the next of its keys is moved.
const halfMoved = 20 * time.Millisecond

// migrate moves slots that have logs from master to master, one after the other,
// for some time.
func migrate(ctx context.Context, c *servers.Cluster, lasts time.Duration) error {
	slots := 0
	for end := time.Now().Add(lasts); ; {
		masters := c.Masters()
		for i, from := range masters {
			if time.Now().After(end) || ctx.Err() != nil {
				if slots == 0 {
					return errors.New("no slot has migrated")
				}
				return ctx.Err()
			}
			to := masters[(i+1)%len(masters)]
			key, err := from.Do("RANDOMKEY")
			if err != nil || key == "" {
				continue // it has no logs at the moment
			}
			slot := c.Slot(key)
			c.BeginMigration(slot, from, to)
			for moved := true; moved; {
				traffic.Pause(ctx, halfMoved)
				if moved, err = moveKey(slot, from, to); err != nil {
					return err
				}
			}
			c.FinishMigration(slot, from, to)
			slots++
		}
	}
}

// moveKey moves one key of a slot, if there is one left. It is an error if the new
// master has the key already.
func moveKey(slot int, from, to *servers.RedisServer) (bool, error) {
	key, err := from.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "1")
	if err != nil || key == "" {
		return false, err
	}
	host, port, _ := net.SplitHostPort(to.Addr())
	if _, err = from.Do("MIGRATE", host, port, key, "0", "5000"); err != nil {
		return false, fmt.Errorf("moving %s: %w", key, err)
	}
	return true, nil
}
