package packed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// ErrNotLog is wrapped by every error of [Decode].
var ErrNotLog = errors.New("window: not a log")

// Contents are what the bytes of a log say, for an operator, or for a store that loads
// logs. Times count from the zero of the store's clock: 1970.
type Contents struct {
	// Policy says which of the fields below have a meaning.
	Policy window.Policy
	// Clock is the time of the last write. The log is never seen from an earlier time.
	Clock time.Duration
	// Bytes is the length of the log.
	Bytes int

	Bucket Bucket // of [window.TokenBucket]

	// Of [window.Fixed] and [window.Calendar]: Current are the hits of the period that ends at End. Of
	// [window.SlidingCounter]: Current are the hits of the clock's window in which Clock is, and
	// Previous those of the window before.
	Current, Previous uint64
	End               time.Duration

	// Holds are those of [window.InFlight], in the order of their ends. Some may have expired by now.
	Holds []Hold

	// The other fields are of [window.Sliding].

	Ring bool
	// Unit is the unit of times: a microsecond, or a millisecond for windows
	// above six days.
	Unit time.Duration
	// ExpirySecond is the second at which Redis drops the key; zero elsewhere.
	ExpirySecond uint64
	// Base is the running sum just before the oldest entry, modulo 2^32.
	Base uint32
	// Capacity is the number of entries that there is room for.
	Capacity int
	// Entries are oldest first. Some may have expired: the bytes do not have the
	// window.
	Entries []Entry
}

// A Bucket is what was in a token bucket at [Contents.Clock].
type Bucket struct {
	// Tokens is below zero if the bucket is overdrawn. Fraction is of one token more, in parts of 1/window in
	// microseconds.
	Tokens   int64
	Fraction uint64
	// Full is when the bucket is full, rounded up to seconds after the clock.
	Full time.Duration
}

// An Entry is what was charged at one instant.
type Entry struct {
	At   time.Duration // rounded up to the unit and the precision
	Cost uint32        // at least 1
}

// Decode reads a log and checks all that has a meaning: everything except the expiry and
// the unused parts of a ring. If the bytes are not a log, it returns an error that wraps
// [ErrNotLog] and says what is wrong. It does not panic, whatever the bytes are, and does
// not keep b. An empty b is an error, although it stands for an empty log elsewhere.
func Decode(b []byte) (Contents, error) {
	if len(b) > 0 && b[0]&0xf0 == kindPolicy {
		return decodeValue(b)
	}
	if len(b) == 0 {
		return Contents{}, notLog("no bytes")
	}
	unit := int64(1)
	if b[0]&kindCoarse != 0 {
		unit = coarse
	}
	var f frame
	switch {
	case b[0]&^(kindRing|kindCoarse) != kindSmall:
		return Contents{}, notLog("kind 0x%02x is unknown to this version", b[0])
	case !f.read(b, unit):
		return Contents{}, notLog("the header of %d bytes contradicts itself", len(b))
	}
	if err := checkCopies(b, &f); err != nil {
		return Contents{}, err
	}
	entries, err := readEntries(b, &f)
	if err != nil {
		return Contents{}, err
	}
	capacity := maxSmall
	if f.ring {
		capacity = f.capacity + 1 // and the newest
	}
	return Contents{
		Ring:         f.ring,
		Unit:         time.Duration(f.unit) * time.Microsecond,
		Clock:        time.Duration(f.clock) * time.Microsecond,
		ExpirySecond: expirySecond(b),
		Base:         f.base,
		Capacity:     capacity,
		Bytes:        len(b),
		Entries:      entries,
	}, nil
}

// expirySecond reads the last four of five bytes. The first byte is a mark of
// reservations, which only the scripts use.
func expirySecond(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint32(b[atExpiry+1:]))
}

func notLog(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotLog, fmt.Sprintf(format, args...))
}

// checkCopies compares the copies in a ring's header with the slots.
func checkCopies(b []byte, f *frame) error {
	for i := range int(f.copies - f.skip) {
		slot := b[f.slot(i):][:slotBytes]
		if !bytes.Equal(slot, b[atCopy+(int(f.skip)+i)*slotBytes:][:slotBytes]) {
			return notLog("the copy of slot %d differs from the slot", i)
		}
	}
	return nil
}

// readEntries returns what the slots say, oldest first.
func readEntries(b []byte, f *frame) ([]Entry, error) {
	var (
		entries = make([]Entry, 0, f.total)
		unit    = time.Duration(f.unit) * time.Microsecond
		sum     = f.base
		used    uint64
	)
	for i := range f.total {
		at := f.slot(i)
		e := Entry{
			At:   time.Duration(timeAt(b, at, f.ref)) * unit,
			Cost: sumAt(b, at) - sum,
		}
		sum += e.Cost
		used += uint64(e.Cost)
		switch {
		case e.Cost == 0:
			return nil, notLog("slot %d has no cost", i)
		case used > maxUsed:
			return nil, notLog("the sums wrap within the log at slot %d", i)
		case i > 0 && e.At <= entries[i-1].At:
			return nil, notLog("slot %d is not later than the one before", i)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Used returns the cost of all that the log says, expired or not. Of a [window.TokenBucket] it is
// only what is below zero, because the burst is not in the log.
func (c Contents) Used() uint64 {
	used := c.Current + c.Previous + uint64(max(-c.Bucket.Tokens, 0))
	for _, h := range c.Holds {
		used += h.Cost
	}
	for _, e := range c.Entries {
		used += uint64(e.Cost)
	}
	return used
}

// String describes a log for an operator, one entry a line. Times are relative
// to the log's clock.
func (c Contents) String() string {
	var b strings.Builder
	if c.Policy != window.Sliding {
		c.writeValue(&b)
		return b.String()
	}
	kind := "small log"
	if c.Ring {
		kind = "ring"
	}
	fmt.Fprintf(&b, "%s, %d bytes, times in %v\n", kind, c.Bytes, c.Unit)
	fmt.Fprintf(&b, "clock    %v\n", date(c.Clock))
	if c.ExpirySecond != 0 {
		fmt.Fprintf(&b, "expiry   %v\n", date(time.Duration(c.ExpirySecond)*time.Second))
	}
	fmt.Fprintf(&b, "entries  %d of %d, cost %d, sums from %d\n", len(c.Entries), c.Capacity, c.Used(), c.Base)
	for _, e := range c.Entries {
		fmt.Fprintf(&b, "  %s  %d\n", relative(e.At-c.Clock), e.Cost)
	}
	return b.String()
}

// date formats a time that counts from 1970, as those of Redis do.
func date(clock time.Duration) string {
	return time.Unix(0, int64(clock)).UTC().Format(time.RFC3339Nano)
}

// relative formats a duration with a sign always, for a column of them: -1d2h0m0s.
func relative(d time.Duration) string {
	sign := "-"
	if d > 0 {
		sign = "+"
	}
	const day = 24 * time.Hour
	days, rest := d.Abs()/day, d.Abs()%day
	switch {
	case days == 0:
		return sign + rest.String()
	case rest == 0:
		return fmt.Sprintf("%s%dd", sign, days)
	default:
		return fmt.Sprintf("%s%dd%v", sign, days, rest)
	}
}
