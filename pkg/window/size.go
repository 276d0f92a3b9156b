package window

import "time"

// Unit returns the unit in which the log of a window keeps times: a microsecond,
// or a millisecond above six days.
func Unit(win time.Duration) time.Duration {
	return time.Duration(unitOf(win)) * time.Microsecond
}

// LogSlots returns the most slots that the log of a check holds, debt aside: one for
// each hit, and no more than its precision tells apart. A limit of [MaxHits] has no
// log.
func LogSlots(c *Check) int {
	if _, ok := WithoutLog(c); ok {
		return 0
	}
	v := View{win: c.Limit.Window.Microseconds()}
	return v.most(c)
}

// LogBytes returns the most bytes that the log of a check holds, debt aside: when
// it has grown until its limit was used up by hits of cost 1. The key, and what a
// store keeps beside the bytes, come on top. A limit of [MaxHits] has no log.
func LogBytes(c *Check) int {
	if _, ok := WithoutLog(c); ok {
		return 0
	}
	most := LogSlots(c)
	if most <= maxSmall {
		return atSmall + most*slotBytes
	}
	return atRing + (most-1)*slotBytes
}

// Growth returns by how many bytes the capacity of the log grows when the check
// is charged now, by [View.Charge]: 0 where the log stays as large or becomes
// smaller, and where nothing is recorded. Of a log that nothing was charged to it
// is all that the new one takes. It writes nothing, does not allocate, and takes
// O(1) steps, so that a store which is short of memory can ask before every charge.
func (v *View) Growth(c *Check) int {
	if min(c.Cost, maxUsed-v.used) == 0 {
		return 0
	}
	need := v.total - v.live // slots, as Charge has it
	if need == 0 || v.stamp(c, 0) > v.newest {
		need++
	}
	size := cap(v.log)
	switch { // as reshape does
	case v.ring && (need <= smallAgain || need-1 <= v.capacity), !v.ring && need <= maxSmall && atSmall+need*slotBytes <= size:
		return 0
	case !v.ring && need <= maxSmall:
		return cap(newSmalls[need]) - size
	default:
		return max(atRing+spare(need-1, v.most(c)-1)*slotBytes-size, 0)
	}
}

// newSmalls are logs as newSmall makes them, for their capacities: those are up
// to the allocator.
var newSmalls = func() (all [maxSmall + 1][]byte) {
	for need := range all {
		all[need] = newSmall(need)
	}
	return all
}()
