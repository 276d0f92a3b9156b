package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
)

// Flags of an end, as settle.lua takes them.
const (
	endUnreached = 1
	endDenied    = 2
	endAlone     = 4 // one log of a cluster
	endUnknown   = 8 // in which the stream has reserved nothing, as its record says
)

// A settlement is one call of settle.lua.
type settlement struct {
	end   *window.Ending
	deny  time.Duration
	flags byte
	costs []int // the costs of the end that the call names
	pair  string
}

// settle calls the script for the first key, which is that of the stream or, for one log, of its holds.
func (s *Store) settle(ctx context.Context, n *node, key string, c *settlement) (settled window.Settled, err error) {
	keys, checks := []string{key}, script.AppendInstant(nil, 0)
	for _, i := range c.costs {
		cost := &c.end.Costs[i]
		keys = append(keys, script.KeyName(s.opts.Prefix, cost.Log()))
		checks = script.AppendCheck(checks, cost, 0, 0, 0)
	}
	if c.flags&endAlone != 0 && len(c.costs) == 0 {
		keys = append(keys, strings.TrimSuffix(key, script.HoldsSuffix))
	}
	flags := c.flags
	if c.end.Unreached {
		flags |= endUnreached
	}
	if c.end.Denied {
		flags |= endDenied
	}
	info := binary.BigEndian.AppendUint64(nil, uint64(c.end.Stream))
	info = script.AppendInstant(info, c.deny.Microseconds())
	info = script.AppendInstant(append(info, flags), int64(min(c.end.Bytes, 1<<52)))
	reply, err := runOn[string](ctx, s, n, &s.scripts.take, keys, string(checks), "", s.streams, string(info), c.pair)
	if err != nil {
		return settled, err
	}
	return s.readSettled(reply, c)
}

// readSettled reads the reply of settle.lua.
func (s *Store) readSettled(reply string, c *settlement) (settled window.Settled, err error) {
	const head, entry = 2, 1 + 1 + 7 + 7 + 4
	bad := &failure.Error{Class: failure.Reply, Err: fmt.Errorf("the reply to an end has %d bytes", len(reply))}
	if len(reply) < head {
		return settled, bad
	}
	settled.Released = reply[0] != 0
	for range reply[1] {
		s.opts.Corrupt(window.MinHold)
	}
	for rest := reply[head:]; len(rest) > 0; {
		if len(rest) < entry || uint64(len(rest)-entry) < script.BigEndian(rest[16:20]) || int(rest[0]) > len(c.costs) {
			return settled, bad
		}
		name := rest[entry : entry+int(script.BigEndian(rest[16:20]))]
		l := window.SettledLog{Cost: -1, Late: rest[1] != 0, Reserved: script.BigEndian(rest[2:9]), Spent: script.BigEndian(rest[9:16])}
		if i := int(rest[0]); i > 0 {
			l.Cost = c.costs[i-1]
			l.Log = c.end.Costs[l.Cost].Log()
		} else {
			l.Log, _ = ParseKeyName(strings.TrimPrefix(name, s.opts.Prefix))
		}
		settled.Logs = append(settled.Logs, l)
		rest = rest[entry+len(name):]
	}
	return settled, nil
}

// costsOf returns the costs of an end that need a log.
func costsOf(end *window.Ending) (costs []int) {
	for i := range end.Costs {
		if _, ok := window.WithoutLog(&end.Costs[i]); !ok {
			costs = append(costs, i)
		}
	}
	return costs
}

// endAcross is End on a cluster. A second end settles only what is still held: the first one may have failed
// in between.
func (s *Store) endAcross(ctx context.Context, end *window.Ending, deny time.Duration) (settled window.Settled, err error) {
	costs := costsOf(end)
	if len(costs) > 0 && !end.Denied {
		deny = max(deny, window.MinSettled)
	}
	name := s.streamName(end.Stream)
	n, err := s.nodeFor(ctx, name, 0)
	if err != nil {
		return settled, err
	}
	logs, err := runFor[[]any](ctx, s, n, name, "forget", end.Stream, deny)
	if err != nil {
		return settled, err
	}
	var (
		mu       sync.Mutex
		all      sync.WaitGroup
		again    = len(logs) > 0 && logs[0] == "1"
		reserved = false
	)
	add := func(got window.Settled, failed error) {
		mu.Lock()
		defer mu.Unlock()
		settled.Released = settled.Released || got.Released
		settled.Logs = append(settled.Logs, got.Logs...)
		err = errors.Join(err, failed)
	}
	for _, log := range logs[min(1, len(logs)):] {
		text, _ := log.(string)
		key, found := strings.CutPrefix(text, "\x00")
		if found {
			all.Go(func() {
				was, failed := s.drop(ctx, key, end.Stream, deny)
				add(window.Settled{Released: was}, failed)
			})
			continue
		}
		if len(text) < 1+2*script.CheckBytes {
			continue
		}
		reserved = true
		c := &settlement{end: end, deny: max(deny, window.MinSettled), flags: endAlone, pair: text[1 : 1+2*script.CheckBytes]}
		key = text[1+2*script.CheckBytes:]
		if again {
			c.flags |= endDenied
		}
		for i, cost := range costs {
			if script.KeyName(s.opts.Prefix, end.Costs[cost].Log())+script.HoldsSuffix == key {
				c.costs, costs = []int{cost}, append(costs[:i:i], costs[i+1:]...)
				break
			}
		}
		all.Go(func() { add(s.settleAlone(ctx, key, c)) })
	}
	for _, cost := range costs {
		if end.Denied || again {
			break
		}
		reserved = true
		unknown := end.Costs[cost]
		unknown.Budget = &window.Budget{Hold: window.MinHold}
		c := &settlement{end: end, flags: endAlone | endUnknown, costs: []int{cost}, pair: script.PackPair(&unknown)}
		all.Go(func() { add(s.settleAlone(ctx, script.KeyName(s.opts.Prefix, unknown.Log())+script.HoldsSuffix, c)) })
	}
	all.Wait()
	if err == nil && deny <= 0 && len(logs) > 1 && !reserved {
		err = s.unlink(ctx, n, name)
	}
	return settled, err
}

// settleAlone settles one log on a cluster.
func (s *Store) settleAlone(ctx context.Context, key string, c *settlement) (window.Settled, error) {
	n, err := s.nodeFor(ctx, key, 0)
	if err != nil {
		return window.Settled{}, err
	}
	return s.settle(ctx, n, key, c)
}
