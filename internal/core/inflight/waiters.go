package inflight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxWaiting bounds the requests that wait for a slot at a time. Further ones are denied at
	// once. So a flood of requests for a full limit asks the store a bounded number of times more.
	MaxWaiting = 128
	// maxWakes is how often a waiting request asks the store because a stream has ended.
	maxWakes = 3
	// deadlinePart divides the time until the deadline: a request waits one part of it at most.
	deadlinePart = 4
)

// Waiters are the requests that wait because a limit of requests in flight was full. The zero
// value is ready to use. It is safe for concurrent use.
type Waiters struct {
	// ends is how many streams with a hold have ended.
	ends    atomic.Uint64
	waiting atomic.Int64 // requests

	mu   sync.Mutex
	next chan struct{} // closed when the next stream ends; nil: no request waits for that
}

// Ends returns how many streams with a hold have ended, for [Waiters.Await].
func (w *Waiters) Ends() uint64 { return w.ends.Load() }

// Waiting returns how many requests wait.
func (w *Waiters) Waiting() int64 { return w.waiting.Load() }

// freed returns a channel that is closed when the next stream ends.
func (w *Waiters) freed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == nil {
		w.next = make(chan struct{})
	}
	return w.next
}

// Ended wakes the waiting requests, because a stream with a hold has ended. It wakes all of them,
// because it does not know the logs of the hold.
func (w *Waiters) Ended() {
	w.ends.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}

// Await asks the store again for a request that was denied because a limit is full: when a
// stream ends, and at last after patience. before is [Waiters.Ends] from before the denial. again asks
// the store, and reports whether the limit is still full.
func (w *Waiters) Await(ctx context.Context, patience time.Duration, before uint64, again func() (full bool, err error)) error {
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/deadlinePart)
	}
	defer w.waiting.Add(-1)
	if w.waiting.Add(1) > MaxWaiting || patience <= 0 {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for wakes, last := 0, false; !last; wakes++ {
		freed := w.freed()
		if wakes >= maxWakes {
			freed = nil
		}
		if wakes >= maxWakes || w.ends.Load() == before { // otherwise a stream has ended before
			select {
			case <-freed:
			case <-timer.C:
				last = true
			case <-ctx.Done():
				return nil // denied, as the store has said
			}
		}
		before = w.ends.Load()
		if full, err := again(); err != nil || !full {
			return err
		}
	}
	return nil
}
