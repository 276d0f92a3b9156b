package packed

import (
	"encoding/binary"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	atUsed = atPolicy
	atEnd  = 7 // counted from the end
)

// endOfPeriod returns when the period of a calendar ends that has begun at the time clock.
// Both are in microseconds.
func endOfPeriod(p window.Period, clock int64) int64 {
	switch {
	case clock < p.Start*1e6:
		return p.Start * 1e6
	case clock < p.End*1e6:
		return p.End * 1e6
	default:
		return p.Next * 1e6
	}
}

// readPeriod reads what is used and when that ends. It returns false if the bytes are not
// a value of the policy, or if the period would end later than longest after the clock.
func (s *State) readPeriod(longest int64) bool {
	b := s.view.log
	switch len(b) {
	case periodBytes:
		s.view.used = uint64(binary.BigEndian.Uint32(b[atUsed:]))
	case widePeriodBytes:
		if s.view.used = wideNumber(b[atUsed:]); s.view.used <= maxNarrow || s.view.used > window.MaxHits {
			return false
		}
	default:
		return false
	}
	s.end = int64(wideNumber(b[len(b)-atEnd:]))
	return s.end > s.view.clock && s.end-s.view.clock <= longest
}

// choosePeriod begins a new period, which ends at next, if that of the log is over.
func (s *State) choosePeriod(next int64, there bool) {
	s.next = next
	if !there || s.end <= s.view.now {
		s.end, s.view.used = next, 0
	}
}

func (s *State) chargePeriod(c *window.Check) {
	cost := s.Recordable(c)
	if cost == 0 {
		return
	}
	s.view.used += cost
	s.writePeriod()
}

func (s *State) refundPeriod(c *window.Check) {
	give := min(c.Cost, s.view.used)
	if give == 0 {
		return
	}
	s.view.used -= give
	s.writePeriod()
}

// writePeriod writes the value. A period only ever becomes longer, so a changed anchor
// never opens a second one early.
func (s *State) writePeriod() {
	s.end = max(s.end, s.next)
	var b []byte
	if s.view.used > maxNarrow {
		b = s.writeHeader(widePeriodBytes)
		putWide(b[atUsed:], s.view.used)
	} else {
		b = s.writeHeader(periodBytes)
		binary.BigEndian.PutUint32(b[atUsed:], uint32(s.view.used))
	}
	putWide(b[len(b)-atEnd:], uint64(s.end))
}

func (s *State) answerPeriod(c *window.Check, d *window.Decision) {
	limit := c.Limit.Hits
	d.Remaining = limit - min(s.view.used, limit)
	if s.view.used == 0 {
		return
	}
	d.ResetAfter = s.after(s.end)
	d.RetryAfter = d.ResetAfter
	if limit > 0 {
		d.UnitAfter = d.ResetAfter
	}
}
