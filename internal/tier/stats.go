package tier

import (
	"sync/atomic"
	"time"
)

// CacheStats are what a [Cache] has counted since it was made, and what it is now.
type CacheStats struct {
	// How requests were answered. Every one is counted once.
	Hits         uint64 // a subject, without asking
	NegativeHits uint64 // nobody, without asking
	Asked        uint64 // by the source, while the request waited
	Stale        uint64 // by a record that had expired
	Unavailable  uint64

	// What became of questions. The last two were not asked.
	Found, Unknown, BadRecords, Timeouts, Errors uint64
	Limited                                      uint64 // LookupsPerSecond, or too many under way
	Refused                                      uint64 // the source had failed

	Pushes       uint64 // changes that the source told of
	UnknownTiers uint64 // records with a tier that the rules do not know
	UnknownRules uint64 // overrides of rules that there are not

	Subjects    int  // records of known keys
	UnknownKeys int  // records of keys that nobody has
	Questions   int  // under way
	Open        bool // the source has failed and is not asked
	Watching    bool // the source tells of changes

	LastAnswer time.Time     // when the source answered last; zero: never
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

// Stats returns what was counted. Its numbers are not all of one moment.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	questions := c.questions.all
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
