// Package reusetest is for tests of memory that one request leaves to the next.
package reusetest

import (
	"reflect"
	"unsafe"
)

// T is a *testing.T or a *rapid.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// NothingIn fails unless v is zero. Slices must be empty, and zero up to their capacity.
func NothingIn(t T, name string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			NothingIn(t, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		if v.Len() != 0 {
			t.Errorf("%s has %d items, want none", name, v.Len())
		}
		all := reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem().Slice3(0, v.Cap(), v.Cap()) //nolint:gosec // it looks behind the end
		for i := range all.Len() {
			NothingIn(t, name+"[]", all.Index(i))
		}
	default:
		if !v.IsZero() {
			t.Errorf("%s is not zero", name)
		}
	}
}
