// Package reuse clears the memory of one request for the next request: slices are emptied, zeroed
// and kept up to [MaxBytes] ([Slice], [Grow], [Reset]).
package reuse

import "unsafe"

// MaxBytes is the largest slice that [Slice] keeps, in bytes. Few requests need more.
const MaxBytes = 32 << 10

// Slice clears s and returns it with length zero. If s has more memory than [MaxBytes],
// Slice returns nil. The memory behind the end of s must be zero already: code that
// shortens a slice must clear the part that it cuts off.
func Slice[T any](s []T) []T {
	var item T
	if uintptr(cap(s)) > MaxBytes/unsafe.Sizeof(item) {
		return nil
	}
	switch len(s) {
	case 0: // as most are
	case 1:
		s[0] = item // without a call
	default:
		clear(s)
	}
	return s[:0]
}

// Grow returns s with one more item, which is zero if the memory behind the end of s is.
func Grow[T any](s []T) []T {
	if n := len(s); n < cap(s) {
		return s[:n+1]
	}
	var item T
	return append(s, item)
}

// Reset is Slice for a variable: it does nothing to an empty one.
func Reset[T any](s *[]T) {
	if len(*s) > 0 {
		*s = Slice(*s)
	}
}
