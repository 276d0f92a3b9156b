package traffic

import (
	"slices"
	"time"
)

// A Span is a time in which something happened once, by one clock: a charge happens between the
// sending of its call and the answer.
type Span struct{ From, To time.Duration }

// MostInWindow returns the largest number of spans whose events certainly lie in one half-open
// interval of the window's length. They do if the first span began less than a window before the
// last one ended.
func MostInWindow(spans []Span, window time.Duration) int {
	most := 0
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b Span) int { return int(a.From - b.From) })
	for i, first := range sorted {
		n := 0
		for _, s := range sorted[i:] {
			if s.From-first.From >= window {
				break
			}
			if s.To-first.From < window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
