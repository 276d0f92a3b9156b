// Package reuse clears the memory of one request for the next request.
package reuse

import "unsafe"

// MaxBytes is the largest slice that [Slice] keeps, in bytes. Few requests need more.
const MaxBytes = 32 << 10

// Slice clears s and returns it with length zero. If s has more memory than [MaxBytes],
// Slice returns nil. The memory behind the end of s must be zero already: code that
// shortens a slice must clear the part that it cuts off.
func Slice[T any](s []T) []T {
	var item T
	if uintptr(cap(s))*unsafe.Sizeof(item) > MaxBytes {
		return nil
	}
	clear(s)
	return s[:0]
}
