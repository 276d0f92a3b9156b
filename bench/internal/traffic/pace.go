// Package traffic sends calls to rls and requests through Envoy, at a pace, and reads their answers.
package traffic

import (
	"context"
	"sync"
	"time"
)

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Every calls f once in each d until ctx ends. It does not wait for earlier calls, unless most of them
// are running. It returns when all calls have returned.
func Every(ctx context.Context, d time.Duration, most int, f func(n int)) {
	var calls sync.WaitGroup
	defer calls.Wait()
	running := make(chan struct{}, most)
	start, begun := time.Now(), 0
	for ; ctx.Err() == nil; Pause(ctx, time.Millisecond) {
		for due := int(time.Since(start) / d); begun < due; begun++ {
			select {
			case running <- struct{}{}:
			case <-ctx.Done():
				return
			}
			n := begun
			calls.Go(func() {
				f(n)
				<-running
			})
		}
	}
}

// Turns calls f at first, and then once in each d until ctx ends, one call after the other. It does not
// make up for missed turns. At least gap is between the end of a call and the next.
func Turns(ctx context.Context, first time.Time, d, gap time.Duration, f func()) {
	for next := first; ; {
		Pause(ctx, time.Until(next))
		if ctx.Err() != nil {
			return
		}
		f()
		next = next.Add(d)
		if earliest := time.Now().Add(gap); next.Before(earliest) {
			next = earliest
		}
	}
}
