package memstore

import (
	"math"
	"math/bits"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// # Receipts
//
// The store keeps a [packed.Receipt] as one more log: its policy is receipts, and its key is that of
// the log that was charged. Its window is a digest of the rest of that log's name and of the id. So
// the bounds, the sweeper and the snapshot apply to it as to any log. It is never limiting, and the
// first to be dropped when room is short. Its retry is charged then.
//
// A group locks the shards of its receipts with those of its logs.
const receipts = streams + 1

// ofReceipt reports whether a log is a receipt.
func (l *log) ofReceipt() bool { return l.name>>policyBits == name(receipts) }

// receiptName returns the name of the receipt of a charge of the log with a name.
func receiptName(of name, id uint64) name {
	high, low := bits.Mul64(id^uint64(of)*golden, golden)
	return name(receipts)<<policyBits | name((high^low)>>(64-policyBits))
}

// weighReceipt fills c in with a receipt.
func (c *candidate) weighReceipt(l *log, now int64) state {
	if r, ok := packed.ReadReceipt(l.packed); ok && r.Lives(now) {
		*c = candidate{log: l, used: 1, limit: noLimit, last: r.Ends}
		return free
	}
	*c = candidate{log: l, limit: 1, last: math.MinInt64}
	return expired
}

// A receipt is what deciding a check with [window.Check.Once] needs besides.
type receipt struct {
	shard *shard // nil if the check has none
	name  name
	hash  uint32
	held  packed.Receipt
	log   *log // nil if there is none
	used  bool // the check is a repeat, and the group is allowed
}

// receiptsOf finds the shards of the receipts of a group, and returns their bits.
func (s *Store) receiptsOf(more *extra, checks []window.Check, group []checkState) (touched uint64) {
	for i := range checks {
		c, a := &checks[i], &group[i]
		if !c.Receipts() || a.shard == nil {
			continue
		}
		if more.receipts == nil {
			more.receipts = make([]receipt, len(checks))
		}
		r := &more.receipts[i]
		r.name = receiptName(a.name, c.Once.ID)
		shard, hash := s.shardOf(window.LogID{Key: c.Key, Window: r.name.window(), Policy: receipts})
		r.shard, r.hash = &s.shards[shard], hash
		touched |= 1 << shard
	}
	return touched
}

// lookReceipts reads the receipts of a group at the time now, in microseconds. Which checks are
// repeats is then in group, and the logs of the receipts in pins.
func (more *extra) lookReceipts(checks []window.Check, group, pins []checkState, now int64) {
	for i := range more.receipts {
		r, c := &more.receipts[i], &checks[i]
		if r.shard == nil {
			continue
		}
		if r.log = r.shard.lookUp(c.Key, r.name, r.hash); r.log == nil {
			continue
		}
		pins[i].log = r.log
		r.held, _ = packed.ReadReceipt(r.log.packed)
		group[i].paid = r.held.Covers(c, now)
	}
}

// settle takes repeats out of what is to be charged.
func (more *extra) settle(group []checkState) {
	for i := range more.receipts {
		if a := &group[i]; a.paid {
			more.receipts[i].used, a.charged = a.charged, false
		}
	}
}

// needReceipts returns the bytes that the receipts of a group take in a shard.
func (more *extra) needReceipts(checks []window.Check, group []checkState, sh *shard) (n int64) {
	for i := range more.receipts {
		if r := &more.receipts[i]; r.shard == sh && r.log == nil && group[i].charged {
			n += receiptSize(checks[i].Key)
		}
	}
	return n
}

// receiptSize returns the bytes that a receipt of a log with a key takes.
func receiptSize(key string) int64 { return logBytes + int64(len(key)) + packed.ReceiptBytes }

// recordReceipts writes the receipts of what a group has charged, and counts its repeats.
func (more *extra) recordReceipts(checks []window.Check, group []checkState, now int64) {
	for i := range more.receipts {
		r, a := &more.receipts[i], &group[i]
		switch {
		case r.shard == nil:
			continue
		case r.used:
			r.held.Repeats++
		case a.charged && !r.held.Lives(now):
			r.held = packed.NewReceipt(&checks[i], now)
		default:
			continue
		}
		if r.log == nil {
			r.log = r.shard.add(window.LogID{Key: checks[i].Key, Window: r.name.window(), Policy: receipts}, r.hash)
			r.log.limit = noLimit
			r.shard.keep(r.log, make([]byte, packed.ReceiptBytes))
		}
		r.held.Put(r.log.packed)
		r.shard.offerNew(r.log, now)
	}
}
