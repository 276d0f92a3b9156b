package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

const (
	// MaxCalls is how many requests one call of the script decides at most: Redis
	// does nothing else meanwhile.
	MaxCalls = 64

	// maxInFlight is how many calls of the script a node has at once: one that it
	// works on, and one that waits in its socket.
	maxInFlight = 2

	// forget is how long a node of a cluster is remembered that nobody asks.
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

// ask sends a message, or waits until somebody has. It returns nil if m has a
// reply; otherwise m is not the caller's any more.
func (n *node) ask(ctx context.Context, m *message) error {
	n.asked.Store(now())
	if n.open.Load() {
		m.free()
		return n.refused()
	}
	// Nobody else has the message yet: whoever finds a call to spare makes it at
	// once, without another goroutine. One that may have to go earlier than the
	// call ends does not.
	patience := n.store.opts.Timeout
	leads := patience > 0 && (m.deadline == 0 || m.deadline >= now()+int64(patience))
	n.mu.Lock()
	switch {
	case n.inFlight < maxInFlight && leads:
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
	var batch [MaxCalls]*message
	for {
		n.mu.Lock()
		count := copy(batch[:], n.queue)
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

// A part is what goes into one call of the script: messages whose logs are on one
// slot.
type part struct {
	messages []*message
	text     bool // bring the script's text: the server does not know it
	redirect bool // let the cluster's client follow where the slot has gone
	cmd      *once
}

// send asks for messages, hands back those that the callers still wait for, and
// frees the others. It returns when all are answered, at the latest after the
// store's timeout.
func (n *node) send(batch []*message) {
	s := n.store
	live := batch[:0]
	deadlines := false
	for _, m := range batch {
		if m.begin() {
			live = append(live, m)
			deadlines = deadlines || m.deadline != 0
		} else {
			s.counts.dropped.Add(1)
			m.free()
		}
	}
	if len(live) == 0 {
		return
	}
	// While it is open only the probe may take the breaker's one try.
	done, err := func(error) {}, error(gobreaker.ErrOpenState)
	if !n.open.Load() {
		done, err = n.breaker.Allow()
	}
	if err != nil {
		refused := n.refused()
		for _, m := range live {
			m.finish("", 0, refused)
		}
		return
	}
	ctx, cancel := s.bounded(context.Background())
	defer cancel()
	if deadlines && !n.known() {
		// Without the server's clock no deadline means anything to it.
		if err := n.greet(ctx); err != nil {
			failed := n.failed(ctx, err)
			done(failed)
			for _, m := range live {
				m.finish("", 0, failed)
			}
			return
		}
	}
	done(n.exchange(ctx, n.split(live)))
}

func (n *node) known() bool {
	_, _, known := n.clock.bounds()
	return known
}

// split cuts messages into parts.
func (n *node) split(batch []*message) []part {
	if n.store.cluster == nil || len(batch) == 1 {
		return []part{{messages: batch}}
	}
	var parts []part
	for i, m := range batch {
		if m == nil {
			continue
		}
		p := part{messages: []*message{m}}
		for j := i + 1; j < len(batch); j++ {
			if o := batch[j]; o != nil && o.slot == m.slot {
				p.messages = append(p.messages, o)
				batch[j] = nil
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// exchange sends parts until every message is answered. It returns an error if the
// node has decided none.
func (n *node) exchange(ctx context.Context, parts []part) error {
	var failure error
	decided := false
	for len(parts) > 0 {
		sentAt := now()
		n.transmit(ctx, parts)
		received := now()
		var again []part
		for i := range parts {
			p := &parts[i]
			reply, err := p.cmd.Result()
			if err == nil {
				decided = true
				again = n.deliver(p, reply, sentAt, received, again)
				continue
			}
			class := classify(err)
			switch {
			case redis.HasErrorPrefix(err, "NOSCRIPT") && !p.text:
				// The server has restarted or was told to forget. Nothing has run.
				again = append(again, part{messages: p.messages, text: true, redirect: p.redirect})
			case class == ClassMoved && n.store.cluster != nil && !p.redirect:
				// The node has run nothing. The cluster's client finds out who has the slot.
				again = append(again, part{messages: p.messages, text: p.text, redirect: true})
			case class.refusesWrites() && len(p.messages) > 1:
				// Nothing has run. Those that write nothing can still be decided.
				for _, m := range p.messages {
					again = append(again, part{messages: []*message{m}, text: p.text, redirect: p.redirect})
				}
			default:
				failed := n.failed(ctx, err)
				for _, m := range p.messages {
					m.finish("", 0, failed)
				}
				if !class.ofTheNode() {
					decided = true
				} else {
					failure = failed
				}
			}
		}
		parts = again
	}
	if decided {
		return nil
	}
	return failure
}

// deliver hands out a reply. What came too late only because the server's clock
// was not what it was thought to be has done nothing, and is asked once more.
func (n *node) deliver(p *part, reply any, sentAt, received int64, again []part) []part {
	want := instantBytes
	for _, m := range p.messages {
		want += len(m.keys) * answerBytes
	}
	text, ok := reply.(string)
	if !ok || len(text) != want {
		err := &Error{Class: ClassReply, Err: fmt.Errorf("reply is %T, want a string of %d bytes", reply, want)}
		if ok {
			err.Err = fmt.Errorf("reply has %d bytes, want %d", len(text), want)
		}
		for _, m := range p.messages {
			m.finish("", 0, err)
		}
		return again
	}
	clock := int64(bigEndian(text[want-instantBytes:]))
	if !p.redirect {
		n.clock.learn(clock, sentAt, received)
	}
	var late []*message
	for _, m := range p.messages {
		own := text[:len(m.keys)*answerBytes]
		text = text[len(own):]
		switch {
		case !m.late(own):
			m.finish(own, clock, nil)
		case !m.again && received < m.deadline:
			m.again = true
			late = append(late, m)
		default:
			n.store.counts.late.Add(1)
			m.finish("", 0, &Error{Class: ClassLate, Err: context.DeadlineExceeded})
		}
	}
	if len(late) > 0 {
		again = append(again, part{messages: late, text: p.text, redirect: p.redirect})
	}
	return again
}

// transmit makes the calls of parts, all in one round trip where that is possible.
// What became of each is in its cmd.
func (n *node) transmit(ctx context.Context, parts []part) {
	s := n.store
	for i := range parts {
		p := &parts[i]
		p.cmd = n.command(ctx, p)
		s.counts.batches.Add(1)
		s.counts.sizes[min(bits.Len(uint(len(p.messages)-1)), len(s.counts.sizes)-1)].Add(1)
	}
	pipelined, several := n.client.(interface{ Pipeline() redis.Pipeliner })
	if len(parts) == 1 || !several {
		for i := range parts {
			if parts[i].redirect {
				setError(parts[i].cmd, s.cluster.Process(ctx, parts[i].cmd))
			} else {
				setError(parts[i].cmd, n.client.Process(ctx, parts[i].cmd))
			}
		}
		return
	}
	pipe := pipelined.Pipeline()
	for i := range parts {
		if parts[i].redirect {
			setError(parts[i].cmd, s.cluster.Process(ctx, parts[i].cmd))
			continue
		}
		_ = pipe.Process(ctx, parts[i].cmd) // nothing happens yet
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx) // every command has its own error
	}
}

// setError keeps the error of a client that does not put it into the command.
func setError(cmd *once, err error) {
	if err != nil && cmd.Err() == nil {
		cmd.SetErr(err)
	}
}

// once is a command that go-redis must not send again by itself, whatever the
// client's MaxRetries or MaxRedirects: the first may have charged already.
// Redirections of a cluster are still followed, because the node that answers
// with one has run nothing.
type once struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (once) NoRetry() bool { return true }

func newOnce(ctx context.Context, args []any) *once {
	cmd := &once{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3) // EVALSHA sha n key: what a cluster client routes by
	return cmd
}

// command writes the call of the script for a part.
func (n *node) command(ctx context.Context, p *part) *once {
	s := n.store
	keys, bytes, soonest := 0, instantBytes, int64(0)
	for _, m := range p.messages {
		keys += len(m.keys)
		bytes += len(m.checks) + instantBytes
		if m.deadline != 0 && (soonest == 0 || m.deadline < soonest) {
			soonest = m.deadline
		}
	}
	args := make([]any, 3, 6+keys)
	args[0], args[1], args[2] = "evalsha", s.script.sha, keys
	if p.text {
		args[0], args[1] = "eval", s.script.text
	}
	packed := make([]byte, 0, bytes)
	packed = appendInstant(packed, n.clock.deadline(soonest))
	for _, m := range p.messages {
		for i := range m.keys {
			args = append(args, m.keys[i])
		}
		packed = append(packed, m.checks...)
	}
	checks := len(packed)
	for _, m := range p.messages {
		packed = appendInstant(packed, n.clock.deadline(m.deadline))
	}
	text := string(packed)
	args = append(args, text[:checks], text[checks:])
	if s.opts.Refunds != "" {
		args = append(args, s.opts.Refunds)
	}
	return newOnce(ctx, args)
}

// greet learns the server's clock.
func (n *node) greet(ctx context.Context) error {
	sentAt := now()
	cmd := newOnce(ctx, []any{"evalsha", n.store.script.sha, 0, string(make([]byte, instantBytes))})
	err := n.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		sentAt = now()
		cmd = newOnce(ctx, []any{"eval", n.store.script.text, 0, string(make([]byte, instantBytes))})
		err = n.client.Process(ctx, cmd)
	}
	if err != nil {
		return err
	}
	text, ok := cmd.Val().(string)
	if !ok || len(text) != instantBytes {
		return fmt.Errorf("the script says %.40q of its clock", fmt.Sprint(cmd.Val()))
	}
	n.clock.learn(int64(bigEndian(text)), sentAt, now())
	return nil
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

// probe asks the node by itself while callers may not, until it decides again. It
// makes a real decision on a log of its own, because a server can answer much and
// still not decide: a replica, one whose user may not write.
func (n *node) probe() {
	if !n.probes.CompareAndSwap(false, true) {
		return
	}
	defer n.probes.Store(false)
	for n.open.Load() {
		if !n.store.pause(n.store.opts.ProbeInterval) {
			return
		}
		done, err := n.breaker.Allow()
		if err != nil {
			continue // its own time is not over yet
		}
		err = n.try()
		if err != nil && n.store.cluster != nil && now()-n.asked.Load() > int64(forgetAfter) {
			// It has left the cluster, as far as anybody's keys are concerned.
			n.store.forget(n)
			done(err)
			return
		}
		done(err)
	}
}

// try makes one probe.
func (n *node) try() error {
	ctx, cancel := n.store.bounded(context.Background())
	defer cancel()
	// First whether it can be reached at all, without the client's pool: that takes
	// a number of failures as a reason to try only once a second.
	if err := n.knock(ctx); err != nil {
		n.failed(ctx, err)
		return err
	}
	if err := n.greet(ctx); err != nil {
		n.failed(ctx, err)
		return err
	}
	m := newMessage()
	defer m.free()
	probeMessage(m, n.store.opts.Prefix, n.tag.Load())
	p := []part{{messages: []*message{m}}}
	n.transmit(ctx, p)
	if err := p[0].cmd.Err(); err != nil && !classify(err).refusesWrites() && classify(err).ofTheNode() {
		n.failed(ctx, err)
		return err
	}
	return nil
}

// knock makes a connection and hears whether the server refuses it: one with too
// many clients says so and closes it, before the client has said anything, and a
// client that writes first may not get to read it.
func (n *node) knock(ctx context.Context) error {
	c, ok := n.client.(*redis.Client)
	if !ok {
		return nil
	}
	o := c.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if cause := n.cause.Load(); cause == nil || cause.Class != ClassClosed && cause.Class != ClassClients {
		return nil
	}
	var said [128]byte
	if err := conn.SetReadDeadline(time.Now().Add(hearing)); err != nil {
		return err
	}
	count, _ := conn.Read(said[:]) // as a rule it says nothing in the time
	if text, refused := strings.CutPrefix(string(said[:count]), "-"); refused {
		text, _, _ = strings.Cut(text, "\r")
		return refusal(text)
	}
	return nil
}

// hearing is how long a probe listens to a server that has closed connections.
const hearing = 5 * time.Millisecond

// A refusal is an error that a server says by itself.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

// RedisError implements [redis.Error].
func (refusal) RedisError() {}

// tagged keeps where a key's hash tag lies: a probe on a cluster must ask for a
// slot that is the node's.
func (n *node) tagged(key string) {
	if n.tag.Load() != nil {
		return
	}
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i:], '}'); j > 1 {
			tag := key[i : i+j+1]
			n.tag.Store(&tag)
			return
		}
	}
	n.tag.Store(&key)
}
