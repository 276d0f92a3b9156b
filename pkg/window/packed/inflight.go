package packed

import (
	"encoding/binary"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// NoHold says that a stream holds nothing in a log, and has not ended there.
const NoHold int64 = -1

// LookHold is [State.Look] for a check whose stream has a hold in the log that ends at ends, in milliseconds, as the
// caller knows. In a large log, such a hold is found in O(log n) steps. With [NoHold] Look does not search for one, and a charge adds one. Zero
// says that the end is not known, and any end may be wrong. For other policies than [window.InFlight] it is Look.
func (s *State) LookHold(log []byte, clock int64, c *window.Check, ends int64) {
	if s.policy = c.Limit.Policy; s.policy != window.InFlight {
		s.Look(log, clock, c)
		return
	}
	s.lookHolds(log, clock, c.Limit.Window, c.Stream, ends)
}

// lookHolds is [State.Look] for a log of [window.InFlight], as a stream sees it. The
// stream zero holds nothing and has not ended. ends is that of [State.LookHold]. length is that of a hold.
func (s *State) lookHolds(log []byte, clock int64, length time.Duration, stream window.StreamID, ends int64) {
	v := &s.view
	v.frame, v.log, v.win = frame{}, log, length.Microseconds()
	v.real = min(max(clock, 0), window.MaxClock)
	v.now = v.real
	v.live, v.used, v.corrupt = 0, 0, false
	s.flight = flight{stream: stream, streamHold: -1, ofBudget: s.ofBudget}
	if len(log) == 0 || !s.readHeader() || !s.readHolds() || v.total <= briefHolds && !s.verify() {
		if v.corrupt = len(log) > 0; v.corrupt {
			v.log = nil // and otherwise it may have room
		}
		v.frame = frame{}
		v.live, v.used, s.passed, s.holds, s.rest = 0, 0, 0, 0, 0
		return
	}
	v.now = max(v.now, v.clock)
	s.pass()
	if ends != NoHold || v.total <= briefHolds {
		s.streamHold = s.findEnding(ends)
	}
	if s.streamHold >= 0 && holdCost(log, s.streamHold) == 0 && holdEnds(log, s.streamHold)*coarse > v.now {
		s.ended = holdEnds(log, s.streamHold)
	}
}

// holdEnd returns when a hold ends that begins now, in milliseconds.
func (s *State) holdEnd() int64 { return (s.view.now + s.view.win + coarse - 1) / coarse }

// Ended notes that the stream of the check has ended, by what the store knows besides the
// log, and that it is denied until a time in milliseconds, which has not come yet. Call it
// after [State.Look].
func (s *State) Ended(until int64) { s.ended = max(s.ended, until) }

// Holds reports whether the stream of the check holds a cost in the log.
func (s *State) Holds() bool { return s.streamHold >= 0 && holdCost(s.view.log, s.streamHold) > 0 }

// roomHolds is [State.Room] for a log of holds. A stream that holds a cost already has room,
// and a stream that has ended has none.
func (s *State) roomHolds(limit, cost uint64) bool {
	v := &s.view
	switch {
	case s.ended > 0:
		return false
	case s.Holds():
		return true
	}
	return v.used < limit && cost <= limit-v.used
}

// chargeHold is [State.Charge] for a log of holds. It records nothing if the stream holds a
// cost already, or has ended.
func (s *State) chargeHold(c *window.Check) {
	cost := min(c.Cost, maxHoldCost)
	if cost == 0 || s.ended > 0 || s.Holds() || s.stream == 0 || s.holds >= maxHolds {
		return
	}
	s.putHold(s.holdEnd(), cost)
}

// refundHold is [State.Refund] for a log of holds. Only the stream's own hold becomes smaller.
func (s *State) refundHold(c *window.Check) {
	v := &s.view
	if !s.Holds() || c.Cost == 0 {
		return
	}
	cost := holdCost(v.log, s.streamHold)
	give := min(c.Cost, cost)
	if give == cost {
		s.cutHold()
		return
	}
	at := atHolds + s.streamHold*holdBytes + atHoldCost
	putWide(v.log[at:], cost-give)
	v.used -= min(give, v.used)
	s.rest -= min(give, s.rest)
	s.edges = s.atEdge(s.streamHold)
	s.writeHolds()
}

// End removes the hold of the check's stream from the log, and reports whether there was one.
// If the stream had no hold and deny is above zero, the log has a tombstone for so long.
// A tombstone that is there already stays as it is. If the hold has expired, it is dropped, so
// that it does not come back if the clock is set back.
func (s *State) End(deny time.Duration) (released bool) {
	v := &s.view
	switch {
	case s.Holds():
		s.cutHold()
		return true
	case s.ended == 0 && deny > 0 && s.stream != 0 && s.holds < maxHolds:
		s.putHold((v.now+deny.Microseconds()+coarse-1)/coarse, 0)
	case v.live > 0 && s.find(int(binary.BigEndian.Uint16(v.log[atFront:])), v.live) >= 0:
		s.writeHolds()
	}
	return false
}

// growthHold is [State.Growth] for a log of holds.
func (s *State) growthHold(c *window.Check) int {
	v := &s.view
	slots := v.total + 1
	if v.total <= briefHolds {
		slots -= v.live
	}
	if c.Cost == 0 || s.ended > 0 || s.Holds() || s.holds >= maxHolds || atHolds+slots*holdBytes <= cap(v.log) {
		return 0
	}
	return roomFor(slots) - cap(v.log)
}

// answerHolds is [State.Answer] for a log of holds. Streams usually end before their holds
// expire, so the waits are the longest possible ones, and the decision is unsettled.
func (s *State) answerHolds(c *window.Check, d *window.Decision) {
	v := &s.view
	limit := c.Limit.Hits
	d.Remaining = limit - min(v.used, limit)
	d.Unsettled = !d.Never && (!d.Allowed || d.Remaining == 0)
	if v.used > 0 {
		d.ResetAfter = s.untilEnd(s.lastPaid())
		if limit > 0 {
			// Remaining grows when less is used than now, and than the limit.
			d.UnitAfter = s.untilHolds(min(v.used, limit) - 1)
		}
	}
	if !d.Allowed && !d.Never {
		if level := limit - max(c.Cost, 1); v.used > level {
			d.RetryAfter = s.untilHolds(level)
		}
		if s.ended > 0 {
			d.RetryAfter = max(d.RetryAfter, time.Duration(s.ended*coarse-v.real)*time.Microsecond)
		}
	}
}

// untilHolds returns the wait until no more than a level is used, if no stream ends before its
// hold does. More than that is used now.
func (s *State) untilHolds(level uint64) time.Duration {
	v := &s.view
	used, i := v.used, v.live
	for ; i < v.total-1; i++ {
		if used -= min(holdCost(v.log, i), used); used <= level {
			break
		}
	}
	return s.untilEnd(holdEnds(v.log, i))
}

// lastPaid returns when the last hold with a cost ends, in milliseconds. There is a hold.
func (s *State) lastPaid() int64 {
	v := &s.view
	if lastCost(v.log) > 0 {
		return lastEnds(v.log)
	}
	i := v.total - 1
	for i > v.live && holdCost(v.log, i) == 0 {
		i--
	}
	return holdEnds(v.log, i)
}

// untilEnd returns the wait until a hold ends by itself.
func (s *State) untilEnd(ends int64) time.Duration {
	v := &s.view
	// The order in a large log is not checked: a hold may end after the last one, or have ended.
	return time.Duration(max(min(ends, lastEnds(v.log))*coarse-v.real, 1)) * time.Microsecond
}
