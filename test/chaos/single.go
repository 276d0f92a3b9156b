package main

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/program"
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
		masters: func() []string { return []string{s.Addr()} },
		fault:   func(f *fault) { do(s, f) },
	}
}

// proxied is a testbed on a single Redis behind a proxy that is a round trip away: on makes a
// fault of it, and off removes it.
func proxied(on, off func(p *servers.Proxy), away time.Duration) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		s := servers.StartRedis(t)
		p := servers.StartProxy(t, s.Addr())
		p.Distance(away)
		return &testbed{
			url:     redisURL(p.Addr()),
			masters: func() []string { return []string{s.Addr()} },
			fault: func(f *fault) {
				f.begin(func() { on(p) })
				f.last()
				off(p)
				f.over()
			},
		}
	}
}

func latency(d time.Duration) func(t process.TB) *testbed {
	return proxied(func(p *servers.Proxy) { p.Latency(d) }, func(p *servers.Proxy) { p.Latency(0) }, 0)
}

// admin sends a command to a server. An error fails the scenario.
func admin(t process.TB, client *redis.Client, args ...any) {
	t.Helper()
	if err := client.Do(t.Context(), args...).Err(); err != nil && t.Context().Err() == nil {
		t.Fatalf("%v: %w", args[0], err)
	}
}

// commands is a testbed on a single Redis that some commands break and others mend.
func commands(broken, mended [][]any) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		return direct(t, nil, func(s *servers.RedisServer, f *fault) {
			client := plainClient(s.Addr())
			defer client.Close()
			f.begin(func() {
				for _, c := range broken {
					admin(t, client, c...)
				}
			})
			f.last()
			for _, c := range mended {
				admin(t, client, c...)
			}
			f.over()
		})
	}
}

// repeated is a testbed on a single Redis that gets a command again and again.
func repeated(every time.Duration, command ...any) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		return direct(t, nil, func(s *servers.RedisServer, f *fault) {
			client := plainClient(s.Addr())
			defer client.Close()
			f.begin(func() { admin(t, client, command...) })
			for end := time.Now().Add(f.lasts); time.Now().Before(end) && f.ctx.Err() == nil; program.Pause(f.ctx, every) {
				f.moment(func() { admin(t, client, command...) })
			}
			f.over()
		})
	}
}

func singleScenarios() []scenario {
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
				program.Pause(f.ctx, max(f.lasts, min(frozen, 10*f.lasts)))
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
			s := servers.StartRedis(t)
			s.Stop() // it keeps its port
			return &testbed{
				url:     redisURL(s.Addr()),
				masters: func() []string { return []string{s.Addr()} },
				absent:  true,
				fault: func(f *fault) {
					f.last()
					s.Start()
					f.over()
				},
			}
		}},
		{name: "loading a dump", degrades: true, start: loading},
		{name: "replies 5 ms late", start: latency(5 * time.Millisecond)},
		{name: "replies 50 ms late", degrades: true, start: latency(50 * time.Millisecond)},
		{name: "replies 500 ms late", degrades: true, start: latency(500 * time.Millisecond)},
		{name: "half-open connections", degrades: true, start: proxied(
			func(p *servers.Proxy) { p.Blackhole(true) }, func(p *servers.Proxy) { p.Blackhole(false) }, 0,
		)},
		{name: "replies dropped", degrades: true, start: proxied(
			func(p *servers.Proxy) { p.DropReplies(true) }, func(p *servers.Proxy) { p.DropReplies(false) }, 0,
		)},
		{name: "closed in mid-reply", degrades: true, start: proxied(
			func(p *servers.Proxy) { p.CutAfter(cutBytes) }, func(p *servers.Proxy) { p.CutAfter(-1) }, 0,
		)},
		{name: "SCRIPT FLUSH, every 5 ms", start: repeated(flushEvery, "SCRIPT", "FLUSH")},
		{name: "CLIENT KILL, every 20 ms", start: repeated(killEvery, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")},
		{name: "READONLY", degrades: true, start: commands(
			// Of a master that is not there, so that the data stays.
			[][]any{{"REPLICAOF", "127.0.0.1", "1"}},
			[][]any{{"REPLICAOF", "NO", "ONE"}},
		)},
		{name: "MASTERDOWN", degrades: true, start: commands(
			[][]any{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}},
			[][]any{{"REPLICAOF", "NO", "ONE"}},
		)},
		{name: "maxmemory, noeviction", degrades: true, start: commands(
			[][]any{{"CONFIG", "SET", "maxmemory", "1"}},
			[][]any{{"CONFIG", "SET", "maxmemory", "0"}},
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
		client := plainClient(s.Addr())
		defer client.Close()
		for i := range loadValues {
			admin(t, client, "SET", "filler:"+callerName(i), make([]byte, loadBytes))
		}
		f.begin(func() {
			admin(t, client, "SAVE") // Redis serves no other client meanwhile
			s.Stop()
			f.loses()
		})
		s.Start() // returns when everything is loaded
		f.over()
	})
}
