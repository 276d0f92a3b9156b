package window

import "time"

// Used returns what counts at r.Now under a limit. Of a log of [InFlight] it is what streams
// hold at r.Now. Only a [TokenBucket] needs the limit: what is missing until its burst.
func (r *Reading) Used(l Limit) uint64 {
	var s State
	r.look(&s, &Check{Limit: r.limit(l)})
	switch r.ID.Policy {
	case Sliding:
		return s.view.Used()
	case TokenBucket:
		return uint64(int64(l.Hits) - s.tokens)
	default:
		return s.view.used
	}
}

// look fills s in with the log at r.Now.
func (r *Reading) look(s *State, c *Check) {
	s.Look(r.log, r.now().Microseconds(), c)
}

// limit returns l for the log of r.
func (r *Reading) limit(l Limit) Limit {
	l.Policy = r.ID.Policy
	if l.Policy != InFlight {
		l.Window = r.ID.Window
	}
	return l
}

// Ask returns what a store answers at r.Now to a check of the log under a limit, with a cost
// of 0 and the mode [Enforce]. The policy of the limit, and the window unless the policy is
// [InFlight], are those of r.ID.
func (r *Reading) Ask(l Limit) (d Decision) {
	c := Check{Limit: r.limit(l)}
	if d, ok := WithoutLog(&c); ok {
		return d
	}
	var s State
	r.look(&s, &c)
	s.Answer(&c, s.Room(&c), &d)
	return d
}

// History returns what the entries that count have cost in each of so many equal parts of the
// window, the oldest first. Entries that are recorded ahead are in the last part. The sum is
// what [Reading.Used] returns. parts is at least 1. Only logs of [Sliding] know when hits were
// spent; History returns nil for the others.
func (r *Reading) History(parts int) []uint64 {
	if r.ID.Policy != Sliding {
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
