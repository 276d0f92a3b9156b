package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

func newStore() window.Store { return memstore.New(memstore.Options{}) }

// A naive store is the obvious one: for each log a list of times behind a mutex,
// all of them in a sync.Map. It takes single checks of cost 1, and forgets no
// key.
type naive struct {
	start time.Time
	logs  sync.Map // window.LogID to *naiveLog
}

type naiveLog struct {
	mu    sync.Mutex
	times []time.Duration // since start, oldest first
}

func newNaive() window.Store { return &naive{start: time.Now()} }

func (n *naive) Close() error { return nil }

func (n *naive) Take(_ context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	c := &checks[0]
	found, ok := n.logs.Load(c.Log())
	if !ok {
		found, _ = n.logs.LoadOrStore(c.Log(), &naiveLog{})
	}
	l := found.(*naiveLog)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(n.start)
	expired := 0
	for expired < len(l.times) && l.times[expired] <= now-c.Limit.Window {
		expired++
	}
	l.times = l.times[expired:]
	used := uint64(len(l.times))
	if used >= c.Limit.Hits {
		decisions[0] = window.Decision{RetryAfter: l.times[0] + c.Limit.Window - now}
		return true, nil
	}
	l.times = append(l.times, now)
	decisions[0] = window.Decision{Allowed: true, Remaining: c.Limit.Hits - used - 1}
	return true, nil
}

// take measures decisions on the bytes of one log: nanoseconds of CPU, and allocations.
func (b *bench) take(state string, l limit) probe {
	return func(context.Context) (sample, error) {
		c := l.check("log", time.Duration(l.hits)*pace, 0)
		now := (2*c.Limit.Window + time.Duration(l.hits-1)*pace).Microseconds() // the first hit is two windows after zero
		log, err := even(c, now, past{hits: int(l.hits), pace: pace})
		if err != nil {
			return sample{}, err
		}
		step := int64(0)
		if state == full {
			// Rounded up, a hit counts a little longer than its window.
			c.Limit.Hits += l.hits/1000 + 2
			step = pace.Microseconds()
		}
		n := 50 * b.calls
		wrong := 0
		var d window.Decision
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cpuTime()
		for range n {
			now += step
			if log = windowtest.Take(log, now, &c, &d); d.Allowed != (state == full) {
				wrong++
			}
		}
		took := cpuTime() - start
		runtime.ReadMemStats(&after)
		if wrong > 0 {
			return sample{}, fmt.Errorf("%d of %d decisions are not as they should be; the last is %+v", wrong, n, d)
		}
		// Whatever else the program does meanwhile allocates now and then; an
		// allocation that is part of a decision shows as a hundredth at least.
		allocations := (after.Mallocs - before.Mallocs) * 100 / uint64(n)
		return sample{value: float64(took.Nanoseconds()) / float64(n), extra: float64(allocations) / 100}, nil
	}
}

// parallel measures how many decisions a second all CPUs make together, and the
// nanoseconds of CPU for each.
func (b *bench) parallel(open func() window.Store, state string) probe {
	return func(ctx context.Context) (sample, error) {
		s := open()
		defer s.Close()
		limit := window.Limit{Hits: 1 << 30, Window: 100 * time.Millisecond}
		if state == denied {
			limit = window.Limit{Hits: 5, Window: time.Hour}
		}
		// A request brings its key along, so finding the key is not to cost a miss of
		// the cache: all are in one string.
		keys := b.keyText()
		c := []window.Check{{Limit: limit, Cost: 1}}
		d := make([]window.Decision, 1)
		for range 5 {
			for i := range b.memstore {
				c[0].Key = keys[i*keyBytes:][:keyBytes]
				if _, err := s.Take(ctx, window.MayWait, c, d); err != nil {
					return sample{}, err
				}
			}
		}
		runtime.GC() // what came before is not to be paid for here
		var (
			cpus    = runtime.GOMAXPROCS(0)
			each    = 100 * b.calls
			failed  = make([]error, cpus)
			workers sync.WaitGroup
			busy    = cpuTime()
			start   = time.Now()
		)
		for w := range cpus {
			workers.Go(func() {
				c := []window.Check{{Limit: limit, Cost: 1}}
				d := make([]window.Decision, 1)
				const stride = 7919 // a prime, so that every key has its turn
				at := w * b.memstore / cpus
				for range each {
					at = (at + stride) % b.memstore
					c[0].Key = keys[at*keyBytes:][:keyBytes]
					if _, err := s.Take(ctx, window.MayWait, c, d); err != nil {
						failed[w] = err
					} else if d[0].Allowed == (state == denied) {
						failed[w] = fmt.Errorf("decision is %+v", d[0])
					}
				}
			})
		}
		workers.Wait()
		took := time.Since(start)
		busy = cpuTime() - busy
		for _, err := range failed {
			if err != nil {
				return sample{}, err
			}
		}
		n := float64(cpus * each)
		return sample{value: n / took.Seconds(), extra: float64(busy.Nanoseconds()) / n}, nil
	}
}

// cpuTime is what this process has used of all CPUs.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it knows this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// keyBytes is the length of keys in memory: a size that the allocator has.
const keyBytes = 16

// keyText returns all keys one after the other.
func (b *bench) keyText() string {
	var text strings.Builder
	for i := range b.memstore {
		fmt.Fprintf(&text, "%0*d", keyBytes, i)
	}
	return text.String()
}

// bytes measures the memory for a key, without the bytes of the key itself.
func (b *bench) bytes(open func() window.Store, hits int) probe {
	return func(ctx context.Context) (sample, error) {
		before := heap()
		s := open()
		defer s.Close()
		keys := b.memstore / min(hits, 4) // enough for a mean
		c := []window.Check{{Limit: window.Limit{Hits: uint64(max(hits, 100)), Window: time.Hour}, Cost: 1}}
		d := make([]window.Decision, 1)
		for range hits {
			// A hit for each key in turn: each at an instant of its own.
			for key := range keys {
				c[0].Key = fmt.Sprintf("%0*d", keyBytes, key)
				if _, err := s.Take(ctx, window.MayWait, c, d); err != nil || !d[0].Allowed {
					return sample{}, fmt.Errorf("decision is %+v, error %w", d[0], err)
				}
			}
		}
		used := float64(heap()-before)/float64(keys) - keyBytes
		runtime.KeepAlive(s)
		return sample{value: used}, nil
	}
}

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
