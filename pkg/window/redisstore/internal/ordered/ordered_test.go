package ordered

import (
	"slices"
	"sync"
	"testing"
)

// TestMap: a key has one value until it is deleted, and the values keep their order.
func TestMap(t *testing.T) {
	var m Map[int, string]
	for i, s := range []string{"c", "a", "b"} {
		m.Of(i, func() string { return s })
	}
	if got := m.Of(1, func() string { return "other" }); got != "a" {
		t.Errorf("the second has the value %q", got)
	}
	seen := slices.Collect(m.All)
	for s := range m.All {
		if s == "a" {
			break
		}
		m.Delete(1)
	}
	m.Of(1, func() string { return "d" })
	if got := slices.Collect(m.All); !slices.Equal(seen, []string{"c", "a", "b"}) || !slices.Equal(got, []string{"c", "b", "d"}) {
		t.Errorf("before: %q, afterwards: %q", seen, got)
	}
}

// TestConcurrently: all who ask at once for a new key get one value.
func TestConcurrently(t *testing.T) {
	const keys, callers = 30, 8
	var (
		m   Map[int, *int]
		all sync.WaitGroup
		got [callers][keys]*int
	)
	for c := range callers {
		all.Go(func() {
			for k := range keys {
				got[c][k] = m.Of(k, func() *int { return new(int) })
			}
		})
	}
	all.Wait()
	for c := range callers {
		if got[c] != got[0] {
			t.Errorf("callers %d and 0 have got two values of one key", c)
		}
	}
}
