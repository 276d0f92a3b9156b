// Package serverclock bounds the clock of a Redis server from its answers ([Bounds]), and converts
// deadlines of the local clock to that of the server.
package serverclock

import (
	"sync"
	"time"
)

// began is the zero of the local clock. It is so early that the clock is above zero also where a test
// makes time begin in the year 2000.
var began = time.Now().AddDate(-50, 0, 0)

// Now is the local clock: nanoseconds that only ever grow.
func Now() int64 { return int64(time.Since(began)) }

// At is an instant on the local clock. It is at least 1: zero means none.
func At(t time.Time) int64 { return max(int64(t.Sub(began)), 1) }

// drift is how much faster or slower a server's clock may run than ours: one in
// drift. NTP slews by at most 500 ppm; two clocks may do so in opposite ways.
const drift = 1000

// Bounds say how far a server's clock is ahead of the local one. Every reply
// gives bounds: the server read its clock after the request was sent and before the reply
// came. The intersection of several replies is closer than any one of them. The zero value
// has no bounds yet. It is safe for concurrent use.
type Bounds struct {
	mu        sync.Mutex
	answered  bool
	low, high int64 // bounds of server minus local, in nanoseconds
	at        int64 // local, of the last reply
}

// Learn updates the bounds from a reply: the server's clock, in microseconds, was read
// between the local instants sent and received, in nanoseconds.
func (c *Bounds) Learn(server, sent, received int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The server's clock has passed server, but not the microsecond after it.
	newLow, newHigh := server*1000-received, (server+1)*1000-sent
	low, high := newLow, newHigh
	if c.answered {
		// They have drifted since the last reply.
		d := drifted(received - c.at)
		low, high = max(low, c.low-d), min(high, c.high+d)
	}
	if low > high {
		// They contradict each other: the clock was set, or it is another server's.
		low, high = newLow, newHigh
	}
	c.answered, c.low, c.high, c.at = true, low, high, max(c.at, received)
}

// drifted returns how far two clocks may drift apart in a time, in nanoseconds.
func drifted(passed int64) int64 { return max(0, passed)/drift + 1 }

// Deadline converts a local instant to the server's clock, in microseconds. The result is
// never too late, and too early by at most the distance of the bounds. It is 0 if local is 0
// or there are no bounds yet.
func (c *Bounds) Deadline(local int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if local == 0 || !c.answered {
		return 0
	}
	return max((local+c.low-drifted(local-c.at))/1000, 1)
}

// Age returns the time since the last reply. It returns false if there was none.
func (c *Bounds) Age() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(Now() - c.at), c.answered
}

// Known reports whether there was a reply.
func (c *Bounds) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}
