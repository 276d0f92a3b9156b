package window

import "time"

// Live returns the entries that count in the window of r.ID at r.Now, the oldest first, and
// their cost. The entries are a part of r.Contents. Only logs of [Sliding] have entries.
func (r *Reading) Live() (entries []Entry, used uint64) {
	// As for a View: the log is never seen from before its last write.
	edge := max(r.now(), r.Contents.Clock) - r.window()
	entries = r.Contents.Entries
	for len(entries) > 0 && entries[0].At <= edge {
		entries = entries[1:]
	}
	for _, e := range entries {
		used += uint64(e.Cost)
	}
	return entries, used
}

// Used returns what counts at r.Now under a limit. Of a log of [InFlight] it is what streams
// hold at r.Now. Only a [TokenBucket] needs the limit: what is missing until its burst.
func (r *Reading) Used(l Limit) uint64 {
	switch r.ID.Policy {
	case Sliding:
		_, used := r.Live()
		return used
	case TokenBucket:
		var s State
		r.look(&s, &Check{Limit: r.limit(l)})
		return uint64(int64(l.Hits) - s.tokens)
	default:
		var s State
		r.look(&s, &Check{Limit: r.limit(l)})
		return s.view.used
	}
}

// look fills s in with the log at r.Now.
func (r *Reading) look(s *State, c *Check) {
	s.Look(r.Contents.value(), r.now().Microseconds(), c)
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
func (r *Reading) Ask(l Limit) Decision {
	c := Check{Limit: r.limit(l)}
	if d, ok := WithoutLog(&c); ok {
		return d
	}
	if r.ID.Policy == Sliding {
		return r.ask(l.Hits)
	}
	var (
		s State
		d Decision
	)
	r.look(&s, &c)
	s.Answer(&c, s.Room(&c), &d)
	return d
}

// ask is Ask for a log of [Sliding].
func (r *Reading) ask(hits uint64) Decision {
	entries, used := r.Live()
	d := Decision{Allowed: used < hits, Remaining: hits - min(used, hits)}
	if used == 0 {
		return d
	}
	d.ResetAfter = r.until(entries[len(entries)-1].At)
	gone, need := uint64(0), used-min(used, hits-1)
	for _, e := range entries {
		if gone += uint64(e.Cost); gone >= need {
			d.UnitAfter = r.until(e.At)
			break
		}
	}
	if !d.Allowed {
		d.RetryAfter = d.UnitAfter
	}
	return d
}

// History returns what the entries that count have cost in each of so many equal parts of the
// window, the oldest first. Entries that are recorded ahead are in the last part. The sum is
// the cost that [Reading.Live] returns. parts is at least 1. Only logs of [Sliding] know when
// hits were spent; History returns nil for the others.
func (r *Reading) History(parts int) []uint64 {
	if r.ID.Policy != Sliding {
		return nil
	}
	history := make([]uint64, parts)
	entries, _ := r.Live()
	win := r.window()
	from := max(r.now(), r.Contents.Clock) - win
	for _, e := range entries {
		// Whole microseconds, so that 400 days times the number of parts fit.
		age := (min(e.At-from, win) + time.Microsecond - 1).Microseconds()
		part := (age*int64(parts) - 1) / win.Microseconds()
		history[min(max(part, 0), int64(parts-1))] += uint64(e.Cost)
	}
	return history
}

// now returns r.Now as a View has it: in whole microseconds, and not negative.
func (r *Reading) now() time.Duration { return max(r.Now, 0).Truncate(time.Microsecond) }

func (r *Reading) window() time.Duration { return r.ID.Window.Truncate(time.Microsecond) }

// until returns the wait until an entry does not count any more. It counts from the store's
// clock, even if that was set back.
func (r *Reading) until(at time.Duration) time.Duration { return at + r.window() - r.now() }
