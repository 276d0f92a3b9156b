package redisstore

import (
	"context"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/instances"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// Count counts the instances that share the logs under [Options.Prefix]: all processes that call
// Count. It writes an entry of this instance into Redis every few seconds and reads their number,
// until ctx ends. Then it removes the entry and returns nil. Call it once.
//
// A larger number counts at once. A smaller one counts when every answer of ten seconds was smaller,
// while all servers decided. So the last number stays in an outage. If Redis has lost the entries
// meanwhile, the other instances write theirs before the number may fall.
//
// counted is called after each heartbeat, with the number before and now, which are at least 1, and
// with an error that has a [failure.Class] if there was no answer.
func (s *Store) Count(ctx context.Context, counted func(before, now int, err error)) error {
	return s.countEvery(ctx, instances.Every, instances.Expires, counted)
}

// countEvery is Count with the time between heartbeats, and the time after which the number falls.
func (s *Store) countEvery(ctx context.Context, every, falls time.Duration, counted func(before, now int, err error)) error {
	c := instances.New(s.client, s.opts.Prefix, falls)
	wait := mathrand.N(every) //nolint:gosec // spreads the instances that start together
	for {
		before := s.Instances()
		n, err := c.Beat(ctx)
		if ctx.Err() == nil {
			now := c.Note(serverclock.Now(), n, err == nil && s.decides())
			s.instances.Store(int64(now))
			counted(before, now, err)
		}
		tick := time.NewTimer(wait)
		select {
		case <-tick.C:
			wait = every
		case <-ctx.Done():
			tick.Stop()
			c.Leave(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// Instances returns the number of instances that share the logs, by the last answer to [Store.Count].
// It is at least 1.
func (s *Store) Instances() int { return max(int(s.instances.Load()), 1) }

// decides reports whether all servers decide. While one does not, instances that end have admitted
// hits without it, which the others must not admit again.
func (s *Store) decides() bool {
	return !slices.ContainsFunc(s.Stats().Nodes, func(n NodeStats) bool { return n.Open || n.Refuses })
}
