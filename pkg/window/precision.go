package window

import "time"

// ExactHits is the largest limit that is exact unless somebody asks for more or
// less precision, and the number of times in a window that larger ones tell
// apart.
const ExactHits = 10_000

// Precision returns the precision that a limit gets unless somebody chooses
// another: exact up to [ExactHits] hits, above it a whole number of microseconds
// that divides the window into ExactHits parts at most. A log then holds no more
// than ExactHits + 2 entries, whatever the limit.
func Precision(l Limit) time.Duration {
	if l.Hits <= ExactHits {
		return 0
	}
	const part = ExactHits * time.Microsecond
	return (l.Window + part - 1) / part * time.Microsecond
}
