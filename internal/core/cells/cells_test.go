package cells

import (
	"sync"
	"testing"
	"unsafe"
)

// TestCounter adds on many goroutines, before and after the counter has cells.
func TestCounter(t *testing.T) {
	const goroutines, times = 8, 1000
	var c Counter
	add := func() {
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range times {
					c.Add(3)
				}
			})
		}
		all.Wait()
	}
	add()
	c.collisions.Store(contended)
	if c.cells.Load() == nil {
		c.cells.Store(new([count]cell))
	}
	add()
	if got, want := c.Load(), uint64(2*3*goroutines*times); got != want {
		t.Errorf("the sum is %d, want %d", got, want)
	}
	if c.one.Load() == c.Load() {
		t.Error("nothing was added to a cell")
	}
}

// TestCollisions checks that a counter gets cells after collisions only.
func TestCollisions(t *testing.T) {
	var c Counter
	for range 2 * contended {
		c.Add(1)
	}
	if c.cells.Load() != nil {
		t.Error("a counter that one goroutine adds to has cells")
	}
}

// TestLines checks that two cells are never in one line.
func TestLines(t *testing.T) {
	if n := unsafe.Sizeof(cell{}); n%line != 0 {
		t.Errorf("a cell has %d bytes", n)
	}
}

func BenchmarkCounter(b *testing.B) {
	var c Counter
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Add(1)
		}
	})
}
