package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// probe asks the node while its breaker is open, until the node decides again. It makes a
// real decision on a log of its own. A server can answer other commands without being able
// to decide, for instance a replica, or a server whose user may not write.
func (n *node) probe() {
	if !n.probes.CompareAndSwap(false, true) {
		return // the running probe will see that the breaker is open
	}
	for n.open.Load() {
		if !n.store.pause(n.store.opts.ProbeInterval) {
			return
		}
		done, err := n.breaker.Allow()
		if err != nil {
			continue // the breaker's timeout is not over yet
		}
		err = n.try()
		done(err)
		if err != nil && n.store.cluster != nil && now()-n.lastAsked.Load() > int64(forgetAfter) {
			// No key has led to it for long: it has left the cluster.
			n.store.forget(n)
			n.store.opts.Changed(Change{Node: n.address})
			return
		}
	}
	n.probes.Store(false)
	if n.open.Load() { // it opened after the loop ended
		n.store.background(n.probe)
	}
}

// probeTimeout bounds each step of a probe, if the store's timeout is shorter. No caller
// waits for a probe. Over a network, a new connection with TLS and a login takes several
// times as long as a decision.
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
	// First, whether it can be reached at all, without the client's pool: after some
	// failures the pool tries only once a second.
	if err := step(n.knock); err != nil {
		return err
	}
	began := now()
	if err := step(n.charge); err != nil {
		return err
	}
	if timeout := n.store.opts.Timeout; timeout > 0 && now()-began > int64(timeout) {
		// That may have included a new connection. Now there is one, so a caller must get
		// an answer in time.
		ctx, cancel := n.store.bounded(context.Background())
		defer cancel()
		if err := n.charge(ctx); err != nil {
			return n.failed(ctx, err)
		}
	}
	return nil
}

// charge makes a decision on the log of probes. If the server refuses to write, it returns
// nil, because such a server decides denials. If the server writes, it no longer counts as
// one that refuses.
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
			n.writesAgain()
			n.clock.learn(int64(bigEndian(reply[answerBytes:])), sentAt, now())
		}
		return nil
	}
	return nil
}

// knock makes a connection and reads whether the server refuses it. A server with too many
// clients sends an error and closes the connection at once. A client that writes first may
// not be able to read that error.
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
	defer func() { _ = conn.Close() }() // it is not used any more
	if cause := n.cause.Load(); cause == nil || cause.Class != ClassClosed && cause.Class != ClassClients {
		return nil
	}
	var said [128]byte
	if err := conn.SetReadDeadline(time.Now().Add(hearing)); err != nil {
		return err
	}
	count, _ := conn.Read(said[:]) // usually the server sends nothing in this time
	if text, refused := strings.CutPrefix(string(said[:count]), "-"); refused {
		text, _, _ = strings.Cut(text, "\r")
		return refusal(text)
	}
	return nil
}

// hearing is how long a probe reads from a server that has closed connections.
const hearing = 5 * time.Millisecond

// A refusal is an error that a server sends without a command.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

// RedisError implements [redis.Error].
func (refusal) RedisError() {}

// greet learns the server's clock.
func (n *node) greet(ctx context.Context) error {
	sentAt := now()
	reply, err := n.store.script.run(ctx, n.client, nil, string(make([]byte, instantBytes)))
	if err != nil {
		return err
	}
	text, ok := reply.(string)
	if !ok || len(text) != instantBytes {
		return fmt.Errorf("the script answers %.40q instead of its clock", fmt.Sprint(reply))
	}
	n.clock.learn(int64(bigEndian(text)), sentAt, now())
	if n.store.opts.Timeout > 0 {
		n.store.keeping.Do(func() { n.store.background(n.store.keep) })
	}
	return nil
}

const (
	// keepInterval is the greatest age of a clock's bounds. In that time two clocks drift
	// apart by some milliseconds at most.
	keepInterval = 4 * time.Second
	// keepFor is how long after the last call the bounds of a clock are renewed.
	keepFor = 10 * time.Minute
)

// keep asks idle servers for their clocks. After half a minute without a reply, the bounds
// would be too wide for deadlines. It also probes servers that refuse to write: without
// requests, nothing else shows that they write again.
func (s *Store) keep() {
	for s.pause(keepInterval / 2) {
		s.each(func(n *node) {
			if n.refuses.Load() != nil && !n.open.Load() {
				ctx, cancel := s.bounded(s.stopped)
				defer cancel()
				_ = n.charge(ctx) // the next call finds out what is wrong
				return
			}
			age, known := n.clock.age()
			if !known || age < keepInterval/2 || n.open.Load() || now()-n.lastAsked.Load() > int64(keepFor) {
				return
			}
			ctx, cancel := s.bounded(s.stopped)
			defer cancel()
			_ = n.greet(ctx) // the next call finds out what is wrong
		})
	}
}

// tagged records the hash tag of a key, or the key: a probe on a cluster needs a key in one
// of the node's slots.
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

// probeKey is the key of the log for probes. No check of the service has such a short key.
const probeKey = "probe"

// probeMessage writes a probe into m. It charges, because the server must be able to write,
// and its result is not used.
func probeMessage(m *message, prefix string, tag *string) {
	key := probeKey
	if tag != nil {
		key = *tag + probeKey
	}
	c := &window.Check{
		Key:       key,
		Limit:     window.Limit{Hits: window.MaxHits - 1, Window: time.Second}, // no probe fills it
		Cost:      1,
		Mode:      window.Always,
		Precision: time.Second,
	}
	m.addCheck(c, new(window.Decision))
	m.pack(prefix, groupEnds)
}
