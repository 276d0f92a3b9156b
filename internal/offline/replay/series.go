package replay

import (
	"slices"
	"time"
)

// maxBuckets bounds the length of a [Series].
const maxBuckets = 60

// steps are the lengths of buckets. Each is a multiple of the one before it.
var steps = [...]time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
	time.Hour, 3 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour, 364 * 24 * time.Hour, 3640 * 24 * time.Hour,
}

// A Series counts requests over time, in at most 60 buckets of one length. Buckets begin at a
// multiple of their length since 1970. The zero value is usable.
type Series struct {
	From time.Time `json:"from"` // begin of the first bucket
	// Seconds is the length of a bucket: as short as the number of buckets allows.
	Seconds  int64    `json:"seconds"`
	Requests []uint64 `json:"requests"`
	Denied   []uint64 `json:"denied"`

	first, length time.Duration // since 1970; of a bucket
}

// Count counts a request at a time since 1970. A request before the first bucket counts there.
func (s *Series) Count(at time.Duration, denied bool) {
	if s.length == 0 {
		s.first = at
		s.lengthen()
	}
	for (at-s.first)/s.length >= maxBuckets {
		s.lengthen()
	}
	n := uint64(0)
	if denied {
		n = 1
	}
	s.add(int(max(at-s.first, 0)/s.length), 1, n)
}

// add adds counts to a bucket, which may be a new one.
func (s *Series) add(bucket int, requests, denied uint64) {
	for len(s.Requests) <= bucket {
		s.Requests, s.Denied = append(s.Requests, 0), append(s.Denied, 0)
	}
	s.Requests[bucket] += requests
	s.Denied[bucket] += denied
}

// lengthen replaces the buckets by fewer, longer ones.
func (s *Series) lengthen() {
	old := *s
	s.length = steps[slices.IndexFunc(steps[:], func(step time.Duration) bool { return step > old.length })]
	s.first = old.first.Truncate(s.length)
	s.Requests, s.Denied = []uint64{}, []uint64{}
	for i := range old.Requests {
		s.add(int((old.first+time.Duration(i)*old.length-s.first)/s.length), old.Requests[i], old.Denied[i])
	}
	s.From, s.Seconds = at(s.first), int64(s.length/time.Second)
}
