package packed

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// # The packed log
//
// A log is one string of bytes, the same in the memory of a process and in
// Redis. Numbers are big-endian. It is a header and slots, oldest first. A slot
// is everything that was charged at one instant:
//
//	time   5 bytes   in units, rounded up, modulo 2^40
//	sum    4 bytes   all costs up to and with this slot, modulo 2^32
//
// The cost of any run of slots is a difference of two sums. What a log holds
// never exceeds 2^32-1 in all, so the difference is right although sums wrap.
//
// The first 18 bytes are the same for all logs:
//
//	 0  kind     1   0x90, +1 for a ring, +2 if the unit is a millisecond
//	 1  clock    8   the log's clock: the time of its last write, microseconds
//	 9  base     4   the sum just before the oldest slot
//	13  mark     1   of a charge that may be taken back; Redis alone uses it
//	14  expiry   4   the second at which the key expires; Redis alone uses it
//
// A small log goes on with 0 to 13 slots and ends:
//
//	18  slots    9 each
//
// A ring has its newest slot in the header and the others in a circle:
//
//	18  newest   9   the newest slot; it is not in the circle
//	27  head     4   where in the circle the oldest slot is
//	31  count    4   slots in the circle
//	35  capacity 4   slots that the circle has room for
//	39  skip     1   copies below that are used up
//	40  copies   1   copies below, those used up included, at most 10
//	41  copies  90   of the slots skip, skip+1, ... that expire next
//	131 circle   9 each
//
// The unit is a microsecond for windows up to [coarseAbove] and a millisecond
// above. It follows from the window, which is part of a log's name. The kind repeats
// it for readers that have only the bytes.
//
// A slot's time is less than 2^39 units away from the log's clock. When the log is
// written, the slot is younger than the window. It is ahead by at most [window.MaxAhead] and a
// precision, which is no longer than the window. So five bytes are enough, however long
// the log has been idle since.
//
// Reasons for this layout:
//
//   - A small log fits into the first 135 bytes, and so does a ring's header. A store
//     that reads 135 bytes has all that it needs for most decisions.
//   - Only the newest slot changes, by a charge at the same instant. It is in the header,
//     which every write changes anyway. So the circle and the copies are never corrected.
//   - The copies are made ten at a time. At its limit every charge drops a slot, so the
//     circle is read once in ten charges.
//   - All kinds are above 0x7f, so text is never read as a log. Another layout takes
//     another first digit.
//
// Mistakes that a translation must not make:
//
//   - The time of the newest slot is rounded up, so it is not the log's clock. Code that
//     takes it for the clock drops other slots too early and admits too much.
//   - After a coarse charge, the time of a fine one may be earlier than the newest slot.
//     The newest slot takes the charge, so that slots stay in order.
//   - A clock that steps back must not bring back dropped slots. The log's clock holds it,
//     and a refund moves that clock too.
//   - Five bytes of time repeat every 12 days. Compare a slot with the log's clock, and
//     that clock with now; never a slot with now.
//   - "When the oldest slot expires" is the wait for a cost of 1 only.
//   - A cost of 0 needs the room of one hit.
//
// With n slots, a charge and a denial at the limit take O(1) steps. Finding k expired slots
// takes O(log k), a larger cost or a refund O(log n). Growing and shrinking copy n slots, once in
// about n/4 charges. In Redis every key waits for that copy, so a rule there has at most 20,000
// slots.
const (
	kindSmall  = 0x90
	kindRing   = 0x01 // flag
	kindCoarse = 0x02 // flag

	atClock  = 1
	atBase   = 9
	atExpiry = 13
	atSmall  = 18 // the slots of a small log

	atNewest = 18
	atHead   = 27
	atCount  = 31
	atCap    = 35
	atSkip   = 39
	atCopies = 40 // their number
	atCopy   = 41 // the copies themselves
	atRing   = 131

	slotBytes = 9
	atSum     = 5 // in a slot
	timeBits  = 40

	// maxSmall is how many slots a small log has at most.
	maxSmall = 13
	// smallAgain is how many slots a ring has at most when it becomes a small log
	// again. It is half of maxSmall, so a log does not change shape too often.
	smallAgain = 6
	// maxCopies is how many slots a ring's header has room for.
	maxCopies = (atRing - atCopy) / slotBytes

	// coarseAbove is the longest window whose times are kept in microseconds.
	// Twice that, the range of a slot's times, fits into 40 bits.
	coarseAbove = 6 * 24 * time.Hour
	// coarse is the other unit, in microseconds.
	coarse = 1000

	// maxUsed is the most hits that the log can hold. What is charged beyond it is not recorded.
	maxUsed = math.MaxUint32
)

// unitOf returns the unit of a window's log, in microseconds.
func unitOf(win time.Duration) int64 {
	if win > coarseAbove {
		return coarse
	}
	return 1
}

// kindOf returns the first byte of a log.
func kindOf(unit int64, ring bool) byte {
	kind := byte(kindSmall)
	if unit == coarse {
		kind |= kindCoarse
	}
	if ring {
		kind |= kindRing
	}
	return kind
}

// A frame is what was read from the header of a log. It says where each slot is.
type frame struct {
	unit  int64 // microseconds
	clock int64 // microseconds
	ref   int64 // the clock in units: what the times of slots are relative to
	total int   // number of slots, the newest of a ring included
	base  uint32

	// Of rings:
	ring     bool
	skip     uint8
	copies   uint8
	head     int
	capacity int
}

// read reads the header of a log. It returns false if the bytes are not a log with the
// given unit. It checks only the header and the length; Decode checks all.
func (f *frame) read(b []byte, unit int64) bool {
	if len(b) < atSmall || b[0]&^kindRing != kindOf(unit, false) {
		return false
	}
	f.unit = unit
	f.ring = b[0]&kindRing != 0
	f.base = binary.BigEndian.Uint32(b[atBase:])
	clock := binary.BigEndian.Uint64(b[atClock:])
	if clock > window.MaxClock {
		return false
	}
	f.setClock(int64(clock))
	if f.ring {
		return f.readRing(b)
	}
	f.total = (len(b) - atSmall) / slotBytes
	return f.total <= maxSmall && len(b) == atSmall+f.total*slotBytes
}

// readRing is read for the part of the header that only rings have.
func (f *frame) readRing(b []byte) bool {
	if len(b) < atRing {
		return false
	}
	// Not int, which has 32 bits on some machines: these numbers may be anything.
	head, count, capacity := binary.BigEndian.Uint32(b[atHead:]), binary.BigEndian.Uint32(b[atCount:]), binary.BigEndian.Uint32(b[atCap:])
	if int64(len(b)) != atRing+int64(capacity)*slotBytes || head >= capacity || count > capacity {
		return false
	}
	f.head, f.total, f.capacity = int(head), int(count)+1, int(capacity)
	f.skip, f.copies = b[atSkip], b[atCopies]
	return f.skip < f.copies && f.copies <= maxCopies && int(f.copies-f.skip) < f.total
}

// setClock sets the clock, in microseconds.
func (f *frame) setClock(clock int64) {
	f.clock, f.ref = clock, clock
	if f.unit == coarse {
		f.ref = clock / coarse
	}
}

// slot returns where the i-th oldest slot begins.
func (f *frame) slot(i int) int {
	if !f.ring {
		return atSmall + i*slotBytes
	}
	if i == f.total-1 {
		return atNewest
	}
	i += f.head
	if i >= f.capacity {
		i -= f.capacity
	}
	return atRing + i*slotBytes
}

// timeAt returns the time in units of the slot that begins at b[at].
func timeAt(b []byte, at int, ref int64) int64 {
	low := binary.BigEndian.Uint64(b[at:]) >> (64 - timeBits) // the slot's first five bytes
	// The difference modulo 2^40, taken as a number from -2^39 to 2^39-1.
	return ref + int64((low-uint64(ref))<<(64-timeBits))>>(64-timeBits)
}

// sumAt returns the running sum of the slot that begins at b[at].
func sumAt(b []byte, at int) uint32 { return binary.BigEndian.Uint32(b[at+atSum:]) }

// putSlot writes a slot to b[at:]. The time is in units.
func putSlot(b []byte, at int, t int64, sum uint32) {
	b = b[at : at+slotBytes]
	b[0] = byte(t >> 32)
	binary.BigEndian.PutUint32(b[1:], uint32(t))
	binary.BigEndian.PutUint32(b[atSum:], sum)
}

// putSum changes the running sum of the slot that begins at b[at].
func putSum(b []byte, at int, sum uint32) { binary.BigEndian.PutUint32(b[at+atSum:], sum) }

// copySlot copies the slot that begins at b[from] to b[to:]. The compiler copies an array
// without a call.
func copySlot(b []byte, to, from int) {
	*(*[slotBytes]byte)(b[to:]) = [slotBytes]byte(b[from:])
}
