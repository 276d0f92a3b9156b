package memstore

import (
	"math"
	"math/bits"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// # Idempotency records
//
// The store keeps a [packed.OnceRecord] as one more log: its policy is onceRecords, and its key is that of
// the log that was charged. Its window is a digest of the rest of that log's name and of the id. So
// the bounds, the sweeper and the snapshot apply to it as to any log. It is never limiting, and the
// first to be dropped when room is short. Its retry is charged then.
//
// A group locks the shards of its idempotency records with those of its logs.
const onceRecords = streams + 1

// ofOnceRecord reports whether a log is an idempotency record.
func (l *log) ofOnceRecord() bool { return !l.ofStream() && l.name>>policyBits == name(onceRecords) }

// onceRecordName returns the name of the idempotency record of a charge of the log with a name.
func onceRecordName(of name, id uint64) name {
	high, low := bits.Mul64(id^uint64(of)*golden, golden)
	return name(onceRecords)<<policyBits | name((high^low)>>(64-policyBits))
}

// weighOnceRecord fills c in with an idempotency record.
func (c *candidate) weighOnceRecord(l *log, now int64) state {
	if r, ok := packed.ReadOnceRecord(l.packed); ok && r.Lives(now) {
		*c = candidate{log: l, used: 1, limit: math.MaxUint64, last: r.Ends}
		return free
	}
	*c = candidate{log: l, limit: 1, last: math.MinInt64}
	return expired
}

// An onceRecord is what deciding a check with [window.Check.Once] needs besides.
type onceRecord struct {
	shard *shard // nil if the check has none
	name  name
	hash  uint32
	saved packed.OnceRecord
	log   *log // nil if there is none
	used  bool // the check is a repeat, and the group is allowed
}

// onceRecordsOf finds the shards of the idempotency records of a group, and returns their bits.
func (s *Store) onceRecordsOf(more *extra, checks []window.Check, group []checkState) (touched uint64) {
	for i := range checks {
		c, a := &checks[i], &group[i]
		if !c.RecordsOnce() || a.shard == nil {
			continue
		}
		if more.onceRecords == nil {
			more.onceRecords = make([]onceRecord, len(checks))
		}
		r := &more.onceRecords[i]
		r.name = onceRecordName(a.name, c.Once.ID)
		shard, hash := s.shardOf(window.LogID{Key: c.Key, Window: r.name.window(), Policy: onceRecords})
		r.shard, r.hash = &s.shards[shard], hash
		touched |= 1 << shard
	}
	return touched
}

// lookOnceRecords reads the idempotency records of a group at the time now, in microseconds. Which checks are
// repeats is then in group, and the logs of the idempotency records in pins.
func (more *extra) lookOnceRecords(checks []window.Check, group, pins []checkState, now int64) {
	for i := range more.onceRecords {
		r, c := &more.onceRecords[i], &checks[i]
		if r.shard == nil {
			continue
		}
		if r.log = r.shard.lookUp(c.Key, r.name, r.hash); r.log == nil {
			continue
		}
		pins[i].log = r.log
		r.saved, _ = packed.ReadOnceRecord(r.log.packed)
		group[i].paid = r.saved.Covers(c, now)
	}
}

// settle takes repeats out of what is to be charged.
func (more *extra) settle(group []checkState) {
	for i := range more.onceRecords {
		if a := &group[i]; a.paid {
			more.onceRecords[i].used, a.charged = a.charged, false
		}
	}
}

// needOnceRecords returns the bytes that the idempotency records of a group take in a shard.
func (more *extra) needOnceRecords(checks []window.Check, group []checkState, sh *shard) (n int64) {
	for i := range more.onceRecords {
		if r := &more.onceRecords[i]; r.shard == sh && r.log == nil && group[i].charged {
			n += onceRecordSize(&checks[i])
		}
	}
	return n
}

// onceRecordSize returns the bytes that the idempotency record of a check takes.
func onceRecordSize(c *window.Check) int64 {
	return logBytes + int64(len(c.Key)+packed.OnceRecordBytes(c.Cost))
}

// writeOnceRecords writes the idempotency records of what a group has charged, and counts its repeats.
func (more *extra) writeOnceRecords(checks []window.Check, group []checkState, now int64) {
	for i := range more.onceRecords {
		r, a := &more.onceRecords[i], &group[i]
		switch {
		case r.shard == nil:
			continue
		case r.used:
			r.saved.Repeats++
		case a.charged && !r.saved.Lives(now):
			r.saved = packed.NewOnceRecord(&checks[i], now)
		default:
			continue
		}
		if r.log == nil {
			r.log = r.shard.add(window.LogID{Key: checks[i].Key, Window: r.name.window(), Policy: onceRecords}, r.hash)
			r.log.limit = noLimit
		}
		if size := packed.OnceRecordBytes(r.saved.Cost); len(r.log.packed) != size {
			r.shard.keep(r.log, make([]byte, size))
		}
		r.saved.Put(r.log.packed)
		r.shard.offerNew(r.log, now)
	}
}
