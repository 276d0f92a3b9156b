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
		return n.failed(ctx, err)
	}
	if err := n.greet(ctx); err != nil {
		return n.failed(ctx, err)
	}
	m := newMessage()
	defer m.free()
	probeMessage(m, n.store.opts.Prefix, n.tag.Load())
	p := []part{{messages: []*message{m}}}
	n.transmit(ctx, p)
	if err := p[0].cmd.Err(); err != nil && !classify(err).refusesWrites() && classify(err).ofTheNode() {
		return n.failed(ctx, err)
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
	return nil
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
