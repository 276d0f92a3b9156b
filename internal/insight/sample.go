package insight

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A sampler chooses which of many events are recorded. Up to perSecond events a second it
// chooses all. Above that it chooses one of so many at random, as the rate of the last second
// demands. In a second in which the rate rises it chooses up to 2 × perSecond. It is safe for
// concurrent use.
type sampler struct {
	perSecond uint64
	// step is after how many events above perSecond the part is halved.
	step uint64
	// one of so many events is chosen: 1 or more, or none.
	oneOf  atomic.Uint64
	chosen atomic.Uint64 // in this second

	// tick writes them.
	seenAt atomic.Uint64
	at     time.Time
}

const (
	// none as sampler.oneOf chooses no event until the next second.
	none = math.MaxUint64
	// halvings is how often the part is halved at most between perSecond and 2 × perSecond.
	halvings = 20
	// headroom is the share of perSecond that a sample aims at, so that chance stays below it.
	headroom = 0.8
)

func newSampler(perSecond int, now time.Time) *sampler {
	s := &sampler{perSecond: uint64(max(perSecond, 1)), at: now}
	s.step = max(s.perSecond/halvings, 1)
	s.oneOf.Store(1)
	return s
}

// choose returns how many events one event stands for, if it is to be recorded, and zero
// otherwise.
func (s *sampler) choose() (stands uint64) {
	n := s.oneOf.Load()
	if n > 1 && (n == none || rand.Uint64N(n) != 0) { //nolint:gosec // chance, not a secret
		return 0
	}
	switch chosen := s.chosen.Add(1); {
	case chosen > 2*s.perSecond:
		s.oneOf.Store(none)
		return 0
	case chosen > s.perSecond && (chosen-s.perSecond)%s.step == 0:
		s.oneOf.CompareAndSwap(n, 2*n)
	}
	return n
}

// tick begins the next second. seen is the number of events since the start. Calls less than half
// a second apart do nothing. Two calls must not overlap.
func (s *sampler) tick(now time.Time, seen uint64) {
	past := now.Sub(s.at)
	if past < time.Second/2 {
		return
	}
	rate := float64(seen-s.seenAt.Load()) / past.Seconds()
	s.at = now
	s.seenAt.Store(seen)
	n := uint64(1)
	if rate > float64(s.perSecond) {
		n = uint64(math.Ceil(rate / (headroom * float64(s.perSecond))))
	}
	s.chosen.Store(0)
	s.oneOf.Store(n)
}

// part returns that one of so many events is recorded now. seen is as for tick.
func (s *sampler) part(seen uint64) uint64 {
	if n := s.oneOf.Load(); n != none {
		return n
	}
	// None is until the second is over. The rate is at least this.
	return max((seen-min(s.seenAt.Load(), seen))/s.perSecond, 2)
}
