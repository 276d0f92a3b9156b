package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/bench/internal/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// bench is a Redis under load.
type bench struct {
	options
	client  *redis.Client
	version string
}

// newBench starts a Redis that keeps nothing on disk.
func newBench(t process.TB, o options) *bench {
	server := servers.StartRedisBinary(t, o.redis)
	b := &bench{options: o}
	b.client = redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { _ = b.client.Close() }) // the server ends next
	if err := b.prepare(t.Context()); err != nil {
		t.Fatalf("preparing Redis: %v", err)
	}
	return b
}

// prepare gives Redis all scripts, so that no call sends one.
func (b *bench) prepare(ctx context.Context) error {
	server, err := b.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	b.version = "Redis " + server["Server"]["redis_version"]
	for _, s := range scripts {
		if err := s.Load(ctx, b.client).Err(); err != nil {
			return err
		}
	}
	// The store loads its script as it needs it.
	check := window.Check{Key: "first", Limit: window.Limit{Hits: 1, Window: time.Second}, Cost: 1}
	store := redisstore.New(b.client, redisstore.Options{})
	_, err = store.Take(ctx, window.MayWait, []window.Check{check}, make([]window.Decision, 1))
	return err
}

// A usage is the time that Redis has used, in microseconds.
type usage struct {
	cpu    float64 // of the process
	script float64 // within EVALSHA
}

func (b *bench) usage(ctx context.Context) (u usage, err error) {
	seconds, err := metrics.RedisCPU(ctx, b.client)
	if err != nil {
		return u, err
	}
	u.cpu = seconds * 1e6
	stats, err := b.client.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return u, err
	}
	_, after, ok := strings.Cut(stats["Commandstats"]["cmdstat_evalsha"], "usec=")
	if !ok {
		return u, nil // there was no such call yet
	}
	micros, _, _ := strings.Cut(after, ",")
	u.script, err = strconv.ParseFloat(micros, 64)
	return u, err
}

// A load is calls and how they are sent.
type load struct {
	calls []call        // in turn, over and over
	each  int           // decisions that a call counts as
	count int           // decisions in all
	batch int           // calls of one pipeline
	pace  time.Duration // from pipeline to pipeline; zero: no pause
}

// send sends a load and returns what it took for each decision. At a pace, an
// eighth more comes first and does not count: it makes up for the time since the
// logs were planted. The replies of the rest must be right.
func (b *bench) send(ctx context.Context, l load) (sample, error) {
	next := 0
	if l.pace > 0 {
		if _, err := b.pipelines(ctx, l, &next, l.count/8); err != nil {
			return sample{}, err
		}
	}
	before, err := b.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	from := next
	replies, err := b.pipelines(ctx, l, &next, l.count)
	if err != nil {
		return sample{}, err
	}
	after, err := b.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	for i, reply := range replies {
		if err := l.calls[(from+i)%len(l.calls)].check(reply); err != nil {
			return sample{}, fmt.Errorf("call %d: %w", i, err)
		}
	}
	n := float64(len(replies) * l.each)
	return sample{value: (after.cpu - before.cpu) / n, extra: (after.script - before.script) / n}, nil
}

// pipelines sends calls of count decisions, from the next on, and returns their
// replies.
func (b *bench) pipelines(ctx context.Context, l load, next *int, count int) ([]any, error) {
	var replies []any
	for calls := (count + l.each - 1) / l.each; len(replies) < calls; {
		start := time.Now()
		pipe := b.client.Pipeline()
		for range min(l.batch, calls-len(replies)) {
			pipe.Do(ctx, l.calls[*next%len(l.calls)].args...)
			*next++
		}
		commands, err := pipe.Exec(ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range commands {
			replies = append(replies, c.(*redis.Cmd).Val())
		}
		// Timers are late by a tenth of the pace, so a loop waits for the end of it. A late
		// pipeline delays all later ones.
		time.Sleep(l.pace - time.Since(start) - 200*time.Microsecond)
		for time.Since(start) < l.pace {
			runtime.Gosched()
		}
	}
	return replies, nil
}

// once sends a single call and returns how long its script ran.
func (b *bench) once(ctx context.Context, c call) (sample, error) {
	before, err := b.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	reply, err := b.client.Do(ctx, c.args...).Result()
	if err != nil {
		return sample{}, err
	}
	if err := c.check(reply); err != nil {
		return sample{}, err
	}
	after, err := b.usage(ctx)
	return sample{value: after.script - before.script, extra: after.cpu - before.cpu}, err
}

// now is Redis's clock, in microseconds.
func (b *bench) now(ctx context.Context) (int64, error) {
	t, err := b.client.Time(ctx).Result()
	return t.UnixMicro(), err
}
