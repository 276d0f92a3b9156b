package packed

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// # The packed values of the other policies
//
// Every policy but [window.Sliding] keeps one short value for each log, the same in the memory of a
// process and in Redis. Numbers are big-endian. All values begin alike:
//
//	0  kind   1   0xa0 + the number of the policy
//	1  clock  7   the time of the last write, microseconds
//	8  mark   1   of a charge that may be taken back; Redis alone uses it
//
// A [window.TokenBucket] goes on with:
//
//	 9  tokens   5   whole tokens + 2^32, so that it is never negative
//	14  fraction 6   of a token, in parts of 1/window in microseconds
//	20  life     4   seconds, rounded up, from the clock until the bucket is full
//
// [window.Fixed] and [window.Calendar] go on with:
//
//	 9  used  4   hits of the period
//	13  end   7   when the period ends, microseconds
//
// A [window.SlidingCounter] goes on with:
//
//	 9  current  4   hits of the clock's window in which clock is
//	13  previous 4   hits of the one before
//
// Where a number of hits does not fit into these bytes, the value is wide:
//
//	bucket   9  sign    1   1 if the tokens are below zero
//	        10  tokens  7   without the sign
//	period   9  used    7
//	counter  9  current 7
//	        16  previous 7
//
// What follows is as above. The length says whether a value is wide.
//
// A missing value is a full bucket, or nothing used.
const (
	kindPolicy = 0xa0 // + the policy's number
	kindStream = 0xa6 // what a stream holds, in Redis only; 0xa7 after its end
	atPolicy   = 9    // what follows depends on the policy

	bucketBytes  = 24
	periodBytes  = 20
	counterBytes = 17

	wideBucketBytes  = 27
	widePeriodBytes  = 23
	wideCounterBytes = 23

	// maxNarrow is the most hits of a value that is not wide.
	maxNarrow = math.MaxUint32
)

// wideNumber reads seven bytes.
func wideNumber(b []byte) uint64 {
	return uint64(b[0])<<48 | uint64(binary.BigEndian.Uint16(b[1:]))<<32 | uint64(binary.BigEndian.Uint32(b[3:]))
}

// putWide writes seven bytes.
func putWide(b []byte, n uint64) {
	b[0] = byte(n >> 48)
	binary.BigEndian.PutUint16(b[1:], uint16(n>>32))
	binary.BigEndian.PutUint32(b[3:], uint32(n))
}

// A State is a log of any policy, as one check sees it at one instant. For [window.Sliding] it is
// a [View]. [State.Look] must fill it in before any other method is called. It refers to
// the log's bytes, so it is valid until other code writes them. A State is not safe for
// concurrent use.
type State struct {
	// Of Sliding it has all. The other policies use its bytes, its clocks, its window,
	// what is used and whether the bytes are corrupt.
	view   View
	policy window.Policy

	tokens   int64  // of a bucket: whole tokens, below zero if overdrawn
	fraction uint64 // of a bucket: what there is of one token more, in 1/window

	end  int64 // of a period: when it ends, in microseconds
	next int64 // of a period: the same, for one that begins with this check

	current, previous uint64 // of a counter

	flight
}

// A flight is what a State knows of a log of [window.InFlight] besides. Its view has the first slot in use as live, and their number
// as total.
type flight struct {
	stream     window.StreamID // of the check
	streamHold int             // the hold of the stream, or -1
	ended      int64           // until when the stream is denied because it has ended, in milliseconds; or 0
	ofBudget   bool            // the holds are those of a Reserved
	passed     int             // the first slot that has not expired
	holds      int             // the number of holds
	rest       uint64          // the cost of the holds from passed on
	expired    window.Expired  // since the last write
	edges      bool            // the first slot or the last one has changed
	moved      bool            // all slots have
}

// View returns the view of a log of [window.Sliding]. Its methods are those of s for that policy, without
// the choice of a policy, and also before [State.Look]. For every policy but [window.InFlight],
// [View.Room] is what [State.Room] returns, except for a [window.Refund].
func (s *State) View() *View { return &s.view }

// Look fills s in with the log of a check at the time clock. clock is in microseconds since
// 1970, and at least 0. A nil log is missing. Look writes nothing and does not allocate.
//
// Look does not panic, whatever the bytes are. If they are not a log of the policy and the
// window, s shows a missing log and [State.Corrupt] returns true. For [window.Calendar], call
// [window.Period.Covers] before.
func (s *State) Look(log []byte, clock int64, c *window.Check) {
	v := &s.view
	switch s.policy = c.Limit.Policy; s.policy {
	case window.Sliding:
		v.Look(log, clock, c.Limit.Window)
		return
	case window.InFlight:
		s.lookHolds(log, clock, c.Limit.Window, c.Stream, 0)
		return
	default:
	}
	v.log = log
	v.real = min(max(clock, 0), window.MaxClock)
	v.now = v.real
	v.win = c.Limit.Window.Microseconds()
	v.used, v.corrupt = 0, false
	there := s.known(len(log) > 0 && s.readHeader() && s.readValue())
	switch s.policy {
	case window.TokenBucket:
		s.fill(c, there)
		v.used = c.Limit.Hits - uint64(s.tokens) // what Room reads; more than the limit if overdrawn
	case window.Fixed:
		s.choosePeriod((v.now/v.win+1)*v.win, there)
	case window.Calendar:
		// By the clock as given. If the log's clock is ahead, the period of the log is open,
		// and ends no earlier than it says.
		s.choosePeriod(endOfPeriod(c.Period, v.real), there)
	case window.SlidingCounter:
		s.turn(there)
	default:
	}
}

// known returns there: whether the bytes are a log of the check. It sets what follows from that
// for every policy.
func (s *State) known(there bool) bool {
	v := &s.view
	if there {
		// A clock that is set back does not bring back what is over.
		v.now = max(v.now, v.clock)
	} else {
		v.corrupt = len(v.log) > 0
		v.log = nil
	}
	return there
}

// readHeader reads what the values of all policies begin with. It returns false if the
// bytes are not a value of the policy.
func (s *State) readHeader() bool {
	v := &s.view
	if len(v.log) < atPolicy || v.log[0] != kindPolicy+byte(s.policy) {
		return false
	}
	clock := int64(binary.BigEndian.Uint64(v.log) & (1<<56 - 1)) // the kind is above the clock
	if clock > window.MaxClock {
		return false
	}
	v.clock = clock
	return true
}

// readValue reads what follows the header. It returns false if the bytes are not a value of
// the policy and the window.
func (s *State) readValue() bool {
	switch s.policy {
	case window.TokenBucket:
		return s.readBucket()
	case window.Fixed:
		return s.readPeriod(s.view.win)
	case window.Calendar:
		return s.readPeriod(window.MaxWindow.Microseconds())
	case window.SlidingCounter:
		return s.readCounter()
	case window.InFlight:
		return s.readHolds()
	default:
		return false
	}
}

// writeHeader makes room for a value of a length, if there is none yet, and writes the kind
// and the clock. The mark stays.
func (s *State) writeHeader(length int) []byte {
	v := &s.view
	if len(v.log) != length {
		v.log = make([]byte, length)
	}
	v.clock = v.now
	binary.BigEndian.PutUint64(v.log, uint64(kindPolicy+byte(s.policy))<<56|uint64(v.now))
	return v.log
}

// Room reports whether the cost of the check fits now. Cost 0 needs the room of 1. A
// [window.Refund] always has room.
func (s *State) Room(c *window.Check) bool {
	switch {
	case c.Mode == window.Refund:
		return true
	case s.policy == window.InFlight:
		return s.roomHolds(c.Limit.Hits, c.Cost)
	}
	return s.view.Room(c.Limit.Hits, c.Cost)
}

// Recordable returns how much of the check's cost [State.Charge] records: what fits into twice the
// limit, and into a log of the policy. In flight it is all of it.
func (s *State) Recordable(c *window.Check) uint64 {
	switch s.policy {
	case window.TokenBucket:
		used := uint64(int64(c.Limit.Hits) - s.tokens)
		return min(recordable(c, used), window.MaxHits-used)
	case window.Fixed, window.Calendar, window.SlidingCounter:
		return min(recordable(c, s.view.used), window.MaxHits-s.view.used)
	case window.InFlight:
		return c.Cost
	default:
		return s.view.Recordable(c)
	}
}

// Charge records the check's cost, whether or not it has room, and updates s. It does not
// record more than [State.Recordable]. Cost 0 records nothing. Charge changes the
// log's bytes in place, or moves them: [State.Log] returns them.
func (s *State) Charge(c *window.Check) {
	switch s.policy {
	case window.Sliding:
		s.view.Charge(c)
	case window.TokenBucket:
		s.chargeBucket(c)
	case window.Fixed, window.Calendar:
		s.chargePeriod(c)
	case window.SlidingCounter:
		s.chargeCounter(c)
	case window.InFlight:
		s.chargeHold(c)
	default:
	}
}

// Refund gives the check's cost back, and never more than is used. If there is nothing to
// give back, it writes nothing.
func (s *State) Refund(c *window.Check) {
	switch s.policy {
	case window.Sliding:
		s.view.Refund(c)
	case window.TokenBucket:
		s.refundBucket(c)
	case window.Fixed, window.Calendar:
		s.refundPeriod(c)
	case window.SlidingCounter:
		s.refundCounter(c)
	case window.InFlight:
		s.refundHold(c)
	default:
	}
}

// Answer fills in every field of d but Unsettled, which it sets to false, except in flight. It
// describes the log as it is now, so call it after [State.Charge] or [State.Refund]. room is the result
// of [State.Room] before the charge.
func (s *State) Answer(c *window.Check, room bool, d *window.Decision) {
	if s.policy == window.Sliding {
		s.view.Answer(c, room, d)
		return
	}
	*d = window.Decision{Allowed: room, Never: !room && max(c.Cost, 1) > c.Limit.Hits}
	switch s.policy {
	case window.TokenBucket:
		s.answerBucket(c, d)
	case window.Fixed, window.Calendar:
		s.answerPeriod(c, d)
	case window.SlidingCounter:
		s.answerCounter(c, d)
	case window.InFlight:
		s.answerHolds(c, d)
	default:
	}
	if room || d.Never {
		d.RetryAfter = 0
	}
}

// Growth returns by how many bytes the capacity of the log grows if [State.Charge] charges
// the check now: see [View.Growth].
func (s *State) Growth(c *window.Check) int {
	switch s.policy {
	case window.Sliding:
		return s.view.Growth(c)
	case window.InFlight:
		return s.growthHold(c)
	default:
		if s.view.log != nil && c.Limit.Hits <= maxNarrow/2 {
			return 0 // no charge makes it wide
		}
		cost := s.Recordable(c)
		if cost == 0 {
			return 0
		}
		wide := s.view.used+cost > maxNarrow
		switch s.policy {
		case window.TokenBucket:
			after := State{tokens: s.tokens - int64(cost)}
			wide = after.wideTokens()
		case window.SlidingCounter:
			wide = max(s.current+cost, s.previous) > maxNarrow
		default:
		}
		return max(valueBytes(s.policy, wide)-len(s.view.log), 0)
	}
}

// valueBytes returns the length of the values of a policy, or 0 if they have none.
func valueBytes(p window.Policy, wide bool) int {
	narrow, wider := 0, 0
	switch p {
	case window.TokenBucket:
		narrow, wider = bucketBytes, wideBucketBytes
	case window.Fixed, window.Calendar:
		narrow, wider = periodBytes, widePeriodBytes
	case window.SlidingCounter:
		narrow, wider = counterBytes, wideCounterBytes
	default:
	}
	if wide {
		return wider
	}
	return narrow
}

// Log returns the log's bytes. [State.Charge] and [State.Refund] may have moved them. Log
// returns nil if the log is missing and nothing was recorded.
func (s *State) Log() []byte { return s.view.log }

// Corrupt reports whether the bytes given to [State.Look] are not a log of the check. A
// charge then starts a new log and does not change those bytes.
func (s *State) Corrupt() bool { return s.view.corrupt }

// after returns the wait until the time at, in microseconds. It counts from the clock as
// given. So after the clock was set back, it includes the time to catch up.
func (s *State) after(at int64) time.Duration {
	return time.Duration(max(at-s.view.real, 0)) * time.Microsecond
}

// mulDiv returns a*b/d rounded down, and the rest. If the result does not fit, it returns
// the largest number. d is above zero.
func mulDiv(a, b, d uint64) (quotient, rest uint64) {
	hi, lo := bits.Mul64(a, b)
	if hi >= d {
		return 1<<64 - 1, 0
	}
	return bits.Div64(hi, lo, d)
}

// read reads the bytes of a log of any policy but [window.Sliding]. It returns false if they are
// not a log with that id.
func (s *State) read(log []byte, id window.LogID) bool {
	s.policy = id.Policy
	s.view.log = log
	s.view.win = id.Window.Microseconds()
	return len(log) > 0 && s.readHeader() && s.readValue()
}

// Is reports whether the bytes look like a log with an id, as [State.Look] sees it.
func Is(log []byte, id window.LogID) bool {
	var s State
	if id.Policy == window.Sliding {
		s.view.Look(log, 0, id.Window)
		return len(log) > 0 && !s.view.corrupt
	}
	return s.read(log, id)
}

// Weigh returns what a log uses of a limit at the time clock, without a check: never less
// than it uses, and zero if nothing counts any more and the store may drop the log. last is
// the time of its last charge. Times are in microseconds. The bytes of a log do not have
// the rate of a token bucket, so what it uses is estimated from the time until it is full. A limit
// above [window.MaxHits] says that the limit is not known.
func Weigh(log []byte, clock int64, id window.LogID, limit uint64) (used uint64, last int64) {
	var s State
	v := &s.view
	if id.Policy == window.Sliding {
		v.Look(log, clock, id.Window)
		return v.used, v.newest * v.unit
	}
	if !s.read(log, id) {
		return 0, 0
	}
	v.now = max(clock, v.clock)
	switch s.policy {
	case window.TokenBucket:
		v.used = s.weighBucket(limit)
	case window.Fixed, window.Calendar:
		s.choosePeriod(0, true)
	case window.SlidingCounter:
		s.turn(true)
	case window.InFlight:
		s.pass()
	default:
	}
	return v.used, v.clock
}
