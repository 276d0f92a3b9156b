// Package instances counts the processes that share the logs under a prefix: each writes an entry
// into a sorted set in Redis, renews it, and removes it at its end ([Counter]).
package instances

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
)

const (
	// key is the sorted set with an entry for each instance, below the prefix. It is not
	// the name of a log.
	key = "instances"
	// Every is the time between two heartbeats. So a new instance counts within it. A thousand
	// instances send 250 heartbeats a second, each of about 4 µs.
	Every = 4 * time.Second
	// Expires is how long an entry counts without a heartbeat, in whole seconds, and how long all
	// answers must be smaller before the number falls. So an instance that has ended no longer counts
	// after 2·Expires + 2·Every at most.
	Expires = 10 * time.Second
	// timeout bounds a heartbeat, and leaveTimeout the removal of the entry.
	timeout      = time.Second
	leaveTimeout = 500 * time.Millisecond
)

// A Counter is how an instance counts. It is not safe for concurrent use.
type Counter struct {
	client     script.Client
	key, entry string
	falls      int64 // how long answers must be smaller, in nanoseconds
	number     int
	// answers are those since contact was lost last. All but the first are younger than falls.
	answers []answer
}

type answer struct {
	at int64 // by serverclock.Now
	n  int
}

// New returns the counter of a new instance, whose entry is below a prefix. Answers must be smaller
// for the time falls before the number falls.
func New(client script.Client, prefix string, falls time.Duration) *Counter {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Counter{client: client, key: prefix + key, entry: hex.EncodeToString(id[:]), falls: int64(falls), number: 1}
}

// Beat writes the entry, and returns the number of entries.
func (c *Counter) Beat(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := script.Instances.Run(ctx, c.client, []string{c.key}, c.entry, int64(Expires/time.Second))
	if err != nil {
		return 0, &failure.Error{Class: failure.Classify(err), Err: err}
	}
	number, ok := reply.(int64)
	if !ok {
		return 0, &failure.Error{Class: failure.Reply, Err: fmt.Errorf("the number of instances is a %T, want an integer", reply)}
	}
	return int(min(number, math.MaxInt32)), nil
}

// Note returns the number of instances after an answer. contact says that there was one, and that
// all servers decide.
func (c *Counter) Note(at int64, n int, contact bool) int {
	if !contact {
		c.answers = nil
		c.number = max(c.number, n)
		return c.number
	}
	c.answers = append(c.answers, answer{at, n})
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

// Leave removes the entry. If that fails, it expires.
func (c *Counter) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	_ = c.client.Process(ctx, redis.NewIntCmd(ctx, "zrem", c.key, c.entry))
}
