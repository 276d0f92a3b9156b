package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxRequests is how many requests one call of the script decides at most. Redis
	// does nothing else meanwhile.
	maxRequests = 64

	// maxInFlight is how many calls of the script a node has at once: one that it
	// works on, and one that waits in its socket.
	maxInFlight = 2

	// forgetAfter is how long a node of a cluster is remembered that nobody asks.
	forgetAfter = time.Minute
)

// A node is one server: the queue of what it is to be asked, its clock, and the
// breaker that says whether to ask at all.
type node struct {
	store   *Store
	client  Client
	address string
	clock   clock
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	open   atomic.Bool           // not closed, as the breaker told last
	cause  atomic.Pointer[Error] // of the last failure
	tag    atomic.Pointer[string]
	asked  atomic.Int64 // local time of the last call for it
	probes atomic.Bool  // a probe runs

	refuses atomic.Pointer[Error]  // why it does not write; nil: it does
	policy  atomic.Pointer[string] // its maxmemory-policy, empty if it cannot be read; nil: not asked yet

	mu       sync.Mutex
	queue    []*message
	inFlight int
}

func (s *Store) newNode(client Client, address string) *node {
	n := &node{store: s, client: client, address: address}
	n.asked.Store(now())
	n.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:       s.opts.ProbeInterval,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(s.opts.Failures) },
		OnStateChange: n.changed,
	})
	return n
}

// changed is told by the breaker, which holds its lock.
func (n *node) changed(_ string, _, to gobreaker.State) {
	wasOpen := n.open.Swap(to != gobreaker.StateClosed)
	switch {
	case to == gobreaker.StateClosed:
		n.store.opts.Changed(Change{Node: n.address})
	case !wasOpen:
		change := Change{Node: n.address, Open: true}
		if cause := n.cause.Load(); cause != nil {
			change.Class, change.Err = cause.Class, cause.Err
		}
		n.store.opts.Changed(change)
		n.store.background(n.probe)
	}
}

// refused is the error of a node that is not asked.
func (n *node) refused() error {
	err := &Error{Class: ClassOpen, Err: errors.New("the server is not asked, because it has failed")}
	if cause := n.cause.Load(); cause != nil {
		err.Err = fmt.Errorf("the server is not asked, because it has failed: %s: %w", cause.Class, cause.Err)
	}
	return err
}

// refusesWrites says once that the server decides denials only.
func (n *node) refusesWrites(cause *Error) {
	if n.refuses.CompareAndSwap(nil, cause) {
		n.store.opts.Changed(Change{Node: n.address, Refuses: true, Class: cause.Class, Err: cause.Err})
	}
}

// writesAgain says once that it decides everything.
func (n *node) writesAgain() {
	if cause := n.refuses.Load(); cause != nil && n.refuses.CompareAndSwap(cause, nil) {
		n.store.opts.Changed(Change{Node: n.address})
	}
}

// ask sends a message, or waits until somebody has. It returns nil if m has a
// reply; otherwise m is not the caller's any more.
func (n *node) ask(ctx context.Context, m *message) error {
	n.asked.Store(now())
	if n.open.Load() {
		m.free()
		return n.refused()
	}
	// Nobody else has the message yet: whoever finds a call to spare makes it at
	// once, without another goroutine. One who may have to leave before the call
	// ends does not.
	n.mu.Lock()
	switch {
	case n.inFlight < maxInFlight && m.patient:
		n.inFlight++
		n.mu.Unlock()
		one := [1]*message{m}
		n.send(one[:])
		n.next()
	case n.inFlight < maxInFlight:
		n.inFlight++
		n.queue = append(n.queue, m)
		n.mu.Unlock()
		n.store.background(n.work)
	default:
		n.queue = append(n.queue, m)
		n.mu.Unlock()
	}
	return n.store.wait(ctx, m)
}

// next gives the call that has ended to what has queued meanwhile.
func (n *node) next() {
	n.mu.Lock()
	more := len(n.queue) > 0
	if !more {
		n.inFlight--
	}
	n.mu.Unlock()
	if more {
		n.store.background(n.work)
	}
}

// work sends what has queued until nothing has. It has a call in flight.
func (n *node) work() {
	var batch [maxRequests]*message
	for {
		n.mu.Lock()
		count := copy(batch[:], n.queue[:n.fit()])
		if count == 0 {
			n.inFlight--
			n.mu.Unlock()
			return
		}
		rest := copy(n.queue, n.queue[count:])
		clear(n.queue[rest:])
		n.queue = n.queue[:rest]
		n.mu.Unlock()
		n.send(batch[:count])
	}
}

// fit returns how many messages of the queue go into the next call of the script, which
// has window.MaxChecks checks at most, or one message. The caller holds the lock.
func (n *node) fit() (count int) {
	checks := 0
	for count < min(len(n.queue), maxRequests) {
		checks += len(n.queue[count].keys)
		if checks > window.MaxChecks && count > 0 {
			break
		}
		count++
	}
	return count
}

// failed makes an error of a class, and remembers it if it is the node's.
func (n *node) failed(ctx context.Context, err error) *Error {
	e := &Error{Class: classify(err), Err: explain(ctx, err)}
	if e.Class.ofTheNode() {
		n.cause.Store(e)
		if c := n.store.cluster; c != nil {
			c.ReloadState(ctx) // it may not be the one to ask any more
		}
	}
	return e
}
