package memstore

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/slidegate/slidegate/pkg/window"
)

// # Making room
//
// Which log is the least used of a shard nobody knows without looking at all of
// them. So the shard has a hand that goes round, and keeps the best candidates
// that it meets. Whoever needs room moves the hand a little and drops the best
// candidate. Two things make that safe:
//
//   - A new log is a candidate like any other, before the next one is made. So
//     whoever makes up keys finds, from his second key on, one of his own before
//     any log of which more is used.
//   - The shard counts how far behind the hand nothing was found that could go and
//     was not kept as a candidate. A call is refused only when that is the whole
//     round and there is no candidate left.
//
// So that no call has to wait for a round of the hand, it starts early: the last
// 1/32 of a shard's share is filled only while the hand finds nothing, and the
// hand moves so far with every call that it has gone round once when the share is
// used up.

const (
	// slackPart is the part of its share that a shard keeps free while there are
	// logs that may go.
	slackPart = 32
	// step is how far the hand goes at a time to find candidates: ten logs or so
	// where there are many, over all 64 buckets where there are few.
	step = 96
	// maxCandidates is how many logs a shard remembers that may go.
	maxCandidates = 8
)

// limits are the share of a shard.
type limits struct {
	keys, bytes int64 // math.MaxInt64: no limit
}

// usual returns what is filled while there are logs that may go.
func (l limits) usual() limits {
	return limits{l.keys - l.keys/slackPart, l.bytes - l.bytes/slackPart}
}

// need is what a call adds to a shard.
type need struct {
	keys, bytes int64
}

func (n *need) add(m need) { n.keys, n.bytes = n.keys+m.keys, n.bytes+m.bytes }

// within reports whether a shard has room for a need.
func (sh *shard) within(l limits, n need) bool {
	return int64(sh.logs) <= l.keys-n.keys && sh.bytes <= l.bytes-n.bytes
}

// grows reports whether a check may make its log larger.
func grows(c *window.Check) bool { return c.Cost > 0 && c.Mode != window.Refund }

// most is what recording a check takes at most: a log grows by a quarter and a
// header. TestGrowth holds package window to it.
func (a *asked) most(c *window.Check) need {
	if !grows(c) {
		return need{}
	}
	const growth = 160
	if a.log == nil {
		return need{1, logBytes + int64(len(c.Key)) + growth}
	}
	return need{0, growth + int64(cap(a.log.packed))/4}
}

// fits reports whether there is room for a check whatever it takes.
func (a *asked) fits(c *window.Check) bool {
	return a.shard.within(a.shard.usual, a.most(c))
}

// need is what recording a check takes, as the log was when it was looked at.
func (a *asked) need(c *window.Check) need {
	if !grows(c) {
		return need{}
	}
	growth := int64(a.view.Growth(c))
	if a.log == nil {
		return need{1, logBytes + int64(len(c.Key)) + growth}
	}
	return need{0, growth}
}

// makeRoom makes room for all checks of a group that are to be charged. If there
// is none, the error wraps ErrFull. The shards are locked.
func (s *Store) makeRoom(checks []window.Check, group []asked, touched uint64, now int64) error {
	var most need
	for i := range checks {
		if a := &group[i]; a.shard != nil && a.charged {
			most.add(a.most(&checks[i]))
		}
	}
	for ; touched != 0; touched &= touched - 1 {
		sh := &s.shards[bits.TrailingZeros64(touched)]
		if sh.within(sh.usual, most) {
			continue
		}
		var n need
		for j := range checks {
			if a := &group[j]; a.shard == sh && a.charged {
				m := a.need(&checks[j])
				if m.keys > 0 && named(checks[:j], group, &checks[j]) {
					m.keys = 0
				}
				n.add(m)
			}
		}
		if err := sh.makeRoom(n, now, group); err != nil {
			return err
		}
	}
	return nil
}

// named reports whether one of the checks that are to be charged makes the log of
// c already: a group may name one log in several modes.
func named(checks []window.Check, group []asked, c *window.Check) bool {
	for i := range checks {
		o := &checks[i]
		if o.Mode != c.Mode && group[i].charged && grows(o) && o.Log() == c.Log() {
			return true
		}
	}
	return false
}

// A tooLarge is the ErrFull of a call whose own logs would take more than the share
// of their shard.
type tooLarge struct{ all, share need }

func (e *tooLarge) Error() string {
	if e.all.keys > e.share.keys {
		return fmt.Sprintf("memstore: one request needs %d logs where %d fit at most: raise max_keys", e.all.keys, e.share.keys)
	}
	return fmt.Sprintf("memstore: the logs of one request would take %d bytes where %d fit at most: raise max_bytes, or give a large limit a precision", e.all.bytes, e.share.bytes)
}

func (e *tooLarge) Unwrap() error { return ErrFull }

// own is what the logs of a group take in a shard.
func (sh *shard) own(group []asked) need {
	var n need
	for i := range group {
		if l := group[i].log; l != nil && group[i].shard == sh && !pinned(group[:i], l) {
			n.add(need{1, l.size()})
		}
	}
	return n
}

// makeRoom drops logs until there is room for a need. The logs of the group stay.
// If there is no room, the error wraps ErrFull. Who needs nothing has room.
func (sh *shard) makeRoom(n need, now int64, group []asked) error {
	if n == (need{}) || sh.within(sh.usual, n) {
		return nil
	}
	all := sh.own(group)
	if all.add(n); all.keys > sh.limits.keys || all.bytes > sh.limits.bytes {
		sh.refused++
		return &tooLarge{all, need(sh.limits)} // even if everything else went
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
			break // all limit
		}
		if effort -= step; effort <= 0 && sh.within(sh.limits, n) {
			break
		}
		sh.visit(step, now, group, true)
	}
	if sh.skipped {
		sh.seen = 0
	}
	if sh.within(sh.limits, n) {
		return nil
	}
	sh.refused++
	return ErrFull
}

// effort is how far to move the hand while nothing is found that may go: the part
// of three rounds that the need is of the slack. One would do but for new buckets,
// which can make the hand begin once more: see add.
func (sh *shard) effort(n need) int64 {
	round := float64(sh.buckets*bucketEffort + sh.logs*logEffort)
	slack := func(limit int64) float64 { return float64(max(limit/slackPart, 1)) }
	return int64(3 * round * max(float64(n.keys)/slack(sh.limits.keys), float64(n.bytes)/slack(sh.limits.bytes)))
}

// remove forgets a log.
func (sh *shard) remove(l *log) {
	link := sh.at(l.hash)
	for *link != l {
		link = &(*link).next
	}
	sh.drop(link)
}

// near reports whether a shard is so full that it should know what may go.
func (sh *shard) near() bool {
	return int64(sh.logs) >= sh.limits.keys/8*7 || sh.bytes >= sh.limits.bytes/8*7
}

// offerNew makes a new log a candidate.
func (sh *shard) offerNew(l *log, now int64) {
	if !sh.near() {
		sh.seen = 0
		return
	}
	var c candidate
	if c.judge(l, now) != limiting && !sh.candidates.offer(c) {
		sh.seen = 0
	}
}

// pinned reports whether a log belongs to a group that is being decided.
func pinned(group []asked, l *log) bool {
	for i := range group {
		if group[i].log == l {
			return true
		}
	}
	return false
}

// What a log is to those who need room.
type state int

const (
	limiting state = iota // nothing remains of a limit that denies, or there is debt
	free                  // something counts, but it denies nobody
	expired
)

// A candidate is a log that denies nobody, and how much it is missed.
type candidate struct {
	log         *log
	used, limit uint64
	last        int64 // time of its last charge, microseconds
}

// judge looks at a log.
func (c *candidate) judge(l *log, now int64) state {
	var v window.View
	v.Look(l.packed, now, l.window)
	*c = candidate{log: l, used: v.Used(), limit: uint64(l.limit)}
	switch {
	case v.Idle():
		c.limit = 1 // any will do: a share of nothing
		c.last = math.MinInt64
		return expired
	case c.used >= c.limit:
		return limiting
	}
	var d window.Decision
	v.Answer(&window.Check{Limit: window.Limit{Hits: c.limit}}, true, &d)
	c.last = now + (d.ResetAfter - l.window).Microseconds()
	return free
}

// before reports whether c goes before d: it has used a smaller share of its
// limit or, if the shares are equal, has been idle for longer.
func (c *candidate) before(d *candidate) bool {
	// Both factors are below 2^32, but for the used hits, which are below a limit.
	if mine, other := c.used*d.limit, d.used*c.limit; mine != other {
		return mine < other
	}
	return c.last < d.last
}

// candidates are the best candidates of a shard, in no order.
type candidates struct {
	list [maxCandidates]candidate
	n    int
}

// offer takes a candidate if there is room or it is better than the worst. It
// reports false if a candidate was left out, whichever.
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

// best looks at all candidates as of now, forgets those that limit somebody by
// now, and returns the best of the others, or nil if there is none.
func (cs *candidates) best(now int64) *candidate {
	var best *candidate
	for i := 0; i < cs.n; {
		c := &cs.list[i]
		if c.judge(c.log, now) == limiting {
			cs.cut(i) // another takes its place
			continue
		}
		if best == nil || c.before(best) {
			best = c
		}
		i++
	}
	return best
}

// cut takes the i-th candidate out.
func (cs *candidates) cut(i int) {
	cs.n--
	cs.list[i] = cs.list[cs.n]
	cs.list[cs.n] = candidate{}
}

// forget takes a log out, if it is a candidate.
func (cs *candidates) forget(l *log) {
	for i := range cs.n {
		if cs.list[i].log == l {
			cs.cut(i)
			return
		}
	}
}

// forgetAll takes the logs of a group out, and reports whether there were any.
func (cs *candidates) forgetAll(group []asked) bool {
	n := cs.n
	for i := range group {
		cs.forget(group[i].log)
	}
	return cs.n < n
}
