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
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/queue"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/timelimit"
)

const (
	// maxSearches bounds the searches of logs in one call that several requests share, as [script.Group.Searches] counts
	// them. Redis does nothing else meanwhile: about 5 ms if all logs have 10,000 slots, 10 ms if also limits were lowered.
	maxSearches = 144

	// maxSearched is how many logs one request may have to search in a call of the script.
	maxSearched = maxSearches / script.MostSearches

	// maxRequests is how many requests one call decides at most. With 96, this process and Redis often wait for each other.
	maxRequests = 48

	// maxInFlight is the default of [Options.Calls]: one that the server runs, and one that waits
	// in its socket.
	maxInFlight = 2

	// forgetAfter is how long the store keeps a node of a cluster that it does not ask.
	forgetAfter = time.Minute
)

// A node is one server: its queue of messages, its clock, and its breaker, which decides
// whether the store asks it at all.
type node struct {
	store   *Store
	client  Client
	address string
	clock   serverclock.Bounds
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	open      atomic.Bool                   // the breaker is not closed
	cause     atomic.Pointer[failure.Error] // of the last failure
	tag       atomic.Pointer[string]
	lastAsked atomic.Int64 // local time of the last call for it
	probes    atomic.Bool  // a probe is running

	refuses atomic.Pointer[failure.Error] // why it refuses to write; nil: it writes
	policy  atomic.Pointer[string]        // its maxmemory-policy; empty: cannot be read; nil: not read yet

	calls
}

// calls are the messages that wait for a node, and the calls of the script that are under way.
type calls struct {
	mu     sync.Mutex
	queue  queue.Queue[*message]
	pace   queue.Pace
	limits *timelimit.Limiter // of the calls of the script
}

// A lane is what calls of one priority pause for: they do not wait with those of a lower one, whose
// messages may stay in the queue. All nodes of a cluster share it, so that a call pauses once for several.
type lane struct {
	*Store
	early bool // its calls may have to leave before the store's timeout
}

// lane returns what calls with a priority pause for.
func (s *Store) lane(p window.Priority, patient bool) window.Flusher {
	if !patient {
		return &s.nodes.early[p-window.PriorityLow]
	}
	return &s.nodes.lanes[p-window.PriorityLow]
}

// Flush implements [window.Flusher]. It asks all nodes at once that have messages in their queues, and
// waits for one of them unless the calls may have to leave.
func (l *lane) Flush() {
	var last *node
	l.all(func(n *node) bool {
		if n.waits() {
			if last != nil {
				l.background(last.flush)
			}
			last = n
		}
		return true
	})
	if last != nil && l.early {
		l.background(last.flush)
	} else if last != nil {
		last.flush()
	}
}

// waits reports whether messages are in the queue.
func (n *node) waits() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queue.Len() > 0
}

func (s *Store) newNode(client Client, address string) *node {
	n := &node{store: s, client: client, address: address, calls: calls{pace: queue.Pace{Calls: s.opts.Calls}, limits: timelimit.New(s.timeLimit())}}
	n.lastAsked.Store(serverclock.Now())
	n.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:       s.opts.ProbeInterval,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(s.opts.Failures) },
		OnStateChange: n.changed,
	})
	return n
}

// changed is called by the breaker when its state changes. The breaker holds its lock.
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

// refused returns the error for calls while the breaker is open.
func (n *node) refused() error {
	err := &failure.Error{Class: failure.Open, Err: errors.New("the server is not asked, because it has failed")}
	if cause := n.cause.Load(); cause != nil {
		err.Err = fmt.Errorf("the server is not asked, because it has failed: %s: %w", cause.Class, cause.Err)
	}
	return err
}

// guarded makes a call to the server, unless its breaker is open. The breaker counts how it ends.
func (n *node) guarded(ctx context.Context, call func() error) error {
	if n.open.Load() {
		return n.refused()
	}
	done, err := n.breaker.Allow()
	if err != nil {
		return n.refused()
	}
	if err := call(); err != nil {
		failed := n.failed(ctx, err)
		if failed.Class.OfNode() {
			done(failed)
		} else {
			done(nil)
		}
		return failed
	}
	done(nil)
	return nil
}

// refusesWrites reports to Options.Changed, once, that the server decides only denials.
func (n *node) refusesWrites(cause *failure.Error) {
	if n.refuses.CompareAndSwap(nil, cause) {
		n.store.opts.Changed(Change{Node: n.address, Refuses: true, Class: cause.Class, Err: cause.Err})
	}
}

// writesAgain reports to Options.Changed, once, that the server decides all requests. While the
// breaker is open, its end reports that.
func (n *node) writesAgain() {
	if cause := n.refuses.Load(); cause != nil && n.refuses.CompareAndSwap(cause, nil) && !n.open.Load() {
		n.store.opts.Changed(Change{Node: n.address})
	}
}

// ask sends a message, or queues it, and waits for the reply. It returns nil if m has a
// reply. Otherwise the caller must not use m any more.
func (n *node) ask(ctx context.Context, m *message) error {
	if m.pauser != nil {
		return n.pause(ctx, m)
	}
	// If a call may start now, this goroutine makes it. But if the caller may have to leave
	// before the call ends, another goroutine makes it.
	if m.patient && n.begin() {
		one := [1]*message{m}
		n.send(one[:])
		n.next()
	} else {
		one := [1]*message{m}
		if err := n.queueAll(one[:], true); err != nil {
			m.free()
			return err
		}
	}
	return n.store.wait(ctx, m)
}

// pause queues a message, and lets its caller pause until Flush has sent it with others.
func (n *node) pause(ctx context.Context, m *message) error {
	one := [1]*message{m}
	if err := n.queueAll(one[:], false); err != nil {
		m.free()
		return err
	}
	if err := m.pauser.Pause(n.store.lane(m.group.Priority, m.patient)); err != nil {
		if !m.leave() {
			m.free()
		}
		return &failure.Error{Class: failure.Gone, Err: err}
	}
	return n.store.wait(ctx, m)
}

// flush sends what is queued, unless enough calls are under way: they send it when they end.
func (n *node) flush() {
	if !n.begin() {
		return
	}
	var batch [maxRequests]*message
	n.mu.Lock()
	count := n.queue.Take(batch[:], maxSearches)
	n.mu.Unlock()
	if count > 0 {
		n.send(batch[:count])
	}
	n.next()
}

// begin reports whether another call may start, and counts it then.
func (n *node) begin() bool {
	n.lastAsked.Store(serverclock.Now())
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pace.Begin()
}

// queueAll queues messages, so that they share the next call if it has room for them. It returns
// an error if the server is not asked. The caller keeps the messages then. If start is false, no call
// starts for them: the caller will call Flush.
func (n *node) queueAll(messages []*message, start bool) error {
	n.lastAsked.Store(serverclock.Now())
	if n.open.Load() {
		return n.refused()
	}
	var removed []*message
	n.mu.Lock()
	most := n.store.opts.MaxWaiting
	if n.pace.Room() {
		most = 0 // they are sent at once
	}
	for _, m := range messages {
		if r := n.queue.Push(m, most); r != nil {
			removed = append(removed, r)
		}
	}
	if start && n.pace.Begin() {
		n.store.background(n.work)
	}
	n.mu.Unlock()
	for _, m := range removed {
		n.refuse(m)
	}
	return nil
}

// refuse hands a message back to its caller, because too many wait.
func (n *node) refuse(m *message) {
	p := m.group.Priority
	if !m.begin() { // its caller has left
		m.free()
		return
	}
	n.store.counts.refused[p-window.PriorityLow].Add(1)
	m.finish("", 0, &failure.Error{Class: failure.Overload, Err: fmt.Errorf("too many requests wait for the server; this one has the priority %v", p)})
}

// next starts another call for the queue after a call has ended.
func (n *node) next() {
	n.mu.Lock()
	more := n.pace.Next(n.queue.Len() > 0)
	n.mu.Unlock()
	if more {
		n.store.background(n.work)
	}
}

// work sends the messages of the queue until it is empty, or others send them. Its calls count as
// one that is under way.
func (n *node) work() {
	var batch [maxRequests]*message
	for more := true; more; {
		n.mu.Lock()
		count := 0
		if more = n.pace.Next(n.queue.Len() > 0); more {
			count = n.queue.Take(batch[:], maxSearches)
		}
		n.mu.Unlock()
		n.send(batch[:count])
	}
}

// failed returns err with its class, and records it as the cause if it is of the node.
func (n *node) failed(ctx context.Context, err error) *failure.Error {
	e := &failure.Error{Class: failure.Classify(err), Err: failure.Explain(ctx, err)}
	if e.Class.OfNode() {
		n.cause.Store(e)
		if c := n.store.cluster; c != nil {
			c.ReloadState(ctx) // another node may have its slots now
		}
	}
	return e
}
