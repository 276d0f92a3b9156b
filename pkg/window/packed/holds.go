package packed

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// # The holds of a log
//
// A log of [window.InFlight], and what streams have reserved of a budget, is one string of bytes, the same in the
// memory of a process and in Redis. Numbers are big-endian. It is a header and slots:
//
//	0  kind     1   0xA5
//	1  clock    7   the log's clock: the time of its last write, microseconds
//	8  mark     1   of a charge that may be taken back; Redis alone uses it
//	9  sum      7   all costs of the holds, those of expired ones too
//	16 length   4   of a budget: the shortest time that a hold lasts, milliseconds; in flight 0
//	20 keep     4   of a budget: for how long the last hold counts after its end, seconds; in flight 0
//	24 front    2   the first slot in use
//	26 passed   2   the first slot in use that had not expired at the last write
//	28 count    2   the number of slots up to the last one in use
//	30 holds    2   the number of holds
//	32 rest     7   the costs from the slot passed on
//	39 next     6   when the slot passed ends; 0 if there is none
//	45 last     13  the end and the cost of the last hold
//	58 slots    21 each
//
// A slot is a hold or a hole:
//
//	stream   8   zero: a hole
//	ends     6   milliseconds since the clock's zero, rounded up; the hold counts until then
//	cost     7   zero: the stream has ended, and is denied until then (a tombstone)
//
// The slots are in the order of their ends, and later ones behind earlier ones with the same
// end. So the expired holds are the first ones. Every write passes them; those of a budget count for longer: see
// [Reserved]. A log without holds is removed.
//
// A log of up to briefHolds slots is small: every write writes all of it, without holes. In a large one, a new hold
// becomes the last slot, and a hold that goes becomes a hole, so that the write takes O(1) steps. If
// the last hold goes, the slots behind the one before it are not in use. If fewer than half of the slots are
// holds, the whole log is written. So is a log that gets a hold that does not end last.
// Look checks all of a small log. Of a large one it checks only the header.
const (
	atHoldMark = 8
	atHoldSum  = atPolicy
	atLength   = 16
	atKeep     = 20
	atFront    = 24
	atPassed   = 26
	atSlots    = 28
	atNumber   = 30
	atRest     = 32
	atNext     = 39
	atLast     = 45
	atHolds    = 58

	holdBytes  = 21
	atHoldEnds = 8  // in a hold
	atHoldCost = 14 // in a hold

	briefHolds = 32

	// maxHoldCost is the largest cost of one hold in flight. Only [window.Always] can ask for more.
	maxHoldCost = math.MaxUint32
	// maxHolds is the most holds of a log, tombstones included.
	maxHolds = window.MaxHolds
	// maxHoldSlots is the most slots of a log.
	maxHoldSlots = 2*maxHolds + briefHolds + 1
	// maxHoldEnds bounds the end of a hold, in milliseconds.
	maxHoldEnds = window.MaxClock/coarse + int64(window.MaxWindow/time.Millisecond) + 1
)

// holdEnds returns when the hold of the i-th slot ends, in milliseconds.
func holdEnds(b []byte, i int) int64 { return endsAt(b[atHolds+i*holdBytes+atHoldEnds-2:]) }

// endsAt returns the end behind the first two bytes.
func endsAt(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) & (1<<48 - 1)) }

// holdCost returns the cost of the i-th slot.
func holdCost(b []byte, i int) uint64 {
	return binary.BigEndian.Uint64(b[atHolds+i*holdBytes+atHoldCost-1:]) & (1<<56 - 1)
}

// isHole reports whether the i-th slot is a hole.
func isHole(b []byte, i int) bool { return binary.BigEndian.Uint64(b[atHolds+i*holdBytes:]) == 0 }

// lastEnds and lastCost return what the header says of the last hold.
func lastEnds(b []byte) int64  { return endsAt(b[atLast-2:]) }
func lastCost(b []byte) uint64 { return wideNumber(b[atLast+6:]) }

// nextEnds returns when the slot passed ends, or 0.
func (s *State) nextEnds() int64 {
	if s.passed < s.view.total {
		return holdEnds(s.view.log, s.passed)
	}
	return 0
}

// putEnds writes six bytes.
func putEnds(b []byte, ends int64) {
	binary.BigEndian.PutUint16(b, uint16(ends>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(ends))
}

// readHolds reads the header of a log of holds. It returns false if the bytes are something else.
func (s *State) readHolds() bool {
	v := &s.view
	b := v.log
	if len(b) < atHolds || (len(b)-atHolds)%holdBytes != 0 {
		return false
	}
	slots := (len(b) - atHolds) / holdBytes
	v.live, s.passed = int(binary.BigEndian.Uint16(b[atFront:])), int(binary.BigEndian.Uint16(b[atPassed:]))
	v.total, s.holds = int(binary.BigEndian.Uint16(b[atSlots:])), int(binary.BigEndian.Uint16(b[atNumber:]))
	v.used, s.rest = wideNumber(b[atHoldSum:]), wideNumber(b[atRest:])
	if v.live > s.passed || s.passed > v.total || v.total > slots || slots > maxHoldSlots || s.holds == 0 || s.holds > v.total-v.live ||
		s.holds > maxHolds || s.rest > v.used || lastEnds(b) > maxHoldEnds {
		return false
	}
	return v.total > briefHolds || v.total == slots
}

// verify reports whether the header says what the slots are, of which none is a hole.
func (s *State) verify() bool {
	v := &s.view
	sum, rest, cost, before := uint64(0), uint64(0), uint64(0), int64(0)
	for i := v.live; i < v.total; i++ {
		ends := holdEnds(v.log, i)
		if isHole(v.log, i) || ends < before || i == s.passed && ends != endsAt(v.log[atNext-2:]) {
			return false
		}
		before, cost = ends, holdCost(v.log, i)
		if sum += cost; i >= s.passed {
			rest += cost
		}
	}
	return sum == v.used && rest == s.rest && s.holds == v.total-v.live && before == lastEnds(v.log) && cost == lastCost(v.log)
}

// pass passes the holds that have expired. Those in flight go.
func (s *State) pass() {
	v := &s.view
	if s.passed < v.total && endsAt(v.log[atNext-2:])*coarse <= v.now {
		for ; s.passed < v.total; s.passed++ {
			if !isHole(v.log, s.passed) {
				if holdEnds(v.log, s.passed)*coarse > v.now {
					break
				}
				cost := holdCost(v.log, s.passed)
				s.expired.Add(cost)
				s.rest -= min(cost, s.rest)
				if !s.ofBudget {
					s.holds--
				}
			}
		}
	}
	if !s.ofBudget {
		v.live, v.used = s.passed, s.rest
		s.bound()
	}
}

// bound makes the numbers possible, if the header contradicts the slots.
func (s *State) bound() {
	v := &s.view
	if v.live == v.total {
		s.rest, v.used = 0, 0
	}
	v.used = max(v.used, s.rest)
	s.holds = min(max(s.holds, 0), v.total-v.live)
}

// find returns the hold of the stream from slot from up to, but not, slot to, or -1. The last ones are of short streams.
func (s *State) find(from, to int) int {
	if s.stream == 0 || from >= to {
		return -1
	}
	// The order of the bytes does not matter if both operands are read alike. So, and with four holds
	// at a time, this takes a third of the time.
	var want [8]byte
	binary.BigEndian.PutUint64(want[:], uint64(s.stream))
	stream := binary.LittleEndian.Uint64(want[:])
	for ; to-from >= 4; to -= 4 {
		b := s.view.log[atHolds+(to-4)*holdBytes:][:4*holdBytes]
		if binary.LittleEndian.Uint64(b) == stream || binary.LittleEndian.Uint64(b[holdBytes:]) == stream ||
			binary.LittleEndian.Uint64(b[2*holdBytes:]) == stream || binary.LittleEndian.Uint64(b[3*holdBytes:]) == stream {
			break
		}
	}
	for ; to > from; to-- {
		if binary.LittleEndian.Uint64(s.view.log[atHolds+(to-1)*holdBytes:]) == stream {
			return to - 1
		}
	}
	return -1
}

// findEnding returns the hold of the stream, or -1. It probably ends at ends, unless that is zero.
func (s *State) findEnding(ends int64) int {
	v := &s.view
	i := v.total
	if ends > 0 {
		i = v.live + sort.Search(v.total-v.live, func(i int) bool { return holdEnds(v.log, v.live+i) >= ends })
	}
	for ; i < v.total && holdEnds(v.log, i) == ends; i++ {
		if binary.BigEndian.Uint64(v.log[atHolds+i*holdBytes:]) == uint64(s.stream) {
			return i
		}
	}
	return s.find(v.live, v.total)
}

// putHold adds a hold of the stream.
func (s *State) putHold(ends int64, cost uint64) {
	v := &s.view
	at := v.total
	if v.log != nil && (at <= briefHolds || at > v.live && lastEnds(v.log) > ends) {
		s.compact()
		for at = v.total; at > s.passed && holdEnds(v.log, at-1) > ends; at-- {
		}
	}
	s.grow()
	from := atHolds + at*holdBytes
	if at < v.total {
		copy(v.log[from+holdBytes:], v.log[from:])
	}
	b := v.log[from:]
	binary.BigEndian.PutUint64(b, uint64(s.stream))
	putEnds(b[atHoldEnds:], ends)
	putWide(b[atHoldCost:], cost)
	s.streamHold, s.edges = at, true
	if cost == 0 {
		s.ended = ends
	}
	v.used += cost
	s.rest += cost
	s.holds++
	v.total++
	s.writeHolds()
}

// grow makes room for one more slot.
func (s *State) grow() {
	v := &s.view
	need := atHolds + (v.total+1)*holdBytes
	if need > cap(v.log) {
		v.log = append(make([]byte, 0, roomFor(v.total+1)), v.log...)
	}
	v.log = v.log[:max(need, len(v.log))]
}

// roomFor returns the capacity of a new log for so many slots and a quarter more. The allocator rounds up to 16 at least.
func roomFor(slots int) int { return (atHolds + (slots+slots/4)*holdBytes + 15) &^ 15 }

// cutHold removes the hold of the stream.
func (s *State) cutHold() {
	v := &s.view
	i := s.streamHold
	cost := holdCost(v.log, i)
	v.used -= min(cost, v.used)
	if i >= s.passed {
		s.rest -= min(cost, s.rest)
	}
	s.holds--
	s.streamHold, s.edges = -1, s.atEdge(i)
	if i == v.total-1 {
		v.total--
	} else {
		b := v.log[atHolds+i*holdBytes:]
		clear(b[:atHoldEnds])
		clear(b[atHoldCost:holdBytes])
	}
	s.writeHolds()
}

// atEdge reports whether a slot is the first or the last one in use.
func (s *State) atEdge(i int) bool { return i == s.view.live || i == s.view.total-1 }

// trim takes the holes at both ends out of use.
func (s *State) trim() {
	v := &s.view
	for v.total > v.live && isHole(v.log, v.total-1) {
		v.total--
	}
	for v.live < v.total && isHole(v.log, v.live) {
		v.live++
	}
	s.passed = min(max(s.passed, v.live), v.total)
}

// compact removes all slots but the holds, and counts them again.
func (s *State) compact() {
	v := &s.view
	to, passed, hold := 0, -1, -1
	v.used, s.rest = 0, 0
	for i := v.live; i < v.total; i++ {
		if passed < 0 && i >= s.passed {
			passed = to
		}
		if isHole(v.log, i) {
			continue
		}
		if i == s.streamHold {
			hold = to
		}
		cost := holdCost(v.log, i)
		if v.used += cost; i >= s.passed {
			s.rest += cost
		}
		copy(v.log[atHolds+to*holdBytes:], v.log[atHolds+i*holdBytes:][:holdBytes])
		to++
	}
	if passed < 0 {
		passed = to
	}
	s.holds, v.live, s.passed, v.total, s.streamHold = to, 0, passed, to, hold
	s.moved = true
	v.log = v.log[:atHolds+to*holdBytes]
	if cap(v.log) > 4*roomFor(to) {
		v.log = append(make([]byte, 0, roomFor(to)), v.log...)
	}
}

// writeHolds writes the header, and updates s. Without holds there is no log. It moves the bytes if three quarters
// of them are unused, so one burst does not hold memory for ever.
func (s *State) writeHolds() {
	v := &s.view
	if v.log == nil {
		return
	}
	passed := int(binary.BigEndian.Uint16(v.log[atPassed:]))
	trims := s.edges || v.live > int(binary.BigEndian.Uint16(v.log[atFront:]))
	if trims {
		s.trim()
	}
	if slots := (len(v.log) - atHolds) / holdBytes; v.total <= briefHolds || slots > 2*s.holds+briefHolds {
		s.compact()
	}
	if s.holds <= 0 || v.total == v.live {
		v.log, v.live, v.total, s.passed, s.holds, v.used, s.rest, s.streamHold = nil, 0, 0, 0, 0, 0, 0, -1
		return
	}
	b := v.log
	v.clock = v.now
	binary.BigEndian.PutUint64(b, (kindPolicy+uint64(window.InFlight))<<56|uint64(v.now))
	b[atHoldMark] = 0
	putWide(b[atHoldSum:], v.used)
	if !s.ofBudget {
		clear(b[atLength:atFront])
	}
	binary.BigEndian.PutUint16(b[atFront:], uint16(v.live))
	binary.BigEndian.PutUint16(b[atPassed:], uint16(s.passed))
	binary.BigEndian.PutUint16(b[atSlots:], uint16(v.total))
	binary.BigEndian.PutUint16(b[atNumber:], uint16(s.holds))
	putWide(b[atRest:], s.rest)
	// Of a large log, what has not changed is not read.
	if next := endsAt(b[atNext-2:]); s.moved || s.passed != passed || s.passed == v.total || next*coarse <= v.now {
		putEnds(b[atNext:], s.nextEnds())
	}
	if s.moved || s.edges {
		last := atHolds + (v.total-1)*holdBytes
		copy(b[atLast:atHolds], b[last+atHoldEnds:last+holdBytes])
	}
	s.edges, s.moved = false, false
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
		v         = &s.view
		holds     = make([]Hold, 0, s.holds)
		before    int64
		sum, rest uint64
	)
	for i := v.live; i < v.total; i++ {
		ends := holdEnds(b, i)
		if ends > maxHoldEnds || ends < before {
			return Contents{}, notLog("hold %d ends too late, or before the one before", i)
		}
		before = ends
		h := Hold{Stream: window.StreamID(binary.BigEndian.Uint64(b[atHolds+i*holdBytes:])), Ends: time.Duration(ends) * time.Millisecond, Cost: holdCost(b, i)}
		switch {
		case h.Stream == 0 && (h.Cost > 0 || i == v.live || i == v.total-1):
			return Contents{}, notLog("hold %d is of no stream", i)
		case h.Stream == 0:
			continue
		}
		if sum += h.Cost; i >= s.passed {
			rest += h.Cost
		}
		holds = append(holds, h)
	}
	if said := v.used; sum != said || rest != s.rest || len(holds) != s.holds {
		return Contents{}, notLog("the costs of %d holds are %d, and the header says %d of %d", len(holds), sum, said, s.holds)
	}
	if last := v.total - 1; s.nextEnds() != endsAt(b[atNext-2:]) || holdEnds(b, last) != lastEnds(b) || holdCost(b, last) != lastCost(b) {
		return Contents{}, notLog("the header says something else than a hold")
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
