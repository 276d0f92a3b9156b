package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// clockSlack bounds the error of two processes that read the clock of one machine, and the drift
// between the wall clock of one and the monotonic clock of the other within a run.
const clockSlack = 5 * time.Millisecond

// A call is one request of a customer. Times are since the beginning of the run, by the clock of
// the caller. A charge of the call was made between sent and answered.
type call struct {
	sent, answered time.Duration
	allowed        bool
	try            int           // how often this request had been denied before
	retryAfter     time.Duration // of a denial
}

// never is the next turn of a caller who has done its work.
const never = time.Duration(math.MaxInt64)

// A customer has an API key. Its methods are safe for concurrent use.
type customer struct {
	id        int
	tier      *tier
	behaviour *behaviour
	callers   []*caller

	mu     sync.Mutex
	calls  []call // in the order of the answers
	flying int    // calls without an answer so far
	waited time.Duration
}

// name returns the id of the customer in the tiers, and key its API key.
func (c *customer) name() string { return fmt.Sprintf("customer-%04d", c.id) }
func (c *customer) key() string  { return fmt.Sprintf("load-%04d", c.id) }

// record adds a call. Callers read the clock before they record, so they do not record in order.
func (c *customer) record(a call) {
	at := len(c.calls)
	for at > 0 && c.calls[at-1].answered > a.answered {
		at--
	}
	c.calls = slices.Insert(c.calls, at, a)
}

// room reports whether a request that is sent now is within the limits for certain, whatever else
// the customer has sent. If not, it returns when to look again.
func (c *customer) room(now time.Duration) (at time.Duration, ok bool) {
	at = now
	for _, l := range c.tier.limits {
		used := c.flying
		for i := len(c.calls) - 1; i >= 0; i-- {
			expires := c.calls[i].answered + l.window + clockSlack
			if expires <= now {
				break
			}
			if c.calls[i].allowed {
				if used++; used == l.hits { // there is room when this one has expired
					at = max(at, expires)
					break
				}
			}
		}
		if used >= l.hits && at == now { // all of it is under way
			at = now + l.window/100
		}
	}
	return at, at == now
}

// A caller is a person or a program that sends for a customer, one request after the other. Its
// methods are called by one goroutine at a time.
type caller struct {
	customer *customer
	random   *rand.Rand
	first    time.Duration // when it sends its first request
	busy     time.Duration // until when it is busy
	try      int           // denials of the present request
	wants    time.Duration // since when it has wanted to send the present request; negative: it does not
}

// newCaller returns a caller who is somewhere between two busy times, or in one.
func newCaller(c *customer, r *rand.Rand) *caller {
	b := c.behaviour
	first := b.think.draw(r)
	if r.Float64()*float64(b.on+b.off) > float64(b.on) {
		first += exponential(r, b.off)
	}
	return &caller{customer: c, random: r, first: first, busy: first + exponential(r, b.on), wants: -1}
}

// turn is called when it is the caller's turn. It reports whether the caller sends a request now;
// otherwise at is its next turn.
func (c *caller) turn(now time.Duration) (at time.Duration, send bool) {
	c.customer.mu.Lock()
	defer c.customer.mu.Unlock()
	if c.wants < 0 {
		c.wants = now
	}
	if c.customer.behaviour.retry == prevents {
		if at, ok := c.customer.room(now); !ok {
			return at, false
		}
	}
	c.customer.waited += now - c.wants
	c.customer.flying++
	return now, true
}

// answered records the answer to the request that the caller has sent, and returns the caller's
// next turn.
func (c *caller) answered(sent, now time.Duration, allowed bool, retryAfter time.Duration) time.Duration {
	c.customer.mu.Lock()
	defer c.customer.mu.Unlock()
	c.customer.flying--
	c.customer.record(call{sent, now, allowed, c.try, retryAfter})
	b := c.customer.behaviour
	switch {
	case b.retry == saturates:
		c.wants = -1
		return now + b.think.draw(c.random)
	case b.retry == returns && allowed && c.try > 0:
		return never
	case !allowed:
		if c.try++; c.try < mostTries {
			c.wants = now
			return now + c.wait(retryAfter)
		}
	}
	c.try, c.wants = 0, -1
	next := now + b.think.draw(c.random)
	if next > c.busy {
		next += exponential(c.random, b.off)
		c.busy = next + exponential(c.random, b.on)
	}
	return next
}

// wait returns how long the caller waits after a denial.
func (c *caller) wait(retryAfter time.Duration) time.Duration {
	switch c.customer.behaviour.retry {
	case advised:
		more := max(time.Second, retryAfter/10)
		if c.try > 1 {
			more = min(time.Minute, time.Second<<c.try)
		}
		return retryAfter + uniform(c.random, 0, more)
	case ignores:
		return c.customer.behaviour.think.median/3 + uniform(c.random, 0, c.customer.behaviour.think.median/3)
	default:
		return retryAfter
	}
}
