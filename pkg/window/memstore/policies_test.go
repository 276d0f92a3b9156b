package memstore

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// ofPolicy returns a check of a cost under a limit of 5 with a policy. It is over 60 seconds
// after second 60 of the clock.
func ofPolicy(p window.Policy, cost uint64) window.Check {
	c := check("k", 5, cost)
	c.Limit.Policy, c.Limit.Window = p, time.Minute
	switch p {
	case window.TokenBucket:
		c.Limit.Rate = 5
	case window.Calendar:
		c.Period = window.Period{Start: 60, End: 120, Next: 180}
	case window.InFlight:
		c.Stream = 7
	default:
	}
	return c
}

// TestSweepOfPolicies: the sweeper keeps a log of each policy as long as something counts, and
// drops it afterwards, with what is known of its stream.
func TestSweepOfPolicies(t *testing.T) {
	for p := window.Sliding; p <= window.InFlight; p++ {
		s, now := testStore(t)
		*now = time.Minute
		take(t, s, ofPolicy(p, 5))
		over := 2 * time.Minute
		if p == window.SlidingCounter {
			over = 3 * time.Minute
		}
		sweep := func() int {
			s.Sweep()
			verify(t, s)
			return s.Len()
		}
		*now = over - time.Millisecond
		if n := sweep(); n == 0 {
			t.Errorf("%v: the log was dropped before it was over", p)
		}
		*now = over + 2*time.Second // the bytes of a bucket say in whole seconds when it is full
		if n := sweep(); n != 0 {
			t.Errorf("%v: %d logs are left", p, n)
		}
	}
}

// TestEndsAreSwept: the note of an end is kept as long as it denies, and is dropped then.
func TestEndsAreSwept(t *testing.T) {
	s, now := testStore(t)
	*now = time.Minute
	if _, err := s.End(context.Background(), window.Ending{Stream: 7, Deny: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		at   time.Duration
		logs int
	}{{70*time.Second - time.Microsecond, 1}, {70 * time.Second, 0}} {
		*now = tt.at
		for i := range s.shards {
			s.sweepShard(&s.shards[i])
		}
		if n := s.Len(); n != tt.logs {
			t.Errorf("at %v: %d logs, want %d", tt.at, n, tt.logs)
		}
	}
}

// TestSnapshotOfEnds: a store that was loaded denies the streams that have ended, and ends give
// back what its logs hold.
func TestSnapshotOfEnds(t *testing.T) {
	s, now := testStore(t)
	*now = time.Duration(wall.UnixNano())
	ended, held := ofPolicy(window.InFlight, 1), ofPolicy(window.InFlight, 1)
	ended.Stream, held.Stream = 1, 2
	take(t, s, held)
	if _, err := s.End(t.Context(), window.Ending{Stream: ended.Stream, Deny: time.Minute}); err != nil {
		t.Fatal(err)
	}
	loaded, _, counts := loadAt(t, saved(t, s), 0, 0)
	if want := (Loaded{Logs: 3}); counts != want {
		t.Errorf("loaded %+v, want %+v", counts, want)
	}
	for name, s := range map[string]*Store{"not interrupted": s, "loaded": loaded} {
		got := take(t, s, ended)
		if d := got[0]; d.Allowed || d.Remaining != 4 || d.RetryAfter != time.Minute {
			t.Errorf("%s: a stream that has ended gets %+v", name, d)
		}
		if settled, err := s.End(t.Context(), window.Ending{Stream: held.Stream, Deny: time.Second}); err != nil || !settled.Released {
			t.Errorf("%s: End: %+v, error %v, want released", name, settled, err)
		}
		ended.Stream = 3
		ended.Cost = 0
		if diff := cmp.Diff([]window.Decision{{Allowed: true, Remaining: 5}}, take(t, s, ended)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		ended.Stream, ended.Cost = 1, 1
	}
}
