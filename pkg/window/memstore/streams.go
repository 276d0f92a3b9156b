package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore/internal/streamrecord"
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
// Its bytes are those of package streamrecord.
//
// A group locks the shard of its stream with those of its logs. End locks the stream's shard
// first and notes the end. From then on no check of the stream is allowed. So End can remove
// the holds afterwards, one log at a time.
const (
	streams window.Policy = window.InFlight + 1

	streamIDLen = 8

	// maxSpares is the most logs of streams that a shard keeps for the next streams, and
	// maxSpareBytes the most bytes of one of them: a few kilobytes in all.
	maxSpares     = 16
	maxSpareBytes = 144
)

var _ window.ReadyReleaser = (*Store)(nil)

// ofStream reports whether a log is the record of a stream.
func (l *log) ofStream() bool { return l.key == "" }

// weighStream fills c in with a stream's log.
func (c *candidate) weighStream(l *log, now int64) state {
	s, ok := streamrecord.Read(l.packed)
	switch {
	case !ok || s.Over(now):
		*c = candidate{log: l, limit: 1, last: math.MinInt64}
		return expired
	case !s.Ended:
		return limiting
	}
	*c = candidate{log: l, used: 1, limit: math.MaxUint64, last: s.Until}
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

// A smallStream is the log of a stream with its bytes, in one allocation, and a largeStream that of a budget.
type (
	smallStream struct {
		log
		room [48]byte
	}
	largeStream struct {
		log
		room [144]byte
	}
)

// addStream makes a log of this many bytes for the record of a stream.
func (sh *shard) addStream(id window.StreamID, hash uint32, size int) *log {
	l, n := sh.spare.first, streamBytes(size)
	switch {
	case l != nil:
		sh.spare.first = l.next
		sh.spare.count--
	case n <= len(smallStream{}.room):
		both := new(smallStream)
		l, both.packed = &both.log, both.room[:n:n]
	case n <= len(largeStream{}.room):
		both := new(largeStream)
		l, both.packed = &both.log, both.room[:n:n]
	default:
		l = new(log)
	}
	if cap(l.packed) != n {
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
	known streamrecord.Record
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
		if h := &more.reserved[i]; group[i].reserved != nil {
			h.find(&group[i], &checks[i])
			group[len(checks)+1+i].log = h.log
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
		st.known, _ = streamrecord.Read(st.log.packed)
	}
}

// inform gives a check of the stream what is known at the time now, in microseconds: when its hold
// in the log ends, and until when the stream is denied, because it has ended or holds something in too many logs.
func (st *streamState) inform(c *window.Check, a *checkState, now int64) {
	if a.holdEnds = packed.NoHold; st.log == nil {
		return
	}
	a.holdEnds = st.known.Ends(c)
	if !st.known.Over(now) && (st.known.Ended || st.known.Full(c)) {
		a.ended = st.known.Until
	}
}

// lookAll is look and inform for all checks of a group. It returns the log of the stream. If the
// modes of the group are unconditional, a check may find what another one has recorded.
func (st *streamState) lookAll(checks []window.Check, group []checkState, now int64, unconditional bool) *log {
	st.look()
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Stream != 0 {
			if st.inform(c, a, now); unconditional {
				a.holdEnds = 0
			}
		}
	}
	return st.log
}

// fits reports whether there is room for the most that recording one check takes.
func (st *streamState) fits(c *window.Check, a *checkState) bool {
	if st.log != nil {
		return false // rare, and makeRoom counts it
	}
	mine, streams := a.most(c), logBytes+int64(streamBytes(streamrecord.HeadBytes+streamrecord.EntrySize(c)))
	if a.reserved != nil {
		mine += a.reserved.need(c)
	}
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
		if c, a := &checks[i], &group[i]; c.Stream != 0 && a.charged && a.ended == 0 && grows(c) && st.known.Ends(c) == packed.NoHold {
			n += int64(streamrecord.EntrySize(c))
		}
	}
	if n > 0 && st.log == nil {
		n = int64(streamBytes(int(n + logBytes + streamrecord.HeadBytes)))
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
	ends, until := int64(0), streamrecord.MillisAt(now, c.Limit.Window)
	holds := &a.state
	if a.reserved != nil {
		holds = &a.reserved.state.State
		ends, until = a.reserved.state.Until()
	}
	if a.ended > 0 || !holds.Holds() {
		return
	}
	size := streamrecord.HeadBytes + streamrecord.EntrySize(c)
	if st.log == nil {
		st.log = st.shard.addStream(st.id, st.hash, size)
		streamrecord.Append(st.log.packed[:streamrecord.HeadBytes], c, ends)
		streamrecord.PutHead(st.log.packed, streamrecord.Holding, until)
		st.shard.offerNew(st.log, now)
		return
	}
	var keys []byte
	if known, ok := streamrecord.Read(st.log.packed); ok && !known.Ended {
		until = max(until, known.Until)
		if known.Ends(c) != packed.NoHold {
			streamrecord.PutHead(st.log.packed, streamrecord.Holding, until)
			return
		}
		keys = known.Keys
	}
	grown := make([]byte, streamrecord.HeadBytes, size+len(keys))
	grown = streamrecord.Append(append(grown, keys...), c, ends)
	streamrecord.PutHead(grown, streamrecord.Holding, until)
	st.shard.keep(st.log, grown)
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
	if len(end.Costs) == 0 && !in.Reserved {
		for len(in.Keys) > 0 {
			var l streamrecord.Entry
			l, in = in.Cut()
			settled.Released = s.dropHold(&l, end.Stream) || settled.Released
		}
		return settled, err
	}
	settled, failed := s.settleAll(&end, in)
	if err == nil && failed != nil {
		err = fmt.Errorf("memstore: %w", failed)
	}
	return settled, err
}

// EndsAtOnce implements [window.ReadyReleaser].
func (*Store) EndsAtOnce() {}

// noteEnd notes that a stream has ended, and returns the logs in which it may hold something.
// Their keys are appended to buf. again says that the stream had ended before, and is denied.
func (s *Store) noteEnd(end *window.Ending, buf []byte) (in streamrecord.Record, again bool, err error) {
	id, deny := end.Stream, min(end.Deny, window.MaxWindow)
	i, hash := s.shardOfStream(id)
	sh := &s.shards[i]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.clock().Microseconds()
	l := sh.stream(id, hash)
	if l != nil {
		if in, _ = streamrecord.Read(l.packed); in.Ended && !in.Over(now) {
			return streamrecord.Record{}, true, nil
		}
		in.Keys = append(buf, in.Keys...)
	}
	if len(end.Costs) > 0 && !end.Denied || in.Reserved {
		deny = max(deny, window.MinSettled)
	}
	if deny <= 0 {
		if l != nil {
			sh.remove(l)
		}
		return in, false, nil
	}
	if l == nil {
		if err := sh.makeRoom(logBytes+int64(streamBytes(streamrecord.HeadBytes)), now, nil); err != nil {
			return in, false, err
		}
		l = sh.addStream(id, hash, streamrecord.HeadBytes)
	} else if l.packed = l.packed[:streamrecord.HeadBytes]; cap(l.packed) > maxSpareBytes {
		sh.keep(l, make([]byte, streamrecord.HeadBytes))
	}
	streamrecord.PutHead(l.packed, streamrecord.Ended, streamrecord.MillisAt(now, deny))
	sh.offerNew(l, now)
	return in, false, nil
}

// dropHold removes the hold of a stream from a log, and reports whether there was one.
func (s *Store) dropHold(of *streamrecord.Entry, id window.StreamID) (released bool) {
	n := kind(of.Scope, window.InFlight)
	i, hash := s.spread(maphash.Bytes(s.seed, of.Key) + uint64(n)*golden)
	sh := &s.shards[i]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for l := *sh.at(hash); l != nil; l = l.next {
		if l.hash == hash && l.name == n && l.key == string(of.Key) {
			return sh.endHold(l, id, of.Ends, s.clock().Microseconds())
		}
	}
	return false
}

// endHold removes what a stream holds in a log at the time now, in microseconds, and the log if
// that was all. The hold probably ends at ends.
func (sh *shard) endHold(l *log, id window.StreamID, ends, now int64) (released bool) {
	var st packed.State
	st.LookHold(l.packed, now, &window.Check{Stream: id, Limit: window.Limit{Window: window.MinHold, Policy: window.InFlight}}, ends)
	released = st.End(0)
	if packed := st.Log(); packed != nil {
		sh.keep(l, packed)
	} else {
		sh.remove(l)
	}
	return released
}
