package redisstore

import (
	"context"
	"fmt"
	"math/bits"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// A part is the content of one call of the script: messages whose logs have one hash tag.
type part struct {
	messages []*message
	text     bool                // send the script's text, because the server does not know it
	follow   bool                // another node has the slot: the cluster's client finds it
	clock    *serverclock.Bounds // of that node, once it has answered
	cmd      *script.Command
}

// send sends messages and waits for their replies. It hands messages back to callers that
// still wait, and frees the others. It returns when all are answered, at the latest after
// the store's timeout.
func (n *node) send(batch []*message) {
	live := batch[:0]
	deadlines := false
	for _, m := range batch {
		if m.begin() {
			live = append(live, m)
			deadlines = deadlines || m.deadline != 0
		} else {
			m.free()
		}
	}
	if len(live) == 0 {
		return
	}
	// While the breaker is open, only the probe may use its one try.
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
	ctx := n.limits.Begin()
	defer ctx.End()
	if deadlines && !n.clock.Known() {
		// A deadline needs the server's clock.
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
			if o := batch[j]; o != nil && o.tag == m.tag {
				p.messages = append(p.messages, o)
				batch[j] = nil
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// exchange sends parts until every message is answered. It returns an error if the node has
// decided no message.
func (n *node) exchange(ctx context.Context, parts []part) error {
	var broken error
	decided := false
	for len(parts) > 0 {
		sentAt := serverclock.Now()
		n.transmit(ctx, parts)
		received := serverclock.Now()
		var again []part
		for i := range parts {
			p := &parts[i]
			reply, err := p.cmd.Result()
			if err == nil {
				decided = true
				again = n.deliver(p, reply, sentAt, received, again)
				continue
			}
			class := failure.Classify(err)
			switch {
			case redis.HasErrorPrefix(err, "NOSCRIPT") && !p.text:
				// The server has restarted, or its scripts were flushed. Nothing has run.
				p.text = true
				again = append(again, *p)
			case class == failure.Moved && n.store.cluster != nil && !p.follow && !redis.HasErrorPrefix(err, "TRYAGAIN"):
				// The node has run nothing, and another one has the slot.
				n.store.cluster.ReloadState(ctx)
				p.follow = true
				again = append(again, *p)
			case (class.RefusesWrites() || class == failure.Moved) && len(p.messages) > 1:
				// Nothing has run. The server may still decide the messages that write
				// nothing. While a slot moves, keys are on two nodes, so each message
				// starts again at the old node, by itself.
				for _, m := range p.messages {
					again = append(again, part{messages: []*message{m}, text: p.text})
				}
			default:
				failed := n.failed(ctx, err)
				for _, m := range p.messages {
					m.finish("", 0, failed)
				}
				if class.RefusesWrites() {
					n.refusesWrites(failed)
				}
				if !class.OfNode() {
					decided = true
				} else {
					broken = failed
				}
			}
		}
		parts = again
	}
	if decided {
		return nil
	}
	return broken
}

// deliver hands out a reply. It adds messages that the script has not judged to again, if
// they are to be sent again. A message that came too late only because the estimate of the
// clock was wrong is sent once more. A message whose rings must move first is sent again until its
// deadline. Each call moves some of its rings, so the number of calls is bounded.
func (n *node) deliver(p *part, reply any, sentAt, received int64, again []part) []part {
	want := script.InstantBytes
	for _, m := range p.messages {
		want += len(m.group.Keys) * script.AnswerBytes
	}
	text, ok := reply.(string)
	if !ok || len(text) != want {
		err := &failure.Error{Class: failure.Reply, Err: fmt.Errorf("reply is %T, want a string of %d bytes", reply, want)}
		if ok {
			err.Err = fmt.Errorf("reply has %d bytes, want %d", len(text), want)
		}
		for _, m := range p.messages {
			m.finish("", 0, err)
		}
		return again
	}
	clock := int64(script.BigEndian(text[want-script.InstantBytes:]))
	at := n.clockOf(p)
	if p.follow {
		at = new(serverclock.Bounds) // not the estimate
	}
	at.Learn(clock, sentAt, received)
	n.pace.Learn(sentAt, received, n.store.Instances() > 1)
	var unjudged []*message
	for _, m := range p.messages {
		m.batch = len(p.messages)
		answers := text[:len(m.group.Keys)*script.AnswerBytes]
		text = text[len(answers):]
		switch why := script.SkippedFor(answers); {
		case why == script.Judged:
			if m.group.Writes(answers) {
				n.writesAgain()
			}
			m.finish(answers, clock, nil)
		case why == script.OtherPeriods:
			m.finish("", 0, &failure.Error{Class: failure.Period, Err: window.ErrPeriod})
		case why == script.PutOff && (received < m.deadline || m.deadline == 0):
			unjudged = append(unjudged, m)
		case why == script.Late && !m.again && received < m.deadline:
			m.again = true
			unjudged = append(unjudged, m)
		default:
			m.finish("", 0, &failure.Error{Class: failure.Late, Err: context.DeadlineExceeded})
		}
	}
	if len(unjudged) > 0 {
		again = append(again, part{messages: unjudged, text: p.text, follow: p.follow, clock: at})
	}
	return again
}

// clockOf returns the clock of the server that a part is sent to. If another server has the
// slot, the node's own clock is the best estimate until that one has answered: usually NTP
// sets both.
func (n *node) clockOf(p *part) *serverclock.Bounds {
	if p.clock != nil {
		return p.clock
	}
	return &n.clock
}

// transmit makes the calls of parts. Calls to one server take one round trip. The result of
// each is in its cmd.
func (n *node) transmit(ctx context.Context, parts []part) {
	s := n.store
	var pipeline []*part
	var all sync.WaitGroup
	for i := range parts {
		p := &parts[i]
		p.cmd = n.command(ctx, p)
		s.counts.batches.Add(1)
		s.counts.sent.Add(uint64(len(p.messages)))
		s.counts.sizes[min(bits.Len(uint(len(p.messages)-1)), len(s.counts.sizes)-1)].Add(1)
		switch {
		case p.follow:
			all.Go(func() { setError(p.cmd, s.cluster.Process(ctx, p.cmd)) })
		case len(parts) == 1:
			setError(p.cmd, n.client.Process(ctx, p.cmd))
			return
		default:
			pipeline = append(pipeline, p)
		}
	}
	if pipelined, ok := n.client.(interface{ Pipeline() redis.Pipeliner }); ok && len(pipeline) > 0 {
		pipe := pipelined.Pipeline()
		for _, p := range pipeline {
			_ = pipe.Process(ctx, p.cmd) // only queues it
		}
		_, _ = pipe.Exec(ctx) // every command has its own error
	} else {
		for _, p := range pipeline {
			setError(p.cmd, n.client.Process(ctx, p.cmd))
		}
	}
	all.Wait()
}

// setError puts the error of a client into the command, if the client did not.
func setError(cmd *script.Command, err error) {
	if err != nil && cmd.Err() == nil {
		cmd.SetErr(err)
	}
}

// command returns the call of the script for a part.
func (n *node) command(ctx context.Context, p *part) *script.Command {
	s := n.store
	deadline := n.clockOf(p).Deadline
	keys, bytes, soonest, inFlight := 0, script.InstantBytes, int64(0), false
	for _, m := range p.messages {
		keys += len(m.group.Keys)
		bytes += len(m.group.Packed) + script.InstantBytes
		inFlight = inFlight || m.group.InFlight
		if m.deadline != 0 && (soonest == 0 || m.deadline < soonest) {
			soonest = m.deadline
		}
	}
	args := make([]any, 3, 7+keys)
	args[0], args[1], args[2] = "evalsha", s.scripts.take.SHA, keys
	if p.text {
		args[0], args[1] = "eval", s.scripts.take.Text
	}
	packed := make([]byte, 0, bytes)
	packed = script.AppendInstant(packed, deadline(soonest))
	for _, m := range p.messages {
		for i := range m.group.Keys {
			args = append(args, m.group.Keys[i])
		}
		packed = append(packed, m.group.Packed...)
	}
	checks := len(packed)
	script.MarkRepeats(packed[script.InstantBytes:], args[3:])
	for _, m := range p.messages {
		packed = script.AppendInstant(packed, deadline(m.deadline))
	}
	text := string(packed)
	args = append(args, text[:checks])
	if inFlight && s.streams != "" {
		args = append(args, text[checks:], s.streams)
	} else if len(p.messages) > 1 {
		args = append(args, text[checks:])
	}
	return script.NewCommand(ctx, args)
}
