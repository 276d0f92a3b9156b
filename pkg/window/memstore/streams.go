package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore/internal/terms"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// # Streams
//
// The store remembers in which logs a stream holds something, so that End finds them, and which
// streams have ended. It keeps that as one more log for each stream: its policy is streams, and its
// key is the stream's id, eight bytes, which the table keeps as a name without a key. So the
// bounds, the sweeper and the snapshot apply to it as to any log. While the stream may hold something, the log is limiting. After
// the end it is the first to be dropped when room is short.
//
// Its bytes, big-endian:
//
//	0  kind   1   0xA6 while the stream may hold something, 0xA7 after its end
//	1  until  7   milliseconds of the store's clock, rounded up: the end of the last hold, or
//	              until when the stream is denied
//	8  logs   each: its scope 1, its policy 1, the length of its key 4, its key, and of a budget [terms.Append]
//
// A group locks the shard of its stream with those of its logs. End locks the stream's shard
// first and notes the end. From then on no check of the stream is allowed. So End can remove
// the holds afterwards, one log at a time.
const (
	streams window.Policy = window.InFlight + 1

	kindStream = 0xA6
	kindEnded  = 0xA7

	atKeys      = 8
	keySize     = 6 // the scope, the policy, and the length of a key
	streamIDLen = 8

	// maxStreamLogs is the most logs in which one stream holds something. In a further one it
	// has no room.
	maxStreamLogs = 192

	// maxSpares is the most logs of streams that a shard keeps for the next streams, and
	// maxSpareBytes the most bytes of one of them: a few kilobytes in all.
	maxSpares     = 16
	maxSpareBytes = 128
)

var _ window.Releaser = (*Store)(nil)

// A stream is what the store remembers of a stream. It refers to the bytes of its log.
type stream struct {
	ended    bool
	until    int64 // milliseconds
	keys     []byte
	logs     int  // the number of keys
	reserved bool // one is that of a budget
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
		if len(rest) < keySize || window.Policy(rest[1]) > window.InFlight || uint64(len(rest)) < entryBytes(rest) {
			return stream{}, false
		}
		s.reserved = s.reserved || window.Policy(rest[1]) != window.InFlight
		rest = rest[entryBytes(rest):]
	}
	return s, true
}

// entryBytes returns the length of the entry of a log, by its beginning.
func entryBytes(b []byte) uint64 {
	n := keySize + uint64(binary.BigEndian.Uint32(b[2:]))
	if window.Policy(b[1]) != window.InFlight {
		n += terms.Bytes
	}
	return n
}

// entrySize returns the length of the entry of a check's log.
func entrySize(c *window.Check) int {
	if c.Budget != nil {
		return keySize + len(c.Key) + terms.Bytes
	}
	return keySize + len(c.Key)
}

// A streamEntry is a log in which a stream may hold something.
type streamEntry struct {
	scope      window.Scope
	policy     window.Policy
	key, terms []byte
}

// cutEntry returns the first of the logs in which a stream may hold something, and the others. keys are not
// empty.
func cutEntry(keys []byte) (l streamEntry, rest []byte) {
	next, key := entryBytes(keys), keySize+binary.BigEndian.Uint32(keys[2:])
	return streamEntry{window.Scope(keys[0]), window.Policy(keys[1]), keys[keySize:key], keys[key:next]}, keys[next:]
}

// is reports whether the log is that of a check.
func (l *streamEntry) is(c *window.Check) bool {
	return l.scope == c.Scope && l.policy == c.Limit.Policy && string(l.key) == c.Key &&
		(l.policy == window.InFlight || binary.BigEndian.Uint64(l.terms) == uint64(c.Limit.Window))
}

// has reports whether the stream may hold something in the log of a check.
func (s *stream) has(c *window.Check) bool {
	for rest := s.keys; len(rest) > 0; {
		var l streamEntry
		if l, rest = cutEntry(rest); l.is(c) {
			return true
		}
	}
	return false
}

// full reports whether the stream holds something in too many logs to hold something in the log
// of a check too.
func (s *stream) full(c *window.Check) bool { return s.logs >= maxStreamLogs && !s.has(c) }

// over reports whether the stream does not matter any more at the time now, in microseconds.
func (s *stream) over(now int64) bool { return s.until*1000 <= now }

// millisAt returns the time d after now, in milliseconds, rounded up. now is in microseconds.
func millisAt(now int64, d time.Duration) int64 { return (max(now, 0) + d.Microseconds() + 999) / 1000 }

// ofStream reports whether a log is the record of a stream.
func (l *log) ofStream() bool { return l.key == "" }

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
	*c = candidate{log: l, used: 1, limit: math.MaxUint64, last: s.until}
	return free
}

// streamLog returns the id of a stream's log, and streamOf the stream of such an id.
func streamLog(id window.StreamID) window.LogID {
	var key [streamIDLen]byte
	binary.BigEndian.PutUint64(key[:], uint64(id))
	return window.LogID{Key: string(key[:]), Policy: streams}
}

func streamOf(id window.LogID) window.StreamID {
	var key [streamIDLen]byte
	copy(key[:], id.Key)
	return window.StreamID(binary.BigEndian.Uint64(key[:]))
}

// shardOfStream is [Store.shardOf] for the record of a stream. The stream's id is a digest, so
// a product is enough of a hash.
func (s *Store) shardOfStream(id window.StreamID) (uint, uint32) {
	high, low := bits.Mul64(uint64(id)^s.key, golden)
	return s.spread(high ^ low)
}

// stream returns the record of a stream, or nil.
func (sh *shard) stream(id window.StreamID, hash uint32) *log { return sh.lookUp("", name(id), hash) }

// streamBytes returns the capacity for a record of this size: what the allocator gives anyway,
// so that the next stream can use them too.
func streamBytes(size int) int { return (size + 15) / 16 * 16 }

// addStream makes a log of this many bytes for the record of a stream.
func (sh *shard) addStream(id window.StreamID, hash uint32, size int) *log {
	l := sh.spare.first
	if l == nil {
		l = new(log)
	} else {
		sh.spare.first = l.next
		sh.spare.count--
	}
	if n := streamBytes(size); cap(l.packed) != n {
		l.packed = make([]byte, n)
	}
	l.packed = l.packed[:size]
	l.name, l.hash, l.limit = name(id), hash, noLimit
	sh.link(l)
	sh.added(l)
	return l
}

// reuse keeps the log of a stream for the next stream.
func (sh *shard) reuse(l *log) {
	if sh.spare.count < maxSpares && cap(l.packed) <= maxSpareBytes {
		l.next, sh.spare.first = sh.spare.first, l
		sh.spare.count++
	}
}

// A streamState is what deciding a group of a stream needs besides its checks.
type streamState struct {
	shard *shard // nil if the group has no stream
	id    window.StreamID
	hash  uint32
	log   *log // nil if the stream is unknown
	known stream
}

// needsMore reports whether a group has a stream, which a budget needs too, or an idempotency record.
func needsMore(checks []window.Check) bool {
	for i := range checks {
		if checks[i].Stream != 0 || checks[i].RecordsOnce() {
			return true
		}
	}
	return false
}

// An extra is what deciding a group needs that has a stream or idempotency records.
type extra struct {
	flight      streamState
	onceRecords []onceRecord  // one for each check; nil: the group has none
	reserved    []reservedLog // likewise
	scratch     *scratch      // has reserved
}

// look reads the records of the stream and of the idempotency keys of a group, at the time now in
// microseconds. group has their logs after its checks.
func (more *extra) look(checks []window.Check, group []checkState, now int64, unconditional bool) {
	if more.flight.shard != nil {
		group[len(checks)].log = more.flight.lookAll(checks, group, now, unconditional)
	}
	more.lookOnceRecords(checks, group, group[len(checks)+1:], now)
	for i := range more.reserved {
		if h := &more.reserved[i]; h.shard != nil {
			group[len(checks)+1+i].log = h.shard.find(h.id, h.hash)
		}
	}
}

// record remembers what a group has charged.
func (more *extra) record(checks []window.Check, group []checkState, now int64) {
	if more.flight.shard != nil {
		more.flight.recordAll(checks, group, now)
	}
	more.writeOnceRecords(checks, group, now)
}

// locateStreamOf finds the shard of the stream that a group has, and returns its bit. It returns
// zero if the group has none.
func (s *Store) locateStreamOf(st *streamState, checks []window.Check, group []checkState) uint64 {
	for i := range checks {
		if checks[i].Stream != 0 && group[i].shard != nil {
			st.id = checks[i].Stream
			return s.locateStream(st)
		}
	}
	return 0
}

// locateStream finds the shard of a stream, and returns its bit.
func (s *Store) locateStream(st *streamState) uint64 {
	shard, hash := s.shardOfStream(st.id)
	st.shard, st.hash = &s.shards[shard], hash
	return 1 << shard
}

// look reads the record of the stream.
func (st *streamState) look() {
	if st.log = st.shard.stream(st.id, st.hash); st.log != nil {
		st.known, _ = readStream(st.log.packed)
	}
}

// inform gives a check of the stream what is known at the time now, in microseconds: whether its log
// holds nothing of the stream, and until when the stream is denied, because it has ended or holds
// something in too many logs.
func (st *streamState) inform(c *window.Check, a *checkState, now int64) {
	if a.fresh = true; st.log == nil {
		return
	}
	a.fresh = !st.known.has(c)
	if !st.known.over(now) && (st.known.ended || st.known.full(c)) {
		a.ended = st.known.until
	}
}

// lookAll is look and inform for all checks of a group. It returns the log of the stream. If the
// modes of the group are unconditional, a check may find what another one has recorded.
func (st *streamState) lookAll(checks []window.Check, group []checkState, now int64, unconditional bool) *log {
	st.look()
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Stream != 0 {
			st.inform(c, a, now)
			a.fresh = a.fresh && !unconditional
		}
	}
	return st.log
}

// fits reports whether there is room for the most that recording one check takes.
func (st *streamState) fits(c *window.Check, a *checkState) bool {
	if st.log != nil {
		return false // rare, and makeRoom counts it
	}
	mine, streams := a.most(c), logBytes+int64(streamBytes(atKeys+entrySize(c)))
	if a.shard == st.shard {
		return a.shard.within(a.shard.easy, mine+streams)
	}
	return a.shard.within(a.shard.easy, mine) && st.shard.within(st.shard.easy, streams)
}

// need returns the bytes that remembering the checks that are to be charged takes.
func (st *streamState) need(checks []window.Check, group []checkState) (n int64) {
	if st.shard == nil {
		return n
	}
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Stream != 0 && a.charged && a.ended == 0 && grows(c) && !st.known.has(c) {
			n += int64(entrySize(c))
		}
	}
	if n > 0 && st.log == nil {
		n = int64(streamBytes(int(n + logBytes + atKeys)))
	}
	return n
}

// recordAll is record for all checks of a group.
func (st *streamState) recordAll(checks []window.Check, group []checkState, now int64) {
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Stream != 0 && a.shard != nil && a.charged {
			st.record(c, a, now)
		}
	}
}

// record remembers the log of a check, if the stream holds something there now. now is in
// microseconds.
func (st *streamState) record(c *window.Check, a *checkState, now int64) {
	until := millisAt(now, c.Limit.Window)
	holds := &a.state
	if a.reserved != nil {
		holds, until = &a.reserved.state.State, a.reserved.state.Until()
	}
	if a.ended > 0 || !holds.Holds() {
		return
	}
	size := atKeys + entrySize(c)
	if st.log == nil {
		st.log = st.shard.addStream(st.id, st.hash, size)
		appendLog(st.log.packed[:atKeys], c)
		putHead(st.log.packed, kindStream, until)
		st.shard.offerNew(st.log, now)
		return
	}
	var keys []byte
	if known, ok := readStream(st.log.packed); ok && !known.ended {
		until = max(until, known.until)
		if known.has(c) {
			putHead(st.log.packed, kindStream, until)
			return
		}
		keys = known.keys
	}
	grown := make([]byte, atKeys, size+len(keys))
	grown = appendLog(append(grown, keys...), c)
	putHead(grown, kindStream, until)
	st.shard.keep(st.log, grown)
}

// appendLog appends the log of a check, in which a stream holds something.
func appendLog(b []byte, c *window.Check) []byte {
	b = append(binary.BigEndian.AppendUint32(append(b, byte(c.Scope), byte(c.Limit.Policy)), uint32(len(c.Key))), c.Key...)
	if c.Budget != nil {
		return terms.Append(b, c)
	}
	return b
}

// putHead writes what the bytes of a stream begin with. until is in milliseconds.
func putHead(b []byte, kind uint64, until int64) {
	binary.BigEndian.PutUint64(b, kind<<56|uint64(until))
}

// End implements [window.Releaser]. It waits only for short locks. The errors are that of ctx,
// [window.ErrBadCheck] for an invalid ending, and [ErrFull]: then all requests in flight are given back, but
// later checks of the stream may not be denied, and reservations may stay until they expire.
func (s *Store) End(ctx context.Context, end window.Ending) (settled window.Settled, err error) {
	if err := end.Valid(); err != nil {
		return settled, fmt.Errorf("memstore: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return settled, fmt.Errorf("memstore: %w", err)
	}
	var buf [maxSpareBytes]byte
	in, again, err := s.noteEnd(&end, buf[:0])
	if again {
		return settled, nil
	}
	if len(end.Costs) == 0 && !in.reserved {
		for rest := in.keys; len(rest) > 0; {
			var l streamEntry
			l, rest = cutEntry(rest)
			settled.Released = s.dropHold(l.scope, l.key, end.Stream) || settled.Released
		}
		return settled, err
	}
	settled, failed := s.settleAll(end, in.keys)
	if err == nil && failed != nil {
		err = fmt.Errorf("memstore: %w", failed)
	}
	return settled, err
}

// noteEnd notes that a stream has ended, and returns the logs in which it may hold something.
// Their keys are appended to buf. again says that the stream had ended before, and is denied.
func (s *Store) noteEnd(end *window.Ending, buf []byte) (in stream, again bool, err error) {
	id, deny := end.Stream, min(end.Deny, window.MaxWindow)
	i, hash := s.shardOfStream(id)
	sh := &s.shards[i]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.clock().Microseconds()
	l := sh.stream(id, hash)
	if l != nil {
		known, _ := readStream(l.packed)
		if known.ended && !known.over(now) {
			return stream{}, true, nil
		}
		in.keys, in.reserved = append(buf, known.keys...), known.reserved
	}
	if len(end.Costs) > 0 && !end.Denied || in.reserved {
		deny = max(deny, window.MinSettled)
	}
	if deny <= 0 {
		if l != nil {
			sh.remove(l)
		}
		return in, false, nil
	}
	if l == nil {
		if err := sh.makeRoom(logBytes+int64(streamBytes(atKeys)), now, nil); err != nil {
			return in, false, err
		}
		l = sh.addStream(id, hash, atKeys)
	} else if l.packed = l.packed[:atKeys]; cap(l.packed) > maxSpareBytes {
		sh.keep(l, make([]byte, atKeys))
	}
	putHead(l.packed, kindEnded, millisAt(now, deny))
	sh.offerNew(l, now)
	return in, false, nil
}

// dropHold removes the hold of a stream from a log, and reports whether there was one.
func (s *Store) dropHold(scope window.Scope, key []byte, id window.StreamID) (released bool) {
	n := kind(scope, window.InFlight)
	i, hash := s.spread(maphash.Bytes(s.seed, key) + uint64(n)*golden)
	sh := &s.shards[i]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for l := *sh.at(hash); l != nil; l = l.next {
		if l.hash == hash && l.name == n && l.key == string(key) {
			return sh.endHold(l, id, s.clock().Microseconds())
		}
	}
	return false
}

// endHold removes what a stream holds in a log at the time now, in microseconds, and the log if
// that was all.
func (sh *shard) endHold(l *log, id window.StreamID, now int64) (released bool) {
	var st packed.State
	st.Look(l.packed, now, &window.Check{Stream: id, Limit: window.Limit{Window: window.MinHold, Policy: window.InFlight}})
	released = st.End(0)
	if packed := st.Log(); packed != nil {
		sh.keep(l, packed)
	} else {
		sh.remove(l)
	}
	return released
}
