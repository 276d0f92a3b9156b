package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// bench is a Redis under load.
type bench struct {
	options
	client  *redis.Client
	version string
	stop    func()
}

// newBench starts a Redis that keeps nothing on disk.
func newBench(ctx context.Context, o options) (*bench, error) {
	address, stop, err := servers.RunRedis(ctx, o.redis)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, stop: stop}
	b.client = redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	if err := b.prepare(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	_ = b.client.Close() // the server ends next
	b.stop()
}

// prepare gives Redis all scripts, so that no call sends one.
func (b *bench) prepare(ctx context.Context) error {
	server, err := b.info(ctx, "server")
	if err != nil {
		return err
	}
	b.version = "Redis " + server["redis_version"]
	for _, s := range scripts {
		if err := s.Load(ctx, b.client).Err(); err != nil {
			return err
		}
	}
	// The store loads its own script as it needs it.
	check := window.Check{Key: "first", Limit: window.Limit{Hits: 1, Window: time.Second}, Cost: 1}
	store := redisstore.New(b.client, redisstore.Options{})
	_, err = store.Take(ctx, window.MayWait, []window.Check{check}, make([]window.Decision, 1))
	return err
}

// info returns a section of INFO.
func (b *bench) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := b.client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values, nil
}

// A usage is what Redis has spent, in microseconds.
type usage struct {
	cpu    float64 // of the process
	script float64 // within EVALSHA
}

func (b *bench) usage(ctx context.Context) (u usage, err error) {
	cpu, err := b.info(ctx, "cpu")
	if err != nil {
		return u, err
	}
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(cpu[name], 64)
		if err != nil {
			return u, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		u.cpu += seconds * 1e6
	}
	stats, err := b.info(ctx, "commandstats")
	if err != nil {
		return u, err
	}
	_, after, ok := strings.Cut(stats["cmdstat_evalsha"], "usec=")
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
		// Timers are late by a tenth of the pace, so the last of it is waited for
		// awake. A late pipeline moves all later ones: none follows sooner.
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
