package main

import (
	"strings"
	"time"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	frozen     = 5 * time.Second // the usual length of a hang in reports
	flushEvery = 5 * time.Millisecond
	killEvery  = 20 * time.Millisecond
	// cutBytes is in the middle of the reply to one check.
	cutBytes = 12
)

func redisURL(address string) string { return "redis://" + address }

// direct is a testbed on a single Redis.
func direct(t process.TB, args []string, do func(s *servers.RedisServer, f *fault)) *testbed {
	t.Helper()
	s := servers.StartRedis(t, args...)
	return &testbed{
		url:     redisURL(s.Addr()),
		masters: func() []*servers.RedisServer { return []*servers.RedisServer{s} },
		fault:   func(f *fault) { do(s, f) },
	}
}

// proxied is a testbed on a single Redis behind a proxy. set makes a fault with on, and removes it
// with off.
func proxied[T any](set func(p *servers.Proxy, to T), on, off T) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		var p *servers.Proxy
		bed := direct(t, nil, func(_ *servers.RedisServer, f *fault) {
			f.begin(func() { set(p, on) })
			f.last()
			set(p, off)
			f.over()
		})
		p = servers.StartProxy(t, bed.masters()[0].Addr())
		bed.url = redisURL(p.Addr())
		return bed
	}
}

// admin sends a command to a server. An error fails the scenario.
func admin(t process.TB, s *servers.RedisServer, args ...string) {
	t.Helper()
	if _, err := s.Do(args...); err != nil && t.Context().Err() == nil {
		t.Fatalf("%w", err)
	}
}

// commands is a testbed on a single Redis that some commands break and one mends.
func commands(mended []string, broken ...[]string) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		return direct(t, nil, func(s *servers.RedisServer, f *fault) {
			f.begin(func() {
				for _, c := range broken {
					admin(t, s, c...)
				}
			})
			f.last()
			admin(t, s, mended...)
			f.over()
		})
	}
}

// repeated is a testbed on a single Redis that gets a command again and again.
func repeated(every time.Duration, command ...string) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		return direct(t, nil, func(s *servers.RedisServer, f *fault) {
			again := func() { admin(t, s, command...) }
			f.begin(again)
			for end := time.Now().Add(f.lasts); time.Now().Before(end) && f.ctx.Err() == nil; traffic.Pause(f.ctx, every) {
				f.moment(again)
			}
			f.over()
		})
	}
}

func singleScenarios() []scenario {
	master, replica := []string{"REPLICAOF", "NO", "ONE"}, []string{"REPLICAOF", "127.0.0.1", "1"}
	return []scenario{
		{name: "none", start: func(t process.TB) *testbed {
			return direct(t, nil, func(_ *servers.RedisServer, f *fault) {
				f.begin(func() {})
				f.last()
				f.over()
			})
		}},
		{name: "SIGSTOP for 5 s", degrades: true, start: func(t process.TB) *testbed {
			return direct(t, nil, func(s *servers.RedisServer, f *fault) {
				f.begin(s.Pause)
				traffic.Pause(f.ctx, max(f.lasts, min(frozen, 10*f.lasts)))
				s.Resume()
				f.over()
			})
		}},
		{name: "SIGKILL, restart empty", degrades: true, start: func(t process.TB) *testbed {
			return direct(t, nil, func(s *servers.RedisServer, f *fault) {
				f.begin(s.Stop)
				f.loses()
				f.last()
				s.Start()
				f.over()
			})
		}},
		{name: "no Redis at the start", degrades: true, start: func(t process.TB) *testbed {
			bed := direct(t, nil, func(s *servers.RedisServer, f *fault) {
				f.last()
				s.Start()
				f.over()
			})
			bed.masters()[0].Stop() // it keeps its port
			bed.absent = true
			return bed
		}},
		{name: "loading a dump", degrades: true, start: loading},
		{name: "replies 5 ms late", start: proxied((*servers.Proxy).Latency, 5*time.Millisecond, 0)},
		{name: "replies 50 ms late", degrades: true, start: proxied((*servers.Proxy).Latency, 50*time.Millisecond, 0)},
		{name: "half-open connections", degrades: true, start: proxied((*servers.Proxy).Blackhole, true, false)},
		{name: "replies dropped", degrades: true, start: proxied((*servers.Proxy).DropReplies, true, false)},
		{name: "closed in mid-reply", degrades: true, start: proxied((*servers.Proxy).CutAfter, cutBytes, -1)},
		{name: "SCRIPT FLUSH, every 5 ms", start: repeated(flushEvery, "SCRIPT", "FLUSH")},
		{name: "CLIENT KILL, every 20 ms", start: repeated(killEvery, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")},
		// A replica of a master that is not there keeps its data.
		{name: "READONLY", degrades: true, start: commands(master, replica)},
		{name: "MASTERDOWN", degrades: true, start: commands(master, []string{"CONFIG", "SET", "replica-serve-stale-data", "no"}, replica)},
		{name: "maxmemory, noeviction", degrades: true, start: commands(
			[]string{"CONFIG", "SET", "maxmemory", "0"}, []string{"CONFIG", "SET", "maxmemory", "1"},
		)},
	}
}

const (
	// A dump that takes a while to load. It has loadValues values, and each takes loadDelay.
	// After loadBytes Redis serves its clients once while it loads.
	loadValues = 200
	loadBytes  = 100_000
	loadDelay  = "10000" // microseconds
)

// loading is a testbed on a Redis that is killed and loads its dump.
func loading(t process.TB) *testbed {
	return direct(t, []string{"--rdbcompression", "no", "--key-load-delay", loadDelay}, func(s *servers.RedisServer, f *fault) {
		filler := strings.Repeat("x", loadBytes)
		for i := range loadValues {
			admin(t, s, "SET", "filler:"+callerName(i), filler)
		}
		f.begin(func() {
			admin(t, s, "SAVE") // Redis serves no other client meanwhile
			s.Stop()
			f.loses()
		})
		s.Start() // returns when everything is loaded
		f.over()
	})
}
