package packed

import (
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A View is a log as one check sees it at one instant. [View.Look] must fill it in before
// any other method is called. It refers to the log's bytes, so it is valid until other
// code writes them. A View is not safe for concurrent use.
type View struct {
	frame
	log     []byte
	real    int64  // the clock as given, in microseconds; waits count from it
	now     int64  // the same, but not before the log's clock; decisions use it
	win     int64  // microseconds
	newest  int64  // time of the newest slot, in units, if there is one
	live    int    // the first slot that still counts; those before it have expired
	used    uint64 // cost of the slots that count
	before  uint32 // running sum just before the first slot that counts
	corrupt bool
}

// Look fills v in with a log of a window at the time clock. clock is in microseconds
// since some fixed instant, and at least 0. A nil log is empty. Look writes nothing and
// does not allocate.
//
// Look does not panic, whatever the bytes are. If they are not a log of the window, v
// shows an empty log and [View.Corrupt] returns true. Look checks only the header and the
// length, so bytes that only look like a log give wrong answers. [Decode] checks all.
func (v *View) Look(log []byte, clock int64, win time.Duration) {
	v.log = log
	v.real = min(max(clock, 0), window.MaxClock)
	v.now = v.real
	v.win = win.Microseconds()
	v.live, v.used, v.corrupt = 0, 0, false
	if len(log) == 0 {
		v.none(win)
		return
	}
	if !v.read(log, unitOf(win)) {
		v.none(win)
		v.corrupt = true
		return
	}
	// A clock that is set back must neither reorder the log nor bring back what has
	// expired. The bound is the clock of the last write, not the newest slot's time. That
	// time is rounded up, and would let other slots expire too early.
	v.now = max(v.now, v.clock)
	v.before = v.base
	if v.total > 0 {
		v.prune()
	}
}

// none makes v the view of an empty log.
func (v *View) none(win time.Duration) {
	v.frame = frame{unit: unitOf(win)}
	v.log = nil
	v.before = 0
}

// prune finds the first slot that counts. It takes O(1) steps if nothing or everything
// has expired, and O(log k) steps if k slots have expired.
func (v *View) prune() {
	var (
		last = v.slot(v.total - 1)
		sum  = sumAt(v.log, last)
		edge = floorDiv(v.now-v.win, v.unit) // a slot of this time has just expired
	)
	v.newest = timeAt(v.log, last, v.ref)
	switch {
	case v.newest <= edge:
		v.live = v.total
		v.before = sum
		return
	case timeAt(v.log, v.slot(0), v.ref) > edge:
	default:
		v.live = v.gallop(edge)
		v.before = sumAt(v.log, v.slot(v.live-1))
	}
	v.used = uint64(sum - v.before)
}

// gallop finds the first slot that counts, if the first slot does not count and the last
// slot does. Usually few slots have expired, so it looks at the slots 1, 2, 4, 8 and so on
// before it bisects.
func (v *View) gallop(edge int64) int {
	expired, counts := 0, 1
	for counts < v.total-1 && timeAt(v.log, v.slot(counts), v.ref) <= edge {
		expired, counts = counts, 2*counts
	}
	counts = min(counts, v.total-1)
	for counts-expired > 1 {
		middle := int(uint(expired+counts) / 2)
		if timeAt(v.log, v.slot(middle), v.ref) <= edge {
			expired = middle
		} else {
			counts = middle
		}
	}
	return counts
}

// reach returns the first live slot for which the live slots up to and including it hold
// at least cost. cost is from 1 to v.used.
func (v *View) reach(cost uint64) int {
	low, high := v.live, v.total-1
	if v.upTo(low) >= cost {
		return low // the usual case: a unit at the limit
	}
	for low < high {
		middle := int(uint(low+high) / 2)
		if v.upTo(middle) >= cost {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high
}

// upTo returns the cost of all live slots up to and including slot i.
func (v *View) upTo(i int) uint64 { return uint64(sumAt(v.log, v.slot(i)) - v.before) }

// until returns the wait until a slot of time t, in units, expires. It counts from the
// clock as given. So after the clock was set back, it includes the time to catch up.
func (v *View) until(t int64) time.Duration {
	return time.Duration(t*v.unit+v.win-v.real) * time.Microsecond
}

// Log returns the log's bytes. [View.Charge] and [View.Refund] may have moved them. Log
// returns nil if the log is new and nothing was recorded.
func (v *View) Log() []byte { return v.log }

// Corrupt reports whether the bytes given to [View.Look] are not a log of the window. A
// charge then starts a new log and does not change those bytes.
func (v *View) Corrupt() bool { return v.corrupt }

// Used returns the cost of all entries that count. It can be above the limit: because of
// charges over it, or because the limit was lowered.
func (v *View) Used() uint64 { return v.used }

// Room reports whether a cost fits under a limit now. Cost 0 needs the room of 1.
func (v *View) Room(limit, cost uint64) bool {
	return v.used < limit && cost <= limit-v.used
}

// Answer fills in every field of d but Unsettled, which it sets to false. It describes
// the log as it is now, so call it after [View.Charge] or [View.Refund]. allowed is the
// result of [View.Room] before the charge; for a refund it is true.
func (v *View) Answer(c *window.Check, allowed bool, d *window.Decision) {
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	*d = window.Decision{Allowed: allowed, Remaining: limit - min(v.used, limit)}
	if v.used > 0 {
		d.ResetAfter = v.until(v.newest)
		switch {
		case d.Remaining > 0:
			d.UnitAfter = v.until(timeAt(v.log, v.slot(v.live), v.ref))
		case limit > 0:
			d.UnitAfter = v.wait(limit, 1)
		}
	}
	switch {
	case allowed:
	case need > limit:
		d.Never = true
	case need == 1:
		d.RetryAfter = d.UnitAfter
	default:
		d.RetryAfter = v.wait(limit, need)
	}
}

// wait returns the wait until a cost fits, which is at most the limit. It returns 0 if
// the cost fits now.
func (v *View) wait(limit, cost uint64) time.Duration {
	if v.used+cost <= limit {
		return 0
	}
	i := v.reach(v.used + cost - limit)
	return v.until(timeAt(v.log, v.slot(i), v.ref))
}

// floorDiv returns a/b rounded down, for b > 0. Go rounds towards zero.
func floorDiv(a, b int64) int64 {
	if b == 1 {
		return a
	}
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
