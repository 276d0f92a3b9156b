package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// pace is how often every log is asked in the state full, so a window has as many
// milliseconds as the limit has hits. It leaves Redis idle for half of the time.
const pace = time.Millisecond

// decisions measures one decision in a state, inOne of them in each EVALSHA.
func (b *bench) decisions(k kind, state string, l limit, inOne int) probe {
	return func(ctx context.Context) (sample, error) {
		logs := max(b.keys, inOne)
		win := time.Hour
		slack := l.hits/10 + 3
		before := past{hits: int(l.hits)}
		if state != full {
			before.pace = win / 2 / time.Duration(l.hits)
		}
		send := load{each: inOne, count: b.calls, batch: max(1, b.keys/inOne)}
		switch state {
		case full:
			win, before.pace, send.pace = time.Duration(l.hits)*pace, pace, pace
		case filling:
			before.hits = 0
			if l.hits > window.ExactHits {
				before.hits = int(l.hits / 2)
			}
			logs = b.calls/(int(l.hits)-before.hits) + 1
		case denied:
			slack = 0
		}
		var checks []window.Check
		for i := range logs {
			c := l.check(fmt.Sprintf("log%d", i), win, slack)
			if err := k.plant(ctx, b, c, before); err != nil {
				return sample{}, err
			}
			checks = append(checks, c)
		}
		var err error
		if send.calls, err = calls(k, checks, inOne, state != denied); err != nil {
			return sample{}, err
		}
		return b.send(ctx, send)
	}
}

// calls asks checks that are independent of each other, inOne of them in each call.
func calls(k kind, checks []window.Check, inOne int, allowed bool) ([]call, error) {
	var all []call
	for ; len(checks) >= inOne; checks = checks[inOne:] {
		var c call
		var err error
		if inOne == 1 {
			c, err = k.call(checks[0], allowed)
		} else {
			groups := make([][]window.Check, inOne)
			for i := range groups {
				groups[i] = checks[i : i+1]
			}
			c, err = packed{}.calls(groups, allowed)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// group measures requests of three keys with two windows each.
func (b *bench) group(k kind) probe {
	const logs = 6
	return func(ctx context.Context) (sample, error) {
		send := load{each: 1, count: b.calls, pace: pace}
		for i := range max(1, b.keys/logs) {
			var group []window.Check
			for j := range logs {
				l := limit{hits: []uint64{10, 100}[j%2]}
				c := l.check(fmt.Sprintf("group%d:%d", i, j/2), time.Duration(l.hits)*pace, l.hits/10+3)
				if err := k.plant(ctx, b, c, past{hits: int(l.hits), pace: pace}); err != nil {
					return sample{}, err
				}
				group = append(group, c)
			}
			if _, ok := k.(packed); ok {
				c, err := packed{}.calls([][]window.Check{group}, true)
				if err != nil {
					return sample{}, err
				}
				send.calls, send.each = append(send.calls, c), logs
				continue
			}
			each, err := calls(k, group, 1, true)
			if err != nil {
				return sample{}, err
			}
			send.calls = append(send.calls, each...)
		}
		send.batch = len(send.calls)
		s, err := b.send(ctx, send)
		return sample{value: s.value * logs, extra: s.extra * logs}, err
	}
}

// memory measures the bytes of a full log, by hits.
func (b *bench) memory(k kind, l limit) probe {
	return func(ctx context.Context) (sample, error) {
		c := l.check("log", time.Hour, 0)
		recorded := 0
		if l.auto {
			// Within moments all hits would share a few slots.
			recorded = int(l.hits) - 1
			if err := k.plant(ctx, b, c, past{hits: recorded, pace: time.Hour / time.Duration(l.hits)}); err != nil {
				return sample{}, err
			}
		}
		ask, err := k.call(c, true)
		if err != nil {
			return sample{}, err
		}
		if _, err := b.send(ctx, load{calls: []call{ask}, each: 1, count: int(l.hits) - recorded, batch: b.keys}); err != nil {
			return sample{}, err
		}
		bytes, err := b.client.MemoryUsage(ctx, name(c), 0).Result()
		return sample{value: float64(bytes) / float64(l.hits)}, err
	}
}

// The states in which a single call may take long.
const (
	allExpire   = "all expire"
	halfExpires = "half expires"
	grows       = "grows"
	shrinks     = "shrinks"
)

// longest measures the call that finds a log in a state.
func (b *bench) longest(k kind, state string, l limit) probe {
	return func(ctx context.Context) (sample, error) {
		win := time.Duration(l.hits) * pace
		c := l.check("log", win, l.hits)
		p := past{hits: int(l.hits), pace: pace}
		switch state {
		case allExpire:
			p.ago = win + time.Second
		case halfExpires:
			p.ago = win / 2
		case shrinks:
			p.ago = win / 5 * 4
		case grows:
			// A ring has a quarter to spare, so one of the next quarter's hits is too
			// many; they still are to fit into the window.
			p.pace = pace / 100 * 78
			p.hits = lastGrowth(c, p.pace, int(l.hits)/4*5)
			p.ago = time.Second // not in the slot of the last hit
		}
		if err := k.plant(ctx, b, c, p); err != nil {
			return sample{}, err
		}
		before, err := b.client.MemoryUsage(ctx, name(c), 0).Result()
		if err != nil {
			return sample{}, err
		}
		ask, err := k.call(c, true)
		if err != nil {
			return sample{}, err
		}
		s, err := b.once(ctx, ask)
		if err != nil {
			return sample{}, err
		}
		after, err := b.client.MemoryUsage(ctx, name(c), 0).Result()
		if (state == grows && after <= before) || (state == shrinks && after >= before) {
			return sample{}, fmt.Errorf("the log of %d bytes has %d after the call", before, after)
		}
		return s, err
	}
}

// lastGrowth returns how many hits a log has when it grows for the last time on
// the way to that number.
func lastGrowth(c window.Check, pace time.Duration, hits int) (at int) {
	var log []byte
	var d window.Decision
	now := c.Limit.Window.Microseconds()
	for i := range hits {
		size := len(log)
		if log = reference.Take(log, now, &c, &d); len(log) > size {
			at = i
		}
		now += pace.Microseconds()
	}
	return at
}
