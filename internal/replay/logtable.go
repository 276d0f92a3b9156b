package replay

import "math/bits"

// A logTable keeps one number for each log, by the log's hash. Its memory has a bound: above
// maxTable logs it keeps only those whose hashes end with zeros, so that a log of a smaller and
// smaller share is kept. The hash decides, not the order, so the kept logs are a fair sample.
type logTable struct {
	slots []logSlot // a power of two
	count int
	// level is how many zeros a hash ends with: one log of 2^level is kept.
	level uint
	most  int // slots; a power of two
}

// A logSlot is one log. A hash of zero is an empty slot.
type logSlot struct{ hash, value uint64 }

const (
	slotBytes = 16
	minTable  = 1 << 4
	// maxTable is 4 million slots of 16 bytes, of which three quarters are used.
	maxTable = 1 << 22
)

func newLogTable(most int) *logTable {
	return &logTable{slots: make([]logSlot, min(minTable, most)), most: most}
}

// at returns the number of a log, which is zero for a log that is new. It is valid until the next
// call. It returns nil if the log is not one of those that are kept.
func (t *logTable) at(hash uint64) *uint64 {
	if hash&(1<<t.level-1) != 0 {
		return nil
	}
	if hash == 0 {
		hash = 1 << 63
	}
	s := t.find(hash)
	if s.hash == 0 {
		if t.count >= len(t.slots)/4*3 {
			t.grow()
			return t.at(hash)
		}
		t.count++
		s.hash = hash
	}
	return &s.value
}

// find returns the slot of a log, or the empty one where it belongs.
func (t *logTable) find(hash uint64) *logSlot {
	mask := uint64(len(t.slots) - 1)
	// The low bits are zero in a sample, so the high bits choose the place.
	i := bits.ReverseBytes64(hash) & mask
	for t.slots[i].hash != 0 && t.slots[i].hash != hash {
		i = (i + 1) & mask
	}
	return &t.slots[i]
}

// grow doubles the slots, or at the bound drops half of the logs.
func (t *logTable) grow() {
	if size := 2 * len(t.slots); size <= t.most {
		t.rebuild(size)
	} else {
		t.sample(t.level + 1)
	}
}

// sample keeps the logs of a level, or of a higher one that the table has reached by itself.
func (t *logTable) sample(level uint) {
	if level > t.level {
		t.level = level
		t.rebuild(len(t.slots))
	}
}

// rebuild moves the logs of the level to new slots.
func (t *logTable) rebuild(size int) {
	old := t.slots
	t.slots, t.count = make([]logSlot, size), 0
	for _, s := range old {
		if s.hash != 0 && s.hash&(1<<t.level-1) == 0 {
			*t.find(s.hash) = s
			t.count++
		}
	}
}

// bytes returns about the bytes of a table, without the first slots that every table has.
func (t *logTable) bytes() int { return (len(t.slots) - min(minTable, t.most)) * slotBytes }

// needs returns how many bytes more a new log may take.
func (t *logTable) needs() int {
	if t.count < len(t.slots)/4*3 || 2*len(t.slots) > t.most {
		return 0
	}
	return len(t.slots) * slotBytes
}

// fit frees slots that a sample does not need.
func (t *logTable) fit() {
	size := len(t.slots)
	for size > minTable && t.count < size/8*3 {
		size /= 2
	}
	if size < len(t.slots) {
		t.rebuild(size)
	}
}

// each calls do for each log that is kept.
func (t *logTable) each(do func(hash, value uint64)) {
	for _, s := range t.slots {
		if s.hash != 0 {
			do(s.hash, s.value)
		}
	}
}

// times is how many logs one kept log stands for.
func (t *logTable) times() uint64 { return 1 << t.level }
