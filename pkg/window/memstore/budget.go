package memstore

import (
	"sync"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore/internal/terms"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// # Budgets
//
// What streams have reserved of a log with a budget is one more log, with the same key: its policy is holdsOf
// more. So the bounds, the sweeper and the snapshot apply to it as to any log. It is limiting while it
// matters. A group and a settlement lock the shards of both.
//
// The record of the stream has, behind the key of such a log, what [Store.End] needs to charge it: see [terms.Append].
const holdsOf = onceRecords + 1

// ofHolds reports whether a log has what streams have reserved.
func (l *log) ofHolds() bool { return !l.ofStream() && l.name.policy() >= holdsOf }

// holdsID returns the id of what streams have reserved of a log.
func holdsID(id window.LogID) window.LogID {
	id.Policy += holdsOf
	return id
}

// A reservedLog is what streams have reserved of the log of a check.
type reservedLog struct {
	shard *shard // nil if the check has no budget
	id    window.LogID
	hash  uint32
	log   *log // nil if there is none
	state packed.Reserved
}

// locate finds the shard, and returns its bit.
func (h *reservedLog) locate(s *Store, c *window.Check) uint64 {
	h.id = holdsID(c.Log())
	shard, hash := s.shardOf(h.id)
	h.shard, h.hash = &s.shards[shard], hash
	return 1 << shard
}

// A scratch is memory that a call with budgets needs for a moment. Taken from a pool, it costs no allocation.
type scratch struct {
	reserved [inlineChecks]reservedLog
	budget   window.Budget
	done     [inlineChecks]bool
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// reservedOf finds the shards of what is reserved of the logs of a group, and returns their bits.
func (s *Store) reservedOf(more *extra, checks []window.Check, group []checkState) (touched uint64) {
	for i := range checks {
		if checks[i].Budget == nil || group[i].shard == nil {
			continue
		}
		if more.reserved == nil && len(checks) <= inlineChecks {
			more.scratch = scratches.Get().(*scratch)
			more.reserved = more.scratch.reserved[:len(checks)]
		} else if more.reserved == nil {
			more.reserved = make([]reservedLog, len(checks))
		}
		group[i].reserved = &more.reserved[i]
		touched |= more.reserved[i].locate(s, &checks[i])
	}
	return touched
}

// look reads the holds as the stream of a check sees them at the time now, in microseconds.
func (h *reservedLog) look(c *window.Check, now int64, fresh bool, ended int64) {
	var packed []byte
	if h.log = h.shard.find(h.id, h.hash); h.log != nil {
		packed = h.log.packed
	}
	h.state.Look(packed, now, c, fresh)
	if ended > 0 {
		h.state.State.Ended(ended)
	}
}

// need returns the bytes that one more hold takes.
func (h *reservedLog) need(c *window.Check) int64 {
	growth := int64(h.state.Growth(c))
	if h.log == nil && growth > 0 {
		growth += logBytes + int64(len(c.Key))
	}
	return growth
}

// needReserved returns the bytes that the holds of a group take in a shard.
func (more *extra) needReserved(checks []window.Check, group []checkState, sh *shard) (n int64) {
	for i := range more.reserved {
		if h := &more.reserved[i]; h.shard == sh && group[i].charged {
			n += h.need(&checks[i])
		}
	}
	return n
}

// keep makes the log have the holds as they are now.
func (h *reservedLog) keep() {
	packed := h.state.State.Log()
	switch {
	case packed == nil && h.log != nil:
		h.shard.remove(h.log)
		h.log = nil
	case packed != nil:
		if h.log == nil {
			h.log = h.shard.add(h.id, h.hash)
			h.log.limit = noLimit
		}
		h.shard.keep(h.log, packed)
	}
}

// settleAll settles the logs of a stream that has ended, by the keys of its record, and charges the costs of the ending for other logs.
//
//go:noinline
func (s *Store) settleAll(end window.Ending, keys []byte) (settled window.Settled, err error) {
	settled.Logs = make([]window.SettledLog, 0, max(len(end.Costs), 1))
	more := scratches.Get().(*scratch)
	defer scratches.Put(more)
	done := append(more.done[:0], make([]bool, len(end.Costs))...)
	for len(keys) > 0 {
		var l streamEntry
		if l, keys = cutEntry(keys); l.policy == window.InFlight {
			settled.Released = s.dropHold(l.scope, l.key, end.Stream) || settled.Released
			continue
		}
		c, cost := terms.Read(l.terms, &more.budget), -1
		c.Scope, c.Limit.Policy = l.scope, l.policy
		for i := range end.Costs {
			if of := &end.Costs[i]; !done[i] && l.is(of) {
				if done[i] = true; of.Mode != window.Enforce {
					cost = i
				}
				c.Key, c.Limit, c.Precision, c.Period, c.Cost = of.Key, of.Limit, of.Precision, of.Period, of.Cost
			}
		}
		if c.Key == "" {
			c.Key = string(l.key)
		}
		err = s.settle(&c, &end, cost, true, &settled, err)
	}
	for i := range end.Costs {
		if c := end.Costs[i]; !done[i] && !end.Denied && c.Mode != window.Observe {
			more.budget = window.Budget{Hold: window.MinHold}
			c.Mode, c.Budget = window.Always, &more.budget
			err = s.settle(&c, &end, i, false, &settled, err)
		}
	}
	return settled, err
}

// settle settles one log, whose cost is the one with this index, or none. It adds the result to settled. If it
// fails, it returns the first error: the hold stays until it expires.
func (s *Store) settle(c *window.Check, end *window.Ending, cost int, known bool, settled *window.Settled, first error) error {
	if c.Limit.Hits == window.Unlimited {
		return first // records nothing
	}
	var (
		group [2]checkState // makeRoom does not drop their logs
		h     reservedLog
		a     = &group[0]
	)
	c.Stream = end.Stream
	touched := 1<<s.locate(a, c) | h.locate(s, c)
	s.lock(touched)
	defer s.unlock(touched)

	now := s.clock().Microseconds()
	c.Period = c.Period.At(now)
	a.look(c, now)
	h.look(c, now, false, 0)
	group[1].log = h.log
	most := *c
	most.Cost = max(c.Cost, 1)
	if err := a.shard.makeRoomOf(c.Key, a.need(&most), now, group[:]); err != nil {
		if first == nil {
			first = err
		}
		return first
	}
	log, ok := h.state.Settle(&a.state, c, end, cost >= 0, known)
	if !ok {
		return first
	}
	h.keep()
	a.keep(c, now)
	log.Log, log.Cost = c.Log(), cost
	settled.Logs = append(settled.Logs, log)
	settled.Released = settled.Released || log.Reserved > 0
	return first
}
