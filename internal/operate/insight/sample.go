package insight

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A sampler chooses which of many events are recorded. Up to perSecond events a second it
// chooses all. Above that it chooses one of n at random, as the rate of the last second
// demands. In a second in which the rate rises it chooses up to 2 × perSecond. It is safe for
// concurrent use.
type sampler struct {
	perSecond uint64
	// step is after how many events above perSecond the part is halved.
	step uint64
	// one of this many events is chosen: 1 or more, or none.
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
	// headroom is the fraction of perSecond that a sample aims at, so that chance stays below it.
	headroom = 0.8
)

func newSampler(perSecond int, now time.Time) *sampler {
	s := &sampler{perSecond: uint64(max(perSecond, 1)), at: now}
	s.step = max(s.perSecond/halvings, 1)
	s.oneOf.Store(1)
	return s
}

// choose reports whether an event is to be recorded, and how many events it stands for. An event
// that is not recorded but stands for some is one for which no other stands.
func (s *sampler) choose() (stands uint64, record bool) {
	n := s.oneOf.Load()
	switch {
	case n == none:
		return 1, false
	case n > 1 && rand.Uint64N(n) != 0: //nolint:gosec // chance, not a secret
		return 0, false
	}
	switch chosen := s.chosen.Add(1); {
	case chosen > 2*s.perSecond:
		s.oneOf.Store(none)
		return n, false
	case chosen > s.perSecond && (chosen-s.perSecond)%s.step == 0:
		s.oneOf.CompareAndSwap(n, 2*n)
	}
	return n, true
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

// part returns n if one of n events is recorded now. seen is as for tick.
func (s *sampler) part(seen uint64) uint64 {
	if n := s.oneOf.Load(); n != none {
		return n
	}
	// None is until the second is over. The rate is at least this.
	return max((seen-min(s.seenAt.Load(), seen))/s.perSecond, 2)
}
