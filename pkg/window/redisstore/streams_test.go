package redisstore_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// A slowCluster is a cluster whose one node answers the first calls slowly, and later ones never.
type slowCluster struct {
	node  *redis.Client
	takes time.Duration
	known time.Time // when it knows which node has a key

	mu      sync.Mutex
	answers []any // to the first calls
	asked   int
}

func (c *slowCluster) Process(ctx context.Context, cmd redis.Cmder) error {
	c.mu.Lock()
	c.asked++
	if len(c.answers) == 0 {
		c.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	answer := c.answers[0]
	c.answers = c.answers[1:]
	c.mu.Unlock()
	time.Sleep(c.takes)
	cmd.(interface{ SetVal(v any) }).SetVal(answer)
	return nil
}

func (c *slowCluster) MasterForKey(context.Context, string) (*redis.Client, error) {
	time.Sleep(time.Until(c.known))
	return c.node, nil
}

func (c *slowCluster) ForEachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	return f(ctx, c.node)
}

func (*slowCluster) ReloadState(context.Context) {}

// TestStreamInTime ends a stream on a cluster that stops answering between two steps of the end. All steps
// together take the timeout, not each.
func TestStreamInTime(t *testing.T) {
	logs := []any{"0", "\x00{a}:log", "\x00{b}:log"}
	for name, answers := range map[string][]any{
		"after the record": {logs},
		"after one log":    {logs, int64(1)},
		"after all logs":   {logs, int64(1), int64(1)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const timeout = 15 * time.Millisecond
				c, s := startSlow(answers, timeout)
				begun := time.Now()
				_, err := s.End(t.Context(), window.Ending{Stream: 1})
				if took := time.Since(begun); err == nil || took != timeout {
					t.Errorf("End took %v with error %v, want an error after %v", took, err, timeout)
				}
				if c.asked <= len(answers) {
					t.Errorf("%d calls were made, want more than %d", c.asked, len(answers))
				}
				_ = s.Close()
				_ = c.node.Close()
			})
		})
	}
}

// TestTakeInTime asks a cluster that stops answering after a step of the call. All steps together take the timeout.
func TestTakeInTime(t *testing.T) {
	flies := window.Check{Key: "a", Limit: window.Limit{Hits: 1, Window: time.Minute, Policy: window.InFlight}, Cost: 1, Stream: 1}
	slides := window.Check{Key: "a", Limit: window.Limit{Hits: 1, Window: time.Minute}, Cost: 1}
	for name, of := range map[string]struct {
		check  window.Check
		learns time.Duration
	}{
		"after the record":   {check: flies},
		"after the topology": {slides, 7 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const timeout, unknown = 15 * time.Millisecond, int64(-1)
				c, s := startSlow([]any{unknown}, timeout)
				c.known = time.Now().Add(of.learns)
				begun := time.Now()
				_, err := s.Take(t.Context(), window.MayWait, []window.Check{of.check}, make([]window.Decision, 1))
				if took := time.Since(begun); err == nil || took != timeout {
					t.Errorf("Take took %v with error %v, want an error after %v", took, err, timeout)
				}
				_ = s.Close()
				_ = c.node.Close()
			})
		})
	}
}

// inBubble runs f on a virtual clock. The store keeps timers and channels in pools, and those of a bubble are of no
// use outside. Two collections empty the pools.
func inBubble(t *testing.T, f func(*testing.T)) {
	empty := func() {
		runtime.GC()
		runtime.GC()
	}
	empty()
	defer empty()
	synctest.Test(t, f)
}

// startSlow returns a cluster that gives answers, and a store on it.
func startSlow(answers []any, timeout time.Duration) (*slowCluster, *redisstore.Store) {
	hangs := func(context.Context, string, string) (net.Conn, error) {
		conn, other := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, other) }()
		return conn, nil
	}
	c := &slowCluster{
		node: redis.NewClient(&redis.Options{
			Addr: "192.0.2.1:6379", MaxRetries: -1, Dialer: hangs, ContextTimeoutEnabled: true, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}),
		answers: slices.Clone(answers), takes: 7 * time.Millisecond,
	}
	return c, redisstore.New(c, redisstore.Options{Timeout: timeout})
}
