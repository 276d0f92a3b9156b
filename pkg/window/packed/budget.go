package packed

import (
	"cmp"
	"encoding/binary"
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Reserved is what streams have reserved in the log of a budget: a value of its own next to the log, in the
// format of a log of [window.InFlight]. [Reserved.Look] must fill it in before any other method is called. It is not safe for
// concurrent use.
//
// A hold counts until its end, and then as spent at the time t of the reservation, until the log would forget
// what was charged at t: [terms.forgets]. A [window.TokenBucket] forgets nothing: the next write charges it for the
// expired holds.
type Reserved struct {
	State State // of the holds

	terms   terms
	again   bool           // the stream had a hold when its check was judged
	expired window.Expired // before the write of Reserve
}

// terms are what decides when a log forgets.
type terms struct {
	policy window.Policy
	win    int64 // microseconds
	length int64 // of a hold, in milliseconds
	fill   int64 // of a bucket: microseconds from as far overdrawn as can be until it is full
	period window.Period
}

// termsOf returns the terms of a check with a budget.
func termsOf(c *window.Check) terms {
	t := terms{policy: c.Limit.Policy, win: c.Limit.Window.Microseconds(), length: c.Budget.Hold.Milliseconds(), period: c.Period}
	if t.policy == window.TokenBucket {
		fill := float64(c.Limit.Hits) * float64(t.win) / float64(c.Limit.Rate) // as Lua computes it
		t.fill = 2 * (int64(min(fill, float64(window.MaxWindow.Microseconds()))) + 1)
	}
	return t
}

// forgets returns when a log has forgotten what was spent at an instant. Both are in microseconds.
func (t *terms) forgets(at int64) int64 {
	switch t.policy {
	case window.Sliding:
		return at + t.win
	case window.Fixed:
		return (at/t.win + 1) * t.win
	case window.Calendar:
		return endOfPeriod(t.period, at)
	default:
		return (at/t.win + 2) * t.win // a sliding counter
	}
}

// Look fills h in with the holds of a check's log, as the stream of the check sees them, at the time clock.
// ends is that of [State.LookHold]. The arguments are otherwise those of [State.Look].
func (h *Reserved) Look(holds []byte, clock int64, c *window.Check, ends int64) {
	h.terms, h.expired = termsOf(c), window.Expired{}
	s := &h.State
	s.policy, s.ofBudget = window.InFlight, true
	s.lookHolds(holds, clock, c.Budget.Hold, c.Stream, ends)
	h.drop(false)
}

// drop drops the holds that do not count any more, or all that have expired.
func (h *Reserved) drop(expired bool) {
	s, v := &h.State, &h.State.view
	for ; v.live < s.passed; v.live++ {
		if !isHole(v.log, v.live) {
			if !expired && h.gone(v.live) > v.now {
				break
			}
			v.used -= min(holdCost(v.log, v.live), v.used)
			s.holds--
		}
	}
	s.bound()
	if s.streamHold < v.live {
		s.streamHold = -1
	}
}

// length returns how long the holds last, in milliseconds: at most as long as they do.
func (h *Reserved) length() int64 {
	if b := h.State.view.log; len(b) > 0 {
		return cmp.Or(int64(binary.BigEndian.Uint32(b[atLength:])), h.terms.length)
	}
	return h.terms.length
}

// gone returns when the i-th hold counts no more, in microseconds.
func (h *Reserved) gone(i int) int64 {
	return h.goneAt(holdEnds(h.State.view.log, i), holdCost(h.State.view.log, i))
}

func (h *Reserved) goneAt(ends int64, cost uint64) int64 {
	switch {
	case cost == 0:
		return ends * coarse
	case h.terms.policy == window.TokenBucket:
		return ends*coarse + h.terms.fill // a bucket without writes since is full then
	}
	return max(ends*coarse, h.terms.forgets(max(ends-h.length(), 0)*coarse))
}

// Until returns when the hold of the stream ends, and when it counts no more, in milliseconds. Without a hold it
// returns zero.
func (h *Reserved) Until() (ends, until int64) {
	if !h.State.Holds() {
		return 0, 0
	}
	return holdEnds(h.State.view.log, h.State.streamHold), (h.gone(h.State.streamHold) + coarse - 1) / coarse
}

// Room reports whether a check with a budget has room in its log, which [State.Look] has seen under the
// whole limit. A stream that holds a cost already has room, and a stream that has ended has none.
func (h *Reserved) Room(log *State, c *window.Check) bool {
	s, v := &h.State, &h.State.view
	switch h.again = s.Holds(); {
	case s.ended > 0:
		return false
	case h.again:
		return true
	}
	return v.used < c.Limit.Hits && s.holds < maxHolds && log.view.Room(c.Limit.Hits-v.used, c.Cost)
}

// Reserve lets the stream hold the cost of the check, unless it holds one already or has ended, or the cost
// is 0. It may also charge the log.
func (h *Reserved) Reserve(log *State, c *window.Check) {
	s, cost := &h.State, c.Cost // it has room, so it is below the limit
	if cost == 0 || s.ended > 0 || s.Holds() || s.holds >= maxHolds {
		return
	}
	length := min(h.length(), h.terms.length)
	h.pay(log, c)
	if s.streamHold >= 0 {
		s.cutHold() // a tombstone that has expired
	}
	s.putHold(s.holdEnd(), cost)
	h.stamp(length)
	h.expired = s.expired
}

// pay charges a bucket for the holds that have expired, and drops them.
func (h *Reserved) pay(log *State, c *window.Check) {
	s, v := &h.State, &h.State.view
	if h.terms.policy != window.TokenBucket || s.passed == v.live {
		return
	}
	log.Charge(&window.Check{Limit: c.Limit, Cost: v.used - s.rest})
	h.drop(true)
}

// stamp writes what the header says besides of a budget. length is that of the shortest hold, in milliseconds.
func (h *Reserved) stamp(length int64) {
	b := h.State.view.log
	if len(b) == 0 {
		return
	}
	binary.BigEndian.PutUint32(b[atLength:], uint32(length))
	ends := lastEnds(b)
	keep := h.goneAt(ends, lastCost(b)) - ends*coarse
	binary.BigEndian.PutUint32(b[atKeep:], uint32((keep+999_999)/1_000_000))
}

// Settle ends the stream of a check in its log: the hold goes, and the log records what [window.Releaser]
// says. The check has the whole limit, the mode [window.Always], and the cost if the ending names it, as named says.
// known says that the stream has reserved something in the log, which the window may have forgotten.
func (h *Reserved) Settle(log *State, c *window.Check, e *window.Ending, named, known bool) (settled window.SettledLog, ok bool) {
	s, v := &h.State, &h.State.view
	settled.Cost = -1
	charge := window.Check{Limit: c.Limit, Precision: c.Precision, Mode: window.Always}
	switch {
	case s.Holds():
		settled.Reserved = holdCost(v.log, s.streamHold)
		settled.Expired = s.expired
		charge.Cost = h.cost(c, e, named, settled.Reserved)
		length := h.length()
		if s.streamHold < s.passed && h.terms.policy == window.TokenBucket {
			v.used = max(v.used-min(settled.Reserved, v.used), s.rest) // it does not pay for the estimate
		}
		if h.pay(log, c); s.streamHold >= 0 {
			s.cutHold()
		} else {
			s.writeHolds()
		}
		h.stamp(length)
	case !named || e.Denied || known && h.terms.policy == window.TokenBucket:
		return settled, false // nothing to charge, or a bucket that was charged when the hold had expired
	default:
		charge.Cost = c.Cost
	}
	settled.Spent = log.Recordable(&charge)
	log.Charge(&charge)
	var d window.Decision
	log.Answer(&window.Check{Limit: c.Limit}, true, &d)
	settled.Remaining, settled.OtherReserved = d.Remaining-min(v.used, d.Remaining), s.rest
	return settled, true
}

// cost returns what a stream has cost that holds something in the log.
func (h *Reserved) cost(c *window.Check, e *window.Ending, named bool, reserved uint64) uint64 {
	switch {
	case named:
		return c.Cost
	case e.Unreached:
		return 0
	case c.Budget.PerByte > 0:
		if cost := math.Ceil(float64(e.Bytes) * float64(c.Budget.PerMillionBytes()) / 1e6); cost < float64(reserved) {
			return uint64(cost)
		}
	}
	return reserved
}

// Answer fills in a decision on a check with a budget: see [State.Answer]. It changes log, which must not be
// used afterwards. The waits are those of the log if the cost fits next to all holds. Otherwise they are
// those until enough holds count no more.
func (h *Reserved) Answer(log *State, c *window.Check, room bool, d *window.Decision) {
	s, v := &h.State, &h.State.view
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	rest, taken := *c, min(v.used, c.Limit.Hits)
	rest.Limit.Hits -= taken
	log.tokens -= int64(taken) // of a bucket
	log.Answer(&rest, room, d)
	d.Reserved, d.Expired, d.Repeated = s.rest, h.expired, room && h.again && c.Cost > 0
	d.Never = !room && need > limit
	d.HoldsFull = !room && !d.Never && s.ended == 0 && s.holds >= maxHolds && need <= d.Remaining
	if v.used > 0 {
		d.ResetAfter = max(d.ResetAfter, h.wait(h.goneAt(s.lastPaid(), 1)))
		switch {
		case taken == limit && limit > 0:
			d.UnitAfter = h.until(limit - 1)
		case d.UnitAfter == 0:
			d.UnitAfter = h.until(v.used - 1)
		}
	}
	if d.Never || room {
		d.RetryAfter = 0
	} else {
		if need > rest.Limit.Hits {
			d.RetryAfter = h.until(limit - need)
		}
		if d.RetryAfter == 0 && s.ended == 0 && v.used > 0 {
			d.RetryAfter = h.until(v.used - 1) // there are too many holds
		}
		if s.ended > 0 {
			d.RetryAfter = max(d.RetryAfter, time.Duration(s.ended*coarse-v.real)*time.Microsecond)
		}
	}
	d.Unsettled = !d.Never && (!d.Allowed || d.Remaining == 0)
}

// until returns the wait until the holds cost no more than a level, if no stream ends. They cost more than
// that now.
func (h *Reserved) until(level uint64) time.Duration {
	v := &h.State.view
	used, i := v.used, v.live
	for ; i < v.total-1; i++ {
		if used -= min(holdCost(v.log, i), used); used <= level {
			break
		}
	}
	return h.wait(h.gone(i))
}

// wait returns the wait until an instant, which is to come.
func (h *Reserved) wait(at int64) time.Duration {
	return time.Duration(max(at-h.State.view.real, 1)) * time.Microsecond
}

// WeighReserved returns whether the holds of a budget may still matter at the time clock, in microseconds.
func WeighReserved(holds []byte, clock int64) bool {
	s := State{policy: window.InFlight}
	s.view.log = holds
	if len(holds) == 0 || !s.readHeader() || !s.readHolds() {
		return false
	}
	keep := int64(binary.BigEndian.Uint32(holds[atKeep:]))
	return lastEnds(holds)*coarse+keep*1e6 > max(clock, s.view.clock)
}
