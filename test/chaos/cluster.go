package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/test/servers"
)

// sharded is a stage on a Cluster of six nodes.
func sharded(do func(c *servers.Cluster, f *fault)) func(t servers.TB) *stage {
	return func(t servers.TB) *stage {
		c := servers.StartCluster(t)
		return &stage{
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

// replaced is a stage on a Cluster in which a replica becomes master by command.
func replaced(mode string, loses bool) func(t servers.TB) *stage {
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
		{name: "CLUSTER FAILOVER", stage: replaced(servers.FailoverAgreed, false)},
		{name: "CLUSTER FAILOVER FORCE", stage: replaced(servers.FailoverForce, true)},
		{name: "CLUSTER FAILOVER TAKEOVER", stage: replaced(servers.FailoverTakeover, true)},
		{name: "Cluster: one master killed", degrades: true, stage: sharded(func(c *servers.Cluster, f *fault) {
			old := c.Masters()[0]
			replica := c.ReplicaOf(old)
			f.begin(old.Stop)
			f.loses()
			f.during(becomes(f.ctx, "master", replica))
			f.over()
		})},
		{name: "Cluster: one master frozen", degrades: true, stage: sharded(func(c *servers.Cluster, f *fault) {
			old := c.Masters()[0]
			replica := c.ReplicaOf(old)
			f.begin(old.Pause)
			f.loses()
			f.during(becomes(f.ctx, "master", replica))
			f.over()
			pause(f.ctx, f.lasts)
			f.moment(old.Resume)
			f.during(becomes(f.ctx, "slave", old))
		})},
		{name: "slots migrate", stage: sharded(func(c *servers.Cluster, f *fault) {
			f.begin(func() {})
			migrate(f.ctx, c, 3*f.lasts)
			f.over()
		})},
	}
}

// halfMoved is how long a slot stays between its old and its new master.
const halfMoved = 20 * time.Millisecond

// migrate moves slots that have logs from master to master, one after the other,
// for some time.
func migrate(ctx context.Context, c *servers.Cluster, lasts time.Duration) {
	end := time.Now().Add(lasts)
	for {
		masters := c.Masters()
		for i, from := range masters {
			if time.Now().After(end) || ctx.Err() != nil {
				return
			}
			to := masters[(i+1)%len(masters)]
			key, err := from.Do("RANDOMKEY")
			if err != nil || key == "" {
				continue // nobody's logs are there, at the moment
			}
			slot := c.Slot(key)
			c.BeginMigration(slot, from, to)
			pause(ctx, halfMoved)
			c.MigrateKeys(slot, from, to, 1)
			pause(ctx, halfMoved)
			c.FinishMigration(slot, from, to)
		}
	}
}
