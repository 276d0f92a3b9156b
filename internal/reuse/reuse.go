// Package reuse empties the memory of one request for the next.
package reuse

import "unsafe"

// MaxBytes is the largest memory of a slice that [Slice] keeps. Few requests need more.
const MaxBytes = 32 << 10

// Slice clears s and returns it with length zero. If its memory is larger than
// [MaxBytes], Slice returns nil. The memory behind the end of s must be clear already:
// code that shortens a slice in another way clears what it cuts off.
func Slice[T any](s []T) []T {
	var item T
	if uintptr(cap(s))*unsafe.Sizeof(item) > MaxBytes {
		return nil
	}
	clear(s)
	return s[:0]
}
