package policytest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// upstreams counts what is in flight, as the servers behind Envoy would.
type upstreams struct {
	t            *testing.T
	most         int64
	served, open atomic.Int64
	peak         atomic.Int64
}

// serve serves a request of a cost. More than the most may be in flight only if its stream has
// ended.
func (u *upstreams) serve(cost int64, ended func() bool) {
	now := u.open.Add(cost)
	for peak := u.peak.Load(); now > peak && !u.peak.CompareAndSwap(peak, now); {
		peak = u.peak.Load()
	}
	if now > u.most && !ended() {
		u.t.Errorf("%d in flight, want at most %d", now, u.most)
	}
	u.served.Add(1)
	u.open.Add(-cost)
}

// manyStreams lets all callers make their streams, one after the other. turn differs from one
// stream to the next. other is another store, where there are several.
func manyStreams(h InFlightHarness, f func(store, other window.Store, stream window.StreamID, turn int)) {
	const each = 25
	h.begin()
	windowtest.Concurrently(func(n int) {
		store, other := h.Stores[n%len(h.Stores)], h.Stores[(n+1)%len(h.Stores)]
		for i := range each {
			f(store, other, window.StreamID(1+n*each+i), n+i)
		}
	})
}

// runFlightConcurrent lets many callers hold and end streams. Never more than the limit may be
// in flight, the limit must be reached, and nothing is left.
func runFlightConcurrent(t *testing.T, h InFlightHarness) {
	const most = 5
	up := upstreams{t: t, most: most}
	manyStreams(h, func(store, _ window.Store, stream window.StreamID, turn int) {
		cost := uint64(1 + turn%2)
		got := windowtest.Try(t, store, group(Holding(stream, "{k}a", most, cost), Holding(stream, "{k}b", 3*most, cost)))
		allowed := got != nil && reference.Allowed(got)
		if allowed {
			up.serve(int64(cost), func() bool { return false })
		}
		if settled, err := store.(window.Releaser).End(t.Context(), window.Ending{Stream: stream, Deny: time.Second}); err != nil || settled.Released != allowed {
			t.Errorf("End: %+v, error %v, want released %v", settled, err, allowed)
		}
	})
	t.Logf("%d streams served, %d at once", up.served.Load(), up.peak.Load())
	wantNothingLeft(t, h, most)
	// The limit can be reached again.
	for i := range most {
		if got := take(t, h.Stores[0], one(Holding(window.StreamID(1e6+i), "{k}a", most, 1))); !reference.Allowed(got) {
			t.Fatalf("%d of %d are denied at rest", i+1, most)
		}
	}
}

// wantNothingLeft fails the test if there is a hold.
func wantNothingLeft(t *testing.T, h InFlightHarness, most uint64) {
	t.Helper()
	for _, key := range []string{"{k}a", "{k}b", "{l}a"} {
		got := take(t, h.Stores[0], one(Holding(1<<40, key, most, 0)))[0]
		if got.Remaining != most || got.ResetAfter != 0 {
			t.Errorf("%s: %d left in flight: %+v", key, most-got.Remaining, got)
		}
	}
}

// runFlightEnds lets ends race with the charges of their streams, on another store where there
// are several. Ends come twice, before, during and after the charge. Nothing may be left.
func runFlightEnds(t *testing.T, h InFlightHarness) {
	const most = 8
	up := upstreams{t: t, most: most}
	manyStreams(h, func(store, other window.Store, stream window.StreamID, turn int) {
		var (
			ends  sync.WaitGroup
			ended atomic.Bool
		)
		stop := func(s window.Store) {
			ended.Store(true)
			if _, err := s.(window.Releaser).End(t.Context(), window.Ending{Stream: stream, Deny: time.Minute}); err != nil {
				t.Errorf("End: %v", err)
			}
		}
		switch turn % 3 {
		case 0:
			ends.Go(func() { stop(other) })
		case 1:
			stop(other)
		}
		got := windowtest.Try(t, store, group(Holding(stream, "{k}a", most, 1), Holding(stream, "{k}b", most, 1), Holding(stream, "{l}a", most, 1)))
		if allowed := got != nil && reference.Allowed(got); allowed && turn%3 == 1 {
			t.Errorf("stream %d had ended, and was allowed", stream)
		} else if allowed && !ended.Load() {
			up.serve(1, ended.Load)
		}
		ends.Wait()
		stop(store)
	})
	wantNothingLeft(t, h, most)
}
