package window

import (
	"encoding/binary"
	"time"
)

// Move makes all times of a log later, by whole milliseconds, for a store whose clock counts
// from another zero than the clock that wrote the log. It changes the bytes in place. Logs of
// [Fixed], [Calendar] and [SlidingCounter] stay as they are: their windows are those of the
// clock. The bytes must be a log that [Decode] accepts.
func Move(log []byte, by time.Duration) {
	millis := by.Milliseconds()
	if len(log) == 0 {
		return
	}
	switch kind := log[0]; {
	case kind&^(kindRing|kindCoarse) == kindSmall:
		moveTimes(log, millis)
	case kind == kindPolicy+byte(TokenBucket):
		moveClock(log, millis)
	case kind == kindPolicy+byte(InFlight):
		moveClock(log, millis)
		for at := atHolds; at < len(log); at += holdBytes {
			ends := binary.BigEndian.Uint64(log[at+atHoldEnds-2:])
			binary.BigEndian.PutUint64(log[at+atHoldEnds-2:], ends+uint64(millis))
		}
	}
}

// moveClock moves the clock of a log of another policy than [Sliding]. The kind is above it.
func moveClock(log []byte, millis int64) {
	binary.BigEndian.PutUint64(log, binary.BigEndian.Uint64(log)+uint64(millis*coarse))
}

// moveTimes moves the clock and all slots of a log of [Sliding], and the unused places too.
func moveTimes(log []byte, millis int64) {
	units := uint64(millis)
	if log[0]&kindCoarse == 0 {
		units *= coarse
	}
	clock := binary.BigEndian.Uint64(log[atClock:]) + uint64(millis*coarse)
	binary.BigEndian.PutUint64(log[atClock:], clock)
	slot := func(at int) {
		t := uint64(log[at])<<32 | uint64(binary.BigEndian.Uint32(log[at+1:]))
		putSlot(log, at, int64((t+units)&(1<<timeBits-1)), sumAt(log, at))
	}
	first := atSmall
	if log[0]&kindRing != 0 {
		slot(atNewest)
		for at := atCopy; at < atRing; at += slotBytes {
			slot(at)
		}
		first = atRing
	}
	for at := first; at < len(log); at += slotBytes {
		slot(at)
	}
}
