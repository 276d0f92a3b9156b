package tier

import (
	"sync/atomic"
	"time"
)

// CacheStats are the counts of a [Cache] since it was made, and its present state.
type CacheStats struct {
	// Answers to requests. Each request is counted once.
	Hits         uint64 // a subject, without a question
	NegativeHits uint64 // an unknown key, without a question
	Asked        uint64 // from the source, after the request waited
	Stale        uint64 // an expired record
	Unavailable  uint64

	// Results of look-ups. The source did not see the last two.
	Found, Unknown, BadRecords, Timeouts, Errors uint64
	Limited                                      uint64 // because too many keys waited
	Refused                                      uint64 // because the source had failed

	Pushes       uint64 // changes that the source reported
	UnknownTiers uint64 // records with an unknown tier
	UnknownRules uint64 // overrides of unknown rules

	Subjects    int  // records of known keys
	UnknownKeys int  // records of unknown keys
	Questions   int  // look-ups that wait or are under way
	Open        bool // the source has failed and is not asked
	Watching    bool // the source reports changes

	LastAnswer time.Time     // when the source last answered; zero: never
	StaleAge   time.Duration // how old the last stale answer was
}

type counters struct {
	hits, negativeHits, asked, stale, unavailable atomic.Uint64
	found, unknown, badRecords, timeouts, errors  atomic.Uint64
	limited, refused, pushes                      atomic.Uint64
	unknownTiers, unknownRules                    atomic.Uint64

	answered atomic.Int64 // Unix time in nanoseconds
	staleAge atomic.Int64 // in nanoseconds
}

// Stats returns the counts. They are not all of one moment.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	questions := len(c.flights)
	c.mu.Unlock()
	n := &c.count
	s := CacheStats{
		Hits:         n.hits.Load(),
		NegativeHits: n.negativeHits.Load(),
		Asked:        n.asked.Load(),
		Stale:        n.stale.Load(),
		Unavailable:  n.unavailable.Load(),
		Found:        n.found.Load(),
		Unknown:      n.unknown.Load(),
		BadRecords:   n.badRecords.Load(),
		Timeouts:     n.timeouts.Load(),
		Errors:       n.errors.Load(),
		Limited:      n.limited.Load(),
		Refused:      n.refused.Load(),
		Pushes:       n.pushes.Load(),
		UnknownTiers: n.unknownTiers.Load(),
		UnknownRules: n.unknownRules.Load(),
		Subjects:     c.known.EstimatedSize(),
		UnknownKeys:  c.unknown.EstimatedSize(),
		Questions:    questions,
		Open:         c.open.Load(),
		Watching:     c.watching.Load(),
		StaleAge:     time.Duration(n.staleAge.Load()),
	}
	if t := n.answered.Load(); t != 0 {
		s.LastAnswer = time.Unix(0, t)
	}
	return s
}
