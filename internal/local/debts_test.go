package local_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// errLate is the error of a call that the creditor may have charged in the time of doubt.
var errLate = errors.New("late")

// A creditor is a shared store in memory. A test sets the bytes of its logs.
type creditor struct {
	*memstore.Store
	doubt local.Doubt
	log   []byte        // Read returns it
	fails error         // Read and Take return it
	read  func()        // Read calls it, unless it is nil
	pause time.Duration // how long Take takes
	mu    sync.Mutex
	taken []string
}

func (c *creditor) say(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = append(c.taken, text)
}

func (c *creditor) Forget(id window.LogID) { c.say("forget " + id.Key) }

func (c *creditor) Doubt(err error) (local.Doubt, bool) { return c.doubt, errors.Is(err, errLate) }

func (c *creditor) Read(context.Context, window.LogID) ([]byte, error) {
	if c.read != nil {
		c.read()
	}
	return c.log, c.fails
}

func (c *creditor) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	time.Sleep(c.pause)
	if c.fails != nil {
		return true, c.fails
	}
	c.say(fmt.Sprintf("%s %v %d", checks[0].Key, checks[0].Mode, checks[0].Cost))
	return c.Store.Take(ctx, window.MayWait, checks, decisions)
}

// newCreditor returns Shares of one process, and the store that they charge. Call it in a
// bubble of synctest.
func newCreditor(t *testing.T) (*local.Shares, *creditor) {
	t.Helper()
	return newCreditorOf(t, local.ShareOptions{Memory: memstore.Options{SweepInterval: -1}})
}

// newCreditorOf is newCreditor with options of the Shares.
func newCreditorOf(t *testing.T, o local.ShareOptions) (*local.Shares, *creditor) {
	t.Helper()
	c := &creditor{Store: memstore.New(memstore.Options{SweepInterval: -1}), doubt: local.Doubt{Since: 1000, Until: 2000}}
	o.Settler, o.Timeout = c, 15*time.Millisecond
	s, err := local.NewShares(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); c.Close() })
	return s, c
}

// TestDebts admits one hit after a call that failed, and checks what the store is charged.
func TestDebts(t *testing.T) {
	logAt := func(clock int64, precision time.Duration) []byte {
		var d window.Decision
		return windowtest.Take(nil, clock, &window.Check{Limit: window.Limit{Hits: 9, Window: time.Minute}, Precision: precision, Cost: 1}, &d)
	}
	refused := errors.New("refused")
	for _, tt := range []struct {
		name      string
		cause     error
		log       []byte
		precision time.Duration
		fails     error
		charged   string
		want      local.Settled
	}{
		{name: "nothing was written", cause: errLate, charged: "k always 1", want: local.Settled{Charged: 1}},
		{name: "written before", cause: errLate, log: logAt(1000, 0), charged: "k always 1", want: local.Settled{Charged: 1}},
		{name: "written in time", cause: errLate, log: logAt(1001, 0), charged: "k always 0", want: local.Settled{Found: 1}},
		{name: "written at the deadline", cause: errLate, log: logAt(2000, 0), charged: "k always 0", want: local.Settled{Found: 1}},
		{name: "written after the deadline", cause: errLate, log: logAt(2002, 0), charged: "k always 1", want: local.Settled{Charged: 1}},
		{name: "rounded times do not tell", cause: errLate, log: logAt(2002, time.Second), precision: time.Second, charged: "k always 0", want: local.Settled{Found: 1}},
		{name: "a log without its end", cause: errLate, log: logAt(1500, 0)[:12], charged: "k always 0", want: local.Settled{Found: 1}},
		{name: "no log", cause: errLate, log: []byte("text"), charged: "k always 1", want: local.Settled{Charged: 1}},
		{name: "the store does not decide", cause: refused},
		{name: "it does not decide afterwards", cause: errLate, fails: refused, want: local.Settled{Abandoned: 1}},
		{name: "it is late for a second", cause: errLate, fails: errLate, want: local.Settled{Abandoned: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newCreditor(t)
				c.log, c.fails = tt.log, tt.fails
				check := []window.Check{{Key: "k", Limit: window.Limit{Hits: 9, Window: time.Minute}, Precision: tt.precision, Cost: 1}}
				d := make([]window.Decision, 1)
				if err := s.TakeAfter(t.Context(), tt.cause, check, d); err != nil || !d[0].Allowed {
					t.Fatal(d[0], err)
				}
				if s.Owing() != (tt.cause == errLate) { //nolint:errorlint // it is the same value
					t.Error("owing:", s.Owing())
				}
				begun := time.Now()
				for s.Owing() && time.Since(begun) < time.Minute {
					time.Sleep(time.Millisecond) // of the bubble
				}
				var want []string
				if tt.cause == errLate { //nolint:errorlint // it is the same value
					want = []string{"forget k"}
				}
				if tt.charged != "" {
					want = append(want, tt.charged)
				}
				if diff := cmp.Diff(want, c.taken); diff != "" {
					t.Errorf("asked of the store (-want +got):\n%s", diff)
				}
				synctest.Wait()
				if got := s.Settled(); got != tt.want {
					t.Errorf("settled %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// TestSettleTime has a store that is late for ten seconds. A debt is given up after a second, or
// after the time of the option.
func TestSettleTime(t *testing.T) {
	for within, want := range map[time.Duration]local.Settled{0: {Abandoned: 1}, 20 * time.Second: {Charged: 1}} {
		synctest.Test(t, func(t *testing.T) {
			s, c := newCreditorOf(t, local.ShareOptions{Memory: memstore.Options{SweepInterval: -1}, SettleTime: within})
			begun := time.Now()
			c.fails = errLate
			c.read = func() {
				if time.Since(begun) > 10*time.Second {
					c.fails = nil
				}
			}
			check := []window.Check{{Key: "k", Limit: window.Limit{Hits: 9, Window: time.Minute}, Cost: 1}}
			if err := s.TakeAfter(t.Context(), errLate, check, make([]window.Decision, 1)); err != nil {
				t.Fatal(err)
			}
			s.Close() // waits until nothing is owed
			if got := s.Settled(); got != want {
				t.Errorf("settled %+v within %v, want %+v", got, within, want)
			}
		})
	}
}

// TestDebtsEnd has requests that name two logs, and a late call. The shared store decides them
// again after a second, although the requests never pause.
func TestDebtsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newCreditor(t)
		c.pause = time.Millisecond // of the bubble, as all times here
		limit := window.Limit{Hits: 1_000_000, Window: time.Hour}
		both := []window.Check{{Key: "a", Limit: limit, Cost: 1}, {Key: "b", Limit: limit, Cost: 1}}
		d := make([]window.Decision, 2)
		if err := s.TakeAfter(t.Context(), errLate, both[:1], d[:1]); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for decided := true; decided; time.Sleep(100 * time.Microsecond) {
			var err error
			if decided, err = s.TakeOwed(t.Context(), both, d); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); decided != (took < time.Second) {
				t.Fatalf("after %v the shares decide: %t, want until a second", took, decided)
			}
		}
		s.Close() // waits until nothing is owed
		if settled := s.Settled(); s.Owing() || settled.Abandoned != 0 {
			t.Errorf("owing: %t, settled %+v", s.Owing(), settled)
		}
	})
}

// TestDebtsShareNoEntry admits several hits after calls that failed. One entry of the log is
// the charge of one of them.
func TestDebtsShareNoEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newCreditor(t)
		check := []window.Check{{Key: "k", Limit: window.Limit{Hits: 9, Window: time.Minute}, Cost: 1}}
		for _, at := range []int64{1500, 2500} {
			entry := check[0]
			entry.Cost = 2
			var d window.Decision
			c.log = windowtest.Take(c.log, at, &entry, &d)
		}
		// The entry of 1500 has two hits, for three of the calls. The entry of 2500 is of
		// the first call.
		for _, c.doubt = range []local.Doubt{{Since: 1000, Until: 3000}, {Since: 1400, Until: 1600}, {Since: 1000, Until: 1550}, {Since: 1000, Until: 2000}} {
			if err := s.TakeAfter(t.Context(), errLate, check, make([]window.Decision, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		if got, want := s.Settled(), (local.Settled{Charged: 1, Found: 3}); got != want {
			t.Errorf("settled %+v, want %+v", got, want)
		}
	})
}

// TestRequestsOfADebt decides groups while a log has a debt.
func TestRequestsOfADebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newCreditor(t)
		limit := window.Limit{Hits: 3, Window: time.Minute}
		k := window.Check{Key: "k", Limit: limit, Cost: 1}
		other, refund, always := k, k, k
		other.Key = "other"
		refund.Mode, always.Mode = window.Refund, window.Always
		d := make([]window.Decision, 1)
		if decided, err := s.TakeOwed(t.Context(), []window.Check{k}, d); decided || err != nil {
			t.Error("without a debt:", decided, err)
		}
		if err := s.TakeAfter(t.Context(), errLate, []window.Check{k}, d); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name             string
			check            window.Check
			decided, allowed bool
		}{
			{"another log", other, false, false},
			{"a refund", refund, false, false},
			{"the second hit", k, true, true},
			{"the third", always, true, true},
			{"the fourth", k, true, false},
		} {
			d[0] = window.Decision{}
			if decided, err := s.TakeOwed(t.Context(), []window.Check{tt.check}, d); decided != tt.decided || d[0].Allowed != tt.allowed || err != nil {
				t.Errorf("%s: decided %t, %+v, %v; want %t, allowed %t", tt.name, decided, d[0], err, tt.decided, tt.allowed)
			}
		}
		// Answers of calls that were under way.
		room, full := window.Decision{Allowed: true, Remaining: 5}, window.Decision{Allowed: true, Remaining: 2}
		for _, tt := range []struct {
			name             string
			check            window.Check
			answer           window.Decision
			decided, allowed bool
		}{
			{"another log", other, full, false, true},
			{"room for both", k, room, false, true},
			{"no room for both", k, full, true, false},
		} {
			d[0] = tt.answer
			if decided, err := s.Recheck(t.Context(), []window.Check{tt.check}, d); decided != tt.decided || d[0].Allowed != tt.allowed || err != nil {
				t.Errorf("%s: rechecked %t, %+v, %v; want %t, allowed %t", tt.name, decided, d[0], err, tt.decided, tt.allowed)
			}
		}
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		if diff := cmp.Diff([]string{"forget k", "k always 2"}, c.taken); diff != "" || s.Owing() {
			t.Errorf("three hits were owed and one was paid: (-want +got)\n%s", diff)
		}
	})
}

// TestDebtsAreBounded makes debts for more logs than can have one.
func TestDebtsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newCreditor(t)
		c.doubt = local.Doubt{Since: math.MaxInt64, Until: math.MaxInt64}
		d := make([]window.Decision, 1)
		for i := range 1030 {
			check := []window.Check{{Key: fmt.Sprint(i), Limit: window.Limit{Hits: 1, Window: time.Minute}, Cost: 1}}
			if err := s.TakeAfter(t.Context(), errLate, check, d); err != nil || !d[0].Allowed {
				t.Fatal(d[0], err)
			}
		}
		if got := s.Settled().Abandoned; got != 6 {
			t.Errorf("%d hits are abandoned, want 6", got)
		}
	})
}

// TestRecheckWaitsAlone decides a request while another one reads a log. It does not run in
// a bubble, because a bubble does not see that a goroutine waits for a mutex.
func TestRecheckWaitsAlone(t *testing.T) {
	s, c := newCreditor(t)
	k := []window.Check{{Key: "k", Limit: window.Limit{Hits: 3, Window: time.Minute}, Cost: 1}}
	if err := s.TakeAfter(t.Context(), errLate, k, make([]window.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	c.read = func() {
		once.Do(func() {
			decided := make(chan struct{})
			go func() {
				_, _ = s.TakeOwed(t.Context(), k, make([]window.Decision, 1))
				close(decided)
			}()
			select {
			case <-decided:
			case <-time.After(5 * time.Second):
				t.Error("a request waits until another one has read")
			}
		})
	}
	if _, err := s.Recheck(t.Context(), k, []window.Decision{{Allowed: true}}); err != nil {
		t.Error(err)
	}
}

// TestRecheckOfSeveralLogs rechecks a group with two logs. One has a debt, and the store has
// charged the other.
func TestRecheckOfSeveralLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newCreditor(t)
		k := window.Check{Key: "k", Limit: window.Limit{Hits: 3, Window: time.Minute}, Cost: 1}
		other := k
		other.Key, other.Mode = "other", window.Always
		d := make([]window.Decision, 1)
		if err := s.TakeAfter(t.Context(), errLate, []window.Check{k}, d); err != nil {
			t.Fatal(err)
		}
		d = []window.Decision{{Allowed: true}, {Allowed: true}}
		if decided, err := s.Recheck(t.Context(), []window.Check{k, other}, d); !decided || err != nil {
			t.Error(decided, err)
		}
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		if diff := cmp.Diff([]string{"forget k", "k always 1"}, c.taken); diff != "" {
			t.Errorf("asked of the store (-want +got):\n%s", diff)
		}
	})
}

// TestRecheckInFullMemory rechecks a group while the process has no memory for its logs. The
// answer of the store stays, and so does the debt.
func TestRecheckInFullMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newCreditorOf(t, local.ShareOptions{Memory: memstore.Options{SweepInterval: -1, MaxKeys: 1}})
		k := window.Check{Key: "k", Limit: window.Limit{Hits: 3, Window: time.Minute}, Cost: 1}
		other := k
		other.Key = "other"
		d := make([]window.Decision, 1)
		if err := s.TakeAfter(t.Context(), errLate, []window.Check{k}, d); err != nil {
			t.Fatal(err)
		}
		d = []window.Decision{{Allowed: true}, {Allowed: true, Remaining: 2}}
		if decided, err := s.Recheck(t.Context(), []window.Check{k, other}, d); decided || err == nil || !d[0].Allowed || d[1].Remaining != 2 {
			t.Error(decided, err, d)
		}
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		if diff := cmp.Diff([]string{"forget k", "k always 1"}, c.taken); diff != "" {
			t.Errorf("asked of the store (-want +got):\n%s", diff)
		}
	})
}

// TestLearnInAnyOrder learns the answer of an earlier call after those of later calls. The
// share counts the largest use of one to two timeouts.
func TestLearnInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newCreditor(t)
		k := window.Check{Key: "k", Limit: window.Limit{Hits: 10, Window: time.Minute}, Cost: 1}
		for _, tt := range []struct {
			after     time.Duration
			used      uint64 // what the store answers
			remaining uint64 // of the share, less the one hit that asks
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
			d := make([]window.Decision, 1)
			if _, err := s.Take(t.Context(), window.MayWait, []window.Check{k}, d); err != nil || d[0].Remaining != tt.remaining {
				t.Errorf("%v later, %d are used: got %+v, %v, want %d remaining", tt.after, tt.used, d[0], err, tt.remaining)
			}
			refund := k
			refund.Mode = window.Refund
			if _, err := s.Take(t.Context(), window.MayWait, []window.Check{refund}, d); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLearnBesideADebt learns that the use of a log has fallen, while another log has a
// debt.
func TestLearnBesideADebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newCreditor(t)
		k := window.Check{Key: "k", Limit: window.Limit{Hits: 3, Window: time.Minute}, Cost: 1}
		other := k
		other.Key = "other"
		s.Learn(&other, &window.Decision{ResetAfter: 30 * time.Second})
		d := make([]window.Decision, 1)
		if err := s.TakeAfter(t.Context(), errLate, []window.Check{k}, d); err != nil {
			t.Fatal(err)
		}
		s.Learn(&other, &window.Decision{Allowed: true, Remaining: 2, ResetAfter: time.Minute})
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{other}, d); err != nil || !d[0].Allowed {
			t.Error(d[0], err)
		}
		time.Sleep(time.Second) // of the bubble
	})
}

// TestDebtsAreSettledByFew makes debts for many logs at once. Settling them must leave
// connections for requests.
func TestDebtsAreSettledByFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newCreditor(t)
		var mu sync.Mutex
		now, most := 0, 0
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			now += by
			most = max(most, now)
		}
		c.read = func() {
			count(1)
			time.Sleep(time.Millisecond) // of the bubble
			count(-1)
		}
		const logs = 100
		for i := range logs {
			check := []window.Check{{Key: fmt.Sprint(i), Limit: window.Limit{Hits: 1, Window: time.Minute}, Cost: 1}}
			if err := s.TakeAfter(t.Context(), errLate, check, make([]window.Decision, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second) // of the bubble
		synctest.Wait()
		if got := s.Settled().Charged; got != logs || most > 4 {
			t.Errorf("%d hits are charged, by %d calls at once; want %d, by 4 at most", got, most, logs)
		}
	})
}
