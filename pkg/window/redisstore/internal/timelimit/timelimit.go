// Package timelimit gives calls a time limit without a timer for each.
//
// A timer that is the next to fire wakes a thread when it is set. [context.WithTimeout] sets one for
// each call, and calls hardly ever reach their limit.
package timelimit

import (
	"context"
	"sync"
	"time"
)

// A Limiter gives all calls the same time limit, with one timer. Create it with [New]. It is safe for
// concurrent use.
type Limiter struct {
	limit time.Duration

	mu    sync.Mutex
	under Context     // the calls under way are a ring, and this is its end: the oldest comes next
	timer *time.Timer // nil: there was no call yet
	runs  bool        // the timer is set, maybe for a call that has ended
}

// New returns a Limiter.
func New(limit time.Duration) *Limiter {
	l := &Limiter{limit: limit}
	l.under.next, l.under.before = &l.under, &l.under
	return l
}

// A Context is that of a call under way. Its Done is closed, as that of [context.WithTimeout], when the
// time limit has passed and when the call has ended.
type Context struct {
	limiter      *Limiter
	deadline     time.Time
	next, before *Context // nil: it is over
	done         chan struct{}
	err          error
}

var _ context.Context = (*Context)(nil)

// Begin returns the context of a call that begins now. The caller must call End.
func (l *Limiter) Begin() *Context {
	c := &Context{limiter: l, deadline: time.Now().Add(l.limit)}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.next, c.before = &l.under, l.under.before
	c.before.next, l.under.before = c, c
	switch {
	case l.runs:
	case l.timer == nil:
		l.timer = time.AfterFunc(l.limit, l.expire)
	default:
		l.timer.Reset(l.limit)
	}
	l.runs = true
	return c
}

// expire ends the contexts whose time has passed, and sets the timer for the next one.
func (l *Limiter) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.under.next != &l.under {
		if left := time.Until(l.under.next.deadline); left > 0 {
			l.timer.Reset(left)
			return
		}
		l.under.next.over(context.DeadlineExceeded)
	}
	l.runs = false
}

// over takes the context out of the ring. The caller holds the Limiter's lock.
func (c *Context) over(err error) {
	if c.next == nil {
		return
	}
	c.before.next, c.next.before = c.next, c.before
	c.next, c.before, c.err = nil, nil, err
	if c.done != nil {
		close(c.done)
	}
}

// End says that the call has ended.
func (c *Context) End() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.over(context.Canceled)
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.next == nil {
			close(c.done)
		}
	}
	return c.done
}

// Err implements [context.Context].
func (c *Context) Err() error {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	return c.err
}

// Value implements [context.Context]. There are no values.
func (c *Context) Value(any) any { return nil }
