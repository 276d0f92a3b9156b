package inspect

import (
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// A Reading is a log at one instant.
type Reading struct {
	ID window.LogID
	// Now is the store's clock when the log was read, counted as [packed.Contents.Clock] is.
	Now time.Duration
	// Contents are zero if the log was not there.
	Contents packed.Contents

	log []byte // of Contents
}

// NewReading returns what the bytes of a log say. Bytes that are not a log of the window make
// an empty log, as they do for a store. NewReading keeps b, and nothing may change it.
func NewReading(id window.LogID, now time.Duration, b []byte) Reading {
	c, err := packed.Decode(b)
	if err != nil || !packed.Is(b, id) {
		return Reading{ID: id, Now: now}
	}
	return Reading{ID: id, Now: now, Contents: c, log: b}
}

// Packed returns the bytes of the log, as package packed has them. They are empty if it was not there,
// and nothing may change them.
func (r *Reading) Packed() []byte { return r.log }

// Used returns what counts at r.Now under a limit. Of a log of [window.InFlight] it is what streams
// hold at r.Now. Only a [window.TokenBucket] needs the limit: what is missing until its burst.
func (r *Reading) Used(l window.Limit) uint64 {
	var s packed.State
	s.Look(r.log, r.now().Microseconds(), &window.Check{Limit: r.limit(l)})
	return s.View().Used()
}

// limit returns l for the log of r.
func (r *Reading) limit(l window.Limit) window.Limit {
	l.Policy = r.ID.Policy
	if l.Policy != window.InFlight {
		l.Window = r.ID.Window
	}
	return l
}

// Ask returns what a store answers at r.Now to a check of the log under a limit, with a cost
// of 0 and the mode [window.Enforce]. The policy of the limit, and the window unless the policy is
// [window.InFlight], are those of r.ID.
func (r *Reading) Ask(l window.Limit) (d window.Decision) {
	c := window.Check{Limit: r.limit(l)}
	if d, ok := window.WithoutLog(&c); ok {
		return d
	}
	var s packed.State
	s.Look(r.log, r.now().Microseconds(), &c)
	s.Answer(&c, s.Room(&c), &d)
	return d
}

// History returns what the entries that count have cost in each of so many equal parts of the
// window, the oldest first. Entries that are recorded ahead are in the last part. The sum is
// what [Reading.Used] returns. parts is at least 1. Only logs of [window.Sliding] know when hits were
// spent; History returns nil for the others.
func (r *Reading) History(parts int) []uint64 {
	if r.ID.Policy != window.Sliding {
		return nil
	}
	history := make([]uint64, parts)
	win := r.ID.Window.Truncate(time.Microsecond)
	// As for a View: the log is never seen from before its last write.
	from := max(r.now(), r.Contents.Clock) - win
	for _, e := range r.Contents.Entries {
		if e.At <= from {
			continue
		}
		// Whole microseconds, so that 400 days times the number of parts fit.
		age := (min(e.At-from, win) + time.Microsecond - 1).Microseconds()
		part := (age*int64(parts) - 1) / win.Microseconds()
		history[min(max(part, 0), int64(parts-1))] += uint64(e.Cost)
	}
	return history
}

// now returns r.Now as a View has it: in whole microseconds, and not negative.
func (r *Reading) now() time.Duration { return max(r.Now, 0).Truncate(time.Microsecond) }
