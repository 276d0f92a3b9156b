package policy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxWaiting bounds the requests that wait for a place at a time. Further ones are denied at
	// once. So a flood of requests for a full limit asks the store a bounded number of times more.
	maxWaiting = 128
	// maxWakes is how often a waiting request asks the store because a stream has ended.
	maxWakes = 3
	// deadlineShare is the part of the time until the deadline that a request may wait.
	deadlineShare = 4
)

// places are the requests that wait because a limit of requests in flight was full. The zero
// value is ready to use. It is safe for concurrent use.
type places struct {
	// ends is how many streams have ended that held something.
	ends    atomic.Uint64
	waiting atomic.Int64 // requests

	mu   sync.Mutex
	next chan struct{} // closed when the next stream ends; nil: no request waits for that
}

// freed returns what is closed when the next stream ends.
func (p *places) freed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(chan struct{})
	}
	return p.next
}

// ended wakes the waiting requests, because a stream has ended that held something. It is not
// known in which logs, so it wakes all.
func (p *places) ended() {
	p.ends.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil {
		close(p.next)
		p.next = nil
	}
}

// full reports whether the request should wait for a place: it was denied, and only because limits
// in flight are full. err is that of the store.
func (c *Call) full(err error) (full bool) {
	if !c.stream.holds || err != nil || c.decider.opts.Patience <= 0 {
		return false
	}
	for i := range c.checks {
		check, d := &c.checks[i], &c.decisions[i]
		switch {
		case check.Mode.Unconditional():
			return false // the store has charged it, and would charge it again
		case d.Allowed || check.Mode == window.Observe:
		case check.Limit.Policy != window.InFlight || d.Never || check.Limit.Hits == 0:
			if check.Mode == window.Enforce {
				return false
			}
		default:
			full = true
		}
	}
	return full && !window.GroupAllowed(c.checks, c.decisions)
}

// await asks the store again for a request that was denied because a limit is full: when a
// stream ends, and at last after Options.Patience. ends is that of places before the denial.
func (c *Call) await(ctx context.Context, ends uint64) error {
	d := c.decider
	patience := d.opts.Patience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/deadlineShare)
	}
	defer d.places.waiting.Add(-1)
	if d.places.waiting.Add(1) > maxWaiting || patience <= 0 {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for wakes, last := 0, false; !last; wakes++ {
		freed := d.places.freed()
		if wakes >= maxWakes {
			freed = nil
		}
		if wakes >= maxWakes || d.places.ends.Load() == ends { // otherwise a stream has ended before
			select {
			case <-freed:
			case <-timer.C:
				last = true
			case <-ctx.Done():
				return nil // denied, as the store has said
			}
		}
		ends = d.places.ends.Load()
		if _, err := d.opts.Store.Take(ctx, window.MayWait, c.checks, c.decisions); err != nil {
			return err
		}
		if !c.full(nil) {
			return nil
		}
	}
	return nil
}
