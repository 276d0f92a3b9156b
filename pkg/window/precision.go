package window

import "time"

// ExactHits is the largest limit that is exact by default. For larger limits it is the
// number of instants per window that the default precision distinguishes.
const ExactHits = 10_000

// Precision returns the default precision of a limit. It is zero, which is exact, up to
// [ExactHits] hits. Above that it is a whole number of microseconds that divides the
// window into at most ExactHits parts. A log then holds at most ExactHits + 2 entries,
// whatever the limit.
func Precision(l Limit) time.Duration {
	if l.Hits <= ExactHits {
		return 0
	}
	const part = ExactHits * time.Microsecond
	return (l.Window + part - 1) / part * time.Microsecond
}
