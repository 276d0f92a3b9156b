package window

import "time"

// take is windowtest.Take, which these tests cannot import.
func take(log []byte, clock int64, c *Check, d *Decision) []byte {
	return takeAhead(log, clock, c, 0, d)
}

// takeAhead is windowtest.TakeAhead.
func takeAhead(log []byte, clock int64, c *Check, ahead time.Duration, d *Decision) []byte {
	var v View
	v.Look(log, clock, c.Limit.Window)
	room, cut := true, false
	if c.Mode == Refund {
		v.Refund(c)
	} else {
		var group Verdict
		room = v.Room(c.Limit.Hits, c.Cost)
		group.Add(c.Mode, room)
		if c.Mode.Charged(group.Allowed(), room) {
			cut = c.Mode == Always && v.Recordable(c) < c.Cost
			v.Reserve(c, ahead)
		}
	}
	v.Answer(c, room, d)
	d.Cut = cut
	return v.log
}
