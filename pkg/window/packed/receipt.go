package packed

import (
	"encoding/binary"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Receipt is what a store keeps of a charge with [window.Check.Once]. The zero value is no receipt.
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
func (r Receipt) Covers(c *window.Check, clock int64) bool {
	return clock < r.Ends && c.Cost <= uint64(r.Cost) && r.Repeats < c.Once.Repeats
}

// Lives reports whether the receipt still counts at the time clock, in microseconds.
func (r Receipt) Lives(clock int64) bool { return clock < r.Ends }

// NewReceipt returns the receipt of a charge at the time clock, in microseconds.
func NewReceipt(c *window.Check, clock int64) Receipt {
	return Receipt{Ends: clock + c.Once.For.Microseconds(), Cost: uint32(c.Cost)}
}
