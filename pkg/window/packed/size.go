package packed

import (
	"math"
	"math/bits"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// Unit returns the unit in which the log of a window keeps times: a microsecond,
// or a millisecond above six days.
func Unit(win time.Duration) time.Duration {
	return time.Duration(unitOf(win)) * time.Microsecond
}

// LogSlots returns the most slots that the log of a check holds, if it is not overdrawn. It is one
// for each hit, but no more than its precision distinguishes. It is zero for a check that
// needs no log, such as a limit of [window.Unlimited], and for policies whose logs have no slots:
// all but [window.Sliding] and [window.InFlight], where a slot is a hold.
func LogSlots(c *window.Check) int {
	if _, ok := window.WithoutLog(c); ok {
		return 0
	}
	switch c.Limit.Policy {
	case window.Sliding:
	case window.InFlight:
		return int(c.Limit.Hits)
	default:
		return 0
	}
	v := View{win: c.Limit.Window.Microseconds()}
	return v.most(c)
}

// LogBytes returns the most bytes that the log of a check holds, if it is not overdrawn. They are
// those of a log that has grown until hits of cost 1 used up its limit. A store needs
// more for the key and its own bookkeeping. It is zero for a check that needs no log.
func LogBytes(c *window.Check) int {
	if _, ok := window.WithoutLog(c); ok {
		return 0
	}
	most := LogSlots(c)
	switch c.Limit.Policy {
	case window.Sliding:
	case window.InFlight:
		return atHolds + most*holdBytes
	default:
		return valueBytes(c.Limit.Policy, c.Limit.Hits > maxNarrow)
	}
	if most <= maxSmall {
		return atSmall + most*slotBytes
	}
	return atRing + (most-1)*slotBytes
}

// Growth returns by how many bytes the capacity of the log grows if [View.Charge] charges
// the check now. It is 0 if the log stays as large or becomes smaller, and if nothing is
// recorded. For an empty log it is the size of the new log. Growth writes nothing, does
// not allocate, and takes O(1) steps. So a store that is short of memory can call it
// before every charge.
func (v *View) Growth(c *window.Check) int {
	if v.Recordable(c) == 0 {
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

// newSmalls are small logs by their number of slots. Growth needs their capacities, which
// the allocator chooses.
var newSmalls = func() (all [maxSmall + 1][]byte) {
	for need := range all {
		all[need] = newSmall(need)
	}
	return all
}()

// A Level is a limit in 32 bits: exact below 255 * 2^24, and above that rounded down to 20 digits of base 2. The bits
// are then eight ones, the exponent in 5 bits, and the digits but the first.
type Level uint32

const (
	// NoLevel is the level of a log without a limit.
	NoLevel  Level = math.MaxUint32
	floating       = 0xff << 24
)

// LevelOf returns the level of a limit of up to [window.MaxHits].
func LevelOf(limit uint64) Level {
	if limit < floating {
		return Level(limit)
	}
	return levelOfLarge(limit)
}

func levelOfLarge(limit uint64) Level {
	length := bits.Len64(limit)
	return floating | Level(length-32)<<19 | Level(limit>>(length-20)&(1<<19-1))
}

// Limit returns the limit of a level. For NoLevel it is more than any limit.
func (l Level) Limit() uint64 {
	switch {
	case l < floating:
		return uint64(l)
	case l == NoLevel:
		return math.MaxUint64
	}
	return (1<<19 | uint64(l)&(1<<19-1)) << (l>>19&31 + 12)
}
