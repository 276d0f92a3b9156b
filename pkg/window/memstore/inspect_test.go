package memstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/inspecttest"
)

func TestInspector(t *testing.T) {
	inspecttest.Run(t, func(t *testing.T) windowtest.Harness {
		var now atomic.Int64
		s := New(Options{
			Clock:         func() time.Duration { return time.Duration(now.Load()) },
			SweepInterval: -1,
		})
		t.Cleanup(func() { s.Close() })
		return windowtest.Harness{Store: s, SetNow: func(d time.Duration) { now.Store(int64(d)) }}
	})
}

// TestListWhileTheTableShrinks removes most logs between the calls of a list, and sweeps, so
// that buckets merge. The logs that stay are listed.
func TestListWhileTheTableShrinks(t *testing.T) {
	const logs = 60_000
	s := New(Options{SweepInterval: -1})
	defer s.Close()
	d := make([]window.Decision, 1)
	stay := make(map[window.LogID]bool)
	var leave []window.LogID
	for i := range logs {
		c := window.Check{Key: fmt.Sprintf("{%d}:r", i), Limit: window.Limit{Hits: 5, Window: time.Hour}, Cost: 1}
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			stay[c.Log()] = true
		} else {
			leave = append(leave, c.Log())
		}
	}
	calls := 0
	for cursor := ""; calls == 0 || cursor != ""; calls++ {
		ids, next, err := s.List(t.Context(), inspect.Match{}, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			delete(stay, id)
		}
		n := min(len(leave), 8000)
		if _, err := s.Remove(t.Context(), leave[:n]); err != nil {
			t.Fatal(err)
		}
		leave = leave[n:]
		for i := range s.shards {
			s.sweepShard(&s.shards[i])
		}
		cursor = next
	}
	if len(stay) > 0 {
		t.Errorf("%d logs that stayed were not listed", len(stay))
	}
	if calls < 5 {
		t.Errorf("the list took %d calls: nothing was proven", calls)
	}
}

// FuzzListCursor lists from any cursor: to the end, or to an error that says so.
func FuzzListCursor(f *testing.F) {
	for _, cursor := range []string{"", "0", "ffffffff", "100000000", "-1", "ffffffffffffffff", "10000000000000000", " 1", "0x1"} {
		f.Add(cursor)
	}
	s := New(Options{SweepInterval: -1})
	f.Cleanup(func() { s.Close() })
	for i := range 100 {
		tryTake(f, s, window.Check{Key: fmt.Sprint("edge|api_key:", i), Limit: window.Limit{Hits: 1, Window: time.Hour}, Cost: 1})
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		found := 0
		for range 10_000 {
			ids, next, err := s.List(t.Context(), inspect.Match{}, cursor)
			if err != nil {
				if !errors.Is(err, inspect.ErrCursor) {
					t.Errorf("%q: %v, want ErrCursor", cursor, err)
				}
				return
			}
			if found += len(ids); found > 100 {
				t.Fatalf("%q: %d logs of 100", cursor, found)
			}
			if next == "" {
				return
			}
			cursor = next
		}
		t.Errorf("%q: the list has no end", cursor)
	})
}

// TestCopy: a copy decides as the store that was read, and changes nothing there. Logs of each policy
// are copied.
func TestCopy(t *testing.T) {
	now := 1000 * time.Hour
	s := New(Options{Clock: func() time.Duration { return now }, SweepInterval: -1})
	defer s.Close()
	var checks []window.Check
	var ids []window.LogID
	for _, policy := range []window.Policy{window.Sliding, window.TokenBucket, window.Fixed, window.SlidingCounter} {
		l := window.Limit{Hits: 3, Window: time.Minute, Policy: policy}
		if policy == window.TokenBucket {
			l.Rate = 3
		}
		checks = append(checks, window.Check{Key: "{a}:" + policy.String(), Limit: l, Cost: 1})
		ids = append(ids, checks[len(checks)-1].Log())
	}
	take := func(s *Store) []window.Decision {
		t.Helper()
		d := make([]window.Decision, len(checks))
		if _, err := s.Take(t.Context(), window.MayWait, checks, d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	take(s)
	take(s)
	now += time.Second
	for range 2 {
		readings, err := s.Read(t.Context(), append(ids, ids...))
		if err != nil {
			t.Fatal(err)
		}
		c := Copy(readings)
		first, second := take(c), take(c)
		for i := range checks {
			if !first[i].Allowed || first[i].Remaining != 0 || second[i].Allowed {
				t.Errorf("%v: the copy answers %+v and %+v, want the third hit allowed and the fourth denied", checks[i].Limit.Policy, first[i], second[i])
			}
		}
		c.Close()
	}
	if d := take(Copy(nil)); d[0].Remaining != 2 {
		t.Errorf("a copy of nothing is not empty: %+v", d[0])
	}
}
