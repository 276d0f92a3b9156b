package coroutine

import (
	"runtime"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

type flush struct{ _ int }

func (*flush) Flush() {}

// pauses is a job that pauses so often.
type pauses struct {
	times, went int
	until       flush
	err         error
}

func (p *pauses) Run(c *Coroutine) {
	for p.went < p.times && p.err == nil {
		p.err = c.Pause(&p.until)
		p.went++
	}
}

// goroutines waits until there are n goroutines.
func goroutines(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() != n; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, want %d", runtime.NumGoroutine(), n)
		}
	}
}

// TestPool runs jobs, and counts the coroutines that stay.
func TestPool(t *testing.T) {
	before := runtime.NumGoroutine()
	var p Pool
	used := func(n int) {
		var all []*Coroutine
		for range n {
			job := &pauses{times: 2}
			c := p.Get()
			if f := c.Start(job); f != window.Flusher(&job.until) || c.Next() != f || c.Next() != nil || job.err != nil || job.went != 2 {
				t.Fatalf("it has paused %d times, error %v", job.went, job.err)
			}
			all = append(all, c)
		}
		for _, c := range all {
			p.Put(c)
		}
	}
	used(maxIdle + 10)
	goroutines(t, before+maxIdle)
	p.Trim() // they were used
	goroutines(t, before+maxIdle)
	used(3)
	p.Trim()
	goroutines(t, before+3)
	used(5)
	p.Trim() // the first three were used
	goroutines(t, before+5)
	p.Trim()
	goroutines(t, before)

	given := &pauses{times: 1}
	c := p.Get()
	c.Start(given)
	c.Stop()
	if given.err == nil || given.went != 1 {
		t.Errorf("a job that was given up went on %d times, error %v", given.went, given.err)
	}
	used(2)
	p.Close()
	goroutines(t, before)
}
