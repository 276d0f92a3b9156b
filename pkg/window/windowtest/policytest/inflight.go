package policytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
)

// An InFlightHarness is fresh, empty stores that share their logs, and a clock that the test
// sets.
type InFlightHarness struct {
	// Stores share their logs. Each is a [window.Releaser] too. The code that makes the harness
	// closes them.
	Stores []window.Store
	// SetNow sets the clock of all stores, as [windowtest.Harness.SetNow] does. It is nil with
	// [windowtest.Options.RealClock].
	SetNow func(now time.Duration)
	// Epoch is as in [windowtest.Harness].
	Epoch time.Duration
	// Twin is a store in memory with the same clock, or nil. [RunBudgets] compares all waits with it.
	Twin window.Store
	// Differs returns how the bytes of a log, and of what is reserved of it, differ from those of Twin. It is nil without Twin.
	Differs func(t *testing.T, id window.LogID) string
}

// begin sets the clock, if the test may set it.
func (h *InFlightHarness) begin() {
	if h.SetNow != nil {
		h.SetNow(time.Hour)
	}
}

// RunInFlight runs the suite of the policy [window.InFlight] as subtests of t. open makes a
// harness for each of them, and for long random runs several. The environment variables are
// those of [windowtest.Run].
func RunInFlight(t *testing.T, o windowtest.Options, open func(t *testing.T) InFlightHarness) {
	t.Helper()
	o.Steps = o.StepCount(t)
	if !o.RealClock {
		t.Run("Steps", func(t *testing.T) { runFlightSteps(t, open) })
	}
	if !o.RealClock {
		t.Run("Random", func(t *testing.T) { runFlightRandom(t, open, o) })
	}
	t.Run("Groups", func(t *testing.T) { runFlightGroups(t, open(t)) })
	t.Run("BadCheck", func(t *testing.T) { runFlightBadChecks(t, open(t)) })
	t.Run("Concurrent", func(t *testing.T) { runFlightConcurrent(t, open(t)) })
	t.Run("ConcurrentEnds", func(t *testing.T) { runFlightEnds(t, open(t)) })
}

// FlightHold is the usual hold of the suite.
const FlightHold = 10 * time.Second

// Holding returns a check of a stream for a cost under a limit of so many in flight.
func Holding(stream window.StreamID, key string, most, cost uint64) window.Check {
	return window.Check{
		Key: key, Cost: cost, Stream: stream,
		Limit: window.Limit{Hits: most, Window: FlightHold, Policy: window.InFlight},
	}
}

// End ends a stream, and fails the test if the store returns an error.
func End(t *testing.T, s window.Store, stream window.StreamID, deny time.Duration) (released bool) {
	t.Helper()
	settled, err := s.(window.Releaser).End(t.Context(), window.Ending{Stream: stream, Deny: deny})
	if err != nil {
		t.Fatalf("End(%d): got error %v", stream, err)
	}
	return settled.Released
}

// A flightStep is one call: of Take, or of End if deny is not zero.
type flightStep struct {
	at       time.Duration
	ask      window.Check
	want     window.Decision
	ends     window.StreamID
	deny     time.Duration
	released bool
}

const sec = time.Second

// inMode returns a check in another mode.
func inMode(m window.Mode, c window.Check) window.Check {
	c.Mode = m
	return c
}

// forLong returns a check with a hold of 30 seconds.
func forLong(c window.Check) window.Check {
	c.Limit.Window = 30 * sec
	return c
}

// has returns the answer to a check that has room.
func has(remaining uint64, unit, reset time.Duration) window.Decision {
	return window.Decision{Allowed: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset, Unsettled: remaining == 0}
}

// full returns the denial by a full limit.
func full(retry, unit, reset time.Duration) window.Decision {
	return window.Decision{RetryAfter: retry, UnitAfter: unit, ResetAfter: reset, Unsettled: true}
}

// flightSteps are tables whose answers are written by hand.
var flightSteps = map[string][]flightStep{
	"EndsFreeRoom": {
		{at: 0, ask: Holding(1, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: sec, ask: Holding(2, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
		{at: sec, ask: Holding(3, "k", 2, 1), want: full(9*sec, 9*sec, 10*sec)},
		{at: 2 * sec, ends: 1, deny: sec, released: true},
		{at: 2 * sec, ask: Holding(3, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
		{at: 3 * sec, ends: 2, deny: sec, released: true},
		{at: 3 * sec, ends: 3, deny: sec, released: true},
		{at: 3 * sec, ask: Holding(4, "k", 2, 0), want: has(2, 0, 0)},
	},
	"HoldsExpire": {
		{at: 0, ask: Holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 10*sec - micro, ask: Holding(2, "k", 1, 1), want: full(micro, micro, micro)},
		{at: 10 * sec, ask: Holding(2, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 11 * sec, ends: 1, deny: sec},
		{at: 11 * sec, ask: Holding(3, "k", 1, 1), want: full(9*sec, 9*sec, 9*sec)},
	},
	"RoundedUp": {
		{at: micro, ask: Holding(1, "k", 1, 1), want: has(0, 10*sec+milli-micro, 10*sec+milli-micro)},
		{at: 10*sec + milli - micro, ask: Holding(2, "k", 1, 1), want: full(micro, micro, micro)},
		{at: 10*sec + milli, ask: Holding(2, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
	},
	"SameStream": {
		{at: 0, ask: Holding(1, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: sec, ask: Holding(1, "k", 2, 1), want: has(1, 9*sec, 9*sec)},
		{at: sec, ask: Holding(1, "k", 2, 2), want: has(1, 9*sec, 9*sec)}, // whatever the cost
		{at: sec, ask: Holding(2, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
		{at: sec, ask: Holding(1, "k", 2, 1), want: has(0, 9*sec, 10*sec)}, // full, and it holds
		{at: 2 * sec, ends: 1, deny: sec, released: true},
		{at: 2 * sec, ends: 1, deny: sec},
		{at: 2 * sec, ask: Holding(2, "k", 2, 1), want: has(1, 9*sec, 9*sec)},
	},
	"EndFirst": {
		{at: 0, ends: 1, deny: 2 * sec},
		{at: sec, ask: Holding(1, "k", 2, 1), want: window.Decision{Remaining: 2, RetryAfter: sec, Unsettled: true}},
		{at: sec, ask: Holding(2, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: sec, ends: 1, deny: 9 * sec}, // changes nothing
		{at: 2*sec - micro, ask: Holding(1, "other", 2, 0), want: window.Decision{Remaining: 2, RetryAfter: micro, Unsettled: true}},
		{at: 2 * sec, ask: Holding(1, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
	},
	"EndAlsoDeniesLater": {
		{at: 0, ask: Holding(1, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: 0, ends: 1, deny: 5 * sec, released: true},
		{at: sec, ask: Holding(1, "k", 2, 1), want: window.Decision{Remaining: 2, RetryAfter: 4 * sec, Unsettled: true}},
		{at: sec, ask: Holding(1, "late", 2, 1), want: window.Decision{Remaining: 2, RetryAfter: 4 * sec, Unsettled: true}},
	},
	"EndWithoutDeny": {
		{at: 0, ends: 1, deny: -1},
		{at: 0, ask: Holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 0, ends: 1, deny: -1, released: true},
		{at: 0, ask: Holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
	},
	"Costs": {
		{at: 0, ask: Holding(1, "k", 5, 2), want: has(3, 10*sec, 10*sec)},
		{at: sec, ask: Holding(2, "k", 5, 2), want: has(1, 9*sec, 10*sec)},
		{at: 2 * sec, ask: Holding(3, "k", 5, 2), want: window.Decision{Remaining: 1, RetryAfter: 8 * sec, UnitAfter: 8 * sec, ResetAfter: 9 * sec, Unsettled: true}},
		{at: 2 * sec, ask: Holding(3, "k", 5, 4), want: window.Decision{Remaining: 1, RetryAfter: 9 * sec, UnitAfter: 8 * sec, ResetAfter: 9 * sec, Unsettled: true}},
		{at: 2 * sec, ask: Holding(3, "k", 5, 6), want: window.Decision{Never: true, Remaining: 1, UnitAfter: 8 * sec, ResetAfter: 9 * sec}},
		{at: 2 * sec, ask: Holding(3, "k", 5, 0), want: has(1, 8*sec, 9*sec)},
		{at: 2 * sec, ask: Holding(3, "k", 5, 1), want: has(0, 8*sec, 10*sec)},
		{at: 2 * sec, ask: Holding(4, "k", 5, 0), want: full(8*sec, 8*sec, 10*sec)},
		{at: 2 * sec, ask: Holding(3, "k", 3, 1), want: has(0, 9*sec, 10*sec)}, // the limit was lowered, and it holds
		{at: 2 * sec, ask: Holding(4, "k", 3, 1), want: full(9*sec, 9*sec, 10*sec)},
		{at: 2 * sec, ends: 2, deny: sec, released: true},
		{at: 2 * sec, ask: Holding(4, "k", 5, 2), want: has(0, 8*sec, 10*sec)},
	},
	"Modes": {
		{at: 0, ask: inMode(window.Observe, Holding(1, "k", 2, 2)), want: has(0, 10*sec, 10*sec)},
		{at: 0, ask: inMode(window.Observe, Holding(2, "k", 2, 1)), want: full(10*sec, 10*sec, 10*sec)},
		{at: sec, ask: inMode(window.Always, Holding(2, "k", 2, 1)), want: window.Decision{RetryAfter: 9 * sec, UnitAfter: 9 * sec, ResetAfter: 10 * sec, Unsettled: true}},
		{at: sec, ask: inMode(window.Refund, Holding(1, "k", 2, 1)), want: has(0, 9*sec, 10*sec)},
		{at: sec, ask: inMode(window.Refund, Holding(1, "k", 2, 9)), want: has(1, 10*sec, 10*sec)},
		{at: sec, ask: inMode(window.Refund, Holding(1, "k", 2, 9)), want: has(1, 10*sec, 10*sec)},
		{at: sec, ends: 1, deny: sec},
		{at: sec, ends: 2, deny: sec, released: true},
		{at: sec, ask: inMode(window.Always, Holding(2, "k", 2, 1)), want: window.Decision{Remaining: 2, RetryAfter: sec, Unsettled: true}},
		{at: sec, ask: inMode(window.Any, Holding(3, "k", 2, 1)), want: has(1, 10*sec, 10*sec)},
	},
	"OtherHolds": { // a longer hold, and then a shorter one, in one log
		{at: 0, ask: forLong(Holding(1, "k", 3, 1)), want: has(2, 30*sec, 30*sec)},
		{at: sec, ask: Holding(2, "k", 3, 1), want: has(1, 10*sec, 29*sec)},
		{at: 2 * sec, ask: Holding(3, "k", 3, 1), want: has(0, 9*sec, 28*sec)},
		{at: 11 * sec, ask: Holding(4, "k", 3, 1), want: has(0, sec, 19*sec)},
		{at: 12 * sec, ends: 1, deny: sec, released: true},
		{at: 12 * sec, ask: Holding(5, "k", 3, 3), want: window.Decision{Remaining: 2, RetryAfter: 9 * sec, UnitAfter: 9 * sec, ResetAfter: 9 * sec, Unsettled: true}},
	},
	"SetBack": {
		{at: 60 * sec, ask: Holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 50 * sec, ask: Holding(2, "k", 1, 1), want: full(20*sec, 20*sec, 20*sec)},
		{at: 50 * sec, ends: 1, deny: sec, released: true},
		{at: 50 * sec, ask: Holding(2, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
	},
	"Zero": {
		{at: 0, ask: Holding(1, "k", 0, 1), want: window.Decision{Never: true}},
		{at: 0, ask: Holding(1, "k", window.Unlimited, 1), want: window.Decision{Allowed: true, Remaining: window.Unlimited}},
		{at: 0, ends: 1, deny: -1},
	},
	"ManyHolds": manyHolds(),
}

// manyHolds returns steps that fill a log with 40 holds, so that a store may answer without a look
// at all of them. Each begins 100 ms after the one before.
func manyHolds() (steps []flightStep) {
	const most, apart = 40, 100 * milli
	for i := range time.Duration(most) {
		unit := 10*sec - i*apart
		steps = append(steps, flightStep{at: i * apart, ask: Holding(window.StreamID(1+i), "k", most, 1), want: has(uint64(most-1-i), unit, 10*sec)})
	}
	const at, first, last = 5 * sec, 5 * sec, 8900 * milli // and until when the holds last
	return append(steps, []flightStep{
		{at: at, ask: Holding(99, "k", most, 1), want: full(first, first, last)},
		{at: at, ask: Holding(99, "k", most, 3), want: full(first+2*apart, first, last)},
		{at: at, ask: Holding(99, "k", most-1, 1), want: full(first+apart, first+apart, last)},
		{at: at, ask: Holding(99, "k", most+1, 2), want: window.Decision{Remaining: 1, RetryAfter: first, UnitAfter: first, ResetAfter: last, Unsettled: true}},
		{at: at, ask: Holding(99, "k", most, most+1), want: window.Decision{Never: true, UnitAfter: first, ResetAfter: last}},
		{at: at, ask: Holding(20, "k", most, 1), want: has(0, first, last)}, // it holds
		{at: at, ask: Holding(99, "k", most+2, 1), want: has(1, first, 10*sec)},
		{at: at, ask: forLong(Holding(98, "k", most+2, 1)), want: has(0, first, 30*sec)},
		{at: at, ask: Holding(97, "k", most+2, 1), want: full(first, first, 30*sec)}, // before the last
		{at: at, ends: 98, deny: sec, released: true},
		{at: at, ends: 1, deny: sec, released: true},
		{at: at, ask: Holding(97, "k", most, 1), want: full(first+apart, first+apart, 10*sec)},
		{at: 10*sec + apart, ask: Holding(97, "k", most, 1), want: has(0, apart, 10*sec)}, // the second has expired
		{at: 10*sec + apart, ask: Holding(96, "k", most, 1), want: full(apart, apart, 10*sec)},
		{at: 10*sec + apart, ask: inMode(window.Always, Holding(96, "k", most, 1)), want: full(2*apart, 2*apart, 10*sec)},
		{at: 10*sec + apart, ask: inMode(window.Refund, Holding(96, "k", most, 1)), want: has(0, apart, 10*sec)},
	}...)
}

// runFlightSteps plays the tables.
func runFlightSteps(t *testing.T, open func(*testing.T) InFlightHarness) {
	for name, steps := range flightSteps {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			for i, step := range steps {
				h.SetNow(time.Hour + step.at)
				store := h.Stores[i%len(h.Stores)]
				if step.ends != 0 {
					if got := End(t, store, step.ends, max(step.deny, 0)); got != step.released {
						t.Fatalf("step %d: End at %v: released %v, want %v", i, step.at, got, step.released)
					}
					continue
				}
				if got := take(t, store, one(step.ask)); got[0] != step.want {
					t.Fatalf("step %d at %v: %+v: (-want +got)\n%s", i, step.at, step.ask, diff.Diff(step.want, got[0]))
				}
			}
		})
	}
}

// runFlightGroups checks that a group with other policies is charged as a whole or not at all,
// and that one end frees all logs of a stream.
func runFlightGroups(t *testing.T, h InFlightHarness) {
	h.begin()
	store := h.Stores[0]
	sliding := func(hits, cost uint64) window.Check { return ask("{g}rate", hits, cost) }
	used := func(step string, flying, rate uint64) {
		t.Helper()
		got := take(t, store, group(Holding(99, "{g}fly", 5, 0), sliding(3, 0)))
		if got[0].Remaining != 5-flying || got[1].Remaining != 3-rate {
			t.Fatalf("%s: %d in flight and %d hits, want %d and %d", step, 5-got[0].Remaining, 3-got[1].Remaining, flying, rate)
		}
	}
	take(t, store, group(Holding(1, "{g}fly", 5, 1), sliding(3, 1), Holding(1, "{h}fly", 5, 1)))
	used("allowed", 1, 1)
	if got := take(t, store, group(Holding(2, "{g}fly", 5, 1), sliding(3, 3))); reference.Allowed(got) {
		t.Fatal("the sliding log has no room, and the group was allowed")
	}
	used("denied by the sliding log", 1, 1)
	if got := take(t, store, group(sliding(3, 1), Holding(2, "{g}fly", 5, 5))); reference.Allowed(got) {
		t.Fatal("there is no room in flight, and the group was allowed")
	}
	used("denied in flight", 1, 1)
	// Checks of one log are decided together, and have one hold.
	if got := take(t, store, group(Holding(3, "{g}fly", 5, 2), Holding(3, "{g}fly", 5, 3))); reference.Allowed(got) {
		t.Fatal("5 more are allowed, and 1 is in flight")
	}
	if got := take(t, store, group(Holding(3, "{g}fly", 5, 2), Holding(3, "{g}fly", 5, 2))); !reference.Allowed(got) {
		t.Fatal("4 more are denied, and 1 is in flight")
	}
	used("twice", 5, 1)
	if !End(t, store, 1, time.Second) || !End(t, store, 3, time.Second) {
		t.Fatal("the streams had no holds")
	}
	used("ended", 0, 1)
	if got := take(t, store, one(Holding(98, "{h}fly", 5, 0))); got[0].Remaining != 5 {
		t.Fatalf("%d in flight in the other log after the end", 5-got[0].Remaining)
	}
	// A stream that has ended denies its whole group.
	if got := take(t, store, group(sliding(3, 1), Holding(3, "{g}fly", 5, 1))); reference.Allowed(got) || !got[0].Allowed {
		t.Fatalf("after the end: %+v", got)
	}
	used("denied because of the end", 0, 1)
	// Always is recorded first. So the other check of the group finds that the stream holds a
	// slot, also where a long log denies others at a glance.
	for i := range window.StreamID(40) {
		take(t, store, one(Holding(100+i, "{g}crowd", 40, 1)))
	}
	if got := take(t, store, one(Holding(200, "{g}crowd", 40, 1))); reference.Allowed(got) {
		t.Fatalf("40 of 40 slots are taken: %+v", got)
	}
	if got := take(t, store, group(inMode(window.Always, Holding(201, "{g}crowd", 40, 1)), Holding(201, "{g}crowd", 40, 1))); got[0].Allowed || !got[1].Allowed {
		t.Fatalf("a hold by Always: %+v, want no room for the first, and room for the second", got)
	}
}

// runFlightBadChecks checks what Take refuses.
func runFlightBadChecks(t *testing.T, h InFlightHarness) {
	h.begin()
	short := Holding(1, "k", 1, 1)
	short.Limit.Window = window.MinHold - time.Millisecond
	for name, checks := range map[string][]window.Check{
		"NoStream":    one(Holding(0, "k", 1, 1)),
		"ShortHold":   one(short),
		"TooMany":     one(Holding(1, "k", window.MaxInFlight+1, 1)),
		"TwoStreams":  group(Holding(1, "k", 1, 1), Holding(2, "l", 1, 1)),
		"WrongPolicy": one(window.Check{Key: "k", Limit: window.Limit{Hits: 1, Window: win}, Stream: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Stores[0].Take(t.Context(), window.MayWait, checks, make([]window.Decision, len(checks)))
			if !errors.Is(err, window.ErrBadCheck) {
				t.Errorf("got error %v, want one that wraps %q", err, window.ErrBadCheck)
			}
		})
	}
	if settled, err := h.Stores[0].(window.Releaser).End(t.Context(), window.Ending{Deny: time.Second}); !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("End of no stream: %+v, error %v, want one that wraps %q", settled, err, window.ErrBadCheck)
	}
}

// runFlightRandom compares the stores with the oracle over random histories of charges and
// ends: ends that come before their charges, twice, and after the hold has expired.
func runFlightRandom(t *testing.T, open func(*testing.T) InFlightHarness, o windowtest.Options) {
	seed := random.Seed(t)
	const each = 120
	for done := 0; done < o.Steps && !t.Failed(); done += windowtest.PerHarness {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := open(t)
			for n := 0; n < min(windowtest.PerHarness, o.Steps-done); n += each {
				runFlightHistory(t, &h, seed, each, o.CheckByCheck)
				if t.Failed() {
					t.Fatalf("repeat this history alone with %s=%d", random.SeedVariable, seed)
				}
				seed++
			}
		})
	}
}

func runFlightHistory(t *testing.T, h *InFlightHarness, seed uint64, steps int, forward bool) {
	var (
		r      = rand.New(rand.NewPCG(seed, 20))
		f      = &oracle.Flight{Epoch: h.Epoch, Logs: map[string]*oracle.FlightLog{}, Ended: map[window.StreamID]time.Duration{}}
		now    = windowtest.UpTo(r, year).Truncate(windowtest.Pick(r, micro, milli, time.Second))
		limit  = windowtest.Pick[uint64](r, 1, 2, 3, 5, 12, 40)
		spread = windowtest.Pick(r, 2*limit, 3, limit+1)
		past   []string
		moves  = windowtest.Pick(r, 12, 12, 200) // rarely: more holds at a time than a store reads first
	)
	if moves > 12 {
		limit, spread = 40, 60
	}
	for range steps {
		switch r.IntN(moves) {
		case 0:
			now += windowtest.UpTo(r, FlightHold)
		case 1:
			if !forward {
				now = max(now-windowtest.UpTo(r, 3*time.Second), 0)
			}
		case 2:
			now += FlightHold + windowtest.Pick(r, -micro, 0, milli, time.Hour)
		case 3, 4, 5:
			now += windowtest.Pick(r, micro, milli, 100*milli, time.Second)
		}
		now = now.Truncate(micro)
		h.SetNow(now)
		store := h.Stores[r.IntN(len(h.Stores))]
		stream := window.StreamID(seed<<16 | 1 + r.Uint64N(spread))
		if r.IntN(moves/4) == 0 {
			deny := windowtest.Pick(r, 0, milli, time.Second, time.Second+micro, 5*time.Second, 20*time.Second)
			want := f.End(now, stream, deny)
			past = append(past, fmt.Sprintf("%v: end %d deny %v: released %v", now, stream&0xffff, deny, want))
			if got := End(t, store, stream, deny); got != want {
				t.Errorf("%s\nreleased %v, want %v", tail(past), got, want)
				return
			}
			continue
		}
		checks := make([]window.Check, windowtest.Pick(r, 1, 1, 1, 2, 3))
		mode := windowtest.Pick(r, window.Enforce, window.Enforce, window.Enforce, window.Any, window.Observe)
		for i := range checks {
			c := Holding(stream, fmt.Sprintf("{%d}%s", seed, windowtest.Pick(r, "a", "a", "b")), windowtest.Pick(r, limit, limit, limit, limit/2+1, limit+3), windowtest.Pick[uint64](r, 0, 1, 1, 1, 1, 2, limit, limit+1))
			if c.Mode = mode; r.IntN(10) == 0 {
				c.Mode = windowtest.Pick(r, window.Always, window.Refund)
			}
			c.Limit.Window = windowtest.Pick(r, FlightHold, FlightHold, FlightHold, window.MinHold, time.Minute+micro)
			if r.IntN(60) == 0 {
				c.Limit.Hits = windowtest.Pick[uint64](r, 0, window.Unlimited)
			}
			checks[i] = c
		}
		want := f.Take(now, checks)
		for i, c := range checks {
			past = append(past, fmt.Sprintf("%v: %v %s stream %d cost %d of %d for %v: %+v", now, c.Mode, c.Key, c.Stream&0xffff, c.Cost, c.Limit.Hits, c.Limit.Window, want[i]))
		}
		got := take(t, store, checks)
		for i := range got {
			got[i].Remembered = false // a store in front of others may know that a cost never fits
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\n(-want +got)\n%s", tail(past), diff.Diff(want, got))
			return
		}
	}
}

// tail returns the last lines of a history.
func tail(lines []string) (text string) {
	for _, line := range lines[max(0, len(lines)-40):] {
		text += line + "\n"
	}
	return text
}
