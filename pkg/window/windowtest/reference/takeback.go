package reference

import (
	"encoding/binary"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxBackBytes is the longest log that TakeBack changes, in bytes.
	maxBackBytes = 128 << 10
	// maxBackSlots is how many slots before the newest one TakeBack looks at.
	maxBackSlots = 64
)

// TakeBack is the reference for takeback.lua of package redisstore. It takes back what
// was charged at one instant, up to a cost. It returns the log without that cost, how
// much it took, and the wait until the log is empty: zero if it is empty.
//
// clock, in microseconds, is the time of the call. at, in microseconds, is the instant
// that the charge was recorded at: the clock of the charging call, plus
// [window.Decision.ResetAfter] of its answer, minus the window. Other charges may share
// that instant, so cost must not be more than was charged.
//
// Only the slot of that instant and the later sums change. The clock, the base, the
// expiry, the expired slots and the size of a ring stay. A ring of six slots or fewer
// becomes a small log.
//
// TakeBack takes nothing if no cost counts at that instant any more, or if the bytes are
// not a log of the window. To bound its work it also takes nothing if the log has more
// than 128 kB, or if the instant is more than 64 slots before the newest. It then returns
// log itself. TakeBack never changes the bytes of log, and does not panic whatever they
// are.
//
// It is written after the comments of package window and shares no code with package window.
func TakeBack(log []byte, clock int64, win time.Duration, at int64, cost uint64) (left []byte, taken uint64, reset time.Duration) {
	r, ok := readRecord(log, win)
	if !ok {
		return log, 0, 0
	}
	clock = min(max(clock, 0), window.MaxClock)
	w := win.Microseconds()
	counts := func(s slot) bool { return s.time*r.unit+w > max(clock, r.clock) }

	left = log
	for i := len(r.slots) - 1; i >= max(0, len(r.slots)-1-maxBackSlots); i-- {
		if r.slots[i].time*r.unit != at {
			continue
		}
		if len(log) <= maxBackBytes && counts(r.slots[i]) {
			taken = r.take(i, cost)
		}
		break
	}
	if taken > 0 {
		left = r.bytes()
	}
	if n := len(r.slots); n > 0 && counts(r.slots[n-1]) {
		reset = time.Duration(r.slots[n-1].time*r.unit+w-clock) * time.Microsecond
	}
	return left, taken, reset
}

// A record is a log that has been read.
type record struct {
	header   [18]byte
	clock    int64 // of the last write, in microseconds
	unit     int64 // of the slots' times, in microseconds
	base     uint32
	slots    []slot // oldest first
	ring     bool
	capacity int // of the ring's circle, in slots
}

// A slot is everything that was charged at one instant.
type slot struct {
	time int64  // in units
	sum  uint32 // of all costs up to and including this slot
}

// readRecord reads the log of a window. It checks the header and the length, but not the
// slots.
func readRecord(log []byte, win time.Duration) (*record, bool) {
	if len(log) < 18 {
		return nil, false
	}
	r := &record{header: [18]byte(log), unit: 1}
	kind := byte(0x90)
	if win > 6*24*time.Hour {
		kind, r.unit = 0x92, 1000
	}
	clock := binary.BigEndian.Uint64(log[1:])
	if clock > uint64(window.MaxClock) {
		return nil, false
	}
	r.clock, r.base = int64(clock), binary.BigEndian.Uint32(log[9:])
	switch log[0] {
	case kind:
		slots := log[18:]
		if len(slots)%9 != 0 || len(slots) > 13*9 {
			return nil, false
		}
		for ; len(slots) > 0; slots = slots[9:] {
			r.add(slots)
		}
		return r, true
	case kind + 1:
		r.ring = true
		return r, r.readCircle(log)
	}
	return nil, false
}

// readCircle reads the slots of a ring. It returns false if the header contradicts itself
// or the length.
func (r *record) readCircle(log []byte) bool {
	if len(log) < 131 {
		return false
	}
	head, count := int(binary.BigEndian.Uint32(log[27:])), int(binary.BigEndian.Uint32(log[31:]))
	r.capacity = int(binary.BigEndian.Uint32(log[35:]))
	skip, copies := int(log[39]), int(log[40])
	if len(log) != 131+9*r.capacity || head >= r.capacity || count > r.capacity {
		return false
	}
	if copies > 10 || skip >= copies || copies-skip > count {
		return false
	}
	for i := range count {
		r.add(log[131+9*((head+i)%r.capacity):])
	}
	r.add(log[18:])
	return true
}

// add reads one slot. Its five bytes of time are the low 40 bits of the time that is
// nearest to the log's clock.
func (r *record) add(b []byte) {
	const turn = 1 << 40
	low := int64(b[0])<<32 | int64(binary.BigEndian.Uint32(b[1:]))
	ref := r.clock / r.unit
	from := (low - ref%turn + turn) % turn
	if from >= turn/2 {
		from -= turn
	}
	r.slots = append(r.slots, slot{time: ref + from, sum: binary.BigEndian.Uint32(b[5:])})
}

// take takes up to cost out of slot i, and returns how much. It removes the slot if
// nothing is left in it.
func (r *record) take(i int, cost uint64) uint64 {
	before := r.base
	if i > 0 {
		before = r.slots[i-1].sum
	}
	holds := r.slots[i].sum - before
	taken := min(cost, uint64(holds))
	for j := i; j < len(r.slots); j++ {
		r.slots[j].sum -= uint32(taken)
	}
	if taken > 0 && taken == uint64(holds) {
		r.slots = append(r.slots[:i], r.slots[i+1:]...)
	}
	return taken
}

// bytes writes the log. A ring begins at the start of its circle, with as many copies as
// there can be.
func (r *record) bytes() []byte {
	b := r.header[:]
	n := len(r.slots)
	if !r.ring || n <= 6 {
		b[0] &^= 1
		return appendSlots(b, r.slots)
	}
	older, newest := r.slots[:n-1], r.slots[n-1:]
	copies := min(len(older), 10)
	b = appendSlots(b, newest)
	for _, number := range []int{0, len(older), r.capacity} { // head, count, capacity
		b = binary.BigEndian.AppendUint32(b, uint32(number))
	}
	b = append(b, 0, byte(copies))
	b = appendSlots(b, older[:copies])
	b = append(b, make([]byte, 131-len(b))...)
	b = appendSlots(b, older)
	return append(b, make([]byte, 9*(r.capacity-len(older)))...)
}

// appendSlots writes slots.
func appendSlots(b []byte, slots []slot) []byte {
	for _, s := range slots {
		b = append(b, byte(s.time>>32))
		b = binary.BigEndian.AppendUint32(b, uint32(s.time))
		b = binary.BigEndian.AppendUint32(b, s.sum)
	}
	return b
}
