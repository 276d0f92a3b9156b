package redisstore

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

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
	done, err := func(error) {}, gobreaker.ErrOpenState
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
			case (class.refusesWrites() || class == ClassMoved) && len(p.messages) > 1:
				// Nothing has run. Those that write nothing can still be decided; and of
				// a slot on its way some keys may be here and some there.
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
