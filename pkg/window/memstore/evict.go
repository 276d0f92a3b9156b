package memstore

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// # Making room
//
// To find the least used log of a shard, a call would have to look at all logs. Instead
// the shard has a hand that goes round over its buckets, and keeps the best candidates
// that it finds. A call that needs room moves the hand a little and drops the best
// candidate. Two things make that safe:
//
//   - A new log is a candidate too, before the next one is made. So a caller that invents
//     keys evicts, from its second key on, one of its own logs before any log of which
//     more is used.
//   - The shard counts how many buckets behind the hand hold no log that may go, except
//     candidates. A call is refused only if that is all buckets and no candidate is left.
//
// No call waits for a whole round of the hand, because the hand starts early. The last
// 1/32 of a shard's part of the bound is filled only while the hand finds no candidate. With every
// call it moves so far that it has gone round once when that part is used up.

const (
	// slackPart is the fraction of its bound that a shard keeps free while there are
	// logs that may go.
	slackPart = 32
	// step is how far the hand moves at a time to find candidates. That is about ten logs
	// in a full table, and all 64 buckets of an empty one.
	step = 96
	// maxCandidates is the most candidates that a shard remembers.
	maxCandidates = 8
)

// usual returns how far a shard is filled while there are logs that may go.
func usual(limit int64) int64 { return limit - limit/slackPart }

// within reports whether a shard has room for n bytes more.
func (sh *shard) within(limit, n int64) bool { return sh.bytes <= limit-n }

// grows reports whether a check may make its log larger.
func grows(c *window.Check) bool { return c.Cost > 0 && c.Mode != window.Refund }

// most returns the most bytes that recording a check takes. A log grows by at most a quarter and
// a header: TestGrowth holds package packed to it.
func (a *checkState) most(c *window.Check) int64 {
	if !grows(c) {
		return 0
	}
	const growth = 160
	if a.log == nil {
		return logBytes + int64(len(c.Key)) + growth
	}
	return growth + int64(cap(a.log.packed))/4
}

// fits reports whether there is room for the most that recording a check takes.
func (a *checkState) fits(c *window.Check) bool {
	return a.shard.within(a.shard.easy, a.most(c))
}

// need returns the bytes that recording a check takes. look must have been called.
func (a *checkState) need(c *window.Check) int64 {
	if !grows(c) {
		return 0
	}
	growth := int64(a.state.Growth(c))
	if a.log == nil && growth > 0 {
		return logBytes + int64(len(c.Key)) + growth
	}
	return growth
}

// makeRoom makes room for all checks of a group that are to be charged. If it cannot, the
// error wraps ErrFull. The caller holds the locks of the shards.
func (s *Store) makeRoom(checks []window.Check, group []checkState, more *extra, touched uint64, now int64) error {
	var streams int64
	if more != nil {
		streams = more.flight.need(checks, group)
	}
	most := streams
	for i := range checks {
		if a := &group[i]; a.shard != nil && a.charged {
			most += a.most(&checks[i])
			if checks[i].RecordsOnce() {
				most += onceRecordSize(&checks[i])
			}
			if a.reserved != nil {
				most += a.reserved.need(&checks[i])
			}
		}
	}
	for ; touched != 0; touched &= touched - 1 {
		sh := &s.shards[bits.TrailingZeros64(touched)]
		if sh.within(sh.easy, most) {
			continue
		}
		var n, exchanged int64
		if more != nil {
			if n = more.needOnceRecords(checks, group, sh) + more.needReserved(checks, group, sh); sh == more.flight.shard {
				n += streams
			}
		}
		for j := range checks {
			if a := &group[j]; a.shard == sh && a.charged {
				m := a.need(&checks[j])
				if sh.owned == nil || m == 0 || !sh.over(sh.owned.owner(checks[j].Key), m) {
					n += m
					continue
				}
				if err := sh.exchange(checks[j].Key, m, now, group); err != nil {
					return err
				}
				exchanged += m
			}
		}
		if n == 0 {
			continue // as much is free as was
		}
		n += exchanged
		if err := sh.makeRoom(n, now, group); err != nil {
			return err
		}
	}
	return nil
}

// A tooLarge is the ErrFull of a call whose logs alone need more than the bound of their
// shard.
type tooLarge struct{ all, bound int64 }

func (e *tooLarge) Error() string {
	return fmt.Sprintf("memstore: the logs of one request would take %d bytes where %d fit at most: raise max_bytes, or give a large limit a precision", e.all, e.bound)
}

func (e *tooLarge) Unwrap() error { return ErrFull }

// groupBytes returns the bytes that the logs of a group take in a shard.
func (sh *shard) groupBytes(group []checkState) (n int64) {
	for i := range group {
		if l := group[i].log; l != nil && group[i].shard == sh && !pinned(group[:i], l) {
			n += l.size()
		}
	}
	return n
}

// makeRoomOf is makeRoom for one log, of the key's owner.
func (sh *shard) makeRoomOf(key string, n, now int64, group []checkState) error {
	if sh.owned != nil && n > 0 && sh.over(sh.owned.owner(key), n) {
		return sh.exchange(key, n, now, group)
	}
	return sh.makeRoom(n, now, group)
}

// makeRoom drops logs until there is room for n bytes, which is always so for zero. It
// does not drop the logs of the group. If it finds no room, the error wraps ErrFull.
func (sh *shard) makeRoom(n, now int64, group []checkState) error {
	if n == 0 || sh.within(sh.usual, n) {
		return nil
	}
	if all := sh.groupBytes(group) + n; all > sh.limit {
		sh.refused++
		return &tooLarge{all, sh.limit} // an empty shard would be too small
	}
	sh.skipped = sh.candidates.forgetAll(group)
	effort := sh.effort(n)
	sh.visit(step, now, group, true)
	for !sh.within(sh.usual, n) {
		if c := sh.candidates.best(now); c != nil {
			if c.used > 0 {
				sh.evicted++
			}
			sh.remove(c.log)
			continue
		}
		if sh.seen >= sh.buckets {
			break // all logs are limiting
		}
		if effort -= step; effort <= 0 && sh.within(sh.limit, n) {
			break
		}
		sh.visit(step, now, group, true)
	}
	if sh.skipped {
		sh.seen = 0
	}
	if sh.within(sh.limit, n) {
		return nil
	}
	sh.refused++
	return ErrFull
}

// effort returns how far to move the hand while it finds no log that may go. It is the
// part of three rounds that n is of the slack. One round would be enough, but new buckets
// can make the hand begin again: see add.
func (sh *shard) effort(n int64) int64 {
	round := float64(sh.buckets*bucketEffort + sh.logs*logEffort)
	return int64(3 * round * float64(n) / float64(max(sh.limit/slackPart, 1)))
}

// remove deletes a log.
func (sh *shard) remove(l *log) {
	link := sh.at(l.hash)
	for *link != l {
		link = &(*link).next
	}
	sh.drop(link)
}

// near reports whether a shard is so full that it should collect candidates.
func (sh *shard) near() bool { return sh.bytes >= sh.limit/8*7 }

// offerNew makes a new log a candidate.
func (sh *shard) offerNew(l *log, now int64) {
	if !sh.near() {
		sh.seen = 0
		return
	}
	if sh.owned != nil && !l.ofStream() && sh.over(sh.owned.owner(l.key), l.size()) {
		sh.owned.newest = l
	}
	var c candidate
	if c.judge(l, now) != limiting && !sh.candidates.offer(c) {
		sh.seen = 0
	}
}

// pinned reports whether a log belongs to a group that is being decided.
func pinned(group []checkState, l *log) bool {
	for i := range group {
		if group[i].log == l {
			return true
		}
	}
	return false
}

// A state says whether a log may be dropped.
type state int

const (
	limiting state = iota // nothing remains of a limit that denies, or it is overdrawn
	free                  // hits count, but the limit has room
	expired               // nothing counts any more
)

// A candidate is a log that may be dropped, with what decides when.
type candidate struct {
	log         *log
	used, limit uint64
	last        int64 // time of its last charge, microseconds
}

// judge fills c in with a log at the time now, in microseconds, and returns its state.
func (c *candidate) judge(l *log, now int64) state {
	if l.ofStream() {
		return c.weighStream(l, now)
	}
	if l.ofOnceRecord() {
		return c.weighOnceRecord(l, now)
	}
	*c = candidate{log: l, limit: l.limit.Limit()}
	if !l.ofHolds() {
		c.used, c.last = packed.Weigh(l.packed, now, l.id(), c.limit)
	} else if packed.WeighReserved(l.packed, now) {
		return limiting
	}
	switch {
	case c.used == 0:
		c.limit = 1 // any limit will do: the used fraction is zero
		c.last = math.MinInt64
		return expired
	case c.used >= c.limit:
		return limiting
	}
	return free
}

// before reports whether c is dropped before d. The log with the smaller used fraction of its
// limit goes first. If the fractions are equal, the log that has been idle for longer does.
func (c *candidate) before(d *candidate) bool {
	mine, low := bits.Mul64(c.used, d.limit)
	other, lowOther := bits.Mul64(d.used, c.limit)
	return cmp.Or(cmp.Compare(mine, other), cmp.Compare(low, lowOther), cmp.Compare(c.last, d.last)) < 0
}

// candidates are the best candidates of a shard, unordered.
type candidates struct {
	list [maxCandidates]candidate
	n    int
}

// offer adds a candidate if there is room, or if it is better than the worst, which it then
// replaces. It returns false if a candidate was left out: c or the worst.
func (cs *candidates) offer(c candidate) bool {
	worst := 0
	for i := range cs.n {
		if cs.list[i].log == c.log {
			cs.list[i] = c
			return true
		}
		if cs.list[worst].before(&cs.list[i]) {
			worst = i
		}
	}
	if cs.n < maxCandidates {
		cs.list[cs.n] = c
		cs.n++
		return true
	}
	if c.before(&cs.list[worst]) {
		cs.list[worst] = c
	}
	return false
}

// best judges all candidates at the time now, forgets those that have become limiting, and
// returns the best of the others. It returns nil if none is left.
func (cs *candidates) best(now int64) *candidate {
	var best *candidate
	for i := 0; i < cs.n; {
		c := &cs.list[i]
		if c.judge(c.log, now) == limiting {
			cs.cut(i) // the last one replaces it
			continue
		}
		if best == nil || c.before(best) {
			best = c
		}
		i++
	}
	return best
}

// cut removes the i-th candidate.
func (cs *candidates) cut(i int) {
	cs.n--
	cs.list[i] = cs.list[cs.n]
	cs.list[cs.n] = candidate{}
}

// forget removes a log from the candidates, if it is one.
func (cs *candidates) forget(l *log) {
	for i := range cs.n {
		if cs.list[i].log == l {
			cs.cut(i)
			return
		}
	}
}

// forgetAll removes the logs of a group from the candidates, and reports whether any was
// one.
func (cs *candidates) forgetAll(group []checkState) bool {
	n := cs.n
	for i := range group {
		cs.forget(group[i].log)
	}
	return cs.n < n
}
