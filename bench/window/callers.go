package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// callers is how many callers there are at once, each with a key.
const callers = 256

// The measures of a load of callers.
const (
	wallTime  = "time"
	redisCPU  = "CPU of Redis"
	clientCPU = "CPU of the client"
)

// A taker decides for one caller.
type taker func(ctx context.Context, caller int) error

// A takers makes takers on a client.
type takers func(client *redis.Client) (take taker, stop func(), err error)

// callerCheck returns a check that is always allowed.
func callerCheck(caller int) window.Check {
	return window.Check{Key: fmt.Sprintf("caller %d", caller), Limit: window.Limit{Hits: 1000, Window: 10 * time.Millisecond}, Cost: 1}
}

// oneEach sends one EVALSHA for each decision, as go-redis does by itself.
func oneEach(client *redis.Client) (taker, func(), error) {
	calls := make([]call, callers)
	for i := range calls {
		var err error
		if calls[i], err = (packed{}).call(callerCheck(i), true); err != nil {
			return nil, nil, err
		}
	}
	return func(ctx context.Context, caller int) error {
		reply, err := client.Do(ctx, calls[caller].args...).Text()
		if err == nil && reply[0] != 1 {
			err = fmt.Errorf("caller %d: reply %q is no permission", caller, reply)
		}
		return err
	}, func() {}, nil
}

// shared is our store.
func shared(client *redis.Client) (taker, func(), error) {
	store := redisstore.New(client, redisstore.Options{Timeout: time.Second})
	return func(ctx context.Context, caller int) error {
		checks, decisions := [1]window.Check{callerCheck(caller)}, [1]window.Decision{}
		if _, err := store.Take(ctx, window.MayWait, checks[:], decisions[:]); err != nil {
			return err
		}
		if !decisions[0].Allowed {
			return fmt.Errorf("caller %d: decision is %+v, want allowed", caller, decisions[0])
		}
		return nil
	}, func() { _ = store.Close() }, nil
}

// together measures what a decision takes when all callers ask at once.
func (b *bench) together(with takers, what string) probe {
	return func(ctx context.Context) (sample, error) {
		client := redis.NewClient(&redis.Options{Addr: b.client.Options().Addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolTimeout: time.Minute})
		defer client.Close()
		take, stop, err := with(client)
		if err != nil {
			return sample{}, err
		}
		defer stop()
		decisions := int64(8 * b.calls)
		run := func(decisions int64) error {
			var (
				left   atomic.Int64
				failed atomic.Pointer[error]
				all    sync.WaitGroup
			)
			left.Store(decisions)
			for i := range callers {
				all.Go(func() {
					for left.Add(-1) >= 0 && failed.Load() == nil {
						if err := take(ctx, i); err != nil {
							failed.Store(&err)
						}
					}
				})
			}
			all.Wait()
			if err := failed.Load(); err != nil {
				return *err
			}
			return nil
		}
		if err := run(int64(4 * callers)); err != nil { // connections, scripts, pools
			return sample{}, err
		}
		before, err := b.usage(ctx)
		if err != nil {
			return sample{}, err
		}
		cpu, began := cpuTime(), time.Now()
		if err := run(decisions); err != nil {
			return sample{}, err
		}
		took, spent := time.Since(began), cpuTime()-cpu
		after, err := b.usage(ctx)
		if err != nil {
			return sample{}, err
		}
		value := map[string]float64{
			wallTime:  float64(took.Nanoseconds()) / 1000,
			redisCPU:  after.cpu - before.cpu,
			clientCPU: float64(spent.Nanoseconds()) / 1000,
		}[what]
		return sample{value: value / float64(decisions), extra: float64(decisions) / took.Seconds()}, nil
	}
}

// cpuTime is what this process has used of all CPUs.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it knows this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
