// Package peers counts the instances that share the limits, by a DNS name that has one address
// for each of them.
//
// A number that is too small is worse than one that is too large: with it the instances together
// admit more than a limit while Redis is away. So a larger answer counts at once, and a smaller
// one counts late:
//
//   - A headless Service loses addresses for a moment when pods are replaced. The number falls
//     only when all answers of the last minute are smaller.
//   - An error and an answer without addresses count as the number that was known.
//   - While Options.Keep says so, the number does not fall at all.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Most is the largest number of instances.
const Most = 100_000

const (
	// timeout bounds a lookup.
	timeout = 2 * time.Second
	// fallAfter is how long answers must be smaller before the number falls.
	fallAfter = time.Minute
	// fallAnswers is how many answers in a row must be smaller, if they come rarely.
	fallAnswers = 3
)

// Options of a [Counter].
type Options struct {
	// Name is the DNS name.
	Name string
	// Least is the least number. It is the number until the first answer. Zero or less means
	// one.
	Least int
	// Interval is the time between two lookups of Run.
	Interval time.Duration
	// Resolver looks up the name. Nil: a resolver with the configuration of the system.
	Resolver *net.Resolver
	// Keep reports whether the number must not fall now. Nil: it may.
	Keep func() bool
	// Changed is called when the number changes, before Number returns it. Nil: nothing is
	// called.
	Changed func(before, now int)
	// Answers is called when lookups begin to fail, with the error, and with nil when they
	// work again. Nil: nothing is called.
	Answers func(err error)
}

// A Counter knows the number of instances. Create it with [New]. Its methods are safe for
// concurrent use.
type Counter struct {
	options Options
	number  atomic.Int64
	errors  atomic.Uint64

	mu      sync.Mutex // held while a lookup is counted
	largest largest

	failure atomic.Pointer[Failure]
}

// A Failure says since when the name has no answer, and why.
type Failure struct {
	Since time.Time
	Err   error // of the last lookup
}

// New returns a Counter that knows the least number.
func New(o Options) *Counter {
	o.Least = min(max(o.Least, 1), Most)
	if o.Resolver == nil {
		o.Resolver = &net.Resolver{PreferGo: true} // the system's own may answer without a time limit
	}
	c := &Counter{options: o, largest: largest{keep: max(fallAfter, fallAnswers*o.Interval)}}
	c.number.Store(int64(o.Least))
	return c
}

// Number returns the number of instances.
func (c *Counter) Number() int { return int(c.number.Load()) }

// Errors returns the number of lookups without an answer.
func (c *Counter) Errors() uint64 { return c.errors.Load() }

// Failure returns why the last lookup had no answer, or nil if it had one.
func (c *Counter) Failure() *Failure { return c.failure.Load() }

// Run counts once in each interval until ctx ends. It returns nil.
func (c *Counter) Run(ctx context.Context) error {
	tick := time.NewTicker(c.options.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.Count(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Count looks up the name once. It takes two seconds at most.
func (c *Counter) Count(ctx context.Context) {
	answer, err := c.look(ctx)
	if ctx.Err() != nil {
		return // the process stops; the answer says nothing
	}
	c.note(time.Now(), answer, err)
}

// look returns the number of addresses of the name. It is at least 1 if err is nil.
func (c *Counter) look(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addresses, err := c.options.Resolver.LookupNetIP(ctx, "ip", c.options.Name)
	if err != nil {
		return 0, err //nolint:wrapcheck // it names the lookup and the name
	}
	n := instances(addresses)
	if n == 0 {
		return 0, errors.New("the answer has no addresses")
	}
	return n, nil
}

// instances returns how many instances have these addresses. In a dual-stack cluster each has an
// address of both families, so the larger family counts.
func instances(addresses []netip.Addr) int {
	v4, v6 := make(map[netip.Addr]bool), make(map[netip.Addr]bool)
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() {
			v4[a] = true
		} else {
			v6[a] = true
		}
	}
	return max(len(v4), len(v6))
}

// note counts one lookup.
func (c *Counter) note(now time.Time, answer int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.Number()
	if err != nil || (c.options.Keep != nil && c.options.Keep()) {
		answer = max(answer, before)
	}
	c.tell(now, err)
	number := min(max(c.largest.add(now, answer), c.options.Least), Most)
	if number == before {
		return
	}
	if c.options.Changed != nil {
		c.options.Changed(before, number)
	}
	c.number.Store(int64(number))
}

// tell keeps the error of a lookup, and reports a change between answers and errors.
func (c *Counter) tell(now time.Time, err error) {
	failure := c.failure.Load()
	if err == nil {
		c.failure.Store(nil)
		if failure != nil && c.options.Answers != nil {
			c.options.Answers(nil)
		}
		return
	}
	c.errors.Add(1)
	since := now
	if failure != nil {
		since = failure.Since
	}
	c.failure.Store(&Failure{Since: since, Err: err})
	if failure == nil && c.options.Answers != nil {
		c.options.Answers(err)
	}
}

// String describes the state for people.
func (c *Counter) String() string {
	text := fmt.Sprintf("%d instances by %s", c.Number(), c.options.Name)
	if f := c.Failure(); f != nil {
		text += fmt.Sprintf("; the last known number: no answer since %s (%s)", f.Since.UTC().Format(time.RFC3339), f.Err)
	}
	return text
}

// largest keeps the largest of the numbers of the last time. Its zero value with keep is usable.
type largest struct {
	keep    time.Duration
	numbers []counted // the newest last; each is smaller than the one before it
}

type counted struct {
	at time.Time
	n  int
}

// add adds a number, and returns the largest one that was added less than keep ago.
func (l *largest) add(now time.Time, n int) int {
	kept := l.numbers
	for len(kept) > 0 && kept[len(kept)-1].n <= n {
		kept = kept[:len(kept)-1]
	}
	kept = append(kept, counted{now, n})
	for now.Sub(kept[0].at) >= l.keep {
		kept = kept[1:]
	}
	l.numbers = kept
	return kept[0].n
}
