// Package instances counts the processes that share the logs under a prefix: each writes an entry
// into a sorted set in Redis, renews it, and removes it at its end ([Counter]).
package instances

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
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
	// maxListed bounds the entries that a heartbeat lists, and maxAddress the bytes of an address in
	// them, which are fewer.
	maxListed, maxAddress = 256, 65
	// timeout bounds a heartbeat, and leaveTimeout the removal of the entry.
	timeout      = time.Second
	leaveTimeout = 500 * time.Millisecond
)

// A Counter is how an instance counts. It is not safe for concurrent use.
type Counter struct {
	client         script.Client
	key, id, entry string
	// address returns the address that the entry has. Nil: none, and the others are not listed.
	address func() string
	written bool  // the entry is in Redis, so that it stays as it is
	falls   int64 // how long answers must be smaller, in nanoseconds
	number  int
	// answers are those since contact was lost last. All but the first are younger than falls.
	answers []answer
}

type answer struct {
	at int64 // by serverclock.Now
	n  int
}

// New returns the counter of a new instance, whose entry is below a prefix. Answers must be smaller
// for the time falls before the number falls. address returns the address of the entry, and may
// return none until the first entry is written. Nil: there is none, and Beat lists nothing.
func New(client script.Client, prefix string, falls time.Duration, address func() string) *Counter {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Counter{client: client, key: prefix + key, id: hex.EncodeToString(id[:]), address: address, falls: int64(falls), number: 1}
}

// Spread returns a time from 0 to below most that differs between instances. It follows from the random name of the
// instance.
func (c *Counter) Spread(most time.Duration) time.Duration {
	n, _ := strconv.ParseUint(c.id, 16, 64) // never fails
	return time.Duration(n % uint64(most))
}

// Beat writes the entry. It returns the number of entries, and the addresses in those of others, empty
// for each without one.
func (c *Counter) Beat(ctx context.Context) (n int, others []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !c.written {
		if c.entry = c.id; c.address != nil {
			c.entry = strings.TrimSuffix(c.id+" "+c.address(), " ")
		}
	}
	argv := []any{c.entry, int64(Expires / time.Second)}
	if c.address != nil {
		argv = append(argv, maxListed, len(c.id)+1+maxAddress)
	}
	reply, err := script.Instances.Run(ctx, c.client, []string{c.key}, argv...)
	if err != nil {
		return 0, nil, &failure.Error{Class: failure.Classify(err), Err: err}
	}
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		list = []any{reply}
	}
	number, ok := list[0].(int64)
	if !ok {
		return 0, nil, &failure.Error{Class: failure.Reply, Err: fmt.Errorf("the number of instances is a %T, want an integer", reply)}
	}
	c.written = true
	for _, one := range list[1:] {
		if entry, _ := one.(string); entry != c.entry {
			_, address, _ := strings.Cut(entry, " ")
			others = append(others, address)
		}
	}
	return int(min(number, math.MaxInt32)), others, nil
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
