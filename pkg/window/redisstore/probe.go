package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// probe asks the node by itself while callers may not, until it decides again. It
// makes a real decision on a log of its own, because a server can answer much and
// still not decide: a replica, one whose user may not write.
func (n *node) probe() {
	if !n.probes.CompareAndSwap(false, true) {
		return // it will see that the breaker is open
	}
	for n.open.Load() {
		if !n.store.pause(n.store.opts.ProbeInterval) {
			return
		}
		done, err := n.breaker.Allow()
		if err != nil {
			continue // its own time is not over yet
		}
		err = n.try()
		done(err)
		if err != nil && n.store.cluster != nil && now()-n.asked.Load() > int64(forgetAfter) {
			// It has left the cluster, as far as anybody's keys are concerned.
			n.store.forget(n)
			n.store.opts.Changed(Change{Node: n.address})
			return
		}
	}
	n.probes.Store(false)
	if n.open.Load() { // since the loop has looked
		n.store.background(n.probe)
	}
}

// probeTimeout bounds each step of a probe, if the store's timeout is shorter.
// Nobody waits for a probe, and over a network a new connection with TLS and a
// login takes several times what a decision does.
const probeTimeout = 200 * time.Millisecond

// try makes one probe.
func (n *node) try() error {
	n.store.counts.probes.Add(1)
	step := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), max(n.store.opts.Timeout, probeTimeout))
		defer cancel()
		if err := f(ctx); err != nil {
			return n.failed(ctx, err)
		}
		return nil
	}
	// First whether it can be reached at all, without the client's pool: that takes
	// a number of failures as a reason to try only once a second.
	if err := step(n.knock); err != nil {
		return err
	}
	began := now()
	if err := step(n.charge); err != nil {
		return err
	}
	if timeout := n.store.opts.Timeout; timeout > 0 && now()-began > int64(timeout) {
		// That was with a new connection, perhaps. Now there is one, and it counts
		// whether a caller would get an answer.
		ctx, cancel := n.store.bounded(context.Background())
		defer cancel()
		if err := n.charge(ctx); err != nil {
			return n.failed(ctx, err)
		}
	}
	return nil
}

// charge makes a decision on the log of probes. That the server refuses to write
// is no error: it decides denials.
func (n *node) charge(ctx context.Context) error {
	m := newMessage()
	defer m.free()
	probeMessage(m, n.store.opts.Prefix, n.tag.Load())
	for _, text := range []bool{false, true} {
		p := part{messages: []*message{m}, text: text}
		sentAt := now()
		p.cmd = n.command(ctx, &p)
		err := n.client.Process(ctx, p.cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") && !text {
			continue
		}
		if err != nil {
			if class := classify(err); class.refusesWrites() || !class.ofTheNode() {
				return nil
			}
			return err
		}
		if reply, ok := p.cmd.Val().(string); ok && len(reply) == answerBytes+instantBytes {
			n.clock.learn(int64(bigEndian(reply[answerBytes:])), sentAt, now())
		}
		return nil
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
	defer func() { _ = conn.Close() }() // it has served
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
	if n.store.opts.Timeout > 0 {
		n.store.keeping.Do(func() { n.store.background(n.store.keep) })
	}
	return nil
}

const (
	// keepInterval is how old what is known of a clock may be: in that time two
	// clocks drift apart by some milliseconds at most.
	keepInterval = 4 * time.Second
	// keepFor is how long after the last call a clock is kept known.
	keepFor = 10 * time.Minute
)

// keep asks servers for their clocks that nobody asks for anything: after half a
// minute their deadlines would be of no use.
func (s *Store) keep() {
	for s.pause(keepInterval / 2) {
		s.each(func(n *node) {
			age, known := n.clock.age()
			if !known || age < keepInterval/2 || n.open.Load() || now()-n.asked.Load() > int64(keepFor) {
				return
			}
			ctx, cancel := s.bounded(s.stopped)
			defer cancel()
			_ = n.greet(ctx) // the next call finds out what is wrong
		})
	}
}

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

// probeKey is the log on which a probe is made. The script's users never meet it:
// their keys are longer.
const probeKey = "probe"

// probeMessage writes a probe: it charges, because that is what callers need, and
// never denies.
func probeMessage(m *message, prefix string, tag *string) {
	key := probeKey
	if tag != nil {
		key = *tag + probeKey
	}
	c := &window.Check{
		Key:       key,
		Limit:     window.Limit{Hits: 1, Window: time.Second},
		Cost:      1,
		Mode:      window.Always,
		Precision: time.Second,
	}
	m.addCheck(c, new(window.Decision))
	m.pack(prefix, groupEnds)
}
