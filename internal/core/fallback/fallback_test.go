package fallback_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/fallback"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// A clock is a clock that the test sets.
type clock struct{ now time.Duration }

func (c *clock) read() time.Duration { return c.now }

// always returns ShareOptions.Instances that does not change.
func always(n int) func(window.Scope) int { return func(window.Scope) int { return n } }

func newStore(tb testing.TB, instances func(window.Scope) int, c *clock) *fallback.Store {
	tb.Helper()
	s, err := fallback.New(fallback.Options{Instances: instances, Memory: memstore.Options{Clock: c.read, SweepInterval: -1}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// cut is an answer to a usage update of which a part was not recorded.
func cut(d window.Decision) window.Decision { d.Cut = true; return d }

func TestQuotas(t *testing.T) {
	type (
		checks = []window.Check
		known  struct {
			check    window.Check
			decision window.Decision
		}
		step struct {
			at    time.Duration
			learn []known // before the call
			ask   checks
			want  []window.Decision
		}
	)
	allowed := func(remaining uint64, reset time.Duration) window.Decision {
		return window.Decision{Allowed: true, Remaining: remaining, UnitAfter: reset, ResetAfter: reset}
	}
	of := func(remaining uint64, unit, reset time.Duration) window.Decision {
		return window.Decision{Allowed: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset}
	}
	last := func(unit, reset time.Duration) window.Decision {
		return window.Decision{Allowed: true, UnitAfter: unit, ResetAfter: reset}
	}
	for _, tt := range []struct {
		name     string
		replicas int
		steps    []step
	}{
		{"one process has the whole limit", 0, []step{
			{0, nil, checks{ask("a", 2, 1)}, answers(allowed(1, win))},
			{0, nil, checks{ask("a", 2, 1)}, answers(last(win, win))},
			{0, nil, checks{ask("a", 2, 1)}, answers(denied(win, win, win))},
		}},
		{"one of four has a quarter, rounded down", 4, []step{
			{0, nil, checks{ask("a", 11, 1)}, answers(allowed(1, win))},
			{second, nil, checks{ask("a", 11, 1)}, answers(last(9*second, win))},
			{2 * second, nil, checks{ask("a", 11, 1)}, answers(denied(8*second, 8*second, 9*second))},
			{win, nil, checks{ask("a", 11, 1)}, answers(last(second, win))},
		}},
		{"at least one hit", 4, []step{
			{0, nil, checks{ask("a", 3, 1)}, answers(last(win, win))},
			{0, nil, checks{ask("a", 3, 1)}, answers(denied(win, win, win))},
		}},
		{"a limit of zero, and no limit", 4, []step{
			{0, nil, checks{ask("a", 0, 1)}, answers(window.Decision{Never: true})},
			{0, nil, checks{ask("a", window.Unlimited, 1)}, answers(window.Decision{Allowed: true, Remaining: window.Unlimited})},
		}},
		{"a cost above the quota has room if nothing counts", 4, []step{
			{0, nil, checks{ask("a", 10, 5)}, answers(last(win, win))},
			{second, nil, checks{ask("a", 10, 1)}, answers(denied(9*second, 9*second, 9*second))},
			{second, nil, checks{ask("a", 10, 5)}, answers(denied(9*second, 9*second, 9*second))},
			{win, nil, checks{ask("a", 10, 1)}, answers(allowed(1, win))},
			// One hit is used and one remains of the quota. A cost of five has room in ten seconds.
			{win, nil, checks{ask("a", 10, 5)}, answers(window.Decision{Remaining: 1, RetryAfter: win, UnitAfter: win, ResetAfter: win})},
			{win, nil, checks{ask("a", 10, 1)}, answers(last(win, win))},
			{win, nil, checks{ask("a", 10, 5)}, answers(denied(win, win, win))},
			{2 * win, nil, checks{ask("a", 10, 10)}, answers(last(win, win))},
		}},
		{"a cost above the limit never has room", 4, []step{
			{0, nil, checks{ask("a", 10, 11)}, answers(window.Decision{Never: true, Remaining: 2})},
			{0, nil, checks{ask("a", 10, math.MaxUint64)}, answers(window.Decision{Never: true, Remaining: 2})},
		}},
		{"a denied group charges nothing", 4, []step{
			{
				0, nil,
				checks{ask("a", 4, 1), ask("b", 10, 5), ask("c", 0, 1)},
				answers(allowed(1, 0), allowed(2, 0), window.Decision{Never: true}),
			},
			{0, nil, checks{ask("a", 4, 1), ask("b", 10, 5)}, answers(last(win, win), last(win, win))},
		}},
		{"checks of one log are added up", 4, []step{
			{0, nil, checks{ask("a", 8, 1), ask("a", 8, 1)}, answers(last(win, win), last(win, win))},
			{0, nil, checks{ask("b", 8, 2), ask("b", 8, 1)}, answers(last(win, win), last(win, win))}, // three hits are above the quota of two
		}},
		{"the known use counts until its newest hit expires", 4, []step{
			// Three hits remain, so one of four processes gets one.
			{0, []known{{ask("a", 20, 1), allowed(3, 6*second)}}, checks{ask("a", 20, 1)}, answers(last(6*second, win))},
			{second, nil, checks{ask("a", 20, 1)}, answers(denied(5*second, 5*second, 9*second))},
			{6*second - micro, nil, checks{ask("a", 20, 1)}, answers(denied(micro, micro, 4*second+micro))},
			{6 * second, nil, checks{ask("a", 20, 1)}, answers(of(3, 4*second, win))},
		}},
		{"a small known use does not reduce the quota", 4, []step{
			{0, []known{{ask("a", 20, 1), allowed(19, 6*second)}}, checks{ask("a", 20, 1)}, answers(of(4, 6*second, win))},
		}},
		{"nothing remained", 4, []step{
			{0, []known{{ask("a", 20, 1), last(second, 6*second)}}, checks{ask("a", 20, 1)}, answers(denied(6*second, 6*second, 6*second))},
			{second, nil, checks{ask("a", 20, 0)}, answers(denied(5*second, 5*second, 5*second))},
			{second, nil, checks{ask("a", 20, 21)}, answers(window.Decision{Never: true, UnitAfter: 5 * second, ResetAfter: 5 * second})},
			{second, nil, checks{in(window.Observe, ask("a", 20, 1)), ask("b", 20, 1)}, answers(denied(5*second, 5*second, 5*second), allowed(4, win))},
			{6 * second, nil, checks{ask("a", 20, 1)}, answers(allowed(4, win))},
		}},
		{"a cost above the quota waits until the known use expires", 4, []step{
			{0, []known{{ask("a", 20, 1), allowed(10, 6*second)}}, checks{ask("a", 20, 8)}, answers(window.Decision{Remaining: 3, RetryAfter: 6 * second, UnitAfter: 6 * second, ResetAfter: 6 * second})},
			{0, nil, checks{ask("a", 20, 1)}, answers(of(2, 6*second, win))},
			{second, nil, checks{ask("a", 20, 8)}, answers(window.Decision{Remaining: 2, RetryAfter: 9 * second, UnitAfter: 5 * second, ResetAfter: 9 * second})},
		}},
		{"hits of this process may expire before the known use", 4, []step{
			{0, nil, checks{ask("a", 20, 3)}, answers(allowed(2, win))},
			{4 * second, []known{{ask("a", 20, 1), allowed(16, win)}}, checks{ask("a", 20, 1)}, answers(last(6*second, win))},
			{4 * second, nil, checks{ask("a", 20, 1)}, answers(denied(6*second, 6*second, win))},
			{win, nil, checks{ask("a", 20, 4)}, answers(window.Decision{Remaining: 3, RetryAfter: 4 * second, UnitAfter: 4 * second, ResetAfter: 4 * second})},
			{win, nil, checks{ask("a", 20, 3)}, answers(last(4*second, win))},
		}},
		{"the quota of another limit", 4, []step{
			// Ten hits are used, under any limit.
			{0, []known{{ask("a", 20, 1), allowed(10, win)}}, checks{ask("a", 8, 1)}, answers(denied(win, win, win))},
			{0, nil, checks{ask("a", 14, 0)}, answers(allowed(1, win))},
		}},
		{"the known use changes", 4, []step{
			{0, []known{{ask("a", 20, 1), last(win, win)}, {in(window.Refund, ask("a", 20, 20)), allowed(20, 0)}}, checks{ask("a", 20, 1)}, answers(allowed(4, win))},
			{0, []known{{ask("b", 20, 1), allowed(20, 0)}, {ask("b", 20, 1), denied(second, second, win)}}, checks{ask("b", 20, 1)}, answers(denied(win, win, win))},
		}},
		{"a second outage gives no second quota", 4, []step{
			{0, nil, checks{ask("a", 8, 2)}, answers(last(win, win))},
			// The store is back, and does not know of those two hits.
			{second, []known{{ask("a", 8, 1), allowed(7, win)}}, checks{ask("a", 8, 1)}, answers(denied(9*second, 9*second, win))},
		}},
		{"reports while nothing remains", 4, []step{
			{0, nil, checks{in(window.Always, ask("a", 12, 1))}, answers(allowed(2, win))},
			{second, []known{{ask("a", 12, 1), last(second, 2*second)}}, checks{in(window.Always, ask("a", 12, 1))}, answers(cut(denied(2*second, 2*second, 9*second)))},
			// Nothing of it was recorded: the use of the others is above twice the quota.
			{3 * second, nil, checks{in(window.Refund, ask("a", 12, 1))}, answers(allowed(3, 0))},
			{3 * second, []known{{ask("a", 12, 1), last(second, 2*second)}}, checks{ask("a", 12, 1)}, answers(denied(2*second, 2*second, 2*second))},
		}},
		{"refunds and reports", 4, []step{
			{0, nil, checks{in(window.Always, ask("a", 8, 3))}, answers(last(win, win))},
			{0, nil, checks{ask("a", 8, 1)}, answers(denied(win, win, win))},
			{0, nil, checks{in(window.Refund, ask("a", 8, 2))}, answers(allowed(1, win))},
			{0, nil, checks{ask("a", 8, 1)}, answers(last(win, win))},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := new(clock)
			s := newStore(t, always(tt.replicas), c)
			for i, st := range tt.steps {
				c.now = st.at
				for _, k := range st.learn {
					s.Learn(&k.check, &k.decision)
				}
				if diff := cmp.Diff(st.want, take(t, s, st.ask...)); diff != "" {
					t.Errorf("step %d at %v: (-want +got)\n%s", i, st.at, diff)
				}
			}
		})
	}
}

// TestQuotasContract runs the conformance suite on the quotas of a single process. They are
// the limits.
func TestQuotasContract(t *testing.T) {
	windowtest.Run(t, windowtest.Options{Steps: 10_000, ShortWindows: true}, func(t *testing.T) windowtest.Harness {
		var now atomic.Int64
		quotas, err := fallback.New(fallback.Options{Memory: memstore.Options{Clock: func() time.Duration { return time.Duration(now.Load()) }, SweepInterval: -1}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { quotas.Close() })
		return windowtest.Harness{Store: quotas, SetNow: func(at time.Duration) { now.Store(int64(at)) }}
	})
}

func TestQuotasErrors(t *testing.T) {
	s := newStore(t, always(2), new(clock))
	if _, err := s.Take(t.Context(), window.MayWait, one(ask("", 1, 1)), make([]window.Decision, 1)); !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("no key: got error %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Take(done, window.MayWait, one(ask("a", 1, 1)), make([]window.Decision, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: got error %v", err)
	}
	if got := s.Logs(); got != 0 {
		t.Errorf("got %d logs, want none", got)
	}
}

// TestQuotasAddUp makes calls to several processes after the shared store is gone. While the
// use that the store counted still counts, all of them admit no more than the limit, plus
// one hit each. After the wait of a denial, the cost has room.
func TestQuotasAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const win = 10 * time.Second
		limit := rapid.Uint64Range(1, 40).Draw(t, "limit")
		n := rapid.IntRange(1, 5).Draw(t, "processes")
		c := new(clock)
		store := memstore.New(memstore.Options{Clock: c.read, SweepInterval: -1})
		defer store.Close()
		processes := make([]*fallback.Store, n)
		for i := range processes {
			s, err := fallback.New(fallback.Options{Instances: always(n), Memory: memstore.Options{Clock: c.read, SweepInterval: -1}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			processes[i] = s
		}
		check := window.Check{Key: "k", Limit: window.Limit{Hits: limit, Window: win}, Cost: 1}
		var (
			admitted uint64
			newest   time.Duration
		)
		pause := rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 250 * time.Millisecond})
		var d [1]window.Decision
		for i := range rapid.IntRange(0, 30).Draw(t, "before") {
			c.now += pause.Draw(t, "pause")
			if _, err := store.Take(t.Context(), window.MayWait, []window.Check{check}, d[:]); err != nil {
				t.Fatal(err)
			}
			if d[0].Allowed {
				admitted++
				newest = c.now
			}
			// Each process may miss any answer but the last.
			if rapid.Bool().Draw(t, "learns") || i == 0 {
				processes[i%n].Learn(&check, &d[0])
			}
		}
		for _, p := range processes {
			if admitted > 0 {
				p.Learn(&check, &d[0]) // every process learns the last answer
			}
		}
		for range rapid.IntRange(0, 60).Draw(t, "after") {
			c.now += pause.Draw(t, "pause")
			if c.now >= newest+win {
				break
			}
			p := processes[rapid.IntRange(0, n-1).Draw(t, "process")]
			if _, err := p.Take(t.Context(), window.MayWait, []window.Check{check}, d[:]); err != nil {
				t.Fatal(err)
			}
			if d[0].Allowed {
				admitted++
				continue
			}
			again := c.now
			c.now += d[0].RetryAfter
			zero := check
			zero.Cost = 0
			var room [1]window.Decision
			if _, err := p.Take(t.Context(), window.MayWait, []window.Check{zero}, room[:]); err != nil {
				t.Fatal(err)
			}
			if d[0].RetryAfter <= 0 || !room[0].Allowed {
				t.Fatalf("after a wait of %v: got %+v, want room", d[0].RetryAfter, room[0])
			}
			c.now = again
		}
		if most := limit + uint64(n); admitted > most {
			t.Fatalf("%d processes admitted %d of %d until %v, want at most %d", n, admitted, limit, c.now, most)
		}
	})
}

// TestQuotasFollowTheNumber changes the number of processes while the shared store is unavailable. A
// process never admits twice what it has admitted already.
func TestQuotasFollowTheNumber(t *testing.T) {
	type step struct {
		at       time.Duration
		replicas int
		allowed  int // of 20 calls
	}
	for _, tt := range []struct {
		name  string
		used  uint64 // what the shared store has said, at 0
		steps []step
	}{
		{"fewer processes", 0, []step{{0, 4, 3}, {second, 2, 3}, {2 * second, 1, 6}, {3 * second, 1, 0}}},
		{"more processes", 0, []step{{0, 1, 12}, {second, 4, 0}, {9 * second, 1, 0}, {win, 4, 3}}},
		{"more, then as before", 0, []step{{0, 2, 6}, {second, 4, 0}, {2 * second, 2, 0}, {win, 2, 6}}},
		{"fewer in the middle of a window", 0, []step{{0, 4, 3}, {5 * second, 2, 3}, {win, 2, 3}, {15 * second, 2, 3}}},
		{"of what remained, with fewer", 4, []step{{0, 2, 4}, {second, 1, 4}, {2 * second, 1, 0}}},
		{"of what remained, with more", 4, []step{{0, 2, 4}, {second, 8, 0}, {2 * second, 2, 0}}},
		{"zero means one", 0, []step{{0, 0, 12}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := new(clock)
			replicas := 1
			s := newStore(t, func(window.Scope) int { return replicas }, c)
			check := ask("a", 12, 1)
			if tt.used > 0 {
				s.Learn(&check, &window.Decision{Allowed: true, Remaining: 12 - tt.used, ResetAfter: win})
			}
			for _, step := range tt.steps {
				c.now = step.at
				replicas = step.replicas
				allowed := 0
				for range 20 {
					var d [1]window.Decision
					if _, err := s.Take(t.Context(), window.MayWait, []window.Check{check}, d[:]); err != nil {
						t.Fatal(err)
					}
					if d[0].Allowed {
						allowed++
					}
				}
				if allowed != step.allowed {
					t.Errorf("at %v, one of %d: %d calls passed, want %d", step.at, step.replicas, allowed, step.allowed)
				}
			}
		})
	}
}

// TestQuotasWithAnyNumber changes the number at any time. In no window does a process admit more
// than its quota by the smallest number of that window, and a denial's wait is enough if the
// number stays.
func TestQuotasWithAnyNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const win = 10 * time.Second
		type event struct {
			at       time.Duration
			replicas int
			hit      bool
		}
		c := new(clock)
		replicas := 1
		s, err := fallback.New(fallback.Options{
			Instances: func(window.Scope) int { return replicas }, Memory: memstore.Options{Clock: c.read, SweepInterval: -1},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		limit := rapid.Uint64Range(1, 40).Draw(t, "limit")
		check := window.Check{Key: "k", Limit: window.Limit{Hits: limit, Window: win}, Cost: 1}
		var events []event
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			c.now += rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 2 * time.Second}).Draw(t, "pause")
			if rapid.IntRange(0, 4).Draw(t, "change") == 0 {
				replicas = rapid.IntRange(1, 6).Draw(t, "replicas")
			}
			var d [1]window.Decision
			if _, err := s.Take(t.Context(), window.MayWait, []window.Check{check}, d[:]); err != nil {
				t.Fatal(err)
			}
			events = append(events, event{c.now, replicas, d[0].Allowed})
			hits, fewest := uint64(0), replicas
			for _, e := range events {
				if e.at > c.now-win {
					fewest = min(fewest, e.replicas)
					if e.hit {
						hits++
					}
				}
			}
			if quota := max(limit/uint64(fewest), 1); hits > quota {
				t.Fatalf("at %v: admitted %d in one window, want at most the quota %d of one of %d", c.now, hits, quota, fewest)
			}
			if !d[0].Allowed {
				now := c.now
				c.now += d[0].RetryAfter
				zero, room := check, [1]window.Decision{}
				zero.Cost = 0
				if _, err := s.Take(t.Context(), window.MayWait, []window.Check{zero}, room[:]); err != nil {
					t.Fatal(err)
				}
				if d[0].RetryAfter <= 0 || room[0].Remaining == 0 {
					t.Fatalf("after a wait of %v: got %+v, want room", d[0].RetryAfter, room[0])
				}
				c.now = now
			}
		}
	})
}

// TestLearnARefund proves that a refund lowers the known use at once, also right after a
// charge.
func TestLearnARefund(t *testing.T) {
	now := time.Hour
	s, err := fallback.New(fallback.Options{Timeout: time.Second, Memory: memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := ask("a", 7, 1)
	c.Limit.Window = time.Hour
	learn := func(mode window.Mode, remaining uint64, reset time.Duration) {
		learned := c
		learned.Mode = mode
		s.Learn(&learned, &window.Decision{Allowed: true, Remaining: remaining, UnitAfter: reset, ResetAfter: reset})
	}
	learn(window.Enforce, 6, time.Hour)
	now += 3 * time.Millisecond
	learn(window.Enforce, 1, time.Hour)
	learn(window.Refund, 6, time.Hour-3*time.Millisecond)
	admitted := 0
	for range 10 {
		d := make([]window.Decision, 1)
		if _, err := s.Take(t.Context(), window.NoWait, []window.Check{c}, d); err != nil {
			t.Fatal(err)
		}
		if d[0].Allowed {
			admitted++
		}
	}
	if admitted != 6 {
		t.Errorf("%d were admitted after the refund, want the 6 that remained", admitted)
	}
}

// TestLearnInAnyOrder learns the answer of an earlier call after those of later calls. The
// quota counts the largest use of one to two timeouts.
func TestLearnInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := fallback.New(fallback.Options{Timeout: 15 * time.Millisecond, Memory: memstore.Options{SweepInterval: -1}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		k := window.Check{Key: "k", Limit: window.Limit{Hits: 10, Window: time.Minute}, Cost: 1}
		for _, tt := range []struct {
			after     time.Duration
			used      uint64 // what the store answers
			remaining uint64 // of the quota, less the one hit that asks
		}{
			{0, 7, 2},
			{5 * time.Millisecond, 2, 2},
			{5 * time.Millisecond, 8, 1},
			{5 * time.Millisecond, 3, 1},  // the next timeout begins
			{14 * time.Millisecond, 4, 1}, // 8 was the largest use in the timeout before
			{time.Millisecond, 5, 4},      // a third timeout begins
			{time.Minute / 2, 1, 8},       // no answer has come for long
		} {
			time.Sleep(tt.after) // of the bubble
			s.Learn(&k, &window.Decision{Allowed: true, Remaining: k.Limit.Hits - tt.used, ResetAfter: time.Minute})
			if d := take(t, s, k)[0]; d.Remaining != tt.remaining {
				t.Errorf("%v later, %d are used: got %+v, want %d remaining", tt.after, tt.used, d, tt.remaining)
			}
			take(t, s, in(window.Refund, k))
		}
	})
}

// TestAStall: 12 callers ask one instance, and the shared store decides nothing for 60 s. In the
// stall the instance admits at most the limit again, and in no window more than twice the limit.
func TestAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, callers = 100, 12
		shared := memstore.New(memstore.Options{SweepInterval: -1})
		defer shared.Close()
		s, err := fallback.New(fallback.Options{Timeout: 15 * time.Millisecond, Memory: memstore.Options{SweepInterval: -1}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		k := window.Check{Key: "k", Limit: window.Limit{Hits: limit, Window: time.Minute}, Cost: 1}
		begin := time.Now()
		var mu sync.Mutex
		var admitted []time.Duration
		degraded := 0
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				time.Sleep(time.Duration(n) * 7 * time.Millisecond) // of the bubble
				for range 1000 {
					now := time.Since(begin)
					stalls := now > 70*time.Second && now < 130*time.Second
					d := make([]window.Decision, 1)
					var store window.Store = shared
					if stalls {
						time.Sleep(15 * time.Millisecond)
						store = s
					}
					if _, err := store.Take(t.Context(), window.MayWait, one(k), d); err != nil {
						t.Error(err)
					}
					if !stalls {
						s.Learn(&k, &d[0])
					}
					if d[0].Allowed {
						mu.Lock()
						admitted = append(admitted, time.Since(begin))
						if stalls {
							degraded++
						}
						mu.Unlock()
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		all.Wait()
		slices.Sort(admitted)
		most := 0
		for i, from := 0, 0; i < len(admitted); i++ {
			for admitted[i]-admitted[from] >= k.Limit.Window {
				from++
			}
			most = max(most, i-from+1)
		}
		if degraded == 0 || degraded > limit || most > 2*limit {
			t.Errorf("%d hits were admitted in the stall and %d in one window, want 1 to %d and up to %d", degraded, most, limit, 2*limit)
		}
	})
}

// TestQuotasOfScopes: each scope has its own number of processes, and logs of one key in two
// scopes are two logs.
func TestQuotasOfScopes(t *testing.T) {
	s, err := fallback.New(fallback.Options{Instances: func(scope window.Scope) int { return []int{2, 4, 1}[scope] }, Memory: memstore.Options{SweepInterval: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []window.LogID
	for scope, want := range []int{4, 2, 8} {
		c := ask("{k}r", 8, 1)
		c.Scope = window.Scope(scope)
		admitted := 0
		for range 10 {
			if take(t, s, c)[0].Allowed {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("scope %d: %d hits are admitted, want %d", scope, admitted, want)
		}
		ids = append(ids, c.Log())
	}
	listed, _, err := s.List(t.Context(), inspect.Match{Tag: "k"}, "")
	slices.SortFunc(listed, func(a, b window.LogID) int { return int(a.Scope) - int(b.Scope) })
	if err != nil || !slices.Equal(listed, ids) {
		t.Errorf("listed %+v, %v, want %+v", listed, err, ids)
	}
	used := func() (all []uint64) {
		readings, err := s.Read(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range readings {
			if r.ID != ids[i] {
				t.Errorf("the reading is of %+v, want %+v", r.ID, ids[i])
			}
			all = append(all, r.Used(window.Limit{Hits: 8, Window: win}))
		}
		return all
	}
	if got := used(); !slices.Equal(got, []uint64{4, 2, 8}) {
		t.Errorf("the logs have %v hits", got)
	}
	s.Reset(ids[1])
	if got := used(); !slices.Equal(got, []uint64{4, 0, 8}) {
		t.Errorf("after a reset of one scope, the logs have %v hits", got)
	}
}

// TestResetOfQuotas removes a log of the quotas: what was admitted, and the known use.
func TestResetOfQuotas(t *testing.T) {
	s := newStore(t, always(1), &clock{now: time.Hour})
	k := ask("k", 4, 4)
	id := k.Log()
	s.Learn(&k, &window.Decision{Remaining: 1, ResetAfter: win})
	if got := take(t, s, ask("k", 4, 1)); !got[0].Allowed {
		t.Fatalf("got %+v", got)
	}
	got, err := s.Read(t.Context(), []window.LogID{id})
	if err != nil || got[0].Contents.Used() != 1 {
		t.Errorf("Read: got %+v, %v, want the hit that was admitted", got, err)
	}
	if got, err = s.Remove(t.Context(), []window.LogID{id}); err != nil || got[0].Contents.Used() != 1 {
		t.Errorf("Remove: got %+v, %v", got, err)
	}
	// The whole quota has room again.
	if got := take(t, s, k); !got[0].Allowed {
		t.Errorf("after the reset: got %+v, want allowed", got)
	}
	if got := take(t, s, ask("k", 4, 1)); got[0].Allowed {
		t.Errorf("got %+v, want denied: the quota is spent", got)
	}
}

// TestQuotasOfPolicies: a process admits its part of hits, of a burst and of a rate while the
// shared store is unavailable.
func TestQuotasOfPolicies(t *testing.T) {
	const start = 1000 * second // a whole number of windows since 1970
	bucket := window.Limit{Hits: 50, Rate: 10, Window: second, Policy: window.TokenBucket}
	fixed := window.Limit{Hits: 30, Window: win, Policy: window.Fixed}
	calendar := window.Limit{Hits: 30, Window: win, Policy: window.Calendar}
	counter := window.Limit{Hits: 30, Window: win, Policy: window.SlidingCounter}
	full := func(reset time.Duration) *window.Decision {
		return &window.Decision{RetryAfter: reset, UnitAfter: reset, ResetAfter: reset}
	}
	for _, tt := range []struct {
		name     string
		l        window.Limit
		replicas int
		known    *window.Decision // at start
		admits   map[time.Duration]int
		order    []time.Duration // after start
	}{
		{"a bucket: burst and rate are divided", bucket, 2, nil, map[time.Duration]int{0: 25, second: 5, 3 * second: 10, time.Minute: 25}, []time.Duration{0, second, 3 * second, time.Minute}},
		{"a rate is rounded down", bucket, 3, nil, map[time.Duration]int{0: 16, second: 3, 2 * second: 3}, []time.Duration{0, second, 2 * second}},
		{"but is at least one", bucket, 20, nil, map[time.Duration]int{0: 2, second: 1}, []time.Duration{0, second}},
		// The bucket was empty. After a second 10 tokens are there for both processes.
		{
			"a known bucket fills on", bucket, 2, &window.Decision{RetryAfter: 100 * time.Millisecond, UnitAfter: 100 * time.Millisecond, ResetAfter: 5 * second},
			map[time.Duration]int{0: 0, second: 5, 2 * second: 5, 2*second + 200*time.Millisecond: 1},
			[]time.Duration{0, second, 2 * second, 2*second + 200*time.Millisecond},
		},
		{"fixed: a new quota with each window", fixed, 3, nil, map[time.Duration]int{0: 10, 9 * second: 0, win: 10}, []time.Duration{0, 9 * second, win}},
		{"fixed: what is known counts until its end", fixed, 3, full(4 * second), map[time.Duration]int{6 * second: 10, 0: 0}, []time.Duration{0, 6 * second}},
		{"calendar: a quota of each period", calendar, 3, nil, map[time.Duration]int{0: 10, 9 * second: 0, win: 10}, []time.Duration{0, 9 * second, win}},
		{"a counter has a quota too", counter, 3, nil, map[time.Duration]int{0: 10, 9 * second: 0, 2 * win: 10}, []time.Duration{0, 9 * second, 2 * win}},
	} {
		c := &clock{start}
		s := newStore(t, always(tt.replicas), c)
		check := window.Check{Key: "a", Cost: 1, Limit: tt.l}
		if tt.l.Policy == window.Calendar {
			check.Period = window.Period{Start: 1000, End: 1010, Next: 1020}
		}
		if tt.known != nil {
			s.Learn(&check, tt.known)
		}
		for _, after := range tt.order {
			c.now = start + after
			admitted := 0
			var d window.Decision
			for range 200 {
				if d = take(t, s, check)[0]; !d.Allowed {
					break
				}
				admitted++
			}
			if want := tt.admits[after]; admitted != want {
				t.Errorf("%s: %d admitted after %v, want %d", tt.name, admitted, after, want)
			}
			if d.Allowed || d.Never {
				t.Fatalf("%s: %+v after %v, want a denial that ends", tt.name, d, after)
			}
			// The wait is true: not a microsecond before, and then it passes.
			c.now += d.RetryAfter
			if tt.l.Policy == window.Calendar {
				continue // the caller computes other periods then
			}
			question := check
			question.Cost = 0
			if got := take(t, s, question)[0]; !got.Allowed {
				t.Errorf("%s: denied after the wait of %v after %v: %+v", tt.name, d.RetryAfter, after, got)
			}
			c.now -= micro
			if got := take(t, s, question)[0]; got.Allowed {
				t.Errorf("%s: room before the wait of %v after %v", tt.name, d.RetryAfter, after)
			}
			c.now = start + after
		}
	}
}

// TestQuotaOfRequestsInFlight: a process has a part of max, and no request that the shared store
// knew of counts, because when it ends is not known.
func TestQuotaOfRequestsInFlight(t *testing.T) {
	s := newStore(t, always(4), &clock{})
	check := flying(1, 20)
	s.Learn(&check, &window.Decision{RetryAfter: time.Minute, UnitAfter: time.Minute, ResetAfter: time.Minute})
	if hits := fallback.QuotaOf(s, &check); hits != 5 {
		t.Errorf("the quota is %d of 20 in flight, want 5", hits)
	}
}

// TestQuotasInFlight counts the active requests of a process when the outage begins.
func TestQuotasInFlight(t *testing.T) {
	s, err := fallback.New(fallback.Options{Instances: always(2)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// The quota of 8 is 4. Three streams of this process are in flight in the shared store.
	for i := range window.StreamID(3) {
		c := flying(i+1, 8)
		s.Learn(&c, &window.Decision{Allowed: true, Remaining: 1})
	}
	if d := take(t, s, flying(11, 8))[0]; !d.Allowed || d.Remaining != 0 {
		t.Fatalf("the fourth: %+v", d)
	}
	if d := take(t, s, flying(12, 8))[0]; d.Allowed {
		t.Fatalf("the fifth: %+v", d)
	}
	for _, stream := range []window.StreamID{1, 2, 3, 11} {
		if settled, err := s.End(t.Context(), window.Ending{Stream: stream, Deny: time.Second}); !settled.Released || err != nil {
			t.Fatalf("End(%d): %+v, error %v", stream, settled, err)
		}
	}
	if d := take(t, s, flying(12, 8))[0]; !d.Allowed || d.Remaining != 3 {
		t.Fatalf("after the ends: %+v", d)
	}
}

// TestQuotasKeepOnceRecords: while the shared store is unavailable, a process decides by its quota, and a
// retry of what it has admitted is free there.
func TestQuotasKeepOnceRecords(t *testing.T) {
	quotas := newStore(t, always(2), &clock{now: time.Hour})
	for i, want := range []window.Decision{{Allowed: true}, {Allowed: true, Repeated: true}, {}} {
		c := ask("{t}k", 2, 1)
		c.Once = window.Once{ID: 1, For: time.Hour, Repeats: 2}
		if i == 2 {
			c.Once.ID = 2
		}
		if d := take(t, quotas, c)[0]; d.Allowed != want.Allowed || d.Repeated != want.Repeated {
			t.Errorf("request %d: got %+v, want %+v", i, d, want)
		}
	}
}

// TestQuotaOfALargeLimit: a part of a limit is a number, also if it is that of unlimited.
func TestQuotaOfALargeLimit(t *testing.T) {
	l := window.Limit{Hits: 2 * window.Unlimited, Window: time.Minute, Policy: window.Fixed}
	const want uint64 = window.Unlimited - 1
	if got := fallback.QuotaLimit(l, window.Unlimited, 2); got.Hits != want {
		t.Errorf("got %d hits, want %d", got.Hits, want)
	}
}
