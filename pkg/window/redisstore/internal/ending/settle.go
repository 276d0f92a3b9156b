package ending

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
func (e *Ends) settle(ctx context.Context, key string, c *settlement) (settled window.Settled, err error) {
	keys, checks := []string{key}, script.AppendInstant(nil, 0)
	for _, i := range c.costs {
		cost := &c.end.Costs[i]
		keys = append(keys, script.KeyName(e.Prefix, cost.Log()))
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
	reply, err := resultOf[string](e.Run(ctx, e.Take, keys, string(checks), "", e.Streams, string(info), c.pair))
	if err != nil {
		return settled, err
	}
	return e.readSettled(reply, c)
}

// readSettled reads the reply of settle.lua.
func (e *Ends) readSettled(reply string, c *settlement) (settled window.Settled, err error) {
	const head, entry = 2, 1 + 2 + 5*7 + 4
	bad := &failure.Error{Class: failure.Reply, Err: fmt.Errorf("the reply to an end has %d bytes", len(reply))}
	if len(reply) < head {
		return settled, bad
	}
	settled.Released = reply[0] != 0
	for range reply[1] {
		e.Corrupt(window.MinHold)
	}
	for rest := reply[head:]; len(rest) > 0; {
		if len(rest) < entry || uint64(len(rest)-entry) < script.BigEndian(rest[38:42]) || int(rest[0]) > len(c.costs) {
			return settled, bad
		}
		name := rest[entry : entry+int(script.BigEndian(rest[38:42]))]
		l := window.SettledLog{Cost: -1, Reserved: script.BigEndian(rest[10:17]), Spent: script.BigEndian(rest[17:24]), Remaining: script.BigEndian(rest[24:31]), OtherReserved: script.BigEndian(rest[31:38])}
		l.Expired = window.Expired{Holds: script.BigEndian(rest[1:3]), Units: script.BigEndian(rest[3:10])}
		if i := int(rest[0]); i > 0 {
			l.Cost = c.costs[i-1]
			l.Log = c.end.Costs[l.Cost].Log()
		} else {
			l.Log, _ = script.ParseKeyName(strings.TrimPrefix(name, e.Prefix))
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

// endAcross is End on a cluster. A second end settles only what is still reserved, and charges logs that are not in the
// record of the stream if the first end has not: it may have failed in between.
func (e *Ends) endAcross(ctx context.Context, end *window.Ending, deny time.Duration) (settled window.Settled, err error) {
	costs := costsOf(end)
	if len(costs) > 0 && !end.Denied {
		deny = max(deny, window.MinSettled)
	}
	name := e.streamName(end.Stream)
	logs, err := runFor[[]any](ctx, e, name, "forget", end.Stream, deny)
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
				was, failed := e.drop(ctx, key, end.Stream, deny)
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
			if script.KeyName(e.Prefix, end.Costs[cost].Log())+script.HoldsSuffix == key {
				c.costs, costs = []int{cost}, append(costs[:i:i], costs[i+1:]...)
				break
			}
		}
		all.Go(func() { add(e.settle(ctx, key, c)) })
	}
	for _, cost := range costs {
		if end.Denied || end.Costs[cost].Mode == window.Observe {
			continue
		}
		reserved = true // the log denies the stream afterwards, so that a second end charges nothing
		unknown := end.Costs[cost]
		unknown.Budget = &window.Budget{Hold: window.MinHold}
		c := &settlement{end: end, deny: deny, flags: endAlone | endUnknown, costs: []int{cost}, pair: script.PackPair(&unknown)}
		all.Go(func() { add(e.settle(ctx, script.KeyName(e.Prefix, unknown.Log())+script.HoldsSuffix, c)) })
	}
	all.Wait()
	if err == nil && deny <= 0 && len(logs) > 1 && !reserved {
		err = e.Unlink(ctx, name)
	}
	return settled, err
}

// Unreserve takes back what the stream of a check has reserved, by the name of the holds.
func (e *Ends) Unreserve(ctx context.Context, holds string, c *window.Check) (taken uint64, err error) {
	end := window.Ending{Stream: c.Stream, Unreached: true, Denied: true}
	settled, err := e.settle(ctx, holds, &settlement{end: &end, flags: endAlone, pair: script.PackPair(c)})
	for _, l := range settled.Logs {
		taken += l.Reserved
	}
	return taken, err
}
