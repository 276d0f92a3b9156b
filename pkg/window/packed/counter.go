package packed

import (
	"encoding/binary"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	atCurrent  = atPolicy
	atPrevious = 13

	atWidePrevious = 16
)

// readCounter reads the two windows as of the last write. It returns false if the bytes are
// not a sliding counter.
func (s *State) readCounter() bool {
	b := s.view.log
	switch len(b) {
	case counterBytes:
		s.current = uint64(binary.BigEndian.Uint32(b[atCurrent:]))
		s.previous = uint64(binary.BigEndian.Uint32(b[atPrevious:]))
		return true
	case wideCounterBytes:
		s.current, s.previous = wideNumber(b[atCurrent:]), wideNumber(b[atWidePrevious:])
		most := max(s.current, s.previous)
		return most > maxNarrow && most <= window.MaxHits
	default:
		return false
	}
}

// turn makes the windows those of now, and finds what is used.
func (s *State) turn(there bool) {
	if !there {
		s.current, s.previous = 0, 0
		return
	}
	v := &s.view
	switch v.now/v.win - v.clock/v.win {
	case 0:
	case 1:
		s.current, s.previous = 0, s.current
	default:
		s.current, s.previous = 0, 0
	}
	s.weigh()
}

// weigh finds what is used: the hits of the current window, and of the previous one the
// fraction that the sliding window still covers, rounded up.
func (s *State) weigh() {
	s.view.used = s.current
	if s.previous > 0 {
		win := uint64(s.view.win)
		weighted, rest := mulDiv(s.previous, win-uint64(s.view.now)%win, win)
		if rest > 0 {
			weighted++
		}
		s.view.used += weighted
	}
}

func (s *State) chargeCounter(c *window.Check) {
	cost := s.Recordable(c)
	if cost == 0 {
		return
	}
	s.current += cost
	s.view.used += cost
	s.writeCounter()
}

// refundCounter gives hits of the current window back first, then of the previous one.
func (s *State) refundCounter(c *window.Check) {
	current := min(c.Cost, s.current)
	previous := min(min(c.Cost, window.MaxHits+1)-current, s.previous) // no more than the script takes
	if current+previous == 0 {
		return
	}
	s.current -= current
	s.previous -= previous
	s.weigh()
	s.writeCounter()
}

func (s *State) writeCounter() {
	if s.current > maxNarrow || s.previous > maxNarrow {
		b := s.writeHeader(wideCounterBytes)
		putWide(b[atCurrent:], s.current)
		putWide(b[atWidePrevious:], s.previous)
		return
	}
	b := s.writeHeader(counterBytes)
	binary.BigEndian.PutUint32(b[atCurrent:], uint32(s.current))
	binary.BigEndian.PutUint32(b[atPrevious:], uint32(s.previous))
}

func (s *State) answerCounter(c *window.Check, d *window.Decision) {
	limit, used := c.Limit.Hits, s.view.used
	d.Remaining = limit - min(used, limit)
	if used == 0 {
		return
	}
	d.ResetAfter = s.afterUsed(0)
	if limit > 0 {
		d.UnitAfter = s.afterUsed(min(used, limit) - 1)
	}
	switch need := max(c.Cost, 1); {
	case d.Allowed || d.Never:
	case need == 1:
		d.RetryAfter = d.UnitAfter
	default:
		d.RetryAfter = s.afterUsed(limit - need)
	}
}

// afterUsed returns the wait until no more than so many hits are used.
func (s *State) afterUsed(most uint64) time.Duration {
	if s.view.used <= most {
		return 0
	}
	win := s.view.win
	begin := s.view.now / win * win
	if s.current > most {
		// Not before the next window, in which the current one is the previous one.
		return s.after(begin + win + shrinks(s.current, most, win))
	}
	return s.after(begin + shrinks(s.previous, most-s.current, win))
}

// shrinks returns how far into a window no more than so many hits of the previous window
// are covered, in microseconds. There are more than that at its beginning.
func shrinks(previous, most uint64, win int64) int64 {
	if previous <= most {
		return 0
	}
	left, _ := mulDiv(most, uint64(win), previous)
	return win - int64(left)
}
