package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// # Streams
//
// The store remembers in which logs a stream holds something, so that End finds them, and which
// streams have ended. It keeps that as one more log for each stream: its key is the stream's
// id, eight bytes, and its policy is streams. So the bounds, the sweeper and the snapshot
// apply to it as to any log. While the stream may hold something, the log is limiting. After
// the end it is the first to be dropped when room is short.
//
// Its bytes, big-endian:
//
//	0  kind   1   0xA6 while the stream may hold something, 0xA7 after its end
//	1  until  7   milliseconds of the store's clock, rounded up: the end of the last hold, or
//	              until when the stream is denied
//	8  keys   each: its length 4, the key of a log in flight
//
// A group locks the shard of its stream with those of its logs. End locks the stream's shard
// first and notes the end. From then on no check of the stream is allowed. So End can remove
// the holds afterwards, one log at a time.
const (
	streams window.Policy = window.InFlight + 1

	kindStream = 0xA6
	kindEnded  = 0xA7

	atKeys      = 8
	keySize     = 4 // the length of a key
	streamIDLen = 8

	// maxStreamLogs is the most logs in which one stream holds something. In a further one it
	// has no room.
	maxStreamLogs = 4 * window.MaxChecks
)

var _ window.Ender = (*Store)(nil)

// A stream is what the store remembers of a stream. It refers to the bytes of its log.
type stream struct {
	ended bool
	until int64 // milliseconds
	keys  []byte
	logs  int // the number of keys
}

// readStream reads the bytes of a stream's log. It returns false if the bytes are something else.
func readStream(b []byte) (s stream, ok bool) {
	if len(b) < atKeys || b[0] != kindStream && b[0] != kindEnded {
		return stream{}, false
	}
	s.ended = b[0] == kindEnded
	s.until = int64(binary.BigEndian.Uint64(b) & (1<<56 - 1)) // the kind is above it
	s.keys = b[atKeys:]
	for rest := s.keys; len(rest) > 0; s.logs++ {
		if len(rest) < keySize || uint64(len(rest)-keySize) < uint64(binary.BigEndian.Uint32(rest)) {
			return stream{}, false
		}
		rest = rest[keySize+binary.BigEndian.Uint32(rest):]
	}
	return s, true
}

// all yields the keys of the logs in which the stream may hold something.
func (s *stream) all(yield func(key []byte) bool) {
	for rest := s.keys; len(rest) > 0; {
		next := keySize + binary.BigEndian.Uint32(rest)
		if !yield(rest[keySize:next]) {
			return
		}
		rest = rest[next:]
	}
}

// has reports whether the stream may hold something in the log of a key.
func (s *stream) has(key string) bool {
	for k := range s.all {
		if string(k) == key {
			return true
		}
	}
	return false
}

// full reports whether the stream holds something in too many logs to hold something in the log
// of a key too.
func (s *stream) full(key string) bool { return s.logs >= maxStreamLogs && !s.has(key) }

// over reports whether the stream does not matter any more at the time now, in microseconds.
func (s *stream) over(now int64) bool { return s.until*1000 <= now }

// millisAt returns the time d after now, in milliseconds, rounded up. now is in microseconds.
func millisAt(now int64, d time.Duration) int64 { return (max(now, 0) + d.Microseconds() + 999) / 1000 }

// ofStream reports whether a log is what is known of a stream.
func (l *log) ofStream() bool { return l.name>>policyBits == name(streams) }

// weighStream fills c in with a stream's log.
func (c *candidate) weighStream(l *log, now int64) state {
	s, ok := readStream(l.packed)
	switch {
	case !ok || s.over(now):
		*c = candidate{log: l, limit: 1, last: math.MinInt64}
		return expired
	case !s.ended:
		return limiting
	}
	*c = candidate{log: l, used: 1, limit: noLimit, last: s.until}
	return free
}

// streamLog returns the id of a stream's log.
func streamLog(id window.StreamID) window.LogID {
	var key [streamIDLen]byte
	binary.BigEndian.PutUint64(key[:], uint64(id))
	return window.LogID{Key: string(key[:]), Policy: streams}
}

// A streamState is what deciding a group of a stream needs besides its checks.
type streamState struct {
	shard *shard // nil if the group has no stream
	id    window.LogID
	hash  uint32
	log   *log // nil if the stream is unknown
	known stream
}

func hasStream(checks []window.Check) bool {
	for i := range checks {
		if checks[i].Stream != 0 {
			return true
		}
	}
	return false
}

// placeStream finds the shard of the stream that a group has, and returns its bit. It returns
// zero if the group has none.
func (s *Store) placeStream(st *streamState, checks []window.Check, group []checkState) uint64 {
	for i := range checks {
		if checks[i].Stream == 0 || group[i].shard == nil {
			continue
		}
		st.id = streamLog(checks[i].Stream)
		shard, hash := s.shardOf(st.id)
		st.shard, st.hash = &s.shards[shard], hash
		return 1 << shard
	}
	return 0
}

// look reads what is known of the stream at the time now, in microseconds, and returns its log.
// It denies the checks whose stream has ended, and those of a stream that holds something in
// too many logs. It finds out in which logs the stream holds nothing, unless one check of the
// group may meet what another one has recorded.
func (st *streamState) look(checks []window.Check, group []checkState, now int64, unconditional bool) *log {
	if st.log = st.shard.find(st.id, st.hash); st.log != nil {
		st.known, _ = readStream(st.log.packed)
	}
	for i := range checks {
		c := &checks[i]
		if c.Stream == 0 {
			continue
		}
		group[i].fresh = !unconditional && !st.known.has(c.Key)
		if !st.known.over(now) && (st.known.ended || st.known.full(c.Key)) {
			group[i].ended = st.known.until
		}
	}
	return st.log
}

// need returns what remembering the checks that are to be charged takes.
func (st *streamState) need(checks []window.Check, group []checkState) (n need) {
	if st.shard == nil {
		return n
	}
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Stream != 0 && a.charged && a.ended == 0 && grows(c) && !st.known.has(c.Key) {
			n.bytes += int64(keySize + len(c.Key))
		}
	}
	if n.bytes > 0 && st.log == nil {
		n.add(need{1, logBytes + streamIDLen + atKeys})
	}
	return n
}

// record remembers the logs in which the stream holds something now.
func (st *streamState) record(checks []window.Check, group []checkState, now int64) {
	for i := range checks {
		c, a := &checks[i], &group[i]
		if c.Stream == 0 || a.shard == nil || !a.charged || a.ended > 0 || !a.state.Holds() {
			continue
		}
		until := millisAt(now, c.Limit.Window)
		if st.log == nil {
			st.log = st.shard.add(st.id, st.hash)
			st.log.limit = noLimit
		}
		packed := st.log.packed
		if known, ok := readStream(packed); !ok || known.ended {
			packed = make([]byte, atKeys)
		} else {
			until = max(until, known.until)
			if known.has(c.Key) {
				putHead(packed, kindStream, until)
				continue
			}
		}
		grown := make([]byte, 0, len(packed)+keySize+len(c.Key))
		grown = append(grown, packed...)
		grown = binary.BigEndian.AppendUint32(grown, uint32(len(c.Key)))
		grown = append(grown, c.Key...)
		putHead(grown, kindStream, until)
		st.shard.keep(st.log, grown)
	}
	if st.log != nil {
		st.shard.offerNew(st.log, now)
	}
}

// putHead writes what the bytes of a stream begin with. until is in milliseconds.
func putHead(b []byte, kind uint64, until int64) {
	binary.BigEndian.PutUint64(b, kind<<56|uint64(until))
}

// End implements [window.Ender]. It waits only for short locks. The errors are that of ctx,
// [window.ErrBadCheck] for the stream zero, and [ErrFull]: then everything is given back, but
// later checks of the stream are not denied.
func (s *Store) End(ctx context.Context, id window.StreamID, deny time.Duration) (held bool, err error) {
	if id == 0 {
		return false, fmt.Errorf("memstore: %w: an end of no stream", window.ErrBadCheck)
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("memstore: %w", err)
	}
	keys, err := s.noteEnd(id, min(deny, window.MaxWindow))
	for _, key := range keys {
		held = s.dropHold(key, id) || held
	}
	return held, err
}

// noteEnd notes that a stream has ended, and returns the keys of the logs in which it may hold
// something.
func (s *Store) noteEnd(id window.StreamID, deny time.Duration) (keys []string, err error) {
	name := streamLog(id)
	i, hash := s.shardOf(name)
	sh := &s.shards[i]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.clock().Microseconds()
	l := sh.find(name, hash)
	if l != nil {
		known, _ := readStream(l.packed)
		if known.ended && !known.over(now) {
			return nil, nil
		}
		keys = make([]string, 0, known.logs)
		for key := range known.all {
			keys = append(keys, string(key))
		}
	}
	if deny <= 0 {
		if l != nil {
			sh.remove(l)
		}
		return keys, nil
	}
	if l == nil {
		if err := sh.makeRoom(need{1, logBytes + streamIDLen + atKeys}, now, nil); err != nil {
			return keys, err
		}
		l = sh.add(name, hash)
		l.limit = noLimit
	}
	packed := make([]byte, atKeys)
	putHead(packed, kindEnded, millisAt(now, deny))
	sh.keep(l, packed)
	sh.offerNew(l, now)
	return keys, nil
}

// dropHold removes what a stream holds in a log, and reports whether it held something.
func (s *Store) dropHold(key string, id window.StreamID) (held bool) {
	c := window.Check{Key: key, Stream: id, Limit: window.Limit{Window: window.MinHold, Policy: window.InFlight}}
	var a checkState
	s.place(&a, &c)
	a.shard.mu.Lock()
	defer a.shard.mu.Unlock()
	if a.look(&c, s.clock().Microseconds()); a.log == nil {
		return false
	}
	held = a.state.End(0)
	if packed := a.state.Log(); packed != nil {
		a.shard.keep(a.log, packed)
	} else {
		a.shard.remove(a.log)
	}
	return held
}
