package window

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Bounds of what [Check.Once] may say.
const (
	MinOnce    = time.Second
	MaxOnce    = 24 * time.Hour
	MaxRepeats = 100
)

// Once makes requests with one ID charge one log once. A store keeps a receipt of a charge with
// an ID, for a time. A later check of the same log with the same ID is a repeat of it: it has
// room, and charges nothing. The zero value charges every request.
type Once struct {
	// ID is the digest of what names the attempt. Zero names none.
	ID uint64
	// For is how long a receipt lives from the charge on: [MinOnce] to [MaxOnce], in whole
	// microseconds. A repeat does not make it longer.
	For time.Duration
	// Repeats is how many repeats one charge covers: 1 to [MaxRepeats]. Later ones are charged,
	// and make no other receipt.
	Repeats uint8
}

// Receipts reports whether a charge of c leaves a receipt, or may be a repeat. Cost 0 charges
// nothing, and leaves none.
func (c *Check) Receipts() bool { return c.Once.ID != 0 && c.Cost > 0 }

// validOnce reports what is wrong with c.Once, or nil.
func (c *Check) validOnce() error {
	switch o := &c.Once; {
	case o.ID == 0:
		return nil
	case o.For < MinOnce || o.For > MaxOnce || o.For%time.Microsecond != 0:
		return fmt.Errorf("a receipt for %v, want %v to %v in whole microseconds", o.For, MinOnce, MaxOnce)
	case o.Repeats < 1 || o.Repeats > MaxRepeats:
		return fmt.Errorf("a receipt for %d repeats, want 1 to %d", o.Repeats, MaxRepeats)
	case c.Mode.Unconditional():
		return fmt.Errorf("a check of mode %v is charged each time, so it has no receipt", c.Mode)
	case c.Limit.Policy == InFlight:
		return errors.New("a check in flight has no receipt: its stream holds the cost once")
	case HashTag(c.Key) == c.Key:
		return errors.New("a receipt must be on the slot of its log, so the key needs a hash tag")
	}
	return nil
}

// A Receipt is what a store keeps of a charge with [Check.Once]. The zero value is no receipt.
//
// Its bytes are the same in the memory of a process and in Redis, big-endian.
//
//	0  kind     1  0xa8
//	1  ends     7  the end of the receipt, microseconds
//	8  cost     4  that was charged
//	12 repeats  1  that were let in
type Receipt struct {
	Ends    int64 // microseconds of the store's clock
	Cost    uint32
	Repeats uint8
}

const (
	kindReceipt = 0xa8
	// ReceiptBytes is the number of bytes of a receipt.
	ReceiptBytes = 13
)

// ReadReceipt reads a receipt. ok is false if the bytes are something else.
func ReadReceipt(b []byte) (r Receipt, ok bool) {
	if len(b) != ReceiptBytes || b[0] != kindReceipt {
		return Receipt{}, false
	}
	return Receipt{
		Ends:    int64(binary.BigEndian.Uint64(b) & (1<<56 - 1)), // the kind is above it
		Cost:    binary.BigEndian.Uint32(b[8:]),
		Repeats: b[12],
	}, true
}

// Put writes the receipt to ReceiptBytes bytes.
func (r Receipt) Put(b []byte) {
	binary.BigEndian.PutUint64(b, kindReceipt<<56|uint64(r.Ends))
	binary.BigEndian.PutUint32(b[8:], r.Cost)
	b[12] = r.Repeats
}

// Covers reports whether a check is a repeat of the charge at the time clock, in microseconds.
func (r Receipt) Covers(c *Check, clock int64) bool {
	return clock < r.Ends && c.Cost <= uint64(r.Cost) && r.Repeats < c.Once.Repeats
}

// Lives reports whether the receipt still counts at the time clock, in microseconds.
func (r Receipt) Lives(clock int64) bool { return clock < r.Ends }

// NewReceipt returns the receipt of a charge at the time clock, in microseconds.
func NewReceipt(c *Check, clock int64) Receipt {
	return Receipt{Ends: clock + c.Once.For.Microseconds(), Cost: uint32(c.Cost)}
}
