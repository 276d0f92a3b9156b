package packed

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// Charge records the check's cost, whether or not it has room. It does not record what is
// above twice the limit, or above the 2^32-1 hits that a log can hold. Cost 0 records nothing. A charge removes the
// expired slots and updates v. It changes the log's bytes in place, or moves them:
// [View.Log] returns them.
func (v *View) Charge(c *window.Check) { v.Reserve(c, 0) }

// Reserve is Charge for a cost that the caller will spend until ahead from now. It records
// the cost at now + ahead. So the cost counts from now until one window after the last
// moment at which it can be spent. Later charges are recorded no earlier than that, because
// slots are in the order of their times. ahead is rounded up to whole microseconds, and
// limited to 0 to [window.MaxAhead].
func (v *View) Reserve(c *window.Check, ahead time.Duration) {
	cost := v.Recordable(c)
	if cost == 0 {
		return
	}
	t, kept := v.stamp(c, ahead), v.total-v.live
	if kept > 0 && t <= v.newest {
		// Slots are in the order of their times. The newest takes the cost even if
		// it is ahead: reserved, or rounded up further with another precision.
		v.reshape(kept, c)
	} else {
		v.reshape(kept+1, c)
		v.push(t)
	}
	v.used += cost
	putSum(v.log, v.slot(v.total-1), v.before+uint32(v.used))
	v.touch()
}

// Recordable returns how much of the check's cost [View.Charge] records.
func (v *View) Recordable(c *window.Check) uint64 { return min(recordable(c, v.used), maxUsed-v.used) }

// recordable returns the check's cost, or as much of it as fits into twice the limit.
func recordable(c *window.Check, used uint64) uint64 {
	most := 2 * c.Limit.Hits
	return min(c.Cost, most-min(used, most))
}

// Refund gives the check's cost back, newest slots first, and never more than is used. It
// removes slots that are given back entirely. A slot that is given back in part keeps its
// time and the rest of its cost. A refund removes the expired slots, as a charge does. If
// there is nothing to give back, it writes nothing.
func (v *View) Refund(c *window.Check) {
	give := min(c.Cost, v.used)
	if give == 0 {
		return
	}
	v.used -= give
	kept := 0
	if v.used > 0 {
		last := v.reach(v.used)
		kept = last + 1 - v.live
		v.cut(last)
	} else {
		v.total = v.live
	}
	v.reshape(kept, c)
	v.touch()
}

// cut removes all slots after slot last, and sets the sum of that slot to what is used.
func (v *View) cut(last int) {
	from := v.slot(last)
	v.total = last + 1
	to := v.slot(last) // of a ring, the newest slot is in the header
	copySlot(v.log, to, from)
	putSum(v.log, to, v.before+uint32(v.used))
	v.newest = timeAt(v.log, to, v.ref)
	if v.ring {
		// The circle has neither the new newest slot nor the removed slots any more.
		v.putCount()
		v.putCopies(int(v.skip), min(int(v.copies), int(v.skip)+v.total-1))
	} else {
		v.log = v.log[:to+slotBytes]
	}
}

// stamp returns the time of a charge at now + ahead, in units. It is rounded up to a
// multiple of the precision, which is at least one whole unit. If the log has [window.ExactHits]
// slots, and all that its limit can fill, the precision is at least the default of limits
// above ExactHits. So charges over the limit cannot make the log grow without end.
func (v *View) stamp(c *window.Check, ahead time.Duration) int64 {
	micros := min(ceilMicros(c.Precision), v.win)
	if kept := v.total - v.live; kept >= window.ExactHits && kept >= v.most(c) {
		micros = max(micros, (v.win+window.ExactHits-1)/window.ExactHits)
	}
	at := v.now
	if ahead > 0 {
		at += ceilMicros(min(ahead, window.MaxAhead))
	}
	if micros <= 1 && v.unit == 1 {
		return at
	}
	units := micros
	if v.unit != 1 {
		units = max((micros+v.unit-1)/v.unit, 1)
	}
	step := units * v.unit
	return (at + step - 1) / step * units
}

// ceilMicros returns a duration in microseconds, rounded up. It returns zero if d is
// negative.
func ceilMicros(d time.Duration) int64 {
	return (max(d, 0) + time.Microsecond - 1).Microseconds()
}

// mostSlots is how many slots fit into one slice, which matters if an int has 32 bits.
const mostSlots = (math.MaxInt - atRing) / slotBytes

// most returns the most slots that a log needs under the check's limit and precision.
// That is one for each hit, or one for each multiple of the precision in a window. Charges over the limit,
// earlier checks and reservations can make more.
func (v *View) most(c *window.Check) int {
	most := min(c.Limit.Hits, mostSlots)
	if p := ceilMicros(c.Precision); p > 1 {
		most = min(most, uint64(v.win/p)+2)
	}
	return int(most)
}

// reshape drops the expired slots and makes room for need slots in all. It keeps
// the log in place where its shape is right:
//
//   - A small log becomes a ring when it needs more than maxSmall slots.
//   - A ring becomes a small log when it needs no more than smallAgain slots.
//   - A ring that is full is moved to a larger one, and a ring of which three
//     quarters are unused to a smaller one. Either has a quarter to spare.
//
// Between two moves of n slots a good part of n was pushed or dropped. So moving costs
// O(1) per charge in the long run.
func (v *View) reshape(need int, c *window.Check) {
	switch {
	case len(v.log) == 0:
		v.log = newSmall(need)
		v.log[0] = kindOf(v.unit, false)
	case v.ring && need <= smallAgain:
		v.moveToSmall(need)
	case v.ring && (need-1 > v.capacity || need-1 <= v.capacity/4):
		v.moveToRing(spare(need-1, v.most(c)-1))
	case v.ring:
		v.dropFromRing()
	case need > maxSmall:
		v.moveToRing(spare(need-1, v.most(c)-1))
	default:
		v.dropFromSmall(need)
	}
}

// spare returns for how many slots to make room if need are needed: a quarter more, but
// no more than most. If need is above most already, most does not bound it.
func spare(need, most int) int {
	n := need + max(need/4, 1)
	if need <= most {
		n = min(n, most)
	}
	return n
}

// newSmall returns an empty small log with capacity for need slots and a quarter more, up
// to maxSmall.
func newSmall(need int) []byte {
	slots := min(need+need/4, maxSmall)
	return slices.Grow([]byte(nil), atSmall+slots*slotBytes)[:atSmall]
}

// dropFromSmall removes the expired slots of a small log in place. It moves the log if its
// bytes have no capacity for need slots.
func (v *View) dropFromSmall(need int) {
	kept := v.log[v.slot(v.live):v.slot(v.total)]
	if size := atSmall + need*slotBytes; size > cap(v.log) {
		moved := newSmall(need)
		copy(moved, v.log)
		v.log = moved
	}
	v.log = v.log[:atSmall+len(kept)]
	copy(v.log[atSmall:], kept)
	v.dropped()
}

// dropFromRing removes the expired slots of a ring: it moves the head.
func (v *View) dropFromRing() {
	if v.live == 0 {
		return
	}
	skip := int(v.skip) + v.live
	v.head += v.live
	if v.head >= v.capacity {
		v.head -= v.capacity
	}
	binary.BigEndian.PutUint32(v.log[atHead:], uint32(v.head))
	v.dropped()
	v.putCount()
	if skip < int(v.copies) {
		v.putCopies(skip, int(v.copies))
	} else {
		v.copyNext()
	}
}

// dropped makes the first live slot the oldest one.
func (v *View) dropped() {
	v.total -= v.live
	v.live = 0
	v.base = v.before
	binary.BigEndian.PutUint32(v.log[atBase:], v.base)
}

// copyNext copies the slots that expire next into the header of a ring.
func (v *View) copyNext() {
	n := min(v.total-1, maxCopies)
	for i := range n {
		copySlot(v.log, atCopy+i*slotBytes, v.slot(i))
	}
	v.putCopies(0, n)
}

// moveToSmall makes a ring a small log, without its expired slots.
func (v *View) moveToSmall(need int) {
	small := newSmall(need)
	copy(small, v.log)
	if v.live < v.total {
		newest := atSmall + (v.total-1-v.live)*slotBytes
		small = small[:newest+slotBytes]
		v.moveSlots(small[atSmall:newest], small[newest:])
	}
	v.log = small
	v.log[0] = kindOf(v.unit, false)
	v.ring = false
	v.head, v.capacity, v.skip, v.copies = 0, 0, 0, 0
	v.dropped()
}

// moveToRing makes a log a ring of another capacity, without its expired slots,
// of which at least two are left.
func (v *View) moveToRing(capacity int) {
	ring := make([]byte, atRing+capacity*slotBytes)
	copy(ring, v.log[:atSmall])
	older := (v.total - 1 - v.live) * slotBytes
	v.moveSlots(ring[atRing:atRing+older], ring[atNewest:])
	v.log = ring
	v.log[0] = kindOf(v.unit, true)
	v.ring = true
	v.head, v.capacity = 0, capacity
	binary.BigEndian.PutUint32(v.log[atCap:], uint32(capacity))
	v.dropped()
	v.putCount()
	v.copyNext()
}

// moveSlots copies the newest slot to newest, and the other live slots to older, which
// must have their length. There must be a live slot.
func (v *View) moveSlots(older, newest []byte) {
	if len(older) > 0 {
		n := copy(older, v.log[v.slot(v.live):])
		copy(older[n:], v.log[min(atRing, len(v.log)):]) // the circle's end was reached
	}
	copy(newest, v.log[v.slot(v.total-1):][:slotBytes])
}

// push appends a slot without a sum. The log must have room for it.
func (v *View) push(t int64) {
	v.total++
	if v.ring {
		// The slot that was the newest moves from the header into the circle.
		into := v.slot(v.total - 2)
		copySlot(v.log, into, atNewest)
		v.putCount()
	} else {
		v.log = v.log[:v.slot(v.total)]
	}
	putSlot(v.log, v.slot(v.total-1), t, 0)
	v.newest = t
}

// touch sets the log's clock to now.
func (v *View) touch() {
	v.setClock(v.now)
	binary.BigEndian.PutUint64(v.log[atClock:], uint64(v.now))
}

// putCount writes the number of slots in a ring's circle.
func (v *View) putCount() { binary.BigEndian.PutUint32(v.log[atCount:], uint32(v.total-1)) }

// putCopies writes how many copies a ring's header has and how many are used up.
func (v *View) putCopies(skip, copies int) {
	v.skip, v.copies = uint8(skip), uint8(copies)
	v.log[atSkip], v.log[atCopies] = v.skip, v.copies
}
