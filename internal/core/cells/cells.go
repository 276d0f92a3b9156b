// Package cells counts on many cores. A number that all cores add to moves from core to core with
// each addition. So each core adds to a cell of its own.
package cells

import (
	"sync"
	"sync/atomic"
)

const (
	count     = 16  // cells
	line      = 128 // bytes: two cells in one line of a cache would move together
	contended = 256 // after so many collisions a Counter gets cells
)

// tokens has the number of a cell for each core, mostly: a sync.Pool keeps what a core has put back for that core.
var (
	tokens = sync.Pool{New: func() any { return new(int(made.Add(1) % count)) }}
	made   atomic.Uint32
)

// A Counter is a number that many goroutines add to. The zero value is zero. It has cells only
// if cores contend for it, so that most of many counters are small.
type Counter struct {
	one        atomic.Uint64
	collisions atomic.Uint32
	cells      atomic.Pointer[[count]cell]
}

type cell struct {
	n atomic.Uint64
	_ [line - 8]byte
}

// Add adds n.
func (c *Counter) Add(n uint64) {
	if cells := c.cells.Load(); cells != nil {
		t := tokens.Get().(*int)
		cells[*t].n.Add(n)
		tokens.Put(t)
	} else if was := c.one.Load(); !c.one.CompareAndSwap(was, was+n) {
		c.one.Add(n)
		if c.collisions.Add(1) == contended {
			c.cells.Store(new([count]cell))
		}
	}
}

// Load returns the sum. What is added meanwhile may be missing.
func (c *Counter) Load() (sum uint64) {
	sum = c.one.Load()
	if cells := c.cells.Load(); cells != nil {
		for i := range cells {
			sum += cells[i].n.Load()
		}
	}
	return sum
}
