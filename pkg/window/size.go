package window

import "time"

// Unit returns the unit in which the log of a window keeps times: a microsecond,
// or a millisecond above six days.
func Unit(win time.Duration) time.Duration {
	return time.Duration(unitOf(win)) * time.Microsecond
}

// LogBytes returns the most bytes that the log of a check holds, debt aside: when
// it has grown until its limit was used up by hits of cost 1. The key, and what a
// store keeps beside the bytes, come on top. A limit of [MaxHits] has no log.
func LogBytes(c *Check) int {
	if _, ok := WithoutLog(c); ok {
		return 0
	}
	var v View
	v.Look(nil, 0, c.Limit.Window)
	v.win = c.Limit.Window.Microseconds()
	most := v.most(c)
	if most <= maxSmall {
		return atSmall + most*slotBytes
	}
	return atRing + (most-1)*slotBytes
}
