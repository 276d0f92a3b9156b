package redisstore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/instances"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// seenInstances are what a store knows of the instances that share the logs.
type seenInstances struct {
	number  atomic.Int64 // by Count; zero: not counted yet
	publish func() string
	others  atomic.Pointer[Others]
}

// Others are the other instances that share the logs, as the last heartbeat has found them in Redis.
// A program that can write there can make them up.
type Others struct {
	// Addresses has what each publishes, empty for one that publishes nothing: the first 255, each cut
	// after 65 bytes.
	Addresses []string
	// More is the number of those that are not in Addresses.
	More int
}

// Publish makes [Store.Count] write the address that a function returns into the entry of this
// instance, and list the others. It asks for the address until the first entry is written. Call it
// before Count.
func (s *Store) Publish(address func() string) { s.seen.publish = address }

// Others returns the other instances, by the last heartbeat of [Store.Count] after [Store.Publish].
func (s *Store) Others() Others {
	if o := s.seen.others.Load(); o != nil {
		return *o
	}
	return Others{}
}

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
	c := instances.New(s.client, s.opts.Prefix, falls, s.seen.publish)
	wait := c.Spread(every) // instances that start together do not beat together
	for {
		before := s.Instances()
		n, others, err := c.Beat(ctx)
		if ctx.Err() == nil {
			if err == nil {
				s.seen.others.Store(&Others{others, max(n-1-len(others), 0)})
			}
			now := c.Note(serverclock.Now(), n, err == nil && s.decides())
			s.seen.number.Store(int64(now))
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
func (s *Store) Instances() int { return max(int(s.seen.number.Load()), 1) }

// decides reports whether all servers decide. While one does not, instances that end have admitted
// hits without it, which the others must not admit again.
func (s *Store) decides() bool {
	return !slices.ContainsFunc(s.Stats().Nodes, func(n NodeStats) bool { return n.Open || n.Refuses })
}
