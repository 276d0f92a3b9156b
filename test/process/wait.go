package process

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// Patience is how long a condition may take to become true. It decides how
// long a broken test takes to fail, never how long a good one takes.
const Patience = 30 * time.Second

// Concurrently runs n goroutines, each with clients of its own, and waits for them.
func Concurrently(t *testing.T, n int, each func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = each(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Workers runs n goroutines. Each calls work with its own number and the number of the call,
// once in each pace. It ends with stop, with the test, or when work returns false. stop
// returns when all calls have returned.
func Workers(t *testing.T, n int, pace time.Duration, work func(worker, call int) bool) (stop func()) {
	t.Helper()
	ended := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range n {
		wg.Go(func() {
			ticks := time.NewTicker(pace)
			defer ticks.Stop()
			for call := 0; ; call++ {
				select {
				case <-ended:
					return
				case <-ticks.C:
				}
				if !work(worker, call) {
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(ended)
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// Eventually polls until ok returns true. After Patience it fails the test.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !Poll(Patience, ok) {
		t.Fatalf("waited %v in vain for %s", Patience, what)
	}
}

// WaitUntil blocks until a point in time. It is for tests in which a window has to
// pass, so that there is no condition to wait for.
func WaitUntil(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	<-timer.C
}
