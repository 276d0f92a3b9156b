package window

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// A Policy says how a limit counts. The zero value is [Sliding]. docs/limits.md compares
// them.
type Policy uint8

const (
	// Sliding is the exact sliding-window log: no interval of the window's length admits
	// more than the limit.
	Sliding Policy = iota
	// TokenBucket admits bursts of [Limit.Hits], and [Limit.Rate] hits in each window in the
	// long run: no interval of length t admits more than Hits + Rate * t / Window.
	TokenBucket
	// Fixed counts in windows that begin at whole multiples of the window
	// since 1970-01-01 UTC. No such window admits more than the limit, but two of them
	// together can admit twice the limit within any short time.
	Fixed
	// Calendar counts in periods of a calendar: [Check.Period] says when they begin and end.
	// No period admits more than the limit.
	Calendar
	// SlidingCounter estimates a sliding window from two fixed windows: the hits of
	// the current one, and those of the previous one times the fraction of it that the sliding
	// window still covers.
	SlidingCounter
	// InFlight counts what streams hold now. [Releaser.End] gives it back.
	InFlight
)

var policyNames = [...]string{
	Sliding: "sliding", TokenBucket: "token_bucket", Fixed: "fixed", Calendar: "calendar",
	SlidingCounter: "sliding_counter", InFlight: "in_flight",
}

// String returns the policy's name, as rules files write it.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// MaxInFlight is the largest limit of [InFlight]. A store reads and writes all holds of a
// log with each check.
const MaxInFlight = 10_000

// MinHold is the shortest [Limit.Window] of [InFlight].
const MinHold = time.Second

// A Period says when the periods of a calendar begin and end, in seconds since 1970-01-01
// UTC. The store's clock chooses one of them. The zero value is no period.
type Period struct {
	// Start and End are those of the period in which the caller's clock is, and Next is the
	// end of the following period: Start < End < Next. No period is longer than [MaxWindow].
	Start, End, Next int64
}

// PeriodSlack is how far the clocks of a caller and a store may differ: see
// [Period.Covers].
const PeriodSlack = time.Minute

// Covers reports whether p is of use for a store whose clock is so many microseconds after
// 1970: the clock is before p.Next, and not more than [PeriodSlack] before p.Start.
// Otherwise the store refuses the check with [ErrPeriod].
func (p Period) Covers(clock int64) bool {
	return clock < p.Next*1e6 && p.Start*1e6-clock <= PeriodSlack.Microseconds()
}

// At returns the period for a store whose clock is so many microseconds after 1970: p, or after p.Next a
// later one that is as long as the last one of p.
func (p Period) At(clock int64) Period {
	if length := p.Next - p.End; length > 0 && clock >= p.Next*1e6 {
		p.Start = p.Next + (clock/1e6-p.Next)/length*length
		p.End, p.Next = p.Start+length, p.Start+2*length
	}
	return p
}

// A StreamID is the digest of what names a stream. Zero names no stream.
type StreamID uint64

// ErrPeriod is wrapped by the error of a [Store.Take] whose [Check.Period] contradicts the
// store's clock. Nothing was charged.
var ErrPeriod = errors.New("window: the store's clock is outside the given periods; synchronise the clocks of this machine and the store")

// validPolicy reports what is wrong with the policy of l and what belongs to it, or nil.
func (l Limit) validPolicy() error {
	switch {
	case l.Policy > InFlight:
		return fmt.Errorf("%v is not a policy", l.Policy)
	case l.Policy != TokenBucket && l.Rate != 0:
		return fmt.Errorf("a limit with the policy %v has no rate, got %d", l.Policy, l.Rate)
	case l.Policy == TokenBucket && l.Rate == 0:
		return errors.New("a token bucket needs a rate above zero")
	case l.Policy == TokenBucket && l.Hits != Unlimited && !l.fillsWithin(MaxWindow):
		return fmt.Errorf("a token bucket of %d hits at %d each %v takes longer than %v to fill", l.Hits, l.Rate, l.Window, MaxWindow)
	case l.Policy == InFlight && l.Window < MinHold:
		return fmt.Errorf("a hold of %v is shorter than %v", l.Window, MinHold)
	case l.Policy == InFlight && l.Hits > MaxInFlight && l.Hits != Unlimited:
		return fmt.Errorf("a limit of %d in flight is above %d", l.Hits, MaxInFlight)
	}
	return nil
}

// fillsWithin reports whether an empty token bucket is full after a time, give or take less
// than a nanosecond.
func (l Limit) fillsWithin(most time.Duration) bool {
	// Products of 128 bits: a division takes as long as all the rest.
	hits, low := bits.Mul64(l.Hits, uint64(l.Window))
	back, lowBack := bits.Mul64(uint64(l.Rate), uint64(most)+1)
	return hits < back || hits == back && low < lowBack
}

// fillsSoon reports whether an empty token bucket is certainly full after [MaxWindow]. It is a
// fillsWithin without products of 128 bits, and false for a few buckets that take nearly as long.
func (l Limit) fillsSoon() bool {
	const scale = 24 // bits: no product has more than 64 then
	return l.Hits <= Unlimited && l.Hits*(uint64(l.Window)>>scale+1) <= uint64(l.Rate)*(uint64(MaxWindow)>>scale)
}

// maxPeriod is the length of the longest period, in seconds.
const maxPeriod = int64(MaxWindow / time.Second)

// plain reports whether c has nothing but what its policy needs, and needs no period.
func (c *Check) plain() bool {
	p := c.Limit.Policy
	return (p == InFlight) == (c.Stream != 0) && c.Budget == nil && c.Once.ID == 0 && c.Period == Period{} && p != Calendar && (p == Sliding || c.Precision == 0 && c.Lease == Lease{})
}

// validPolicy reports what c has too much or too little for its policy, or nil.
func (c *Check) validPolicy() error {
	p := c.Limit.Policy
	switch {
	case p != Sliding && c.Precision != 0:
		return fmt.Errorf("a check with the policy %v has no precision, got %v", p, c.Precision)
	case p != Sliding && c.Lease != Lease{}:
		return fmt.Errorf("a check with the policy %v has no lease", p)
	case (p == Calendar) != (c.Period != Period{}):
		return fmt.Errorf("a check with the policy %v and the period %v: only a calendar has a period, and needs one", p, c.Period)
	case p == Calendar && (c.Period.Start >= c.Period.End || c.Period.End >= c.Period.Next || c.Period.Start < 0):
		return fmt.Errorf("the period %v does not begin before it ends", c.Period)
	case c.Period.Start > MaxClock/1_000_000:
		return fmt.Errorf("the period %v begins later than a store's clock can be", c.Period)
	case c.Period.End-c.Period.Start > maxPeriod || c.Period.Next-c.Period.End > maxPeriod:
		return fmt.Errorf("the period %v or the next one is longer than %v", c.Period, MaxWindow)
	case (p == InFlight || c.Budget != nil) != (c.Stream != 0):
		return fmt.Errorf("a check with the policy %v and the stream %d: only a check in flight or with a budget has a stream, and needs one", p, c.Stream)
	}
	if err := c.validBudget(); err != nil {
		return err
	}
	return c.validOnce()
}
