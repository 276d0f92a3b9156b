package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	second = time.Second
	micro  = time.Microsecond
	win    = 10 * second
)

// shared is a store in memory that several processes ask. The test sets its clock. It
// counts the calls.
type shared struct {
	*memstore.Store
	now   atomic.Int64
	calls atomic.Int64
	// before and after run before and after each decision, unless they are nil.
	before, after func(checks []window.Check)
	// change changes the answer of the store.
	change func(decisions []window.Decision)
	err    error
}

func newShared(tb testing.TB) *shared {
	s := new(shared)
	s.Store = memstore.New(memstore.Options{Clock: s.clock, SweepInterval: -1})
	tb.Cleanup(func() { s.Store.Close() })
	return s
}

func (s *shared) clock() time.Duration     { return time.Duration(s.now.Load()) }
func (s *shared) setNow(now time.Duration) { s.now.Store(int64(now)) }

func (s *shared) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	s.calls.Add(1)
	if s.err != nil {
		return true, s.err
	}
	if s.before != nil {
		s.before(checks)
	}
	_, err := s.Store.Take(ctx, window.MayWait, checks, decisions)
	if s.change != nil {
		s.change(decisions)
	}
	if s.after != nil {
		s.after(checks)
	}
	return true, err
}

// Close does nothing, because other processes use the logs.
func (*shared) Close() error { return nil }

// process returns a process that asks s and has the same clock.
func (s *shared) process(tb testing.TB, o lease.Options) *lease.Store {
	tb.Helper()
	o.Clock = s.clock
	p, err := lease.New(s, o)
	if err != nil {
		tb.Fatal(err)
	}
	if o.Keys >= 0 {
		p.SetMaxAge(10 * second) // to see denials end by themselves
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return p
}

func take(tb testing.TB, s window.Store, checks ...window.Check) []window.Decision {
	tb.Helper()
	return plain(windowtest.Take(tb, s, checks))
}

// plain clears in decisions who has decided, so that they compare with those of the shared
// store.
func plain(d []window.Decision) []window.Decision {
	for i := range d {
		d[i].Remembered = false
	}
	return d
}

func ask(key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: win}, Cost: cost}
}

func in(m window.Mode, c window.Check) window.Check { c.Mode = m; return c }

func answers(d ...window.Decision) []window.Decision { return d }

// A step is one call.
type step struct {
	at     time.Duration
	checks []window.Check
	want   []window.Decision
	local  bool // answered without the store
}

func one(c window.Check) []window.Check { return []window.Check{c} }

// denied returns a denial by a log in which nothing remains.
func denied(retry, unit, reset time.Duration) window.Decision {
	return window.Decision{RetryAfter: retry, UnitAfter: unit, ResetAfter: reset}
}

func TestSteps(t *testing.T) {
	a := ask("a", 2, 1)
	fill := []step{
		{0, one(a), answers(window.Decision{Allowed: true, Remaining: 1, UnitAfter: win, ResetAfter: win}), false},
		{4 * second, one(a), answers(window.Decision{Allowed: true, UnitAfter: 6 * second, ResetAfter: win}), false},
		// The call that took the last hit tells when the next one has room, and is
		// believed for 100 ms. Then a denied call tells the same.
		{4*second + 100*time.Millisecond - 2*micro, one(a), answers(denied(5900*time.Millisecond+2*micro, 5900*time.Millisecond+2*micro, 9900*time.Millisecond+2*micro)), true},
		{4*second + 100*time.Millisecond - micro, one(a), answers(denied(5900*time.Millisecond+micro, 5900*time.Millisecond+micro, 9900*time.Millisecond+micro)), false},
	}
	other, minute := ask("b", 5, 1), ask("m", 1, 1)
	minute.Limit.Window = time.Minute
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a denial lasts until its time and counts down", []step{
			{7 * second, one(a), answers(denied(3*second, 3*second, 7*second)), true},
			{10*second - 2*micro, one(a), answers(denied(2*micro, 2*micro, 4*second+2*micro)), true},
			// The store's clock has whole microseconds.
			{10*second - micro, one(a), answers(denied(micro, micro, 4*second+micro)), false},
			{10 * second, one(a), answers(window.Decision{Allowed: true, UnitAfter: 4 * second, ResetAfter: win}), false},
		}},
		{"a cost of zero is denied too", []step{
			{5 * second, one(ask("a", 2, 0)), answers(denied(5*second, 5*second, 9*second)), true},
		}},
		{"a cost of the whole limit waits until the log is empty", []step{
			{5 * second, one(ask("a", 2, 2)), answers(denied(9*second, 5*second, 9*second)), true},
			{5 * second, one(ask("a", 2, 3)), answers(window.Decision{Never: true, UnitAfter: 5 * second, ResetAfter: 9 * second}), true},
		}},
		{"a smaller limit denies", []step{
			{5 * second, one(ask("a", 1, 1)), answers(denied(9*second, 9*second, 9*second)), true},
			{5 * second, one(ask("a", 0, 1)), answers(window.Decision{Never: true}), true},
		}},
		{"a larger limit does not deny", []step{
			{5 * second, one(ask("a", 3, 1)), answers(window.Decision{Allowed: true, UnitAfter: 5 * second, ResetAfter: win}), false},
			{5 * second, one(a), answers(denied(9*second, 9*second, win)), false}, // the smaller limit waits for another hit
		}},
		{"the last answer tells the waits of its cost, of one unit and of the whole limit", []step{
			{4 * second, one(ask("g", 4, 1)), answers(window.Decision{Allowed: true, Remaining: 3, UnitAfter: win, ResetAfter: win}), false},
			{5 * second, one(ask("g", 4, 1)), answers(window.Decision{Allowed: true, Remaining: 2, UnitAfter: 9 * second, ResetAfter: win}), false},
			{6 * second, one(ask("g", 4, 2)), answers(window.Decision{Allowed: true, UnitAfter: 8 * second, ResetAfter: win}), false},
			{8 * second, one(ask("g", 4, 2)), answers(denied(7*second, 6*second, 8*second)), false},
			{9 * second, one(ask("g", 4, 1)), answers(denied(5*second, 5*second, 7*second)), true},
			{9 * second, one(ask("g", 4, 2)), answers(denied(6*second, 5*second, 7*second)), true},
			{9 * second, one(ask("g", 4, 4)), answers(denied(7*second, 5*second, 7*second)), true},
			// A smaller limit has the wait of a larger cost.
			{9 * second, one(ask("g", 3, 1)), answers(denied(6*second, 6*second, 7*second)), true},
			{9 * second, one(ask("g", 4, 3)), answers(denied(7*second, 5*second, 7*second)), false},
			{9 * second, one(ask("g", 4, 2)), answers(denied(6*second, 5*second, 7*second)), false},
		}},
		{"another window is another log", []step{
			{
				5 * second, one(window.Check{Key: "a", Limit: window.Limit{Hits: 2, Window: 2 * win}, Cost: 1}),
				answers(window.Decision{Allowed: true, Remaining: 1, UnitAfter: 2 * win, ResetAfter: 2 * win}), false,
			},
		}},
		{"another precision is another rule", []step{
			{5 * second, one(window.Check{Key: "a", Limit: a.Limit, Cost: 1, Precision: second}), answers(denied(5*second, 5*second, 9*second)), false},
		}},
		{"a denial is believed up to its age", []step{
			{5 * second, one(minute), answers(window.Decision{Allowed: true, UnitAfter: time.Minute, ResetAfter: time.Minute}), false},
			{6 * second, one(minute), answers(denied(59*second, 59*second, 59*second)), false},
			{16*second - 2*micro, one(minute), answers(denied(49*second+2*micro, 49*second+2*micro, 49*second+2*micro)), true},
			{16*second - micro, one(minute), answers(denied(49*second+micro, 49*second+micro, 49*second+micro)), false},
		}},
		{"a denied cost does not deny a smaller cost", []step{
			{5 * second, one(ask("c", 10, 6)), answers(window.Decision{Allowed: true, Remaining: 4, UnitAfter: win, ResetAfter: win}), false},
			{6 * second, one(ask("c", 10, 5)), answers(window.Decision{Remaining: 4, RetryAfter: 9 * second, UnitAfter: 9 * second, ResetAfter: 9 * second}), false},
			{6500 * time.Millisecond, one(ask("c", 10, 5)), answers(window.Decision{Remaining: 4, RetryAfter: 8500 * time.Millisecond, UnitAfter: 8500 * time.Millisecond, ResetAfter: 8500 * time.Millisecond}), true},
			// All hits expire at once, so every larger cost has the same wait.
			{6500 * time.Millisecond, one(ask("c", 10, 7)), answers(window.Decision{Remaining: 4, RetryAfter: 8500 * time.Millisecond, UnitAfter: 8500 * time.Millisecond, ResetAfter: 8500 * time.Millisecond}), true},
			{6500 * time.Millisecond, one(ask("c", 9, 5)), answers(window.Decision{Remaining: 3, RetryAfter: 8500 * time.Millisecond, UnitAfter: 8500 * time.Millisecond, ResetAfter: 8500 * time.Millisecond}), false},
			{6500 * time.Millisecond, one(ask("c", 10, 4)), answers(window.Decision{Allowed: true, UnitAfter: 8500 * time.Millisecond, ResetAfter: win}), false},
		}},
		{"a denied cost does not tell the wait of a smaller cost", []step{
			{5 * second, one(ask("c", 10, 4)), answers(window.Decision{Allowed: true, Remaining: 6, UnitAfter: win, ResetAfter: win}), false},
			{6 * second, one(ask("c", 10, 2)), answers(window.Decision{Allowed: true, Remaining: 4, UnitAfter: 9 * second, ResetAfter: win}), false},
			{6 * second, one(ask("c", 10, 9)), answers(window.Decision{Remaining: 4, RetryAfter: win, UnitAfter: 9 * second, ResetAfter: win}), false},
			{6 * second, one(ask("c", 10, 5)), answers(window.Decision{Remaining: 4, RetryAfter: 9 * second, UnitAfter: 9 * second, ResetAfter: win}), false},
		}},
		{"others may have spent on a log whose hits have expired", []step{
			{
				4 * second, one(window.Check{Key: "e", Limit: window.Limit{Hits: 5, Window: 5 * second}, Cost: 1}),
				answers(window.Decision{Allowed: true, Remaining: 4, UnitAfter: 5 * second, ResetAfter: 5 * second}), false,
			},
			{
				8500 * time.Millisecond,
				[]window.Check{a, {Key: "e", Limit: window.Limit{Hits: 5, Window: 5 * second}, Cost: 1}},
				answers(denied(1500*time.Millisecond, 1500*time.Millisecond, 5500*time.Millisecond), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 500 * time.Millisecond, ResetAfter: 500 * time.Millisecond}), false,
			},
			{
				9*second - micro,
				[]window.Check{a, {Key: "e", Limit: window.Limit{Hits: 5, Window: 5 * second}, Cost: 1}},
				answers(denied(second+micro, second+micro, 5*second+micro), window.Decision{Allowed: true, Remaining: 4, UnitAfter: micro, ResetAfter: micro}), true,
			},
			{
				9 * second,
				[]window.Check{a, {Key: "e", Limit: window.Limit{Hits: 5, Window: 5 * second}, Cost: 1}},
				answers(denied(second, second, 5*second), window.Decision{Allowed: true, Remaining: 5}), false,
			},
		}},
		{"what remains is believed for a second", []step{
			{5 * second, one(ask("c", 10, 6)), answers(window.Decision{Allowed: true, Remaining: 4, UnitAfter: win, ResetAfter: win}), false},
			{6 * second, one(ask("c", 10, 5)), answers(window.Decision{Remaining: 4, RetryAfter: 9 * second, UnitAfter: 9 * second, ResetAfter: 9 * second}), false},
			{7*second - micro, one(ask("c", 10, 5)), answers(window.Decision{Remaining: 4, RetryAfter: 8*second + micro, UnitAfter: 8*second + micro, ResetAfter: 8*second + micro}), false},
		}},
		{"a cost that never has room", []step{
			{5 * second, one(ask("d", 10, 11)), answers(window.Decision{Never: true, Remaining: 10}), false},
			{5500 * time.Millisecond, one(ask("d", 10, 12)), answers(window.Decision{Never: true, Remaining: 10}), true},
			{6 * second, one(ask("d", 10, 12)), answers(window.Decision{Never: true, Remaining: 10}), false},
			{6 * second, one(ask("d", 0, 12)), answers(window.Decision{Never: true}), true},
		}},
		{"a group is denied by one of its logs", []step{
			// The other log is unknown.
			{5 * second, []window.Check{a, other}, answers(denied(5*second, 5*second, 9*second), window.Decision{Allowed: true, Remaining: 5}), false},
			{5500 * time.Millisecond, []window.Check{other, a}, answers(window.Decision{Allowed: true, Remaining: 5}, denied(4500*time.Millisecond, 4500*time.Millisecond, 8500*time.Millisecond)), true},
			// The answer for the other log is too old.
			{6 * second, []window.Check{a, other}, answers(denied(4*second, 4*second, 8*second), window.Decision{Allowed: true, Remaining: 5}), false},
			// Alone, the other log is asked about: it is not denied.
			{6 * second, one(other), answers(window.Decision{Allowed: true, Remaining: 4, UnitAfter: win, ResetAfter: win}), false},
		}},
		{"observed checks and checks of mode Any do not deny", []step{
			{5 * second, one(in(window.Observe, a)), answers(denied(5*second, 5*second, 9*second)), false},
			{5 * second, one(in(window.Any, a)), answers(denied(5*second, 5*second, 9*second)), false},
			{5 * second, []window.Check{in(window.Any, a), other}, answers(denied(5*second, 5*second, 9*second), window.Decision{Allowed: true, Remaining: 5}), false},
		}},
		{"a quota in a denied group", []step{
			{5 * second, []window.Check{a, in(window.Any, other)}, answers(denied(5*second, 5*second, 9*second), window.Decision{Allowed: true, Remaining: 5}), false},
			{5 * second, []window.Check{a, in(window.Any, other)}, answers(denied(5*second, 5*second, 9*second), window.Decision{Allowed: true, Remaining: 5}), true},
			{5 * second, []window.Check{in(window.Observe, other), a}, answers(window.Decision{Allowed: true, Remaining: 5}, denied(5*second, 5*second, 9*second)), true},
		}},
		{"the store decides a group that names a log twice", []step{
			{5 * second, []window.Check{a, a}, answers(denied(9*second, 5*second, 9*second), denied(9*second, 5*second, 9*second)), false},
			{5 * second, one(a), answers(denied(5*second, 5*second, 9*second)), false}, // an answer for two costs is not remembered
			{5 * second, []window.Check{ask("f", 1, 1), ask("f", 2, 0)}, answers(window.Decision{Allowed: true, ResetAfter: win, UnitAfter: win}, window.Decision{Allowed: true, ResetAfter: win, UnitAfter: win}), false},
			{5 * second, one(ask("f", 2, 1)), answers(window.Decision{Allowed: true, UnitAfter: win, ResetAfter: win}), false},
		}},
		{"a refund ends a denial", []step{
			{5 * second, one(a), answers(denied(5*second, 5*second, 9*second)), true},
			{5 * second, one(in(window.Refund, a)), answers(window.Decision{Allowed: true, Remaining: 1, UnitAfter: 5 * second, ResetAfter: 5 * second}), false},
			{5 * second, one(a), answers(window.Decision{Allowed: true, UnitAfter: 5 * second, ResetAfter: win}), false},
		}},
		{"the store decides usage updates", []step{
			{5 * second, one(in(window.Always, ask("a", 2, 1))), answers(denied(9*second, 9*second, win)), false},
			{
				5 * second,
				[]window.Check{a, in(window.Always, ask("u", 2, 1))},
				answers(denied(9*second, 9*second, win), window.Decision{Allowed: true, Remaining: 1, UnitAfter: win, ResetAfter: win}), false,
			},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShared(t)
			p := s.process(t, lease.Options{})
			locally := uint64(0)
			for i, st := range append(fill[:len(fill):len(fill)], tt.steps...) {
				s.setNow(st.at)
				before := s.calls.Load()
				got := take(t, p, st.checks...)
				if diff := cmp.Diff(st.want, got); diff != "" {
					t.Errorf("step %d at %v: (-want +got)\n%s", i, st.at, diff)
				}
				if asked := s.calls.Load() > before; asked == st.local {
					t.Errorf("step %d at %v: asked the store %t, want %t", i, st.at, asked, !st.local)
				}
				if st.local {
					locally++
				}
			}
			if got := p.Stats().Denials; got != locally {
				t.Errorf("Stats: got %d denials, want %d", got, locally)
			}
		})
	}
}

// TestRoundTrip proves that the time of a denial counts from when the call was sent, and that
// waits count from when the answer arrived.
func TestRoundTrip(t *testing.T) {
	s := newShared(t)
	p := s.process(t, lease.Options{})
	a := ask("a", 1, 1)
	take(t, p, a) // at 0
	p.ForgetAll() // what that answer told of the next call

	s.setNow(4 * second) // sent
	s.before = func([]window.Check) { s.setNow(5 * second) }
	s.after = func([]window.Check) { s.setNow(7 * second) } // received
	if got, want := take(t, p, a), answers(denied(5*second, 5*second, 5*second)); !cmp.Equal(want, got) {
		t.Fatalf("the store: got %+v, want %+v", got, want)
	}
	s.before, s.after = nil, nil
	for _, tt := range []struct {
		at    time.Duration
		retry time.Duration
		local bool
	}{
		{7 * second, 5 * second, true},                 // the true wait is 3 s, and the round trip took 3 s
		{9*second - 2*micro, 3*second + 2*micro, true}, // sent + 5 s is 9 s
		{9*second - micro, second + micro, false},      // the store's clock has whole microseconds
		{10 * second, 0, false},                        // the store allows
	} {
		s.setNow(tt.at)
		before := s.calls.Load()
		got := take(t, p, a)
		if got[0].RetryAfter != tt.retry {
			t.Errorf("at %v: got retry after %v, want %v", tt.at, got[0].RetryAfter, tt.retry)
		}
		if asked := s.calls.Load() > before; asked == tt.local {
			t.Errorf("at %v: asked the store %t, want %t", tt.at, asked, !tt.local)
		}
	}
}

// TestUnsettled proves that an unsettled denial is not remembered, and removes an older
// record.
func TestUnsettled(t *testing.T) {
	s := newShared(t)
	p := s.process(t, lease.Options{})
	a, b := ask("a", 1, 1), ask("b", 1, 1)
	take(t, s, a)
	take(t, s, b)
	s.change = func(d []window.Decision) { d[0].Unsettled = true }
	for range 3 {
		take(t, p, a)
		take(t, p, a, b)
	}
	if got := p.Stats(); got.Denials != 0 {
		t.Errorf("got %d denials without the store, want none", got.Denials)
	}
	if got := s.calls.Load(); got != 2+6 {
		t.Errorf("got %d calls of the store, want %d", got, 2+6)
	}
	take(t, p, b) // the answer for b came with an unsettled one
	if got := p.Stats(); got.Denials != 1 {
		t.Errorf("a settled denial: got %d denials without the store, want 1", got.Denials)
	}
}

// TestForgetWhileAsked proves that the answer of a call is not remembered if a refund comes
// at any moment during the call.
func TestForgetWhileAsked(t *testing.T) {
	a := ask("a", 1, 1)
	for _, tt := range []struct {
		name string
		give func(p *lease.Store)
	}{
		{"by this process", func(p *lease.Store) { take(t, p, in(window.Refund, a)) }},
		{"by another process", func(p *lease.Store) { p.Forget(a.Log()) }},
		{"by an unknown process", (*lease.Store).ForgetAll},
	} {
		for _, when := range []string{"before the decision", "after it"} {
			s := newShared(t)
			p := s.process(t, lease.Options{})
			take(t, s, a)
			give := func([]window.Check) {
				s.before, s.after = nil, nil // the refund calls the store too
				tt.give(p)
			}
			if when == "after it" {
				s.after = give
			} else {
				s.before = give
			}
			take(t, p, a)
			before := s.calls.Load()
			take(t, p, a)
			if s.calls.Load() == before {
				t.Errorf("%s, %s: the denial was remembered", tt.name, when)
			}
		}
	}
}

// TestAskedWhileGivenBack proves that a denial is not remembered if its call ran during a
// refund.
func TestAskedWhileGivenBack(t *testing.T) {
	s := newShared(t)
	p := s.process(t, lease.Options{})
	a := ask("a", 1, 1)
	take(t, s, a)
	s.before = func([]window.Check) {
		s.before = nil
		take(t, p, a)
	}
	take(t, p, in(window.Refund, a))
	if got := take(t, p, a); !got[0].Allowed {
		t.Errorf("after the refund: got %+v", got)
	}
}

// TestAnswerBetweenClockAndMemory proves that a wait is not too short if a call reads the
// clock first, and then uses an answer that arrived in between.
func TestAnswerBetweenClockAndMemory(t *testing.T) {
	s := newShared(t)
	var between func()
	p, err := lease.New(s, lease.Options{Clock: func() time.Duration {
		now := s.clock()
		if f := between; f != nil {
			between = nil
			f()
		}
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := ask("a", 1, 1)
	take(t, s, a) // at 0
	s.setNow(4 * second)
	between = func() { // the answer to another caller takes two seconds
		s.after = func([]window.Check) { s.setNow(6 * second); s.after = nil }
		s.setNow(4*second - 2*micro)
		take(t, p, a)
	}
	// At 4 s the true wait is 6 s. The process only knows that the store told 6 s and
	// 2 us, at some moment before 6 s.
	if got := take(t, p, a); got[0].RetryAfter != 8*second+2*micro {
		t.Errorf("got %+v, want a wait of %v", got, 8*second+2*micro)
	}
	if got := p.Stats().Denials; got != 1 {
		t.Errorf("got %d denials without the store, want 1", got)
	}
}

// goneStore returns a store that fails after it has admitted a check, and what asks it.
func goneStore(t *testing.T) (*shared, *lease.Store, window.Check) {
	t.Helper()
	s := newShared(t)
	p := s.process(t, lease.Options{})
	a := ask("a", 1, 1)
	take(t, p, a)
	s.err = errors.New("gone")
	return s, p, a
}

// TestRefundThatFails proves that a refund ends a denial although its call fails, because
// the store may have recorded it.
func TestRefundThatFails(t *testing.T) {
	s, p, a := goneStore(t)
	if _, err := p.Take(t.Context(), window.MayWait, one(in(window.Refund, a)), make([]window.Decision, 1)); !errors.Is(err, s.err) {
		t.Errorf("refund: got error %v, want %v", err, s.err)
	}
	if _, err := p.Take(t.Context(), window.MayWait, one(a), make([]window.Decision, 1)); !errors.Is(err, s.err) {
		t.Errorf("afterwards: got error %v, want the store's: it was not asked", err)
	}
}

// TestErrors proves that Take returns the error of the store, and that the error ends no
// denial. The store refuses invalid calls.
func TestErrors(t *testing.T) {
	s, p, a := goneStore(t)
	if _, err := p.Take(t.Context(), window.MayWait, one(ask("b", 1, 1)), make([]window.Decision, 1)); !errors.Is(err, s.err) {
		t.Errorf("got error %v, want %v", err, s.err)
	}
	if got := take(t, p, a); got[0].Allowed {
		t.Errorf("a remembered denial: got %+v", got)
	}
	s.err = nil
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Take(done, window.MayWait, one(a), make([]window.Decision, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: got error %v", err)
	}
	if _, err := p.Take(t.Context(), window.MayWait, one(a), make([]window.Decision, 2)); !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("too many decisions: got error %v", err)
	}
	bad := []window.Check{a, ask("", 1, 1)}
	if _, err := p.Take(t.Context(), window.MayWait, bad, make([]window.Decision, 2)); !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("a bad check beside a denied one: got error %v", err)
	}
}

// TestStoreThatForgot proves that an answer of the store replaces a remembered denial.
func TestStoreThatForgot(t *testing.T) {
	s := newShared(t)
	p := s.process(t, lease.Options{})
	a, b := ask("a", 2, 1), ask("b", 5, 1)
	take(t, p, ask("a", 2, 2))
	take(t, s, in(window.Refund, ask("a", 2, 2))) // the process is not told
	if got := take(t, p, a); got[0].Allowed {
		t.Fatalf("a remembered denial: got %+v", got)
	}
	// The other log is unknown, so the store decides.
	if got := take(t, p, a, b); !reference.Allowed(got) {
		t.Fatalf("the store: got %+v", got)
	}
	if got := take(t, p, a); !got[0].Allowed {
		t.Errorf("afterwards: got %+v", got)
	}
}

// TestBound proves the bound on the number of remembered logs.
func TestBound(t *testing.T) {
	s := newShared(t)
	p := s.process(t, lease.Options{Keys: 10})
	for i := range 1000 {
		take(t, p, ask(string(rune('a'+i)), 1, 1))
	}
	if got := p.Stats().Keys; got > 20 || got == 0 { // the cache evicts a little later
		t.Errorf("got %d keys, want about 10", got)
	}
}

// forgetful is a process that forgets a log at once if something remained there. Otherwise
// its status could be up to a second old.
type forgetful struct{ *lease.Store }

func (f forgetful) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	_, err := f.Store.Take(ctx, window.MayWait, checks, decisions)
	for i := range decisions {
		if err == nil && decisions[i].Remaining > 0 {
			f.Forget(checks[i].Log())
		}
	}
	plain(decisions)
	return true, err
}

// TestRemembered asks which denials are repeated: those that a denial came before, also if the
// process found out by an allowed call that nothing remained.
func TestRemembered(t *testing.T) {
	s := newShared(t)
	p := s.process(t, lease.Options{})
	full, roomy := ask("full", 2, 1), ask("roomy", 9, 1)
	asked := func(checks ...window.Check) (remembered []bool) {
		d := make([]window.Decision, len(checks))
		if _, err := p.Take(t.Context(), window.MayWait, checks, d); err != nil {
			t.Fatal(err)
		}
		for i := range d {
			remembered = append(remembered, d[i].Remembered)
		}
		return remembered
	}
	for i, want := range []bool{false, false, false, true, true} {
		before := s.calls.Load()
		if got := asked(full); got[0] != want {
			t.Errorf("call %d: remembered %t, want %t", i, got[0], want)
		}
		if local := s.calls.Load() == before; local != (i > 1) {
			t.Errorf("call %d: without the store %t", i, local)
		}
	}
	asked(roomy, full) // the store is asked what remains of roomy
	if got := asked(roomy, full); !cmp.Equal(got, []bool{false, true}) {
		t.Errorf("a check with room beside a denied one: remembered %v", got)
	}
	s.setNow(win)
	if got := asked(full); got[0] {
		t.Error("an allowed call is remembered")
	}
	asked(full)
	s.setNow(win + time.Second) // the answer of the allowed call is too old
	if got := asked(full); got[0] {
		t.Error("a denial by the store is remembered")
	}
	if got := asked(full); !got[0] {
		t.Error("the next denial is not remembered")
	}
}

// runContract runs a suite through a process. Its answers equal those of the store to the
// microsecond, and some denials come from memory.
func runContract(t *testing.T, steps int, run func(*testing.T, windowtest.Options, func(*testing.T) windowtest.Harness)) {
	t.Helper()
	var answered uint64
	run(t, windowtest.Options{Steps: steps, ShortWindows: true}, func(t *testing.T) windowtest.Harness {
		s := newShared(t)
		p := s.process(t, lease.Options{})
		t.Cleanup(func() { answered += p.Stats().Denials })
		return windowtest.Harness{Store: forgetful{p}, SetNow: s.setNow}
	})
	if answered == 0 {
		t.Error("the process denied nothing from memory, so nothing was proven")
	}
	t.Logf("%d denials without the store", answered)
}

func TestContract(t *testing.T) { runContract(t, 30_000, windowtest.Run) }
