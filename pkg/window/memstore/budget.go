package memstore

import (
	"sync"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore/internal/streamrecord"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// # Budgets
//
// What streams have reserved of a log with a budget is one more log, with the same key, shard and hash: its policy is holdsOf
// more. So the bounds, the sweeper and the snapshot apply to it as to any log. It is limiting while it
// matters.
//
// The record of the stream has, behind the key of such a log, what [Store.End] needs to charge it: see [streamrecord.Entry.Terms].
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
	log   *log // nil if there is none
	state packed.Reserved
}

// find finds the holds of the log of a check.
func (h *reservedLog) find(a *checkState, c *window.Check) {
	h.log = a.shard.lookUp(c.Key, a.name+name(holdsOf)<<policyBits, a.hash)
}

// A scratch is memory that a call with budgets needs for a moment. Taken from a pool, it costs no allocation.
type scratch struct {
	reserved [inlineChecks]reservedLog
	budget   window.Budget
	check    window.Check
	done     [inlineChecks]bool
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// reservedOf makes the checks of a group that have a budget know it.
func (more *extra) reservedOf(checks []window.Check, group []checkState) {
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
	}
}

// look reads the holds as the stream of a check sees them at the time now, in microseconds.
func (h *reservedLog) look(a *checkState, c *window.Check, now int64) {
	var packed []byte
	if h.find(a, c); h.log != nil {
		packed = h.log.packed
	}
	h.state.Look(packed, now, c, a.holdEnds)
	if a.ended > 0 {
		h.state.State.Ended(a.ended)
	}
}

// need returns the bytes that one more hold takes.
func (h *reservedLog) need(c *window.Check) int64 {
	growth := int64(h.state.State.Growth(c))
	if h.log == nil && growth > 0 {
		growth += logBytes + int64(len(c.Key))
	}
	return growth
}

// needReserved returns the bytes that the holds of a group take in a shard.
func (more *extra) needReserved(checks []window.Check, group []checkState, sh *shard) (n int64) {
	for i := range more.reserved {
		if h := &more.reserved[i]; group[i].reserved != nil && group[i].shard == sh && group[i].charged {
			n += h.need(&checks[i])
		}
	}
	return n
}

// keep makes the log have the holds as they are now. Without holds, the log stays for the next ones until it is swept.
func (h *reservedLog) keep(a *checkState, c *window.Check) {
	packed, sh := h.state.State.Log(), a.shard
	switch {
	case len(packed) == 0 && h.log == nil:
		return
	case h.log == nil:
		h.log = sh.add(holdsID(c.Log()), a.hash)
		h.log.limit = noLimit
	case len(packed) == 0 && cap(h.log.packed) <= maxSpareBytes:
		packed = h.log.packed[:0]
	}
	sh.keep(h.log, packed)
}

// settleAll settles the logs of a stream that has ended, by its record, and charges the costs of the ending for other logs.
//
//go:noinline
func (s *Store) settleAll(end *window.Ending, in streamrecord.Record) (settled window.Settled, err error) {
	settled.Logs = make([]window.SettledLog, 0, max(len(end.Costs), 1))
	more := scratches.Get().(*scratch)
	defer scratches.Put(more)
	done := append(more.done[:0], make([]bool, len(end.Costs))...)
	for len(in.Keys) > 0 {
		var l streamrecord.Entry
		if l, in = in.Cut(); l.Policy == window.InFlight {
			settled.Released = s.dropHold(&l, end.Stream) || settled.Released
			continue
		}
		c, cost := &more.check, -1
		l.Terms(c, &more.budget)
		for i := range end.Costs {
			if of := &end.Costs[i]; !done[i] && l.Is(of) {
				if done[i] = true; of.Mode != window.Enforce {
					cost = i
				}
				c.Key, c.Limit, c.Precision, c.Period, c.Cost = of.Key, of.Limit, of.Precision, of.Period, of.Cost
			}
		}
		if c.Key == "" {
			c.Key = string(l.Key)
		}
		err = s.settle(c, end, cost, l.Ends, &settled, err)
	}
	for i := range end.Costs {
		if c := &more.check; !done[i] && !end.Denied && end.Costs[i].Mode != window.Observe {
			*c, more.budget = end.Costs[i], window.Budget{Hold: window.MinHold}
			c.Mode, c.Budget = window.Always, &more.budget
			err = s.settle(c, end, i, packed.NoHold, &settled, err)
		}
	}
	return settled, err
}

// settle settles one log, whose cost is the one with this index, or none. The hold ends at ends: see [packed.State.LookHold]. It
// adds the result to settled. If it fails, it returns the first error: the hold stays until it expires.
func (s *Store) settle(c *window.Check, end *window.Ending, cost int, ends int64, settled *window.Settled, first error) error {
	if c.Limit.Hits == window.Unlimited {
		return first // records nothing
	}
	var (
		a checkState
		h reservedLog
	)
	c.Stream = end.Stream
	s.locate(&a, c)
	a.holdEnds = max(ends, 0)
	a.shard.mu.Lock()
	defer a.shard.mu.Unlock()

	now := s.clock().Microseconds()
	c.Period = c.Period.At(now)
	a.look(c, now)
	h.look(&a, c, now)
	if err := a.makeRoomToSettle(c, &h, now); err != nil {
		if first == nil {
			first = err
		}
		return first
	}
	log, ok := h.state.Settle(&a.state, c, end, cost >= 0, ends != packed.NoHold)
	if !ok {
		return first
	}
	h.keep(&a, c)
	a.keep(c, now)
	log.Log, log.Cost = c.Log(), cost
	settled.Logs = append(settled.Logs, log)
	settled.Released = settled.Released || log.Reserved > 0
	return first
}

// makeRoomToSettle makes room for what settling a log records.
func (a *checkState) makeRoomToSettle(c *window.Check, h *reservedLog, now int64) (err error) {
	cost := c.Cost
	c.Cost = max(cost, 1) // which it may not know
	if !a.fits(c) {
		group := [2]checkState{*a, {log: h.log}} // makeRoom does not drop their logs
		err = a.shard.makeRoomOf(c.Key, a.need(c), now, group[:])
	}
	c.Cost = cost
	return err
}
