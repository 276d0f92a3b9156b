package packed

import (
	"encoding/binary"

	"github.com/slidegate/slidegate/pkg/window"
)

// An OnceRecord is the idempotency record that a store keeps of a charge with [window.Check.Once]. The zero value is no record.
//
// Its bytes are the same in the memory of a process and in Redis, big-endian.
//
//	0  kind     1  0xa8
//	1  ends     7  the end of the idempotency record, microseconds
//	8  cost     4  that was charged
//	12 repeats  1  that were let in
//
// A cost above 2^32-1 has seven bytes.
type OnceRecord struct {
	Ends    int64 // microseconds of the store's clock
	Cost    uint64
	Repeats uint8
}

const (
	kindOnceRecord  = 0xa8
	onceRecordBytes = 13
	wideOnceBytes   = 16
)

// OnceRecordBytes returns the number of bytes of the idempotency record of a cost.
func OnceRecordBytes(cost uint64) int {
	if cost > maxNarrow {
		return wideOnceBytes
	}
	return onceRecordBytes
}

// ReadOnceRecord reads an idempotency record. ok is false if the bytes are something else.
func ReadOnceRecord(b []byte) (r OnceRecord, ok bool) {
	if len(b) != onceRecordBytes && len(b) != wideOnceBytes || b[0] != kindOnceRecord {
		return OnceRecord{}, false
	}
	r.Ends = int64(binary.BigEndian.Uint64(b) & (1<<56 - 1)) // the kind is above it
	r.Repeats = b[len(b)-1]
	if len(b) == onceRecordBytes {
		r.Cost = uint64(binary.BigEndian.Uint32(b[8:]))
		return r, true
	}
	r.Cost = wideNumber(b[8:])
	return r, r.Cost > maxNarrow && r.Cost <= window.MaxHits
}

// Put writes the idempotency record to [OnceRecordBytes] bytes.
func (r OnceRecord) Put(b []byte) {
	binary.BigEndian.PutUint64(b, kindOnceRecord<<56|uint64(r.Ends))
	if len(b) == onceRecordBytes {
		binary.BigEndian.PutUint32(b[8:], uint32(r.Cost))
	} else {
		putWide(b[8:], r.Cost)
	}
	b[len(b)-1] = r.Repeats
}

// Covers reports whether a check is a repeat of the charge at the time clock, in microseconds.
func (r OnceRecord) Covers(c *window.Check, clock int64) bool {
	return clock < r.Ends && c.Cost <= r.Cost && r.Repeats < c.Once.Repeats
}

// Lives reports whether the idempotency record still counts at the time clock, in microseconds.
func (r OnceRecord) Lives(clock int64) bool { return clock < r.Ends }

// NewOnceRecord returns the idempotency record of a charge at the time clock, in microseconds.
func NewOnceRecord(c *window.Check, clock int64) OnceRecord {
	return OnceRecord{Ends: clock + c.Once.For.Microseconds(), Cost: c.Cost}
}
