package packed

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// tokensZero encodes a bucket with zero tokens. A wide one has a sign instead.
const tokensZero = 1 << 32

const (
	atTokens = atPolicy
	// Counted from the end.
	atFraction = 10
	atLife     = 4
)

// readBucket reads the tokens as of the last write. It returns false if the bytes are not a
// token bucket of the window.
func (s *State) readBucket() bool {
	b := s.view.log
	switch len(b) {
	case bucketBytes:
		s.tokens = int64(binary.BigEndian.Uint64(b[atTokens-3:])&(1<<40-1)) - tokensZero
	case wideBucketBytes:
		s.tokens = int64(wideNumber(b[atTokens+1:]))
		if b[atTokens] != 0 {
			s.tokens = -s.tokens
		}
	default:
		return false
	}
	s.fraction = binary.BigEndian.Uint64(b[len(b)-atFraction-2:]) & (1<<48 - 1)
	return s.wideTokens() == (len(b) == wideBucketBytes) && -window.MaxHits <= s.tokens && s.tokens <= window.MaxHits && s.fraction < uint64(s.view.win)
}

// wideTokens reports whether the tokens need a wide value.
func (s *State) wideTokens() bool { return s.tokens <= -tokensZero || s.tokens >= tokensZero }

// fill adds the tokens that have come back since the last write, at the rate of the check.
// The bucket never has more than the check's burst, and never less than minus the burst. A
// missing bucket is full.
func (s *State) fill(c *window.Check, there bool) {
	burst := int64(c.Limit.Hits)
	if !there || s.tokens >= burst {
		s.tokens, s.fraction = burst, 0
		return
	}
	if s.tokens < 0 {
		// Before the tokens come back: the waits that an earlier answer promised stay true.
		if lowest := max(-burst, burst-window.MaxHits); s.tokens < lowest {
			s.tokens, s.fraction = lowest, 0
		}
	}
	win := uint64(s.view.win)
	hi, lo := bits.Mul64(uint64(s.view.now-s.view.clock), uint64(c.Limit.Rate))
	lo, carry := bits.Add64(lo, s.fraction, 0)
	if hi += carry; hi >= win {
		s.tokens, s.fraction = burst, 0
		return
	}
	if hi == 0 && lo < win {
		s.fraction = lo // not a whole token: usual if the bucket is empty, and then without a division
		return
	}
	whole, rest := bits.Div64(hi, lo, win)
	if whole >= uint64(burst-s.tokens) {
		s.tokens, s.fraction = burst, 0
		return
	}
	s.tokens += int64(whole)
	s.fraction = rest
}

func (s *State) chargeBucket(c *window.Check) {
	cost := s.Recordable(c)
	if cost == 0 {
		return
	}
	s.tokens -= int64(cost)
	s.writeBucket(c)
}

func (s *State) refundBucket(c *window.Check) {
	missing := uint64(int64(c.Limit.Hits) - s.tokens)
	give := min(c.Cost, missing)
	if give == 0 {
		return
	}
	s.tokens += int64(give)
	if give == missing {
		s.fraction = 0
	}
	s.writeBucket(c)
}

func (s *State) writeBucket(c *window.Check) {
	full := s.until(int64(c.Limit.Hits), c.Limit)
	s.putBucket(int64((full + time.Second - 1) / time.Second))
}

// putBucket writes the value. life is the number of seconds until the bucket is full.
func (s *State) putBucket(life int64) {
	var b []byte
	if s.wideTokens() {
		b = s.writeHeader(wideBucketBytes)
		b[atTokens] = 0
		if s.tokens < 0 {
			b[atTokens] = 1
		}
		putWide(b[atTokens+1:], uint64(max(s.tokens, -s.tokens)))
	} else {
		b = s.writeHeader(bucketBytes)
		tokens := uint64(s.tokens + tokensZero)
		b[atTokens] = byte(tokens >> 32)
		binary.BigEndian.PutUint32(b[atTokens+1:], uint32(tokens))
	}
	end := b[len(b)-atFraction:]
	binary.BigEndian.PutUint16(end, uint16(s.fraction>>32))
	binary.BigEndian.PutUint32(end[2:], uint32(s.fraction))
	binary.BigEndian.PutUint32(end[atFraction-atLife:], uint32(life))
}

// until returns how long after now the bucket has so many tokens, at most the burst. It is in
// whole microseconds, rounded up.
func (s *State) until(tokens int64, l window.Limit) time.Duration {
	if tokens <= s.tokens {
		return 0
	}
	hi, lo := bits.Mul64(uint64(tokens-s.tokens), uint64(s.view.win))
	lo, borrow := bits.Sub64(lo, s.fraction, 0)
	lo, carry := bits.Add64(lo, uint64(l.Rate)-1, 0) // rounds up
	if hi += carry - borrow; hi >= uint64(l.Rate) {
		return 2 * window.MaxWindow // only for a limit that is not valid
	}
	wait, _ := bits.Div64(hi, lo, uint64(l.Rate))
	return time.Duration(min(wait, uint64(2*window.MaxWindow.Microseconds()))) * time.Microsecond
}

func (s *State) answerBucket(c *window.Check, d *window.Decision) {
	burst, has := int64(c.Limit.Hits), max(s.tokens, 0)
	d.Remaining = uint64(has)
	if s.tokens == burst { // so is every bucket of nothing
		return
	}
	late := time.Duration(s.view.now-s.view.real) * time.Microsecond // until the clock has caught up
	d.ResetAfter = late + s.until(burst, c.Limit)
	d.UnitAfter = late + s.until(has+1, c.Limit)
	switch need := max(c.Cost, 1); {
	case d.Allowed || d.Never:
	case need == 1:
		d.RetryAfter = d.UnitAfter
	default:
		d.RetryAfter = late + s.until(int64(need), c.Limit)
	}
}

// weighBucket is [Weigh] for what was read from a bucket.
func (s *State) weighBucket(limit uint64) uint64 {
	life := int64(binary.BigEndian.Uint32(s.view.log[len(s.view.log)-atLife:])) * 1e6
	left := s.view.clock + life - s.view.now
	switch missing := int64(limit) - s.tokens; {
	case left <= 0:
		return 0
	case limit > window.MaxHits || missing <= 0:
		return 1 // the burst is not known
	default:
		// The bucket fills evenly, and is full when its life is over or before.
		used, rest := mulDiv(uint64(missing), uint64(left), uint64(life))
		if rest > 0 {
			used++
		}
		return used
	}
}
