package main

import (
	"context"
	"strings"
	"time"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// pollEvery is how often a server is asked whether it has become master.
const pollEvery = 2 * time.Millisecond

// becomes waits until one of some servers has a role, "master" or "slave", and returns when that
// was: after it last had not.
func becomes(ctx context.Context, role string, those ...*servers.RedisServer) span {
	at := span{from: time.Now()}
	for ctx.Err() == nil {
		asked := time.Now()
		for _, s := range those {
			// A server that does not answer has no role.
			if reply, err := s.Do("ROLE"); err == nil && strings.HasPrefix(reply, role) {
				at.to = time.Now()
				return at
			}
		}
		at.from = asked
		traffic.Pause(ctx, pollEvery)
	}
	return at
}

// watched is a testbed on a Sentinel set.
func watched(do func(set *servers.SentinelSet, f *fault)) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		set := servers.StartSentinel(t, servers.SentinelOptions{})
		return &testbed{
			url:     "redis-sentinel://" + strings.Join(set.Sentinels(), ",") + "/" + set.MasterName(),
			masters: func() []*servers.RedisServer { return []*servers.RedisServer{set.Master()} },
			fault:   func(f *fault) { do(set, f) },
		}
	}
}

// promoted waits until there is a new master, which ends the fault.
func promoted(f *fault, others ...*servers.RedisServer) {
	f.during(becomes(f.ctx, "master", others...))
	f.over()
}

// A failover loses the charges that the old master has not replicated. A master that
// goes on meanwhile also loses all charges until it learns of the new one. The fault
// ends when there is a new master.
func sentinelScenarios() []scenario {
	return []scenario{
		{name: "Sentinel: master killed", degrades: true, start: watched(func(set *servers.SentinelSet, f *fault) {
			others := set.Replicas()
			f.begin(set.Master().Stop)
			f.loses()
			promoted(f, others...)
		})},
		{name: "Sentinel: master frozen", degrades: true, start: watched(func(set *servers.SentinelSet, f *fault) {
			old, others := set.Master(), set.Replicas()
			f.begin(old.Pause)
			f.loses()
			promoted(f, others...)
			traffic.Pause(f.ctx, f.lasts)
			f.moment(old.Resume)
			f.during(becomes(f.ctx, "slave", old))
			f.loses()
		})},
		{name: "SENTINEL FAILOVER", start: watched(func(set *servers.SentinelSet, f *fault) {
			old, others := set.Master(), set.Replicas()
			f.begin(set.Failover)
			promoted(f, others...)
			f.during(becomes(f.ctx, "slave", old))
			f.loses()
		})},
	}
}
