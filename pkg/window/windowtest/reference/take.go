package reference

import (
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// Take decides a group of one check on the bytes of a log, at the time clock in
// microseconds. It records what the check's mode records, fills in d, and returns the
// log's bytes: written in place, or moved. A nil log is an empty one.
func Take(log []byte, clock int64, c *window.Check, d *window.Decision) []byte {
	return TakeAhead(log, clock, c, 0, d)
}

// TakeAhead is [Take] for a cost that will be spent until ahead from now: it charges
// with [packed.View.Reserve].
func TakeAhead(log []byte, clock int64, c *window.Check, ahead time.Duration, d *window.Decision) []byte {
	var v packed.View
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
	return v.Log()
}

// Allowed reports whether every decision is allowed. For a group whose checks all have
// the mode [window.Enforce], that means that the group was charged.
func Allowed(decisions []window.Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}
