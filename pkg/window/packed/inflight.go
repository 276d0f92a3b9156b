package packed

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// # The holds of a log
//
// A log of [window.InFlight], and what streams have reserved of a budget, is one string of bytes, the same
// in the memory of a process and in
// Redis. Numbers are big-endian. It is a header and holds:
//
//	0  kind     1   0xA5
//	1  clock    7   the log's clock: the time of its last write, microseconds
//	8  mark     1   of a charge that may be taken back; Redis alone uses it
//	9  sum      7   all costs of the holds, those of expired ones too
//	16 length   4   of a budget: the shortest time that a hold lasts, milliseconds; in flight 0
//	20 keep     4   of a budget: for how long the last hold counts after its end, seconds; in flight 0
//	24 holds    21 each
//
// A hold is:
//
//	stream   8   never zero
//	ends     6   milliseconds since the clock's zero, rounded up; it counts until then
//	cost     7   zero: the stream has ended, and is denied until then (a tombstone)
//
// The holds are in the order of their ends, and later ones behind earlier ones with the same
// end. So the expired holds are the first ones, and every write drops them: see [Reserved] for those of a budget. No stream has two
// holds. A log without holds is removed. All bytes are read and written at once, so their
// number is bounded: [maxHolds].
//
// The sum and the order are checked wherever all holds are read. [State.LookNew] reads only the header, the
// first hold and the last one of a log of more than briefHolds, if they show that no hold has
// expired and that all expire before a hold that would begin now.
const (
	atHoldMark = 8
	atHoldSum  = atPolicy
	atLength   = 16
	atKeep     = 20
	atHolds    = 24

	holdBytes  = 21
	atHoldEnds = 8  // in a hold
	atHoldCost = 14 // in a hold

	briefHolds = 32

	// maxHoldCost is the largest cost of one hold in flight. Only [window.Always] can ask for more.
	maxHoldCost = math.MaxUint32
	// costMask has the bits of a cost and of the sum.
	costMask = 1<<56 - 1
	// maxHolds is the most holds of a log, tombstones included. A limit has at most
	// MaxInFlight holds, so only [window.Always] and tombstones can reach it.
	maxHolds = window.MaxHolds
	// maxHoldEnds bounds the end of a hold, in milliseconds.
	maxHoldEnds = window.MaxClock/coarse + int64(window.MaxWindow/time.Millisecond) + 1
)

// LookNew is [State.Look] for a check whose stream holds nothing in the log and has not ended
// there, as the caller knows. In flight, a full log denies it in O(1). For other policies it is
// Look.
func (s *State) LookNew(log []byte, clock int64, c *window.Check) {
	if s.policy = c.Limit.Policy; s.policy != window.InFlight {
		s.Look(log, clock, c)
		return
	}
	s.lookHolds(log, clock, c.Limit.Window, c.Stream, true)
}

// lookHolds is [State.Look] for a log of [window.InFlight], as a stream sees it. The
// stream zero holds nothing and has not ended. fresh says that the same is known of the stream. length is
// that of a hold.
func (s *State) lookHolds(log []byte, clock int64, length time.Duration, stream window.StreamID, fresh bool) {
	v := &s.view
	v.frame = frame{}
	v.log = log
	v.real = min(max(clock, 0), window.MaxClock)
	v.now = v.real
	v.win = length.Microseconds()
	v.live, v.used, v.corrupt = 0, 0, false
	s.stream, s.streamHold, s.ended, s.fresh = stream, -1, 0, false
	if len(log) == 0 || !s.readHeader() || !s.readHolds() || !s.countLook(fresh) {
		v.log, v.corrupt = nil, len(log) > 0
		v.frame = frame{}
		v.now, v.live, v.used = v.real, 0, 0
		return
	}
	if s.streamHold >= 0 && holdCost(log, s.streamHold) == 0 && holdEnds(log, s.streamHold)*coarse > v.now {
		s.ended = holdEnds(log, s.streamHold)
	}
}

// countLook counts what lookHolds shows. It returns false if the header contradicts the holds,
// or they are not in the order of their ends.
func (s *State) countLook(fresh bool) bool {
	v := &s.view
	v.now = max(v.now, v.clock)
	switch {
	case fresh && s.brief():
		s.fresh = true
		v.used = s.sum()
		return true
	}
	var sum, before uint64
	for b := v.log[atHolds:]; len(b) >= holdBytes; b = b[holdBytes:] {
		ends := binary.BigEndian.Uint64(b[atHoldEnds:]) >> 16 // the cost is behind it
		if ends < before {
			return false
		}
		sum, before = sum+binary.BigEndian.Uint64(b[atHoldCost-1:])&costMask, ends
	}
	if sum != s.sum() {
		return false
	}
	s.countHolds()
	s.streamHold = s.find(v.live, v.total)
	return true
}

// brief reports whether the header, the first hold and the last one are enough for a stream
// that holds nothing.
func (s *State) brief() bool {
	v := &s.view
	last := v.total - 1
	return v.total > briefHolds && holdCost(v.log, 0) > 0 && holdCost(v.log, last) > 0 &&
		holdEnds(v.log, 0)*coarse > v.now && holdEnds(v.log, 0) <= holdEnds(v.log, last) && holdEnds(v.log, last) <= s.holdEnd()
}

// holdEnd returns when a hold ends that begins now, in milliseconds.
func (s *State) holdEnd() int64 { return (s.view.now + s.view.win + coarse - 1) / coarse }

// sum returns the sum of the header.
func (s *State) sum() uint64 { return binary.BigEndian.Uint64(s.view.log[atHoldSum-1:]) & costMask }

// find returns the hold of the stream from hold from up to, but not, hold to, or -1.
func (s *State) find(from, to int) int {
	if s.stream == 0 || from >= to {
		return -1
	}
	// The order of the bytes does not matter if both operands are read alike. So, and with four holds
	// at a time, this takes a third of the time.
	var want [8]byte
	binary.BigEndian.PutUint64(want[:], uint64(s.stream))
	stream := binary.LittleEndian.Uint64(want[:])
	b := s.view.log[atHolds+from*holdBytes : atHolds+to*holdBytes]
	for ; len(b) >= 4*holdBytes; b, from = b[4*holdBytes:], from+4 {
		if binary.LittleEndian.Uint64(b) == stream || binary.LittleEndian.Uint64(b[holdBytes:]) == stream ||
			binary.LittleEndian.Uint64(b[2*holdBytes:]) == stream || binary.LittleEndian.Uint64(b[3*holdBytes:]) == stream {
			break
		}
	}
	for ; len(b) >= holdBytes; b, from = b[holdBytes:], from+1 {
		if binary.LittleEndian.Uint64(b) == stream {
			return from
		}
	}
	return -1
}

// countHolds finds the first hold that has not expired, and the cost of the holds from there on.
func (s *State) countHolds() {
	v := &s.view
	sum := s.sum()
	if s.ofBudget {
		return // Reserved.count does it
	}
	for v.live < v.total && holdEnds(v.log, v.live)*coarse <= v.now {
		sum -= min(holdCost(v.log, v.live), sum)
		v.live++
	}
	if v.live < v.total {
		v.used = sum
	}
}

// readHolds reads what follows the header. It returns false if the bytes are not a log of
// holds. It checks only the length and the last hold; decodeHolds checks all.
func (s *State) readHolds() bool {
	v := &s.view
	if len(v.log) < atHolds || (len(v.log)-atHolds)%holdBytes != 0 {
		return false
	}
	v.total = (len(v.log) - atHolds) / holdBytes
	return v.total <= maxHolds && (v.total == 0 || holdEnds(v.log, v.total-1) <= maxHoldEnds)
}

// holdEnds returns when the i-th hold ends, in milliseconds.
func holdEnds(b []byte, i int) int64 {
	return int64(binary.BigEndian.Uint64(b[atHolds+i*holdBytes+atHoldEnds-2:]) & (1<<48 - 1))
}

// holdCost returns the cost of the i-th hold.
func holdCost(b []byte, i int) uint64 {
	return binary.BigEndian.Uint64(b[atHolds+i*holdBytes+atHoldCost-1:]) & costMask
}

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
	v := &s.view
	cost := min(c.Cost, maxHoldCost)
	if cost == 0 || s.ended > 0 || s.Holds() || s.stream == 0 || v.total-v.live >= maxHolds {
		return
	}
	if s.fresh && s.find(0, v.total) >= 0 {
		return // the caller of LookNew did not know: no stream has two holds
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
	putCost(v.log[at:], cost-give)
	v.used -= give
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
	case s.ended == 0 && deny > 0 && s.stream != 0 && v.total-v.live < maxHolds:
		s.putHold((v.now+deny.Microseconds()+coarse-1)/coarse, 0)
	case s.find(0, v.live) >= 0:
		s.writeHolds()
	}
	return false
}

// putHold adds a hold of the stream.
func (s *State) putHold(ends int64, cost uint64) {
	v := &s.view
	at := v.total
	for at > v.live && holdEnds(v.log, at-1) > ends {
		at--
	}
	s.dropHolds(1)
	at -= v.live
	v.live = 0
	from := atHolds + at*holdBytes
	v.log = v.log[:len(v.log)+holdBytes]
	copy(v.log[from+holdBytes:], v.log[from:])
	b := v.log[from:]
	binary.BigEndian.PutUint64(b, uint64(s.stream))
	binary.BigEndian.PutUint16(b[atHoldEnds:], uint16(ends>>32))
	binary.BigEndian.PutUint32(b[atHoldEnds+2:], uint32(ends))
	putCost(b[atHoldCost:], cost)
	s.streamHold = at
	if cost == 0 {
		s.ended = ends
	}
	v.used += cost
	v.total = (len(v.log) - atHolds) / holdBytes
	s.writeHolds()
}

// cutHold removes the hold of the stream.
func (s *State) cutHold() {
	v := &s.view
	v.used -= holdCost(v.log, s.streamHold)
	from := atHolds + s.streamHold*holdBytes
	v.log = append(v.log[:from], v.log[from+holdBytes:]...)
	v.total--
	s.streamHold = -1
	s.writeHolds()
}

// putCost writes seven bytes.
func putCost(b []byte, cost uint64) {
	b[0], b[1], b[2] = byte(cost>>48), byte(cost>>40), byte(cost>>32)
	binary.BigEndian.PutUint32(b[3:], uint32(cost))
}

// dropHolds makes room for more holds. If the bytes have to move, the expired holds stay
// behind. It leaves view.live as it was.
func (s *State) dropHolds(more int) {
	v := &s.view
	kept := v.total - v.live
	if atHolds+(kept+more)*holdBytes <= cap(v.log) {
		if v.live > 0 {
			v.log = append(v.log[:atHolds], v.log[atHolds+v.live*holdBytes:]...)
		}
		return
	}
	moved := make([]byte, atHolds, roomFor(kept+more))
	if v.log != nil {
		moved = append(moved, v.log[atHolds+v.live*holdBytes:]...)
	}
	v.log = moved
}

// roomFor returns the capacity of a new log for so many holds and a quarter more.
func roomFor(holds int) int {
	const class = 16 // the allocator rounds up to this at least
	return (atHolds + (holds+holds/4)*holdBytes + class - 1) / class * class
}

// writeHolds drops the expired holds, writes the header, and updates s. Without holds there is
// no log. It moves the bytes if three quarters of them are unused, so one burst does not hold
// memory for ever.
func (s *State) writeHolds() {
	v := &s.view
	if v.live > 0 {
		v.log = append(v.log[:atHolds], v.log[atHolds+v.live*holdBytes:]...)
		v.total -= v.live
		if s.streamHold >= 0 {
			s.streamHold -= v.live
		}
		v.live = 0
	}
	if v.total == 0 {
		v.log = nil
		return
	}
	if cap(v.log) > 4*roomFor(v.total) {
		v.log = append(make([]byte, 0, roomFor(v.total)), v.log...)
	}
	v.clock = v.now
	binary.BigEndian.PutUint64(v.log, (kindPolicy+uint64(window.InFlight))<<56|uint64(v.now))
	v.log[atHoldMark] = 0
	putCost(v.log[atHoldSum:], v.used)
	if !s.ofBudget {
		clear(v.log[atLength:atHolds])
	}
}

// growthHold is [State.Growth] for a log of holds.
func (s *State) growthHold(c *window.Check) int {
	v := &s.view
	kept := v.total - v.live
	if c.Cost == 0 || s.ended > 0 || s.Holds() || kept >= maxHolds || atHolds+(kept+1)*holdBytes <= cap(v.log) {
		return 0
	}
	return roomFor(kept+1) - cap(v.log)
}

// answerHolds is [State.Answer] for a log of holds. Streams usually end before their holds
// expire, so the waits are the longest possible ones, and the decision is unsettled.
func (s *State) answerHolds(c *window.Check, d *window.Decision) {
	v := &s.view
	limit := c.Limit.Hits
	d.Remaining = limit - min(v.used, limit)
	d.Unsettled = !d.Never && (!d.Allowed || d.Remaining == 0)
	if v.used > 0 {
		last := v.total - 1
		for last > v.live && holdCost(v.log, last) == 0 {
			last--
		}
		d.ResetAfter = s.untilEnd(last)
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
	return s.untilEnd(i)
}

// untilEnd returns the wait until the i-th hold ends by itself.
func (s *State) untilEnd(i int) time.Duration {
	v := &s.view
	// LookNew does not check the order: a hold may end after the last one, or have ended.
	ends := min(holdEnds(v.log, i), holdEnds(v.log, v.total-1))
	return time.Duration(max(ends*coarse-v.real, 1)) * time.Microsecond
}

// A Hold is what one stream holds in a log of [window.InFlight].
type Hold struct {
	Stream window.StreamID
	// Ends is when the hold ends by itself. It counts from the zero of the store's clock.
	Ends time.Duration
	// Cost is zero if the stream has ended: it is denied until Ends.
	Cost uint64
}

// decodeHolds reads a log of holds and checks all of it.
func decodeHolds(b []byte) (Contents, error) {
	s := State{policy: window.InFlight}
	s.view.log = b
	if !s.readHeader() || !s.readHolds() {
		return Contents{}, notLog("%d bytes are not a log of holds", len(b))
	}
	var (
		holds = make([]Hold, s.view.total)
		seen  = make(map[window.StreamID]bool, len(holds))
		sum   uint64
	)
	for i := range holds {
		if holdEnds(b, i) > maxHoldEnds {
			return Contents{}, notLog("hold %d ends too late", i)
		}
		h := Hold{
			Stream: window.StreamID(binary.BigEndian.Uint64(b[atHolds+i*holdBytes:])),
			Ends:   time.Duration(holdEnds(b, i)) * time.Millisecond,
			Cost:   holdCost(b, i),
		}
		switch {
		case h.Stream == 0:
			return Contents{}, notLog("hold %d is of no stream", i)
		case seen[h.Stream]:
			return Contents{}, notLog("hold %d is the second of its stream", i)
		case i > 0 && h.Ends < holds[i-1].Ends:
			return Contents{}, notLog("hold %d ends before the one before", i)
		}
		seen[h.Stream] = true
		sum += h.Cost
		holds[i] = h
	}
	if said := s.sum(); sum != said {
		return Contents{}, notLog("the costs of the holds are %d, and the header says %d", sum, said)
	}
	return Contents{Policy: window.InFlight, Clock: micros(s.view.clock), Bytes: len(b), Holds: holds}, nil
}

// writeHolds describes holds for an operator, one a line.
func (c *Contents) writeHolds(b *strings.Builder) {
	var sum uint64
	for _, h := range c.Holds {
		sum += h.Cost
	}
	fmt.Fprintf(b, "holds    %d, cost %d\n", len(c.Holds), sum)
	for _, h := range c.Holds {
		what := fmt.Sprintf("holds %d", h.Cost)
		if h.Cost == 0 {
			what = "has ended, and is denied"
		}
		fmt.Fprintf(b, "  %016x %s until %s\n", uint64(h.Stream), what, relative(h.Ends-c.Clock))
	}
}
