package redisstore

import (
	"sync"
	"time"
)

// began is the zero of the local clock.
var began = time.Now()

// now is the local clock: nanoseconds that only ever grow.
func now() int64 { return int64(time.Since(began)) }

// at is an instant on the local clock. It is at least 1: zero means none.
func at(t time.Time) int64 { return max(int64(t.Sub(began)), 1) }

// drift is how much faster or slower a server's clock may run than ours: one in
// drift. NTP slews by at most 500 ppm; two clocks may do so in opposite ways.
const drift = 1000

// A clock is what is known of a server's clock: how far it is ahead of the local
// one. Every reply tells: the server read its clock after the request was sent and
// before the reply was there, so the offset is bounded by those two, and what the
// best replies have in common bounds it closer than any one does. The zero value
// knows nothing. It is safe for concurrent use.
type clock struct {
	mu        sync.Mutex
	known     bool
	low, high int64 // bounds of server minus local, in nanoseconds
	at        int64 // local, of the last reply
}

// learn tells what a reply says: the server's clock in microseconds, read between
// two instants of the local one.
func (c *clock) learn(server, sent, received int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The server's clock has passed server, but not the microsecond after it.
	newLow, newHigh := server*1000-received, (server+1)*1000-sent
	low, high := newLow, newHigh
	if c.known {
		// They have drifted since the last reply.
		d := drifted(received - c.at)
		low, high = max(low, c.low-d), min(high, c.high+d)
	}
	if low > high {
		// The two contradict each other: the clock was set, or it is another server's.
		low, high = newLow, newHigh
	}
	c.known, c.low, c.high, c.at = true, low, high, max(c.at, received)
}

// drifted is how far two clocks may drift apart in a time.
func drifted(passed int64) int64 { return max(0, passed)/drift + 1 }

// deadline returns an instant of the local clock as the server's, in microseconds:
// never later than it is, and earlier by no more than twice the error of bounds.
// It returns 0 for 0 and while nothing is known.
func (c *clock) deadline(local int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if local == 0 || !c.known {
		return 0
	}
	return max((local+c.low-drifted(local-c.at))/1000, 1)
}

// latest is deadline, but never earlier than the instant is.
func (c *clock) latest(local int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (local+c.high+drifted(local-c.at))/1000 + 1
}

// age is how long ago the server's clock was heard of last; it is false if never.
func (c *clock) age() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(now() - c.at), c.known
}

// bounds returns the offset of the server's clock from the wall clock that the
// process began with, and how far that may be wrong.
func (c *clock) bounds() (offset, off time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The local clock counts from an instant of the wall clock.
	middle := c.low + (c.high-c.low)/2
	return time.Duration(middle - began.UnixNano()), time.Duration(c.high-c.low) / 2, c.known
}
