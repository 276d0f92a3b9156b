package main

import "time"

// A fixedWindow counts as rate limiters commonly do: by the second of the wall
// clock, starting again at zero with every new one. It is here to be compared
// with, and is not safe for concurrent use.
type fixedWindow struct {
	limit  int
	second int64
	count  int
}

// allow counts a request at a moment and reports whether it is within the limit.
func (f *fixedWindow) allow(at time.Time) bool {
	if s := at.Unix(); s != f.second {
		f.second, f.count = s, 0
	}
	f.count++
	return f.count <= f.limit
}
