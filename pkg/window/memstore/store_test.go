package memstore

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

const win = 10 * time.Second

func check(key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: win}, Cost: cost}
}

func take(t testing.TB, s *Store, checks ...window.Check) []window.Decision {
	t.Helper()
	got := make([]window.Decision, len(checks))
	if err := s.Take(t.Context(), checks, got); err != nil {
		t.Fatalf("Take(%+v): got error %v", checks, err)
	}
	return got
}

// newStore returns a store without a sweeper and the variable that is its clock.
func newStore(t testing.TB) (*Store, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	s := New(Options{Clock: func() time.Duration { return *now }, SweepInterval: -1})
	t.Cleanup(func() { s.Close() })
	return s, now
}

// sweepAll sweeps every shard at the store's time.
func (s *Store) sweepAll() {
	for i := range s.shards {
		s.shards[i].sweep(s.clock().Microseconds())
	}
}

func TestSweep(t *testing.T) {
	s, now := newStore(t)
	long := check("long", 5, 1)
	long.Limit.Window = time.Hour
	take(t, s, check("a", 5, 1), check("b", 5, 1), long)
	*now = 5 * time.Second
	take(t, s, check("b", 5, 1))

	for _, step := range []struct {
		at   time.Duration
		want int
	}{
		{5 * time.Second, 3},
		{10*time.Second - time.Microsecond, 3},
		{10 * time.Second, 2}, // a counts until, but not at, 10
		{15*time.Second - time.Microsecond, 2},
		{15 * time.Second, 1},
		{time.Hour - time.Microsecond, 1},
		{time.Hour, 0},
		{2 * time.Hour, 0},
	} {
		*now = step.at
		s.sweepAll()
		if got := s.Len(); got != step.want {
			t.Errorf("logs after sweeping at %v: got %d, want %d", step.at, got, step.want)
		}
	}
	if got := take(t, s, check("a", 5, 1))[0].Remaining; got != 4 {
		t.Errorf("a log that was swept and came back: remaining %d, want 4", got)
	}
}

// TestSweepKeepsWhatCounts proves that a sweep is not seen by those who ask.
func TestSweepKeepsWhatCounts(t *testing.T) {
	s, now := newStore(t)
	for i := range 50 {
		*now = time.Duration(i) * time.Second
		take(t, s, check("k", 100, 2))
		s.sweepAll()
		if got, want := take(t, s, check("k", 100, 0))[0].Remaining, 100-2*uint64(min(i+1, 10)); got != want {
			t.Fatalf("at %v: remaining %d, want %d", *now, got, want)
		}
	}
}

// TestSweepWithClockSetBack proves that a log ahead of the clock is kept.
func TestSweepWithClockSetBack(t *testing.T) {
	s, now := newStore(t)
	*now = time.Hour
	take(t, s, check("k", 1, 1))
	*now = time.Second
	s.sweepAll()
	if got := s.Len(); got != 1 {
		t.Errorf("logs: got %d, want 1", got)
	}
}

func TestSweepBuildsMapsAnew(t *testing.T) {
	s, now := newStore(t)
	const logs = minShrink * shardCount * 2
	for i := range logs {
		take(t, s, check(fmt.Sprint(i), 1, 1))
	}
	if got := s.Len(); got != logs {
		t.Fatalf("logs: got %d, want %d", got, logs)
	}
	*now = 5 * time.Second
	take(t, s, check("late", 1, 1))
	*now = win
	s.sweepAll()
	if got := s.Len(); got != 1 {
		t.Errorf("logs after sweeping: got %d, want 1", got)
	}
	for i := range s.shards {
		if got := s.shards[i].peak; got > 1 {
			t.Errorf("shard %d: peak %d after sweeping, want its map built anew", i, got)
		}
	}
	if take(t, s, check("late", 1, 1))[0].Allowed {
		t.Error("a log that survived lost its entry")
	}
}

// TestSweeper runs the store with its own clock and sweeper, in a bubble where
// time passes only when everybody waits.
func TestSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		take(t, s, check("k", 1, 1))
		if take(t, s, check("k", 1, 1))[0].Allowed {
			t.Error("a second hit at once: got allowed")
		}
		time.Sleep(win - time.Microsecond)
		if got := take(t, s, check("k", 1, 1))[0].RetryAfter; got != time.Microsecond {
			t.Errorf("retry after a microsecond before expiry: got %v, want 1µs", got)
		}
		if got := s.Len(); got != 1 {
			t.Errorf("logs before expiry: got %d, want 1", got)
		}
		time.Sleep(time.Microsecond + DefaultSweepInterval)
		synctest.Wait()
		if got := s.Len(); got != 0 {
			t.Errorf("logs a sweep after expiry: got %d, want 0", got)
		}
	})
}

func TestClose(t *testing.T) {
	s := New(Options{SweepInterval: time.Nanosecond})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Errorf("Close: got error %v", err)
			}
		})
	}
	wg.Wait() // goleak checks that the sweeper has ended
	if err := s.Close(); err != nil {
		t.Errorf("Close again: got error %v", err)
	}
}

// TestLogsAreMadeByChargesOnly proves that asking and denying take no memory.
func TestLogsAreMadeByChargesOnly(t *testing.T) {
	s, _ := newStore(t)
	take(t, s, check("asked", 5, 0))
	take(t, s, check("never", 5, 6))
	take(t, s, check("zero", 0, 1))
	take(t, s, check("alone", 5, 1), check("never", 5, 6))
	if got := s.Len(); got != 0 {
		t.Errorf("logs: got %d, want none", got)
	}
	take(t, s, check("a", 5, 1), check("asked", 5, 0))
	if got := s.Len(); got != 1 {
		t.Errorf("logs after one charge: got %d, want 1", got)
	}
}

// ringOf returns the size of a log's ring.
func ringOf(t *testing.T, s *Store, c window.Check) int {
	t.Helper()
	l := s.shards[s.shardOf(c.Log())].logs[c.Log()]
	if l == nil {
		t.Fatalf("no log for %+v", c)
	}
	return len(l.ring)
}

// TestRingFollowsUse proves that a burst holds its memory only while it counts.
func TestRingFollowsUse(t *testing.T) {
	s, now := newStore(t)
	c := check("k", 1<<20, 1)
	const burst = 10_000
	for i := range burst {
		*now = time.Duration(i) * time.Microsecond
		take(t, s, c)
	}
	if got := ringOf(t, s, c); got < burst || got > 2*burst {
		t.Errorf("ring for %d entries: got %d", burst, got)
	}
	*now = 9 * time.Second
	for range 10 { // one entry: the same instant
		take(t, s, c)
	}
	*now = win + burst*time.Microsecond
	if got, want := take(t, s, c)[0].Remaining, uint64(1<<20-11); got != want {
		t.Errorf("remaining after the burst: got %d, want %d", got, want)
	}
	if got := ringOf(t, s, c); got > 4 {
		t.Errorf("ring for 2 entries after the burst: got %d, want at most 4", got)
	}
}

// TestRingSteady proves that a log in a steady state neither grows nor moves.
func TestRingSteady(t *testing.T) {
	s, now := newStore(t)
	c := check("k", 100, 1)
	for i := range 10_000 {
		*now = time.Duration(i) * win / 100
		if d := take(t, s, c)[0]; !d.Allowed {
			t.Fatalf("hit %d at the limit's own pace: got %+v", i, d)
		}
	}
	if got := ringOf(t, s, c); got != 128 {
		t.Errorf("ring of a log with 100 entries: got %d, want 128", got)
	}
}

func TestRingFor(t *testing.T) {
	for _, tt := range []struct{ n, want int }{
		{0, 4}, {1, 4}, {4, 4}, {5, 8}, {8, 8}, {9, 16}, {1000, 1024}, {1024, 1024}, {1025, 2048},
	} {
		if got := ringFor(tt.n); got != tt.want {
			t.Errorf("ringFor(%d): got %d, want %d", tt.n, got, tt.want)
		}
	}
}

// TestKeysSpread proves that keys, and the windows of one key, use all shards.
func TestKeysSpread(t *testing.T) {
	s, _ := newStore(t)
	byKey, byWindow := make(map[uint]int), make(map[uint]int)
	const per = 200
	for i := range per * shardCount {
		byKey[s.shardOf(window.LogID{Key: fmt.Sprint(i), Window: win})]++
		byWindow[s.shardOf(window.LogID{Key: "k", Window: window.MinWindow + time.Duration(i)*time.Second})]++
	}
	for name, counts := range map[string]map[uint]int{"keys": byKey, "windows": byWindow} {
		for k := range uint(shardCount) {
			if got := counts[k]; got < per/2 || got > per*2 {
				t.Errorf("%s in shard %d: got %d, want about %d", name, k, got, per)
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	s, now := newStore(t)
	var checks []window.Check
	for i := range inlineChecks {
		checks = append(checks, check(fmt.Sprint(i), 100, 1))
	}
	for _, tt := range []struct {
		name string
		hits uint64
	}{
		{"allowed", window.MaxHits},
		{"denied", 1},
	} {
		for n := 1; n <= inlineChecks; n++ {
			group := append([]window.Check(nil), checks[:n]...)
			for i := range group {
				group[i].Limit.Hits = tt.hits
			}
			d := make([]window.Decision, n)
			ctx := t.Context()
			run := func() {
				*now += 100 * time.Millisecond
				if err := s.Take(ctx, group, d); err != nil {
					t.Fatal(err)
				}
			}
			for range 300 { // rings have their size now
				run()
			}
			if got := testing.AllocsPerRun(300, run); got != 0 {
				t.Errorf("%s, %d checks: got %v allocations, want none", tt.name, n, got)
			}
		}
	}
}

func TestErrorNamesTheStore(t *testing.T) {
	s, _ := newStore(t)
	err := s.Take(t.Context(), []window.Check{check("", 1, 1)}, make([]window.Decision, 1))
	if want := "memstore: window: bad check: check 0 has no key"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	if !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("got error %v, want one that wraps %q", err, window.ErrBadCheck)
	}
}

func TestPartsOfAMicrosecondAreCutOff(t *testing.T) {
	s, now := newStore(t)
	*now = time.Microsecond + 999
	take(t, s, check("k", 1, 1))
	*now = win + time.Microsecond - 1
	want := []window.Decision{{RetryAfter: time.Microsecond, UnitAfter: time.Microsecond, ResetAfter: time.Microsecond}}
	if diff := cmp.Diff(want, take(t, s, check("k", 1, 1))); diff != "" {
		t.Errorf("a nanosecond before expiry: (-want +got)\n%s", diff)
	}
}

// TestShardsAreLockedInOrder proves what keeps two groups from waiting for each
// other for ever. A group that has to wait for its higher shard must hold its
// lower one by then, in whatever order its checks come.
func TestShardsAreLockedInOrder(t *testing.T) {
	s, _ := newStore(t)
	var keys [shardCount]string // one for each shard
	for i, missing := 0, shardCount; missing > 0; i++ {
		key := fmt.Sprint(i)
		if k := s.shardOf(window.LogID{Key: key, Window: win}); keys[k] == "" {
			keys[k] = key
			missing--
		}
	}

	for _, pair := range [][2]int{{0, 1}, {0, 63}, {1, 2}, {7, 40}, {31, 32}, {62, 63}} {
		low, high := pair[0], pair[1]
		for _, order := range [][2]int{{low, high}, {high, low}} {
			s.shards[high].mu.Lock()
			var group sync.WaitGroup
			group.Go(func() {
				checks := []window.Check{check(keys[order[0]], 99, 1), check(keys[order[1]], 99, 1)}
				if err := s.Take(t.Context(), checks, make([]window.Decision, 2)); err != nil {
					t.Errorf("got error %v", err)
				}
			})
			deadline := time.Now().Add(10 * time.Second)
			for s.shards[low].mu.TryLock() {
				s.shards[low].mu.Unlock()
				if time.Now().After(deadline) {
					t.Errorf("shards %v: waiting for %d, the group does not hold %d", order, high, low)
					break
				}
				runtime.Gosched()
			}
			s.shards[high].mu.Unlock()
			group.Wait()
		}
	}
}
