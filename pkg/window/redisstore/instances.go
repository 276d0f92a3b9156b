package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

const (
	// instancesKey is the sorted set with an entry for each instance, below the prefix. It is not
	// the name of a log.
	instancesKey = "instances"
	// beatEvery is the time between two heartbeats. So a new instance counts within it. A thousand
	// instances send 250 heartbeats a second, each of about 4 µs.
	beatEvery = 4 * time.Second
	// beatExpires is how long an entry counts without a heartbeat, in whole seconds, and how long all
	// answers must be smaller before the number falls. So an instance that has ended no longer counts
	// after 2·beatExpires + 2·beatEvery at most.
	beatExpires = 10 * time.Second
	// beatTimeout bounds a heartbeat, and leaveTimeout the removal of the entry.
	beatTimeout  = time.Second
	leaveTimeout = 500 * time.Millisecond
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
	return s.countEvery(ctx, beatEvery, beatExpires, counted)
}

// countEvery is Count with the time between heartbeats, and the time after which the number falls.
func (s *Store) countEvery(ctx context.Context, every, falls time.Duration, counted func(before, now int, err error)) error {
	c := newInstanceCounter(s, falls)
	wait := mathrand.N(every) //nolint:gosec // spreads the instances that start together
	for {
		before := s.Instances()
		n, err := c.beat(ctx)
		if ctx.Err() == nil {
			now := c.note(serverclock.Now(), n, err == nil && s.decides())
			s.instances.Store(int64(now))
			counted(before, now, err)
		}
		tick := time.NewTimer(wait)
		select {
		case <-tick.C:
			wait = every
		case <-ctx.Done():
			tick.Stop()
			c.leave(context.WithoutCancel(ctx))
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

// An instanceCounter is how an instance counts.
type instanceCounter struct {
	store      *Store
	key, entry string
	falls      int64 // how long answers must be smaller, in nanoseconds
	number     int
	// answers are those since contact was lost last. All but the first are younger than falls.
	answers []instanceAnswer
}

type instanceAnswer struct {
	at int64 // by now
	n  int
}

func newInstanceCounter(s *Store, falls time.Duration) *instanceCounter {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &instanceCounter{store: s, key: s.opts.Prefix + instancesKey, entry: hex.EncodeToString(id[:]), falls: int64(falls), number: 1}
}

// beat writes the entry, and returns the number of entries.
func (c *instanceCounter) beat(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	reply, err := script.Instances.Run(ctx, c.store.client, []string{c.key}, c.entry, int64(beatExpires/time.Second))
	if err != nil {
		return 0, &failure.Error{Class: failure.Classify(err), Err: err}
	}
	number, ok := reply.(int64)
	if !ok {
		return 0, &failure.Error{Class: failure.Reply, Err: fmt.Errorf("the number of instances is a %T, want an integer", reply)}
	}
	return int(min(number, math.MaxInt32)), nil
}

// note returns the number of instances after an answer. contact says that there was one, and that
// all servers decide.
func (c *instanceCounter) note(at int64, n int, contact bool) int {
	if !contact {
		c.answers = nil
		c.number = max(c.number, n)
		return c.number
	}
	c.answers = append(c.answers, instanceAnswer{at, n})
	for len(c.answers) > 1 && at-c.answers[1].at >= c.falls {
		c.answers = c.answers[1:]
	}
	most := 0
	for _, a := range c.answers {
		most = max(most, a.n)
	}
	if most > c.number || at-c.answers[0].at >= c.falls {
		c.number = max(most, 1)
	}
	return c.number
}

// leave removes the entry. If that fails, it expires.
func (c *instanceCounter) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	_ = c.store.client.Process(ctx, redis.NewIntCmd(ctx, "zrem", c.key, c.entry))
}
