package memstore

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

const (
	win        = 10 * time.Second
	shardCount = 1 << maxShardBits
)

func check(key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: win}, Cost: cost}
}

func take(t testing.TB, s *Store, checks ...window.Check) []window.Decision {
	t.Helper()
	return windowtest.Take(t, s, checks)
}

// testStore returns a store without a sweeper and the variable that is its clock.
func testStore(t testing.TB) (*Store, *time.Duration) {
	t.Helper()
	return boundedStore(t, 0)
}

// boundedStore is testStore with a bound.
func boundedStore(t testing.TB, size int64) (*Store, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	s := New(Options{Clock: func() time.Duration { return *now }, SweepInterval: -1, MaxBytes: size})
	t.Cleanup(func() { s.Close() })
	return s, now
}

// roomFor returns a bound with room for so many logs of one hit, with keys of up to eight bytes,
// and the slack.
func roomFor(logs int) int64 {
	const log = logBytes + 8 + 32
	return (int64(logs)*log*slackPart + slackPart - 2) / (slackPart - 1)
}

func TestSweep(t *testing.T) {
	s, now := testStore(t)
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
		s.Sweep()
		if got := s.Len(); got != step.want {
			t.Errorf("logs after sweeping at %v: got %d, want %d", step.at, got, step.want)
		}
	}
	if got := s.Stats(); got != (Stats{}) {
		t.Errorf("with nothing in it: got %+v, want zeros", got)
	}
	if got := take(t, s, check("a", 5, 1))[0].Remaining; got != 4 {
		t.Errorf("a log that was swept and came back: remaining %d, want 4", got)
	}
}

// TestSweepKeepsWhatCounts proves that a sweep is not seen by those who ask.
func TestSweepKeepsWhatCounts(t *testing.T) {
	s, now := testStore(t)
	for i := range 50 {
		*now = time.Duration(i) * time.Second
		take(t, s, check("k", 100, 2))
		s.Sweep()
		if got, want := take(t, s, check("k", 100, 0))[0].Remaining, 100-2*uint64(min(i+1, 10)); got != want {
			t.Fatalf("at %v: remaining %d, want %d", *now, got, want)
		}
	}
}

// TestSweepWithClockSetBack proves that a log ahead of the clock is kept.
func TestSweepWithClockSetBack(t *testing.T) {
	s, now := testStore(t)
	*now = time.Hour
	take(t, s, check("k", 1, 1))
	*now = time.Second
	s.Sweep()
	if got := s.Len(); got != 1 {
		t.Errorf("logs: got %d, want 1", got)
	}
}

// TestBucketsFollowLogs proves that what a burst of keys has taken is given back.
func TestBucketsFollowLogs(t *testing.T) {
	s, now := testStore(t)
	const logs = 600 << maxShardBits
	for i := range logs {
		take(t, s, check(fmt.Sprint(i), 1, 1))
	}
	if got := s.Len(); got != logs {
		t.Fatalf("logs: got %d, want %d", got, logs)
	}
	*now = 5 * time.Second
	take(t, s, check("late", 1, 1))
	*now = win
	s.Sweep()
	if got := s.Len(); got != 1 {
		t.Errorf("logs after sweeping: got %d, want 1", got)
	}
	for i := range s.shards {
		if sh := &s.shards[i]; sh.buckets != segmentBuckets || len(sh.segments) != 1 {
			t.Errorf("shard %d: %d buckets in %d segments after sweeping, want %d in 1", i, sh.buckets, len(sh.segments), segmentBuckets)
		}
	}
	if take(t, s, check("late", 1, 1))[0].Allowed {
		t.Error("a log that survived lost its entry")
	}
}

// TestSweeper runs the store with its own clock and sweeper, in a bubble where time passes
// only when all goroutines wait.
func TestSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		take(t, s, check("k", 1, 1))
		const others = 1000 // some in every shard
		for i := range others {
			take(t, s, check(fmt.Sprint(i), 1, 1))
		}
		if take(t, s, check("k", 1, 1))[0].Allowed {
			t.Error("a second hit at once: got allowed")
		}
		time.Sleep(win - time.Microsecond)
		if got := take(t, s, check("k", 1, 1))[0].RetryAfter; got != time.Microsecond {
			t.Errorf("retry after a microsecond before expiry: got %v, want 1µs", got)
		}
		if got := s.Len(); got != 1+others {
			t.Errorf("logs before expiry: got %d, want %d", got, 1+others)
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
	s, _ := testStore(t)
	take(t, s, check("checkState", 5, 0))
	take(t, s, check("never", 5, 6))
	take(t, s, check("zero", 0, 1))
	take(t, s, check("alone", 5, 1), check("never", 5, 6))
	if got := s.Len(); got != 0 {
		t.Errorf("logs: got %d, want none", got)
	}
	take(t, s, check("a", 5, 1), check("checkState", 5, 0))
	if got := s.Len(); got != 1 {
		t.Errorf("logs after one charge: got %d, want 1", got)
	}
}

// packedOf returns a log's bytes.
func packedOf(t *testing.T, s *Store, c window.Check) []byte {
	t.Helper()
	i, hash := s.shardOf(c.Log())
	l := s.shards[i].find(c.Log(), hash)
	if l == nil {
		t.Fatalf("no log for %+v", c)
	}
	return l.packed
}

// TestBytes proves that what the store keeps is the packed log of what it was
// checkState, and nothing else: package window's own arithmetic makes the same bytes.
func TestBytes(t *testing.T) {
	for _, w := range []time.Duration{win, 7 * 24 * time.Hour} { // microseconds, milliseconds
		t.Run(w.String(), func(t *testing.T) {
			s, now := testStore(t)
			c := window.Check{Key: "k", Limit: window.Limit{Hits: 100, Window: w}}
			var want []byte
			for i := range 500 {
				*now += w / time.Duration(1+i%150)
				c.Cost = uint64(i % 4)
				var answer window.Decision
				want = reference.Take(want, now.Microseconds(), &c, &answer)
				if diff := cmp.Diff([]window.Decision{answer}, take(t, s, c)); diff != "" {
					t.Fatalf("call %d: (-want +got)\n%s", i, diff)
				}
				if want == nil { // so far nothing was charged
					continue
				}
				if got := packedOf(t, s, c); !bytes.Equal(want, got) {
					t.Fatalf("call %d: bytes\n\t%x, want\n\t%x", i, got, want)
				}
			}
		})
	}
}

// TestBytesFollowUse proves that a burst holds its memory only while it counts.
func TestBytesFollowUse(t *testing.T) {
	s, now := testStore(t)
	c := check("k", 1<<20, 1)
	const burst = 10_000
	for i := range burst {
		*now = time.Duration(i) * time.Microsecond
		take(t, s, c)
	}
	if got := cap(packedOf(t, s, c)); got < 9*burst || got > 12*burst {
		t.Errorf("bytes for %d slots: got %d, want 9 to 12 a slot", burst, got)
	}
	*now = 9 * time.Second
	for range 10 { // one slot: the same instant
		take(t, s, c)
	}
	*now = win + burst*time.Microsecond
	if got, want := take(t, s, c)[0].Remaining, uint64(1<<20-11); got != want {
		t.Errorf("remaining after the burst: got %d, want %d", got, want)
	}
	if got := cap(packedOf(t, s, c)); got > 48 {
		t.Errorf("bytes for 2 slots after the burst: got %d, want at most 48", got)
	}
}

// TestBytesSteady proves that a log in a steady state neither grows nor moves.
func TestBytesSteady(t *testing.T) {
	s, now := testStore(t)
	c := check("k", 100, 1)
	var first *byte // where the bytes are
	for i := range 10_000 {
		*now = time.Duration(i) * win / 100
		if d := take(t, s, c)[0]; !d.Allowed {
			t.Fatalf("hit %d at the limit's own pace: got %+v", i, d)
		}
		if at := &packedOf(t, s, c)[0]; i == 99 {
			first = at
		} else if i > 99 && at != first {
			t.Fatalf("hit %d: the log has moved", i)
		}
	}
	if got, want := len(packedOf(t, s, c)), 131+99*9; got != want {
		t.Errorf("bytes of a log with 100 slots: got %d, want %d", got, want)
	}
}

// TestKeysSpread proves that keys, and the windows of one key, use all shards.
func TestKeysSpread(t *testing.T) {
	s, _ := testStore(t)
	byKey, byWindow := make(map[uint]int), make(map[uint]int)
	const per = 200
	for i := range per * shardCount {
		shard, _ := s.shardOf(window.LogID{Key: fmt.Sprint(i), Window: win})
		byKey[shard]++
		shard, _ = s.shardOf(window.LogID{Key: "k", Window: window.MinWindow + time.Duration(i)*time.Second})
		byWindow[shard]++
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
	s, now := testStore(t)
	var checks []window.Check
	for i := range inlineChecks {
		checks = append(checks, check(fmt.Sprint(i), 100, 1))
	}
	for _, tt := range []struct {
		name string
		hits uint64
	}{
		{"allowed", 1 << 20},
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
				if _, err := s.Take(ctx, window.MayWait, group, d); err != nil {
					t.Fatal(err)
				}
			}
			for range 300 { // logs have their size now
				run()
			}
			if got := testing.AllocsPerRun(300, run); got != 0 {
				t.Errorf("%s, %d checks: got %v allocations, want none", tt.name, n, got)
			}
		}
	}
}

func TestErrorNamesTheStore(t *testing.T) {
	s, _ := testStore(t)
	_, err := s.Take(t.Context(), window.MayWait, []window.Check{check("", 1, 1)}, make([]window.Decision, 1))
	if want := "memstore: window: bad check: check 0 has no key"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	if !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("got error %v, want one that wraps %q", err, window.ErrBadCheck)
	}
}

func TestPartsOfAMicrosecondAreCutOff(t *testing.T) {
	s, now := testStore(t)
	*now = time.Microsecond + 999
	take(t, s, check("k", 1, 1))
	*now = win + time.Microsecond - 1
	want := []window.Decision{{RetryAfter: time.Microsecond, UnitAfter: time.Microsecond, ResetAfter: time.Microsecond}}
	if diff := cmp.Diff(want, take(t, s, check("k", 1, 1))); diff != "" {
		t.Errorf("a nanosecond before expiry: (-want +got)\n%s", diff)
	}
}

// TestLongWindowsCountInMilliseconds proves what the contract's point 12 says of
// windows above six days: an entry counts until the next whole millisecond, and
// the clock itself is not rounded.
func TestLongWindowsCountInMilliseconds(t *testing.T) {
	const (
		us   = time.Microsecond
		six  = 6 * 24 * time.Hour
		long = six + us
	)
	for _, tt := range []struct {
		window, late time.Duration
	}{
		{six, 0},
		{long, 999 * us},
	} {
		s, now := testStore(t)
		c := check("k", 1, 1)
		c.Limit.Window = tt.window
		*now = 5*time.Second + us
		whole := tt.window + tt.late
		for _, step := range []struct {
			at   time.Duration
			want window.Decision
		}{
			{*now, window.Decision{Allowed: true, UnitAfter: whole, ResetAfter: whole}},
			{*now + us, window.Decision{RetryAfter: whole - us, UnitAfter: whole - us, ResetAfter: whole - us}},
			{*now + whole - us, window.Decision{RetryAfter: us, UnitAfter: us, ResetAfter: us}},
		} {
			*now = step.at
			if diff := cmp.Diff([]window.Decision{step.want}, take(t, s, c)); diff != "" {
				t.Errorf("window %v at %v: (-want +got)\n%s", tt.window, step.at, diff)
			}
			s.Sweep()
			if got := s.Len(); got != 1 {
				t.Errorf("window %v: logs after sweeping at %v: got %d, want 1", tt.window, step.at, got)
			}
		}
		*now += us
		s.Sweep()
		if got := s.Len(); got != 0 {
			t.Errorf("window %v: logs after sweeping at %v: got %d, want none", tt.window, *now, got)
		}
		if !take(t, s, c)[0].Allowed {
			t.Errorf("window %v: denied after it has passed", tt.window)
		}
	}
}

// TestTimeBelowZero proves that a clock which starts below zero stands still
// until zero.
func TestTimeBelowZero(t *testing.T) {
	s, now := testStore(t)
	*now = -win
	take(t, s, check("k", 1, 1))
	*now = 0
	want := []window.Decision{{RetryAfter: win, UnitAfter: win, ResetAfter: win}}
	if diff := cmp.Diff(want, take(t, s, check("k", 1, 1))); diff != "" {
		t.Errorf("at zero: (-want +got)\n%s", diff)
	}
}

func muOf(s *Store, c window.Check) *sync.Mutex {
	i, _ := s.shardOf(c.Log())
	return &s.shards[i].mu
}

// TestClockIsReadUnderTheLocks proves that no call decides at a time at which
// another call or the sweeper has been since.
func TestClockIsReadUnderTheLocks(t *testing.T) {
	checks := []window.Check{check("a", 9, 1), check("b", 9, 1), check("c", 9, 1)}
	for n := 1; n <= len(checks); n++ {
		var s *Store
		read := 0
		s = New(Options{SweepInterval: -1, Clock: func() time.Duration {
			read++
			for _, c := range checks[:n] {
				if mu := muOf(s, c); mu.TryLock() {
					mu.Unlock()
					t.Errorf("%d checks: the shard of %s is not locked while the clock is read", n, c.Key)
				}
			}
			return 0
		}})
		take(t, s, checks[:n]...)
		if read != 1 {
			t.Errorf("%d checks: the clock was read %d times, want once", n, read)
		}
		s.Close()
	}
}

// TestShardsAreLockedInOrder proves what keeps two groups from waiting for each
// other for ever. A group that has to wait for its higher shard must hold its
// lower one by then, in whatever order its checks come.
func TestShardsAreLockedInOrder(t *testing.T) {
	s, _ := testStore(t)
	var keys [shardCount]string // one for each shard
	for i, missing := 0, shardCount; missing > 0; i++ {
		key := fmt.Sprint(i)
		if k, _ := s.shardOf(window.LogID{Key: key, Window: win}); keys[k] == "" {
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
				if _, err := s.Take(t.Context(), window.MayWait, checks, make([]window.Decision, 2)); err != nil {
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
