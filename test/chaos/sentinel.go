package main

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

// pollEvery is how often a server is asked whether it has become master.
const pollEvery = 2 * time.Millisecond

// roleOf returns "master" or "slave", or nothing if the server does not answer.
func roleOf(ctx context.Context, client *redis.Client) string {
	reply, err := client.Do(ctx, "ROLE").Slice()
	if err != nil || len(reply) == 0 {
		return ""
	}
	role, _ := reply[0].(string)
	return role
}

// becomes waits until one of some servers has a role, and returns when that was:
// after it last had not.
func becomes(ctx context.Context, role string, those ...*servers.RedisServer) span {
	var clients []*redis.Client
	for _, s := range those {
		client := plainClient(s.Addr())
		defer client.Close()
		clients = append(clients, client)
	}
	at := span{from: time.Now()}
	for ctx.Err() == nil {
		asked := time.Now()
		for _, c := range clients {
			if roleOf(ctx, c) == role {
				at.to = time.Now()
				return at
			}
		}
		at.from = asked
		program.Pause(ctx, pollEvery)
	}
	return at
}

// watched is a testbed on a Sentinel set.
func watched(do func(set *servers.SentinelSet, f *fault)) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		set := servers.StartSentinel(t, servers.SentinelOptions{})
		return &testbed{
			url:     "redis-sentinel://" + strings.Join(set.Sentinels(), ",") + "/" + set.MasterName(),
			masters: func() []string { return []string{set.Master().Addr()} },
			fault:   func(f *fault) { do(set, f) },
		}
	}
}

// promoted waits until there is a new master, which ends the fault, and until the
// Sentinels name it, so that clients can learn of it.
func promoted(set *servers.SentinelSet, f *fault, old *servers.RedisServer, others []*servers.RedisServer) {
	named := make(chan time.Time, 1)
	go func() { named <- names(f.ctx, set, old.Addr()) }()
	at := becomes(f.ctx, "master", others...)
	f.during(at)
	f.over()
	f.note("the first Sentinel named the new master %d ms after it had become one", (<-named).Sub(at.to).Milliseconds())
}

// names waits until a Sentinel names another master than the one at notAddr, and
// returns when that was.
func names(ctx context.Context, set *servers.SentinelSet, notAddr string) time.Time {
	var clients []*redis.Client
	for _, address := range set.Sentinels() {
		client := plainClient(address)
		defer client.Close()
		clients = append(clients, client)
	}
	for ctx.Err() == nil {
		for _, c := range clients {
			master, err := c.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", set.MasterName()).StringSlice()
			if err == nil && len(master) == 2 && net.JoinHostPort(master[0], master[1]) != notAddr {
				return time.Now()
			}
		}
		program.Pause(ctx, pollEvery)
	}
	return time.Now()
}

// A failover loses the charges that the old master has not replicated. A master that
// goes on meanwhile also loses all charges until it learns of the new one. The fault
// ends when there is a new master.
func sentinelScenarios() []scenario {
	return []scenario{
		{name: "Sentinel: master killed", degrades: true, start: watched(func(set *servers.SentinelSet, f *fault) {
			old, others := set.Master(), set.Replicas()
			f.begin(old.Stop)
			f.loses()
			promoted(set, f, old, others)
		})},
		{name: "Sentinel: master frozen", degrades: true, start: watched(func(set *servers.SentinelSet, f *fault) {
			old, others := set.Master(), set.Replicas()
			f.begin(old.Pause)
			f.loses()
			promoted(set, f, old, others)
			program.Pause(f.ctx, f.lasts)
			f.moment(old.Resume)
			f.during(becomes(f.ctx, "slave", old))
			f.loses()
		})},
		{name: "SENTINEL FAILOVER", start: watched(func(set *servers.SentinelSet, f *fault) {
			old, others := set.Master(), set.Replicas()
			f.begin(set.Failover)
			promoted(set, f, old, others)
			f.during(becomes(f.ctx, "slave", old))
			f.loses()
		})},
	}
}
