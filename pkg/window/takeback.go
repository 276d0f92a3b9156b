package window

import (
	"encoding/binary"
	"time"
)

const (
	// maxBack is the longest log, in bytes, that TakeBack changes: it writes the
	// log anew, and a store that others wait for must not do much of that.
	maxBack = 128 << 10
	// maxBackSlots is how many slots before the newest one TakeBack reaches. What
	// is taken back was charged a moment ago.
	maxBackSlots = 64
)

// TakeBack takes back what was charged at one instant, up to a cost, and returns
// the log without it, how much that was, and the wait until the log is empty (zero
// if it is). Unlike a refund it takes from no other instant: the newest entries may
// be somebody else's, and what is left would then expire before its time.
//
// at is the instant that the charge was recorded at, in microseconds: the clock of
// the call that charged, plus [Decision.ResetAfter] of its answer, minus the window.
// Others may have been recorded there too, so no more must be asked for than was
// charged. Later entries stay as they are, and the log as if the charge had never
// been made, but for its clock and for what was recorded later because of it (see
// [View.Reserve]).
//
// Nothing is taken where nothing counts any more at that instant, where the bytes
// are no log of such a window, and where it would be much work: from logs of more
// than 128 kB and instants more than 64 others before the newest. Zero taken is no
// error: the charge expires by itself.
//
// TakeBack does not change the bytes of log. It returns log itself where nothing
// was taken. It takes any bytes without panic, as [View.Look] does.
func TakeBack(log []byte, clock int64, win time.Duration, at int64, cost uint64) (left []byte, taken uint64, reset time.Duration) {
	var v View
	v.Look(log, clock, win)
	left = log
	if i, ok := v.find(at); ok {
		if taken = min(cost, uint64(v.costOf(i))); taken > 0 {
			left = v.without(i, uint32(taken))
			v.Look(left, clock, win)
		}
	}
	if v.live < v.total {
		reset = v.until(v.newest)
	}
	return left, taken, reset
}

// find returns the slot of an instant, in microseconds, if it counts and TakeBack
// may change it.
func (v *View) find(at int64) (i int, ok bool) {
	if len(v.log) > maxBack || at%v.unit != 0 {
		return 0, false
	}
	t := at / v.unit
	for i := v.total - 1; i >= max(0, v.total-1-maxBackSlots); i-- {
		if timeAt(v.log, v.slot(i), v.ref) == t {
			return i, t > floorDiv(v.now-v.win, v.unit)
		}
	}
	return 0, false
}

// costOf returns what slot i holds.
func (v *View) costOf(i int) uint32 {
	before := v.base
	if i > 0 {
		before = sumAt(v.log, v.slot(i-1))
	}
	return sumAt(v.log, v.slot(i)) - before
}

// without returns the log with less in slot i, and without that slot if nothing is
// left in it. The clock, the base and the expired slots stay, and so does the size
// of a ring, unless it has become a small log.
func (v *View) without(i int, cost uint32) []byte {
	gone := cost == v.costOf(i)
	slots := make([]byte, v.total*slotBytes)
	v.live = 0 // expired ones are moved too
	newest := len(slots) - slotBytes
	v.moveSlots(slots[:newest], slots[newest:])
	for at := i * slotBytes; at < len(slots); at += slotBytes {
		putSum(slots, at, sumAt(slots, at)-cost)
	}
	if gone {
		slots = append(slots[:i*slotBytes], slots[(i+1)*slotBytes:]...)
	}
	total := len(slots) / slotBytes

	if !v.ring || total <= smallAgain {
		small := append(append([]byte(nil), v.log[:atSmall]...), slots...)
		small[0] = kindOf(v.unit, false)
		return small
	}
	ring := View{frame: v.frame, log: make([]byte, len(v.log))}
	ring.head, ring.total = 0, total
	copy(ring.log, v.log[:atSmall])
	newest = len(slots) - slotBytes
	copy(ring.log[atNewest:], slots[newest:])
	copy(ring.log[atRing:], slots[:newest])
	binary.BigEndian.PutUint32(ring.log[atCap:], uint32(ring.capacity))
	ring.putCount()
	ring.copyNext()
	return ring.log
}
