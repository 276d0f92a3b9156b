package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/admin"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// probe asks the node while its breaker is open, until the node decides again. It makes a
// real decision on a separate log. A server can answer other commands without being able
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
		if err != nil && n.store.cluster != nil && serverclock.Now()-n.lastAsked.Load() > int64(forgetAfter) {
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

// probeTimeout bounds a probe, if the store's timeout is shorter. No caller
// waits for a probe. Over a network, a new connection with TLS and a login takes several
// times as long as a decision.
const probeTimeout = 200 * time.Millisecond

// try makes one probe.
func (n *node) try() error {
	n.store.counts.probes.Add(1)
	began := serverclock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), max(n.store.opts.Timeout, probeTimeout))
	defer cancel()
	err := n.charge(ctx)
	if timeout := n.store.opts.Timeout; err == nil && timeout > 0 && serverclock.Now()-began > int64(timeout) {
		// That may have included a new connection. Now there is one, so a caller must get
		// an answer in time.
		ctx, cancel = n.store.bounded(context.Background())
		defer cancel()
		err = n.charge(ctx)
	}
	if err != nil {
		return n.failed(ctx, err)
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
		sentAt := serverclock.Now()
		p.cmd = n.command(ctx, &p)
		err := n.client.Process(ctx, p.cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") && !text {
			continue
		}
		if err != nil {
			if class := failure.Classify(err); class.RefusesWrites() || !class.OfNode() {
				return nil
			}
			return err
		}
		if reply, ok := p.cmd.Val().(string); ok && len(reply) == script.AnswerBytes+script.InstantBytes {
			n.writesAgain()
			n.clock.Learn(int64(script.BigEndian(reply[script.AnswerBytes:])), sentAt, serverclock.Now())
		}
		return nil
	}
	return nil
}

// greet learns the server's clock.
func (n *node) greet(ctx context.Context) error {
	sentAt := serverclock.Now()
	reply, err := n.store.scripts.take.Run(ctx, n.client, nil, string(make([]byte, script.InstantBytes)))
	if err != nil {
		return err
	}
	text, ok := reply.(string)
	if !ok || len(text) != script.InstantBytes {
		return fmt.Errorf("the script answers %.40q instead of its clock", fmt.Sprint(reply))
	}
	n.clock.Learn(int64(script.BigEndian(text)), sentAt, serverclock.Now())
	if n.store.opts.Timeout > 0 {
		n.store.keepOnce.Do(func() { n.store.background(n.store.keep) })
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
		for n := range s.all {
			ctx, cancel := s.bounded(s.life.stopped)
			age, known := n.clock.Age()
			switch { // the next call finds out what is wrong
			case n.open.Load():
			case n.refuses.Load() != nil:
				_ = n.charge(ctx)
			case known && age >= keepInterval/2 && serverclock.Now()-n.lastAsked.Load() <= int64(keepFor):
				_ = n.greet(ctx)
			}
			cancel()
		}
	}
}

// tagged records the hash tag of a key: a probe on a cluster needs a key in one of the node's
// slots.
func (n *node) tagged(key string) {
	if n.tag.Load() == nil {
		tag := "{" + window.HashTag(key) + "}"
		n.tag.Store(&tag)
	}
}

// probeMessage writes a probe into m. It charges, because the server must be able to write,
// and its result is not used.
func probeMessage(m *message, prefix string, tag *string) {
	key := admin.ProbeKey
	if tag != nil {
		key = *tag + admin.ProbeKey
	}
	c := &window.Check{
		Key:       key,
		Limit:     window.Limit{Hits: window.Unlimited - 1, Window: time.Second}, // no probe fills it
		Cost:      1,
		Mode:      window.Always,
		Precision: time.Second,
	}
	m.group.Add(c, new(window.Decision))
	m.group.Pack(prefix, false)
}
