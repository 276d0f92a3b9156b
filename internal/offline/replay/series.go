package replay

import "time"

// maxBuckets bounds the length of a [Series].
const maxBuckets = 60

// steps are the lengths of buckets. Each is a multiple of the one before it. Longer ones double.
var steps = [...]time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
	time.Hour, 3 * time.Hour, 12 * time.Hour, 24 * time.Hour,
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
	to            time.Duration // end of the last bucket
}

// Count counts a request at a time since 1970. A request before the last bucket counts there.
func (s *Series) Count(at time.Duration, denied bool) {
	if at >= s.to {
		s.extend(at)
	}
	last := len(s.Requests) - 1
	s.Requests[last]++
	if denied {
		s.Denied[last]++
	}
}

// extend makes the bucket of a time the last one.
func (s *Series) extend(at time.Duration) {
	if s.length == 0 {
		s.length = steps[0]
		s.first = floor(at, s.length)
		s.Requests, s.Denied = make([]uint64, 0, maxBuckets), make([]uint64, 0, maxBuckets)
	}
	for (at-s.first)/s.length >= maxBuckets {
		s.lengthen()
	}
	for n := int((at-s.first)/s.length) + 1; len(s.Requests) < n; {
		s.Requests, s.Denied = append(s.Requests, 0), append(s.Denied, 0)
	}
	s.to = floor(at, s.length) + s.length
	s.From, s.Seconds = time.Unix(0, int64(s.first)).UTC(), int64(s.length/time.Second)
}

// lengthen replaces the buckets by fewer, longer ones.
func (s *Series) lengthen() {
	longer := 2 * s.length
	for _, step := range steps {
		if step > s.length {
			longer = step
			break
		}
	}
	first := floor(s.first, longer)
	n := 0
	for i := range s.Requests {
		to := int((s.first + time.Duration(i)*s.length - first) / longer)
		requests, denied := s.Requests[i], s.Denied[i]
		s.Requests[i], s.Denied[i] = 0, 0
		s.Requests[to] += requests
		s.Denied[to] += denied
		n = to + 1
	}
	s.Requests, s.Denied = s.Requests[:n], s.Denied[:n]
	s.first, s.length = first, longer
}

// floor returns the last multiple of a length that is not after a time.
func floor(at, length time.Duration) time.Duration {
	rest := at % length
	if rest < 0 {
		rest += length
	}
	return at - rest
}
