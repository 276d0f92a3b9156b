package redisstore_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// A slowCluster is a cluster whose one node answers the first calls slowly, and later ones never.
type slowCluster struct {
	node  *redis.Client
	takes time.Duration

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
			synctest.Test(t, func(t *testing.T) {
				const timeout = 15 * time.Millisecond
				down := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("the node is down") }
				c := &slowCluster{
					node:    redis.NewClient(&redis.Options{Addr: "192.0.2.1:6379", MaxRetries: -1, Dialer: down}),
					answers: slices.Clone(answers), takes: 7 * time.Millisecond,
				}
				s := redisstore.New(c, redisstore.Options{Timeout: timeout})
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
