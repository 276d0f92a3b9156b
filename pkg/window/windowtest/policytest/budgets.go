package policytest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
	"github.com/slidegate/slidegate/test/random"
)

// RunBudgets runs the suite of budgets as subtests of t: see [RunInFlight].
func RunBudgets(t *testing.T, o windowtest.Options, open func(t *testing.T) InFlightHarness) {
	t.Helper()
	o.Steps = o.StepCount(t)
	if !o.RealClock {
		for p := window.Sliding; p < window.InFlight; p++ {
			t.Run(p.String(), func(t *testing.T) { runBudgetRandom(t, open(t), p, o.Steps/5) })
		}
		t.Run("Expired", func(t *testing.T) { runBudgetExpired(t, open(t)) })
	}
	t.Run("Groups", func(t *testing.T) { runBudgetGroups(t, open(t)) })
	t.Run("Estimates", func(t *testing.T) { runBudgetEstimates(t, open(t)) })
	t.Run("Slots", func(t *testing.T) { runBudgetSlots(t, open(t)) })
	t.Run("Concurrent", func(t *testing.T) { runBudgetConcurrent(t, open(t)) })
}

// reserves returns a check of a stream that reserves a cost.
func reserves(stream window.StreamID, key string, limit, cost uint64) window.Check {
	c := ask(key, limit, cost)
	c.Stream, c.Budget = stream, budgetOf10s
	return c
}

var budgetOf10s = &window.Budget{Hold: 10 * time.Second}

// settle ends a stream, and returns what that has changed.
func settle(t *testing.T, s window.Store, e window.Ending) []window.SettledLog {
	t.Helper()
	settled, err := s.(window.Releaser).End(t.Context(), e)
	if err != nil {
		t.Fatalf("End of %d: %v", e.Stream, err)
	}
	return sorted(settled.Logs)
}

// sorted sorts settled logs, so that they can be compared.
func sorted(logs []window.SettledLog) []window.SettledLog {
	slices.SortFunc(logs, func(a, b window.SettledLog) int { return cmp.Compare(a.Log.Key, b.Log.Key) })
	return logs
}

// spends returns the check of a cost that an ending names.
func spends(c window.Check, cost uint64) window.Check {
	c.Mode, c.Cost, c.Stream, c.Budget = window.Always, cost, 0, nil
	return c
}

// A budgetHistory is one random history of reservations and ends.
type budgetHistory struct {
	*testing.T
	h      InFlightHarness
	r      *rand.Rand
	o      *oracle.Budgets
	policy window.Policy
	limit  window.Limit
	cycle  cycle
	budget window.Budget
	prefix string
	now    time.Duration
	begun  map[window.StreamID]time.Duration // the last reservation
	grid   time.Duration                     // of the clock
	crowd  bool                              // more holds than a store reads first
	past   []string
}

// runBudgetRandom compares the stores with the oracle over random histories of reservations and
// ends: ends that come before, late, twice or never, with and without costs, on a clock that steps.
func runBudgetRandom(t *testing.T, h InFlightHarness, p window.Policy, steps int) {
	seed := random.Seed(t)
	const each = 100
	for done := 0; done < steps && !t.Failed(); {
		r := rand.New(rand.NewPCG(seed, 40))
		b := budgetHistory{T: t, h: h, r: r, o: oracle.NewBudgets(h.Epoch), policy: p, prefix: fmt.Sprintf("{%d}", seed), grid: windowtest.Pick(r, micro, milli, time.Second), begun: map[window.StreamID]time.Duration{}}
		b.limit = window.Limit{Policy: p, Hits: windowtest.Pick[uint64](r, 5, 20, 1000, 4_000_000_000, 500_000e6, window.MaxHits), Window: windowtest.Pick(r, time.Second, 7*time.Second, time.Minute, time.Hour)}
		switch {
		case p == window.Sliding:
			b.limit.Hits = min(b.limit.Hits, window.MaxSliding)
		case p == window.TokenBucket && b.limit.Hits > 1000:
			b.limit.Rate, b.limit.Window = window.Unlimited, time.Second
		case p == window.TokenBucket:
			b.limit.Rate = windowtest.Pick[uint32](r, 1, 7, 1000)
		}
		if p == window.Calendar {
			b.cycle = Cycles[0]
			b.limit.Window = b.cycle.Nominal
		}
		b.budget = window.Budget{Hold: windowtest.Pick(r, time.Second, 5*time.Second, time.Minute), PerByte: windowtest.Pick(r, 0, 0, 0.25)}
		b.now = 2*year + windowtest.UpTo(r, year).Truncate(micro)
		if b.crowd = r.IntN(5) == 0 || done == 0; b.crowd {
			b.limit.Hits, b.budget.Hold = 1000, time.Minute
		}
		length := each
		if b.crowd {
			length *= 3
		}
		done += length
		for range length {
			if !b.step(seed) {
				t.Fatalf("repeat this history alone with %s=%d", random.SeedVariable, seed)
			}
		}
		seed++
	}
}

// check returns a random check with the budget.
func (b *budgetHistory) check(stream window.StreamID) window.Check {
	c := window.Check{
		Key: b.prefix + windowtest.Pick(b.r, "a", "a", "b"), Limit: b.limit, Stream: stream, Budget: &b.budget,
		Cost: windowtest.Pick(b.r, 0, 1, 1, 2, b.limit.Hits/3, b.limit.Hits/2, b.limit.Hits, b.limit.Hits+1),
	}
	if b.crowd && c.Cost > 2 {
		c.Cost = 1
	}
	if b.policy == window.Calendar {
		c.Period = b.cycle.In(b.now+b.h.Epoch, 0)
	}
	return c
}

// sameBytes compares the bytes of all logs with those of the twin.
func (b *budgetHistory) sameBytes() bool {
	if b.h.Differs == nil {
		return true
	}
	for _, key := range []string{"a", "b"} {
		id := window.LogID{Key: b.prefix + key, Policy: b.policy, Window: b.limit.Window}
		if text := b.h.Differs(b.T, id); text != "" {
			b.Errorf("%s\nthe log %s: %s", tail(b.past), key, text)
			return false
		}
	}
	return true
}

func (b *budgetHistory) step(seed uint64) (ok bool) {
	r := b.r
	pool, ends, still := uint64(6), 3, 15
	if b.crowd {
		if pool, still = 90, 100; len(b.past) < 100 {
			ends = 20
		}
	}
	switch r.IntN(still) {
	case 0:
		b.now += b.budget.Hold + windowtest.Pick(r, -micro, 0, milli, time.Second)
	case 1:
		b.now += b.limit.Window + windowtest.Pick(r, -micro, 0, milli, b.budget.Hold)
	case 2:
		b.now -= windowtest.UpTo(r, 2*time.Second)
	case 3, 4, 5, 6:
		b.now += windowtest.Pick(r, micro, milli, 100*milli, time.Second, b.budget.Hold/3)
	}
	b.now = b.now.Truncate(b.grid)
	b.h.SetNow(b.now)
	store := b.h.Stores[r.IntN(len(b.h.Stores))]
	stream := window.StreamID(seed<<16 | 1 + r.Uint64N(pool))
	defer func() { ok = ok && b.sameBytes() }()
	if r.IntN(ends) > 0 {
		c := b.check(stream)
		want := b.o.Take(b.now, c)
		if b.begun[stream] = b.now; !want.Allowed || c.Cost == 0 {
			delete(b.begun, stream)
		}
		b.past = append(b.past, fmt.Sprintf("%v: %s stream %d cost %d of %+v for %v: %+v", b.now, c.Key, stream&0xffff, c.Cost, c.Limit, c.Budget.Hold, want))
		got := take(b.T, store, one(c))[0]
		if b.h.Twin != nil {
			if twin := take(b.T, b.h.Twin, one(c))[0]; twin != got {
				b.Errorf("%s\n(-in memory +got)\n%s", tail(b.past), diff.Diff(twin, got))
				return false
			}
		}
		if denied := !got.Allowed && !got.Never; denied != (got.RetryAfter > 0) || got.Reserved > 0 && got.ResetAfter == 0 {
			b.Errorf("%s\nwaits of %+v", tail(b.past), got)
			return false
		}
		got.RetryAfter, got.UnitAfter, got.ResetAfter = 0, 0, 0
		if got != want {
			b.Errorf("%s\n(-want +got)\n%s", tail(b.past), diff.Diff(want, got))
			return false
		}
		return true
	}
	if b.policy == window.TokenBucket && b.begun[stream] > 0 && b.now > b.begun[stream]+b.budget.Hold {
		return true // a store may have forgotten that there was a reservation
	}
	e := window.Ending{Stream: stream, Deny: windowtest.Pick(r, 0, milli, time.Second, 20*time.Second), Bytes: r.Uint64N(40), Unreached: r.IntN(4) == 0, Denied: r.IntN(6) == 0}
	for _, key := range []string{"a", "b"} {
		if c := b.check(stream); r.IntN(3) == 0 {
			c.Key = b.prefix + key
			e.Costs = append(e.Costs, spends(c, c.Cost))
			e.Costs[len(e.Costs)-1].Mode = windowtest.Pick(r, window.Always, window.Always, window.Enforce, window.Observe)
		}
	}
	want := sorted(b.o.End(b.now, e))
	b.past = append(b.past, fmt.Sprintf("%v: end %+v: %+v", b.now, e, want))
	if b.h.Twin != nil {
		settle(b.T, b.h.Twin, e)
	}
	if got := settle(b.T, store, e); !slices.Equal(got, want) {
		b.Errorf("%s\n(-want +got)\n%s", tail(b.past), diff.Diff(want, got))
		return false
	}
	return true
}

// runBudgetExpired checks that what has expired is reported once over all stores: by the next reservation or end that
// changes something.
func runBudgetExpired(t *testing.T, h InFlightHarness) {
	h.begin()
	reserve := func(stream window.StreamID, cost uint64, store int) window.Expired {
		c := reserves(stream, "{e}", 100, cost)
		c.Limit.Window = time.Hour
		return take(t, h.Stores[store%len(h.Stores)], one(c))[0].Expired
	}
	for i := range 3 {
		if got := reserve(window.StreamID(1+i), 10, i); got != (window.Expired{}) {
			t.Errorf("stream %d: %+v has expired, want nothing", 1+i, got)
		}
	}
	h.SetNow(time.Hour + 10*time.Second)
	if got := reserve(4, 200, 0); got != (window.Expired{}) {
		t.Errorf("a denial that writes nothing reports %+v", got)
	}
	for i, want := range []window.Expired{{Holds: 3, Units: 30}, {}, {}} {
		if got := reserve(window.StreamID(5+i), 1, 1+i); got != want {
			t.Errorf("reservation %d: %+v has expired, want %+v", i, got, want)
		}
	}
	h.SetNow(time.Hour + 20*time.Second)
	for i, want := range []window.Expired{{Holds: 3, Units: 3}, {}} {
		got := settle(t, h.Stores[i%len(h.Stores)], window.Ending{Stream: window.StreamID(1 + i)})
		if len(got) != 1 || got[0].Expired != want || got[0].Reserved != 10 {
			t.Errorf("late end %d: %+v, want that %+v has expired", i, got, want)
		}
	}
	reserve(8, 7, 0)
	h.SetNow(time.Hour + 30*time.Second)
	twice := reserves(9, "{e}", 100, 1)
	twice.Limit.Window = time.Hour
	if got := take(t, h.Stores[0], group(twice, twice)); got[0].Expired != (window.Expired{Holds: 1, Units: 7}) || got[1].Expired != (window.Expired{}) {
		t.Errorf("a request with one log twice: %+v, want that the first reports what has expired", got)
	}
}

// runBudgetGroups checks that a group with budgets is charged as a whole or not at all, and that one
// end settles all of them.
func runBudgetGroups(t *testing.T, h InFlightHarness) {
	h.begin()
	store := h.Stores[0]
	state := func(step string, reserved, spent, flying, rate uint64) {
		t.Helper()
		got := take(t, store, group(reserves(99, "{g}tokens", 100, 0), reserves(99, "{g}money", 1000, 0), Holding(99, "{g}fly", 5, 0), ask("{g}rate", 3, 0)))
		want := []uint64{100 - reserved - spent, 1000 - 10*reserved - 10*spent, 5 - flying, 3 - rate}
		for i := range want {
			if got[i].Remaining != want[i] || i < 2 && got[i].Reserved != []uint64{reserved, 10 * reserved}[i] {
				t.Fatalf("%s: check %d: %+v, want %d left and %d reserved", step, i, got[i], want[i], reserved)
			}
		}
	}
	all := func(stream window.StreamID, tokens uint64) []window.Check {
		return group(reserves(stream, "{g}tokens", 100, tokens), reserves(stream, "{g}money", 1000, 10*tokens), Holding(stream, "{g}fly", 5, 1), ask("{g}rate", 3, 1))
	}
	take(t, store, all(1, 60))
	state("one stream", 60, 0, 1, 1)
	if got := take(t, store, all(2, 60)); got[0].Allowed || !got[1].Never && got[1].Allowed {
		t.Fatalf("120 of 100: %+v", got)
	}
	state("denied", 60, 0, 1, 1)
	take(t, store, all(3, 40))
	state("two streams", 100, 0, 2, 2)
	other := h.Stores[len(h.Stores)-1]
	e := window.Ending{Stream: 1, Costs: []window.Check{spends(ask("{g}tokens", 100, 0), 20), spends(ask("{g}money", 1000, 0), 200)}}
	for i := range 3 { // only the first has an effect
		if got := settle(t, other, e); len(got) != max(2-2*i, 0) {
			t.Fatalf("end %d: %+v", i, got)
		}
		state("settled", 40, 20, 1, 2)
	}
	if got := take(t, store, all(1, 1)); got[0].Allowed {
		t.Fatalf("after the end: %+v", got)
	}
	if got := settle(t, store, window.Ending{Stream: 3, Unreached: true}); len(got) != 2 || got[0].Spent != 0 {
		t.Fatalf("nothing reached the upstream: %+v", got)
	}
	state("released", 0, 20, 0, 2)
	// An end that comes before its stream charges what it names, and denies the stream.
	e.Stream = 4
	if got := settle(t, store, e); len(got) != 2 || got[0].Reserved != 0 || got[0].Spent == 0 {
		t.Fatalf("an unknown stream: %+v", got)
	}
	state("charged", 0, 40, 0, 2)
	if got := take(t, store, all(4, 1)); got[0].Allowed || got[2].Allowed {
		t.Fatalf("its stream: %+v", got)
	}
	e.Stream, e.Denied = 5, true
	if got := settle(t, store, e); len(got) != 0 {
		t.Fatalf("a denied stream: %+v", got)
	}
	state("a denied stream", 0, 40, 0, 2)
	// A reset of a log drops what is reserved of it.
	take(t, store, group(reserves(6, "{g}tokens", 100, 60), reserves(6, "{g}money", 1000, 600)))
	if _, err := store.(inspect.Inspector).Remove(t.Context(), []window.LogID{ask("{g}tokens", 0, 0).Log(), ask("{g}money", 0, 0).Log()}); err != nil {
		t.Fatal(err)
	}
	state("reset", 0, 0, 0, 2)
}

// runBudgetEstimates checks that an estimate counts for a stream that has reserved nothing, and once.
func runBudgetEstimates(t *testing.T, h InFlightHarness) {
	h.begin()
	store := h.Stores[0]
	both := func(stream window.StreamID, tokens uint64) []window.Check {
		return group(reserves(stream, "{e}tokens", 100, tokens), reserves(stream, "{f}money", 1000, 10*tokens))
	}
	state := func(step string, reserved, spent uint64) {
		t.Helper()
		if got := take(t, store, both(99, 0)); got[0].Remaining != 100-reserved-spent || got[1].Remaining != 1000-10*reserved-10*spent || got[0].Reserved != reserved {
			t.Fatalf("%s: %+v, want %d spent and %d reserved", step, got, spent, reserved)
		}
	}
	e := window.Ending{Stream: 7, Costs: []window.Check{spends(ask("{e}tokens", 100, 0), 5), spends(ask("{f}money", 1000, 0), 50)}}
	for i := range e.Costs {
		e.Costs[i].Mode = window.Enforce
	}
	for i := range 2 {
		if got := settle(t, store, e); len(got) != 2-2*i || i == 0 && (got[0].Cost < 0 || got[0].Spent == 0) {
			t.Fatalf("estimates: %+v", got)
		}
		state("estimates", 0, 5)
	}
	for i := range 2 {
		if got := take(t, store, both(8, 10)); got[0].Repeated != (i > 0) || got[1].Repeated != (i > 0) {
			t.Fatalf("reservation %d of a stream: %+v", i, got)
		}
		state("reserved", 10, 5)
	}
	if e.Stream = 8; len(settle(t, store, e)) != 2 {
		t.Fatal("estimates next to reservations")
	}
	state("a reservation next to an estimate", 0, 15)
}

// runBudgetSlots checks that a request whose logs are on several slots reserves in all logs or in none, and
// that the end settles all.
func runBudgetSlots(t *testing.T, h InFlightHarness) {
	h.begin()
	store := h.Stores[0]
	state := func(step string, reserved, spent uint64) {
		t.Helper()
		for _, key := range []string{"{s}tokens", "{t}tokens"} {
			if got := take(t, store, one(reserves(99, key, 100, 0)))[0]; got.Remaining != 100-reserved-spent || got.Reserved != reserved {
				t.Fatalf("%s: %s: %+v, want %d reserved and %d spent", step, key, got, reserved, spent)
			}
		}
	}
	all := func(stream window.StreamID, tokens uint64) []window.Check {
		return group(reserves(stream, "{s}tokens", 100, tokens), reserves(stream, "{t}tokens", 100, tokens))
	}
	take(t, store, all(1, 60))
	state("one stream", 60, 0)
	if got := take(t, store, group(reserves(2, "{s}tokens", 100, 30), reserves(2, "{t}tokens", 100, 60))); got[1].Allowed || got[0].Remaining != 40 && !got[0].Unsettled {
		t.Fatalf("120 of 100: %+v", got)
	}
	state("denied", 60, 0)
	if got := settle(t, store, window.Ending{Stream: 2, Unreached: true, Denied: true}); len(got) != 0 {
		t.Fatalf("the end of what was denied: %+v", got)
	}
	got := settle(t, store, window.Ending{Stream: 1, Costs: []window.Check{spends(ask("{s}tokens", 100, 0), 20)}})
	if len(got) != 2 || got[0].Spent != 20 || got[0].Cost != 0 || got[1].Spent != 60 || got[1].Cost != -1 || got[1].Reserved != 60 {
		t.Fatalf("settled: %+v", got)
	}
	if got := settle(t, h.Stores[len(h.Stores)-1], window.Ending{Stream: 1, Costs: []window.Check{spends(ask("{s}tokens", 100, 0), 20)}}); len(got) != 0 {
		t.Fatalf("settled twice: %+v", got)
	}
	d := take(t, store, group(reserves(99, "{s}tokens", 100, 0), reserves(99, "{t}tokens", 100, 0)))
	if d[0].Remaining != 80 || d[1].Remaining != 40 || d[0].Reserved != 0 {
		t.Fatalf("after the end: %+v", d)
	}
}

// runBudgetConcurrent lets many streams reserve, settle and be lost at once, on all stores. What
// they have reserved and spent never exceeds the budget, and nothing is left.
func runBudgetConcurrent(t *testing.T, h InFlightHarness) {
	const limit, each = 60_000, 1000
	var spent, reserved atomic.Int64
	manyStreams(h, func(store, other window.Store, stream window.StreamID, turn int) {
		c := reserves(stream, "{b}tokens", limit, each)
		c.Limit.Window = 24 * time.Hour
		late := turn%5 == 0
		e := window.Ending{Stream: stream, Deny: time.Minute, Costs: []window.Check{spends(c, uint64(turn))}}
		if late { // the end overtakes the reservation
			if _, err := other.(window.Releaser).End(t.Context(), e); err != nil {
				t.Errorf("End: %v", err)
				return
			}
			spent.Add(int64(turn))
		}
		got := windowtest.Try(t, store, one(c))
		switch {
		case got == nil:
			return
		case late && got[0].Allowed:
			t.Errorf("stream %d had ended, and was allowed", stream)
		case late || !got[0].Allowed:
			return
		}
		if now := reserved.Add(each); now > limit-spent.Load() {
			t.Errorf("%d are reserved, and %d spent, of %d", now, spent.Load(), limit)
		}
		reserved.Add(-each)
		for range 2 {
			settled, err := other.(window.Releaser).End(t.Context(), e)
			if err != nil {
				t.Errorf("End: %v", err)
			}
			for _, l := range settled.Logs {
				spent.Add(int64(l.Spent))
			}
		}
	})
	c := reserves(1<<40, "{b}tokens", limit, 0)
	c.Limit.Window = 24 * time.Hour
	got := take(t, h.Stores[0], one(c))[0]
	if got.Reserved != 0 || reserved.Load() != 0 || got.Remaining != limit-uint64(spent.Load()) {
		t.Errorf("at rest: %+v, %d reserved, %d spent of %d", got, reserved.Load(), spent.Load(), limit)
	}
}
