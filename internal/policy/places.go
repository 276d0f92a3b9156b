package policy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxWaiting bounds the requests that wait for a place at a time, and maxWaitingLog those
	// that wait for a place in one log. Further ones are denied at once. So a flood of requests
	// for a full limit asks the store a bounded number of times more.
	maxWaiting, maxWaitingLog = 1024, 32
	// maxWakes is how often a waiting request asks the store because a stream has ended.
	maxWakes = 3
	// deadlineShare is the part of the time until the deadline that a request may wait.
	deadlineShare = 4
)

// places are the requests that wait because a limit of requests in flight was full. The zero
// value is ready to use. It is safe for concurrent use.
type places struct {
	// ends is how many streams have ended that held something.
	ends atomic.Uint64
	// waiting is the number of requests that wait. It is written under mu.
	waiting atomic.Int64

	mu  sync.Mutex
	log map[string]map[*place]struct{} // by the key of the log
}

// A place is one waiting request.
type place struct{ freed chan struct{} }

// crowded reports whether another request must not wait for a log.
func (p *places) crowded(key string, limit uint64) bool {
	if p.waiting.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.enough(key, limit)
}

// enough is crowded for a caller that holds mu.
func (p *places) enough(key string, limit uint64) bool {
	return p.waiting.Load() >= maxWaiting || len(p.log[key]) >= int(min(limit, maxWaitingLog))
}

// join adds a waiting request, unless there are too many.
func (p *places) join(key string, limit uint64) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.enough(key, limit) {
		return nil
	}
	if p.log == nil {
		p.log = make(map[string]map[*place]struct{})
	}
	if p.log[key] == nil {
		p.log[key] = make(map[*place]struct{})
	}
	one := &place{freed: make(chan struct{}, 1)}
	p.log[key][one] = struct{}{}
	p.waiting.Add(1)
	return one
}

// wake has a waiting request ask the store again. It does not block.
func (one *place) wake() {
	select {
	case one.freed <- struct{}{}:
	default: // it has not asked since the last end
	}
}

// leave removes a waiting request.
func (p *places) leave(key string, one *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.log[key], one); len(p.log[key]) == 0 {
		delete(p.log, key)
	}
	p.waiting.Add(-1)
}

// ended wakes the waiting requests, because a stream has ended that held something. It is not
// known in which logs, so it wakes all.
func (p *places) ended() {
	p.ends.Add(1)
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, log := range p.log {
		for one := range log {
			one.wake()
		}
	}
}

// full returns the log whose place the request should wait for: the request was denied, and
// only because limits in flight are full. Otherwise full returns nil. err is that of the store.
func (c *Call) full(err error) (full *window.Check) {
	if !c.stream.holds || err != nil || c.decider.opts.Patience <= 0 {
		return nil
	}
	for i := range c.checks {
		check, d := &c.checks[i], &c.decisions[i]
		switch {
		case check.Mode.Unconditional():
			return nil // the store has charged it, and would charge it again
		case d.Allowed || check.Mode == window.Observe:
		case check.Limit.Policy != window.InFlight || d.Never || check.Limit.Hits == 0:
			if check.Mode == window.Enforce {
				return nil
			}
		default:
			full = check
		}
	}
	if full == nil || window.GroupAllowed(c.checks, c.decisions) {
		return nil
	}
	return full
}

// await asks the store again for a request that was denied because a limit is full: when a
// stream ends, and at last after Options.Patience. ends is that of places before the denial.
func (c *Call) await(ctx context.Context, full *window.Check, ends uint64) error {
	d := c.decider
	patience := d.opts.Patience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/deadlineShare)
	}
	if patience <= 0 {
		return nil
	}
	one := d.places.join(full.Key, full.Limit.Hits)
	if one == nil {
		return nil
	}
	defer d.places.leave(full.Key, one)
	return c.awaitPlace(ctx, one, patience, ends)
}

// awaitPlace is await for a request that has a place.
func (c *Call) awaitPlace(ctx context.Context, one *place, patience time.Duration, ends uint64) error {
	d := c.decider
	timer := time.NewTimer(patience)
	defer timer.Stop()
	if d.places.ends.Load() != ends { // a stream has ended before the request had its place
		one.wake()
	}
	wakes := 0
	for last := false; !last; {
		freed := one.freed
		if wakes == maxWakes {
			freed = nil
		}
		select {
		case <-freed:
			wakes++
		case <-timer.C:
			last = true
		case <-ctx.Done():
			return nil // denied, as the store has said
		}
		if _, err := d.opts.Store.Take(ctx, window.MayWait, c.checks, c.decisions); err != nil {
			return err
		}
		if c.full(nil) == nil {
			return nil
		}
	}
	return nil
}
