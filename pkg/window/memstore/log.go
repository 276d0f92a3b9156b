package memstore

import (
	"math/bits"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// minRing is the smallest number of entries that a log has room for. Ring sizes
// are powers of two, so that an index wraps with a mask.
const minRing = 4

// An entry is everything that was charged at one instant.
type entry struct {
	at  int64  // microseconds
	sum uint64 // running sum of the costs up to and including this entry
}

// A log holds the entries of one window.LogID, oldest first. The zero value is
// an empty log. It does not lock: the shard's mutex guards it.
type log struct {
	ring []entry // its length is zero or a power of two
	head int     // index of the oldest entry
	n    int     // number of entries, expired ones included
	base uint64  // running sum just before the oldest entry
}

// A view is what a log looks like to one decision.
type view struct {
	now  int64  // the clock in microseconds, held at the newest entry
	live int    // number of expired entries: the first live one has this index
	base uint64 // running sum just before the first live entry
	used uint64
}

// entry returns the i-th oldest entry.
func (l *log) entry(i int) *entry { return &l.ring[(l.head+i)&(len(l.ring)-1)] }

// newest returns the last entry. The log must not be empty.
func (l *log) newest() *entry { return l.entry(l.n - 1) }

// view looks at the log at the time clock, without changing it. A nil log is
// empty.
func (l *log) view(clock int64, win time.Duration) view {
	if l == nil || l.n == 0 {
		return view{now: clock}
	}
	newest := l.newest()
	v := view{now: max(clock, newest.at), base: l.base}
	v.live = l.expired(v.now - win.Microseconds())
	if v.live > 0 {
		v.base = l.entry(v.live - 1).sum
	}
	v.used = newest.sum - v.base
	return v
}

// expired returns how many entries are not younger than edge: an entry counts
// until, but not at, its time plus the window.
func (l *log) expired(edge int64) int {
	if l.entry(0).at > edge {
		return 0 // the usual case in a busy log
	}
	if l.newest().at <= edge {
		return l.n // the usual case in a quiet one
	}
	lo, hi := 0, l.n-1 // lo has expired, hi has not
	for hi-lo > 1 {
		if mid := int(uint(lo+hi) >> 1); l.entry(mid).at <= edge {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// decide answers a check as it stands before anything is charged.
func (l *log) decide(v view, c *window.Check) window.Decision {
	var (
		limit = c.Limit.Hits
		need  = max(c.Cost, 1) // cost 0 asks whether anything remains
		d     = window.Decision{Remaining: limit - min(v.used, limit)}
	)
	switch {
	case need > limit:
		d.Never = true
	case need <= d.Remaining:
		d.Allowed = true
	default:
		d.RetryAfter = l.freed(v, v.used+need-limit, c.Limit.Window)
	}
	if d.Remaining == 0 && limit > 0 {
		d.UnitAfter = l.freed(v, v.used+1-limit, c.Limit.Window)
	}
	if v.used > 0 {
		d.ResetAfter = until(l.newest().at, v.now, c.Limit.Window)
	}
	return d
}

// freed returns the wait until entries worth at least cost have expired. The
// cost is at least 1 and at most v.used.
func (l *log) freed(v view, cost uint64, win time.Duration) time.Duration {
	lo, hi := v.live, l.n-1
	if l.entry(lo).sum-v.base >= cost {
		hi = lo // the usual case: a unit at the limit
	}
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); l.entry(mid).sum-v.base >= cost {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return until(l.entry(hi).at, v.now, win)
}

// charge records a cost that has room, drops what has expired, and brings the
// decision d up to date.
func (l *log) charge(v view, c *window.Check, d *window.Decision) {
	if c.Cost == 0 {
		return
	}
	l.drop(v)
	if l.n > 0 && l.newest().at == v.now {
		l.newest().sum += c.Cost
	} else {
		l.push(entry{at: v.now, sum: v.base + v.used + c.Cost})
	}

	d.Remaining -= c.Cost
	d.ResetAfter = c.Limit.Window
	if d.Remaining == 0 {
		// Exactly the limit is used, so the oldest entry frees the first unit.
		d.UnitAfter = until(l.entry(0).at, v.now, c.Limit.Window)
	}
}

// drop removes the expired entries.
func (l *log) drop(v view) {
	if v.live == 0 {
		return
	}
	l.head = (l.head + v.live) & (len(l.ring) - 1)
	l.n -= v.live
	l.base = v.base
	if len(l.ring) > minRing && l.n <= len(l.ring)/4 {
		l.resize(ringFor(2 * l.n))
	}
}

// push appends an entry.
func (l *log) push(e entry) {
	if l.n == len(l.ring) {
		l.resize(ringFor(l.n + 1))
	}
	l.n++
	*l.newest() = e
}

// ringFor returns the smallest ring that holds n entries.
func ringFor(n int) int {
	return max(minRing, 1<<bits.Len(uint(max(n, 1)-1)))
}

// resize moves the entries to a ring of the given size. It is paid for by the
// entries that were pushed or dropped since the last time.
func (l *log) resize(size int) {
	ring := make([]entry, size)
	for i := range l.n {
		ring[i] = *l.entry(i)
	}
	l.ring, l.head = ring, 0
}

// gone reports whether nothing in the log counts any more.
func (l *log) gone(clock int64, win time.Duration) bool {
	return l.n == 0 || l.newest().at <= clock-win.Microseconds()
}

// until returns the wait from now until an entry recorded at expires.
func until(at, now int64, win time.Duration) time.Duration {
	return win - time.Duration(now-at)*time.Microsecond
}
