// Package coroutine runs calls that can pause, on the goroutine that lets them go on.
package coroutine

import (
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/slidegate/slidegate/pkg/window"
)

// maxIdle is how many idle coroutines a Pool keeps.
const maxIdle = 256

// A Job is what a Coroutine runs.
type Job interface{ Run(c *Coroutine) }

// A Coroutine runs one job after another. A job runs only while its caller stands still in Start or Next.
// A Coroutine is a [window.Pauser] for its job.
type Coroutine struct {
	// Memory is kept for the next job. It is not used otherwise.
	Memory []byte

	job   Job
	next  func() (window.Flusher, bool)
	stop  func()
	yield func(window.Flusher) bool
}

func newCoroutine() *Coroutine {
	c := new(Coroutine)
	c.next, c.stop = iter.Pull(func(yield func(window.Flusher) bool) {
		c.yield = yield
		for more := true; more; more = yield(nil) {
			c.job.Run(c)
			c.job = nil
		}
	})
	return c
}

// Start runs a job until it pauses, and returns what it waits for. Nil: the job has ended.
func (c *Coroutine) Start(job Job) window.Flusher {
	c.job = job
	return c.Next()
}

// Next lets the job go on, and returns like Start.
func (c *Coroutine) Next() window.Flusher {
	until, _ := c.next()
	return until
}

// Stop gives the job up: if it pauses, Pause returns an error. The caller must not use c any more.
func (c *Coroutine) Stop() { c.stop() }

// Pause implements [window.Pauser]. Only the job calls it.
func (c *Coroutine) Pause(until window.Flusher) error {
	if !c.yield(until) {
		return errors.New("the server has given the call up")
	}
	return nil
}

// A Pool keeps idle coroutines. The zero value is an empty Pool. It is safe for concurrent use.
type Pool struct {
	mu     sync.Mutex
	idle   []*Coroutine
	unused int // how many of them were idle all the time since Trim
}

// Get returns an idle coroutine.
func (p *Pool) Get() *Coroutine {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return newCoroutine()
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	p.unused = min(p.unused, n-1)
	return c
}

// Put keeps a coroutine whose job has ended.
func (p *Pool) Put(c *Coroutine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) < maxIdle {
		p.idle = append(p.idle, c)
	} else {
		c.stop()
	}
}

// Trim ends the coroutines that were idle all the time since the last Trim.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(p.unused)
	p.unused = len(p.idle)
}

// Close ends all idle coroutines. The Pool is empty then.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(len(p.idle))
}

// end ends n idle coroutines.
func (p *Pool) end(n int) {
	for _, c := range p.idle[:n] {
		c.stop()
	}
	p.idle = slices.Delete(p.idle, 0, n)
	p.unused = 0
}
