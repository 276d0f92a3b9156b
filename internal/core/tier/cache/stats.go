package cache

import (
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/core/cells"
)

// Stats are the counts of a [Cache] since it was made, and its present state.
type Stats struct {
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

	Pushes   uint64 // changes that the source reported
	Open     bool   // the source has failed and is not asked
	Watching bool   // the source reports changes
}

type counters struct {
	hits, negativeHits                           cells.Counter // each request counts in one of them
	asked, stale, unavailable                    atomic.Uint64
	found, unknown, badRecords, timeouts, errors atomic.Uint64
	limited, refused, pushes                     atomic.Uint64
}

// Stats returns the counts. They are not all of one moment.
func (c *Cache) Stats() Stats {
	n := &c.count
	return Stats{
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
		Open:         c.health.open.Load(),
		Watching:     c.watching.Load(),
	}
}
