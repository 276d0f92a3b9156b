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

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

// sharded is a testbed on a Cluster of six nodes.
func sharded(do func(c *servers.Cluster, f *fault)) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		c := servers.StartCluster(t)
		return &testbed{
			url:     clusterURL(c),
			masters: func() []string { return mastersOf(c) },
			fault:   func(f *fault) { do(c, f) },
		}
	}
}

func clusterURL(c *servers.Cluster) string { return "redis-cluster://" + strings.Join(c.Addrs(), ",") }

func mastersOf(c *servers.Cluster) []string {
	var addresses []string
	for _, s := range c.Masters() {
		addresses = append(addresses, s.Addr())
	}
	return addresses
}

// replaced is a testbed on a Cluster in which a replica becomes master by command.
func replaced(mode string, loses bool) func(t process.TB) *testbed {
	return sharded(func(c *servers.Cluster, f *fault) {
		old := c.Masters()[0]
		replica := c.ReplicaOf(old)
		// Its replica can follow at any time from now on.
		var roles sync.WaitGroup
		roles.Go(func() {
			f.during(becomes(f.ctx, "master", replica))
			f.over()
		})
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
		{name: "CLUSTER FAILOVER TAKEOVER", partial: true, start: replaced(servers.FailoverTakeover, true)},
		{name: "Cluster: one master killed", degrades: true, partial: true, start: sharded(func(c *servers.Cluster, f *fault) {
			old := c.Masters()[0]
			replica := c.ReplicaOf(old)
			f.begin(old.Stop)
			f.loses()
			f.during(becomes(f.ctx, "master", replica))
			f.over()
		})},
		{name: "Cluster: one master frozen", degrades: true, partial: true, start: sharded(func(c *servers.Cluster, f *fault) {
			old := c.Masters()[0]
			replica := c.ReplicaOf(old)
			f.begin(old.Pause)
			f.loses()
			f.during(becomes(f.ctx, "master", replica))
			f.over()
			program.Pause(f.ctx, f.lasts)
			f.moment(old.Resume)
			f.during(becomes(f.ctx, "slave", old))
		})},
		{name: "slots migrate", partial: true, start: func(t process.TB) *testbed {
			return sharded(func(c *servers.Cluster, f *fault) {
				f.begin(func() {})
				m, err := migrate(f.ctx, c, 3*f.lasts)
				if err == nil && m.slots == 0 {
					err = errors.New("no slot has migrated")
				}
				if err != nil {
					t.Fatalf("%w", err)
				}
				f.over()
			})(t)
		}},
	}
}

// halfMoved is how long a slot stays as it is before the next of its keys is moved.
const halfMoved = 20 * time.Millisecond

// migrated is the result of moving slots.
type migrated struct {
	slots int
}

// migrate moves slots that have logs from master to master, one after the other,
// for some time.
func migrate(ctx context.Context, c *servers.Cluster, lasts time.Duration) (m migrated, err error) {
	end := time.Now().Add(lasts)
	for {
		masters := c.Masters()
		for i, from := range masters {
			if time.Now().After(end) || ctx.Err() != nil {
				return m, ctx.Err()
			}
			to := masters[(i+1)%len(masters)]
			key, err := from.Do("RANDOMKEY")
			if err != nil || key == "" {
				continue // it has no logs at the moment
			}
			slot := c.Slot(key)
			c.BeginMigration(slot, from, to)
			for {
				program.Pause(ctx, halfMoved)
				moved, err := moveKey(slot, from, to)
				if err != nil {
					return m, err
				}
				if !moved {
					break
				}
			}
			c.FinishMigration(slot, from, to)
			m.slots++
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
