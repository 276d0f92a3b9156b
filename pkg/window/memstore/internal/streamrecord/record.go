// Package streamrecord packs what a store remembers of a stream: in which logs it may hold something, or that it has ended.
package streamrecord

import (
	"encoding/binary"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// The bytes of a record, big-endian:
//
//	0  kind   1   0xA6 while the stream may hold something, 0xA7 after its end
//	1  until  7   milliseconds of the store's clock, rounded up: the end of the last hold, or
//	              until when the stream is denied
//	8  logs   each: its scope 1, its policy 1, the length of its key 4, its key, and of a budget [appendTerms]
const (
	Holding = 0xA6
	Ended   = 0xA7

	// HeadBytes is the length of a record without logs.
	HeadBytes = 8
	keySize   = 6 // the scope, the policy, and the length of a key

	// maxLogs is the most logs in which one stream holds something. In a further one it has no room.
	maxLogs = 192
)

// A Record is what the store remembers of a stream. It refers to the bytes of its log.
type Record struct {
	Ended    bool
	Until    int64  // milliseconds
	Keys     []byte // the logs: see [Record.Cut]
	Reserved bool   // one is that of a budget
	logs     int
}

// Read reads a record. It returns false if the bytes are something else.
func Read(b []byte) (r Record, ok bool) {
	if len(b) < HeadBytes || b[0] != Holding && b[0] != Ended {
		return Record{}, false
	}
	r.Ended = b[0] == Ended
	r.Until = int64(binary.BigEndian.Uint64(b) & (1<<56 - 1)) // the kind is above it
	r.Keys = b[HeadBytes:]
	for rest := r.Keys; len(rest) > 0; r.logs++ {
		if len(rest) < keySize || window.Policy(rest[1]) > window.InFlight || uint64(len(rest)) < entryBytes(rest) {
			return Record{}, false
		}
		r.Reserved = r.Reserved || window.Policy(rest[1]) != window.InFlight
		rest = rest[entryBytes(rest):]
	}
	return r, true
}

// entryBytes returns the length of the entry of a log, by its beginning.
func entryBytes(b []byte) uint64 {
	n := keySize + uint64(binary.BigEndian.Uint32(b[2:]))
	if window.Policy(b[1]) != window.InFlight {
		n += termsBytes
	}
	return n
}

// EntrySize returns the length of the entry of a check's log.
func EntrySize(c *window.Check) int {
	if c.Budget != nil {
		return keySize + len(c.Key) + termsBytes
	}
	return keySize + len(c.Key)
}

// An Entry is a log in which a stream may hold something.
type Entry struct {
	Scope  window.Scope
	Policy window.Policy
	Key    []byte
	Ends   int64 // when its hold ends, in milliseconds, probably
	terms  []byte
}

// Cut returns the first log of r.Keys, which are not empty, and r without it.
func (r Record) Cut() (first Entry, rest Record) {
	b, next, key := r.Keys, entryBytes(r.Keys), keySize+binary.BigEndian.Uint32(r.Keys[2:])
	r.Keys = b[next:]
	e := Entry{window.Scope(b[0]), window.Policy(b[1]), b[keySize:key], r.Until, b[key:next]}
	if e.Policy != window.InFlight {
		e.Ends = int64(binary.BigEndian.Uint64(e.terms[atEnds:]))
	}
	return e, r
}

// Is reports whether the log is that of a check.
func (e *Entry) Is(c *window.Check) bool {
	return e.Scope == c.Scope && e.Policy == c.Limit.Policy && string(e.Key) == c.Key &&
		(e.Policy == window.InFlight || binary.BigEndian.Uint64(e.terms) == uint64(c.Limit.Window))
}

// Ends returns when the hold of the stream in the log of a check ends, probably, or [packed.NoHold] if it holds
// nothing there.
func (r Record) Ends(c *window.Check) int64 {
	for len(r.Keys) > 0 {
		var e Entry
		if e, r = r.Cut(); e.Is(c) {
			return e.Ends
		}
	}
	return packed.NoHold
}

// Full reports whether the stream holds something in too many logs to hold something in the log
// of a check too.
func (r *Record) Full(c *window.Check) bool { return r.logs >= maxLogs && r.Ends(c) == packed.NoHold }

// Over reports whether the stream does not matter any more at the time now, in microseconds.
func (r *Record) Over(now int64) bool { return r.Until*1000 <= now }

// MillisAt returns the time d after now, in milliseconds, rounded up. now is in microseconds.
func MillisAt(now int64, d time.Duration) int64 { return (max(now, 0) + d.Microseconds() + 999) / 1000 }

// Append appends the log of a check, in which the hold of a stream ends at ends, in milliseconds.
func Append(b []byte, c *window.Check, ends int64) []byte {
	b = append(binary.BigEndian.AppendUint32(append(b, byte(c.Scope), byte(c.Limit.Policy)), uint32(len(c.Key))), c.Key...)
	if c.Budget != nil {
		return appendTerms(b, c, ends)
	}
	return b
}

// PutHead writes what the bytes of a record begin with. until is in milliseconds.
func PutHead(b []byte, kind uint64, until int64) {
	binary.BigEndian.PutUint64(b, kind<<56|uint64(until))
}
