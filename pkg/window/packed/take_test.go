package packed

import (
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// take is windowtest.Take.
func take(log []byte, clock int64, c *window.Check, d *window.Decision) []byte {
	return takeAhead(log, clock, c, 0, d)
}

// takeAhead is windowtest.TakeAhead.
func takeAhead(log []byte, clock int64, c *window.Check, ahead time.Duration, d *window.Decision) []byte {
	var v View
	v.Look(log, clock, c.Limit.Window)
	room, cut := true, false
	if c.Mode == window.Refund {
		v.Refund(c)
	} else {
		var group window.Verdict
		room = v.Room(c.Limit.Hits, c.Cost)
		group.Add(c.Mode, room)
		if c.Mode.Charged(group.Allowed(), room) {
			cut = c.Mode == window.Always && v.Recordable(c) < c.Cost
			v.Reserve(c, ahead)
		}
	}
	v.Answer(c, room, d)
	d.Cut = cut
	return v.log
}

func inMode(m window.Mode, c window.Check) window.Check {
	c.Mode = m
	return c
}
