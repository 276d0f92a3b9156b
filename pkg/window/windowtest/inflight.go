package windowtest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// An InFlightHarness is fresh, empty stores that share their logs, and a clock that the test
// sets.
type InFlightHarness struct {
	// Stores share their logs. Each is a [window.Ender] too. The code that makes the harness
	// closes them.
	Stores []window.Store
	// SetNow sets the clock of all stores, as [Harness.SetNow] does. It is nil with
	// [Options.RealClock].
	SetNow func(now time.Duration)
	// Epoch is as in [Harness].
	Epoch time.Duration
}

// begin sets the clock, if the test may set it.
func (h *InFlightHarness) begin() {
	if h.SetNow != nil {
		h.SetNow(time.Hour)
	}
}

// RunInFlight runs the suite of the policy [window.InFlight] as subtests of t. open makes a
// harness for each of them, and for long random runs several. The environment variables are
// those of [Run].
func RunInFlight(t *testing.T, o Options, open func(t *testing.T) InFlightHarness) {
	t.Helper()
	o.Steps = o.steps(t)
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

// flightHold is the usual hold of the suite.
const flightHold = 10 * time.Second

// holding returns a check of a stream for a cost under a limit of so many in flight.
func holding(stream window.StreamID, key string, most, cost uint64) window.Check {
	return window.Check{
		Key: key, Cost: cost, Stream: stream,
		Limit: window.Limit{Hits: most, Window: flightHold, Policy: window.InFlight},
	}
}

// end ends a stream, and fails the test if the store returns an error.
func end(t *testing.T, s window.Store, stream window.StreamID, deny time.Duration) (held bool) {
	t.Helper()
	held, err := s.(window.Ender).End(t.Context(), stream, deny)
	if err != nil {
		t.Fatalf("End(%d): got error %v", stream, err)
	}
	return held
}

// A flightStep is one call: of Take, or of End if deny is not zero.
type flightStep struct {
	at   time.Duration
	ask  window.Check
	want window.Decision
	ends window.StreamID
	deny time.Duration
	held bool
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
		{at: 0, ask: holding(1, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: sec, ask: holding(2, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
		{at: sec, ask: holding(3, "k", 2, 1), want: full(9*sec, 9*sec, 10*sec)},
		{at: 2 * sec, ends: 1, deny: sec, held: true},
		{at: 2 * sec, ask: holding(3, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
		{at: 3 * sec, ends: 2, deny: sec, held: true},
		{at: 3 * sec, ends: 3, deny: sec, held: true},
		{at: 3 * sec, ask: holding(4, "k", 2, 0), want: has(2, 0, 0)},
	},
	"HoldsExpire": {
		{at: 0, ask: holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 10*sec - micro, ask: holding(2, "k", 1, 1), want: full(micro, micro, micro)},
		{at: 10 * sec, ask: holding(2, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 11 * sec, ends: 1, deny: sec},
		{at: 11 * sec, ask: holding(3, "k", 1, 1), want: full(9*sec, 9*sec, 9*sec)},
	},
	"RoundedUp": {
		{at: micro, ask: holding(1, "k", 1, 1), want: has(0, 10*sec+milli-micro, 10*sec+milli-micro)},
		{at: 10*sec + milli - micro, ask: holding(2, "k", 1, 1), want: full(micro, micro, micro)},
		{at: 10*sec + milli, ask: holding(2, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
	},
	"SameStream": {
		{at: 0, ask: holding(1, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: sec, ask: holding(1, "k", 2, 1), want: has(1, 9*sec, 9*sec)},
		{at: sec, ask: holding(1, "k", 2, 2), want: has(1, 9*sec, 9*sec)}, // whatever the cost
		{at: sec, ask: holding(2, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
		{at: sec, ask: holding(1, "k", 2, 1), want: has(0, 9*sec, 10*sec)}, // full, and it holds
		{at: 2 * sec, ends: 1, deny: sec, held: true},
		{at: 2 * sec, ends: 1, deny: sec},
		{at: 2 * sec, ask: holding(2, "k", 2, 1), want: has(1, 9*sec, 9*sec)},
	},
	"EndFirst": {
		{at: 0, ends: 1, deny: 2 * sec},
		{at: sec, ask: holding(1, "k", 2, 1), want: window.Decision{Remaining: 2, RetryAfter: sec, Unsettled: true}},
		{at: sec, ask: holding(2, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: sec, ends: 1, deny: 9 * sec}, // changes nothing
		{at: 2*sec - micro, ask: holding(1, "other", 2, 0), want: window.Decision{Remaining: 2, RetryAfter: micro, Unsettled: true}},
		{at: 2 * sec, ask: holding(1, "k", 2, 1), want: has(0, 9*sec, 10*sec)},
	},
	"EndAlsoDeniesLater": {
		{at: 0, ask: holding(1, "k", 2, 1), want: has(1, 10*sec, 10*sec)},
		{at: 0, ends: 1, deny: 5 * sec, held: true},
		{at: sec, ask: holding(1, "k", 2, 1), want: window.Decision{Remaining: 2, RetryAfter: 4 * sec, Unsettled: true}},
		{at: sec, ask: holding(1, "late", 2, 1), want: window.Decision{Remaining: 2, RetryAfter: 4 * sec, Unsettled: true}},
	},
	"EndWithoutDeny": {
		{at: 0, ends: 1, deny: -1},
		{at: 0, ask: holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 0, ends: 1, deny: -1, held: true},
		{at: 0, ask: holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
	},
	"Costs": {
		{at: 0, ask: holding(1, "k", 5, 2), want: has(3, 10*sec, 10*sec)},
		{at: sec, ask: holding(2, "k", 5, 2), want: has(1, 9*sec, 10*sec)},
		{at: 2 * sec, ask: holding(3, "k", 5, 2), want: window.Decision{Remaining: 1, RetryAfter: 8 * sec, UnitAfter: 8 * sec, ResetAfter: 9 * sec, Unsettled: true}},
		{at: 2 * sec, ask: holding(3, "k", 5, 4), want: window.Decision{Remaining: 1, RetryAfter: 9 * sec, UnitAfter: 8 * sec, ResetAfter: 9 * sec, Unsettled: true}},
		{at: 2 * sec, ask: holding(3, "k", 5, 6), want: window.Decision{Never: true, Remaining: 1, UnitAfter: 8 * sec, ResetAfter: 9 * sec}},
		{at: 2 * sec, ask: holding(3, "k", 5, 0), want: has(1, 8*sec, 9*sec)},
		{at: 2 * sec, ask: holding(3, "k", 5, 1), want: has(0, 8*sec, 10*sec)},
		{at: 2 * sec, ask: holding(4, "k", 5, 0), want: full(8*sec, 8*sec, 10*sec)},
		{at: 2 * sec, ask: holding(3, "k", 3, 1), want: has(0, 9*sec, 10*sec)}, // the limit was lowered, and it holds
		{at: 2 * sec, ask: holding(4, "k", 3, 1), want: full(9*sec, 9*sec, 10*sec)},
		{at: 2 * sec, ends: 2, deny: sec, held: true},
		{at: 2 * sec, ask: holding(4, "k", 5, 2), want: has(0, 8*sec, 10*sec)},
	},
	"Modes": {
		{at: 0, ask: inMode(window.Observe, holding(1, "k", 2, 2)), want: has(0, 10*sec, 10*sec)},
		{at: 0, ask: inMode(window.Observe, holding(2, "k", 2, 1)), want: full(10*sec, 10*sec, 10*sec)},
		{at: sec, ask: inMode(window.Always, holding(2, "k", 2, 1)), want: window.Decision{RetryAfter: 9 * sec, UnitAfter: 9 * sec, ResetAfter: 10 * sec, Unsettled: true}},
		{at: sec, ask: inMode(window.Refund, holding(1, "k", 2, 1)), want: has(0, 9*sec, 10*sec)},
		{at: sec, ask: inMode(window.Refund, holding(1, "k", 2, 9)), want: has(1, 10*sec, 10*sec)},
		{at: sec, ask: inMode(window.Refund, holding(1, "k", 2, 9)), want: has(1, 10*sec, 10*sec)},
		{at: sec, ends: 1, deny: sec},
		{at: sec, ends: 2, deny: sec, held: true},
		{at: sec, ask: inMode(window.Always, holding(2, "k", 2, 1)), want: window.Decision{Remaining: 2, RetryAfter: sec, Unsettled: true}},
		{at: sec, ask: inMode(window.Any, holding(3, "k", 2, 1)), want: has(1, 10*sec, 10*sec)},
	},
	"OtherHolds": { // a longer hold, and then a shorter one, in one log
		{at: 0, ask: forLong(holding(1, "k", 3, 1)), want: has(2, 30*sec, 30*sec)},
		{at: sec, ask: holding(2, "k", 3, 1), want: has(1, 10*sec, 29*sec)},
		{at: 2 * sec, ask: holding(3, "k", 3, 1), want: has(0, 9*sec, 28*sec)},
		{at: 11 * sec, ask: holding(4, "k", 3, 1), want: has(0, sec, 19*sec)},
		{at: 12 * sec, ends: 1, deny: sec, held: true},
		{at: 12 * sec, ask: holding(5, "k", 3, 3), want: window.Decision{Remaining: 2, RetryAfter: 9 * sec, UnitAfter: 9 * sec, ResetAfter: 9 * sec, Unsettled: true}},
	},
	"SetBack": {
		{at: 60 * sec, ask: holding(1, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
		{at: 50 * sec, ask: holding(2, "k", 1, 1), want: full(20*sec, 20*sec, 20*sec)},
		{at: 50 * sec, ends: 1, deny: sec, held: true},
		{at: 50 * sec, ask: holding(2, "k", 1, 1), want: has(0, 10*sec, 10*sec)},
	},
	"Zero": {
		{at: 0, ask: holding(1, "k", 0, 1), want: window.Decision{Never: true}},
		{at: 0, ask: holding(1, "k", window.MaxHits, 1), want: window.Decision{Allowed: true, Remaining: window.MaxHits}},
		{at: 0, ends: 1, deny: -1},
	},
	"Crowded": crowded(),
}

// crowded returns steps that fill a log with 40 holds, so that a store may answer without a look
// at all of them. Each begins 100 ms after the one before.
func crowded() (steps []flightStep) {
	const most, apart = 40, 100 * milli
	for i := range time.Duration(most) {
		unit := 10*sec - i*apart
		steps = append(steps, flightStep{at: i * apart, ask: holding(window.StreamID(1+i), "k", most, 1), want: has(uint64(most-1-i), unit, 10*sec)})
	}
	const at, first, last = 5 * sec, 5 * sec, 8900 * milli // and until when the holds last
	return append(steps, []flightStep{
		{at: at, ask: holding(99, "k", most, 1), want: full(first, first, last)},
		{at: at, ask: holding(99, "k", most, 3), want: full(first+2*apart, first, last)},
		{at: at, ask: holding(99, "k", most-1, 1), want: full(first+apart, first+apart, last)},
		{at: at, ask: holding(99, "k", most+1, 2), want: window.Decision{Remaining: 1, RetryAfter: first, UnitAfter: first, ResetAfter: last, Unsettled: true}},
		{at: at, ask: holding(99, "k", most, most+1), want: window.Decision{Never: true, UnitAfter: first, ResetAfter: last}},
		{at: at, ask: holding(20, "k", most, 1), want: has(0, first, last)}, // it holds
		{at: at, ask: holding(99, "k", most+2, 1), want: has(1, first, 10*sec)},
		{at: at, ask: forLong(holding(98, "k", most+2, 1)), want: has(0, first, 30*sec)},
		{at: at, ask: holding(97, "k", most+2, 1), want: full(first, first, 30*sec)}, // before the last
		{at: at, ends: 98, deny: sec, held: true},
		{at: at, ends: 1, deny: sec, held: true},
		{at: at, ask: holding(97, "k", most, 1), want: full(first+apart, first+apart, 10*sec)},
		{at: 10*sec + apart, ask: holding(97, "k", most, 1), want: has(0, apart, 10*sec)}, // the second has expired
		{at: 10*sec + apart, ask: holding(96, "k", most, 1), want: full(apart, apart, 10*sec)},
		{at: 10*sec + apart, ask: inMode(window.Always, holding(96, "k", most, 1)), want: full(2*apart, 2*apart, 10*sec)},
		{at: 10*sec + apart, ask: inMode(window.Refund, holding(96, "k", most, 1)), want: has(0, apart, 10*sec)},
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
					if got := end(t, store, step.ends, max(step.deny, 0)); got != step.held {
						t.Fatalf("step %d: End at %v: held %v, want %v", i, step.at, got, step.held)
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
		got := take(t, store, group(holding(99, "{g}fly", 5, 0), sliding(3, 0)))
		if got[0].Remaining != 5-flying || got[1].Remaining != 3-rate {
			t.Fatalf("%s: %d in flight and %d hits, want %d and %d", step, 5-got[0].Remaining, 3-got[1].Remaining, flying, rate)
		}
	}
	take(t, store, group(holding(1, "{g}fly", 5, 1), sliding(3, 1), holding(1, "{h}fly", 5, 1)))
	used("allowed", 1, 1)
	if got := take(t, store, group(holding(2, "{g}fly", 5, 1), sliding(3, 3))); Allowed(got) {
		t.Fatal("the sliding log has no room, and the group was allowed")
	}
	used("denied by the sliding log", 1, 1)
	if got := take(t, store, group(sliding(3, 1), holding(2, "{g}fly", 5, 5))); Allowed(got) {
		t.Fatal("there is no room in flight, and the group was allowed")
	}
	used("denied in flight", 1, 1)
	// Checks of one log are decided together, and held together.
	if got := take(t, store, group(holding(3, "{g}fly", 5, 2), holding(3, "{g}fly", 5, 3))); Allowed(got) {
		t.Fatal("5 more are allowed, and 1 is in flight")
	}
	if got := take(t, store, group(holding(3, "{g}fly", 5, 2), holding(3, "{g}fly", 5, 2))); !Allowed(got) {
		t.Fatal("4 more are denied, and 1 is in flight")
	}
	used("twice", 5, 1)
	if !end(t, store, 1, time.Second) || !end(t, store, 3, time.Second) {
		t.Fatal("the streams held nothing")
	}
	used("ended", 0, 1)
	if got := take(t, store, one(holding(98, "{h}fly", 5, 0))); got[0].Remaining != 5 {
		t.Fatalf("%d in flight in the other log after the end", 5-got[0].Remaining)
	}
	// A stream that has ended denies its whole group.
	if got := take(t, store, group(sliding(3, 1), holding(3, "{g}fly", 5, 1))); Allowed(got) || !got[0].Allowed {
		t.Fatalf("after the end: %+v", got)
	}
	used("denied because of the end", 0, 1)
	// Always is recorded first. So the other check of the group finds that the stream holds a
	// place, also where a long log denies others at a glance.
	for i := range window.StreamID(40) {
		take(t, store, one(holding(100+i, "{g}crowd", 40, 1)))
	}
	if got := take(t, store, one(holding(200, "{g}crowd", 40, 1))); Allowed(got) {
		t.Fatalf("40 of 40 places are taken: %+v", got)
	}
	if got := take(t, store, group(inMode(window.Always, holding(201, "{g}crowd", 40, 1)), holding(201, "{g}crowd", 40, 1))); got[0].Allowed || !got[1].Allowed {
		t.Fatalf("held by Always: %+v, want no room for the first, and room for the second", got)
	}
}

// runFlightBadChecks checks what Take refuses.
func runFlightBadChecks(t *testing.T, h InFlightHarness) {
	h.begin()
	short := holding(1, "k", 1, 1)
	short.Limit.Window = window.MinHold - time.Millisecond
	for name, checks := range map[string][]window.Check{
		"NoStream":    one(holding(0, "k", 1, 1)),
		"ShortHold":   one(short),
		"TooMany":     one(holding(1, "k", window.MaxInFlight+1, 1)),
		"TwoStreams":  group(holding(1, "k", 1, 1), holding(2, "l", 1, 1)),
		"WrongPolicy": one(window.Check{Key: "k", Limit: window.Limit{Hits: 1, Window: win}, Stream: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Stores[0].Take(t.Context(), window.MayWait, checks, make([]window.Decision, len(checks)))
			if !errors.Is(err, window.ErrBadCheck) {
				t.Errorf("got error %v, want one that wraps %q", err, window.ErrBadCheck)
			}
		})
	}
	if held, err := h.Stores[0].(window.Ender).End(t.Context(), 0, time.Second); !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("End of no stream: held %v, error %v, want one that wraps %q", held, err, window.ErrBadCheck)
	}
}

// A flight is the oracle of [window.InFlight]: lists of what is held, and of what has ended.
type flight struct {
	epoch time.Duration
	logs  map[string]*flightLog
	ended map[window.StreamID]time.Duration // until when it is denied
}

type flightLog struct {
	wrote time.Duration
	held  []held
}

type held struct {
	stream window.StreamID
	until  time.Duration
	cost   uint64
}

// roundMilli rounds a time up to milliseconds.
func roundMilli(d time.Duration) time.Duration { return (d + milli - micro).Truncate(milli) }

func (f *flight) log(key string) *flightLog {
	if f.logs[key] == nil {
		f.logs[key] = &flightLog{}
	}
	return f.logs[key]
}

// at returns the log as it is at a time, without what has expired. The time does not run
// backwards in a log.
func (l *flightLog) at(clock time.Duration) *flightLog {
	now := &flightLog{wrote: max(clock, l.wrote)}
	for _, h := range l.held {
		if h.until > now.wrote {
			now.held = append(now.held, h)
		}
	}
	return now
}

func (l *flightLog) used() (sum uint64) {
	for _, h := range l.held {
		sum += h.cost
	}
	return sum
}

func (l *flightLog) of(stream window.StreamID) int {
	return slices.IndexFunc(l.held, func(h held) bool { return h.stream == stream })
}

// keep replaces a log by what it has become. A log that holds nothing is forgotten.
func (f *flight) keep(key string, l *flightLog) {
	if l.held = slices.DeleteFunc(l.held, func(h held) bool { return h.cost == 0 }); len(l.held) == 0 {
		l.wrote = 0
	}
	f.logs[key] = l
}

// end ends a stream.
func (f *flight) end(clock time.Duration, stream window.StreamID, deny time.Duration) (was bool) {
	clock += f.epoch
	if f.ended[stream] > clock {
		return false
	}
	for key, l := range f.logs {
		if l.of(stream) < 0 {
			continue
		}
		l = l.at(clock)
		if i := l.of(stream); i >= 0 {
			was = true
			l.held[i].cost = 0
		}
		f.keep(key, l) // what has expired does not come back
	}
	if delete(f.ended, stream); deny > 0 {
		f.ended[stream] = roundMilli(clock + deny)
	}
	return was
}

// take decides one group at the time clock.
func (f *flight) take(clock time.Duration, checks []window.Check) []window.Decision {
	clock += f.epoch
	asks, room := make([]window.Check, len(checks)), make([]bool, len(checks))
	for i, c := range checks {
		asks[i] = together(checks, c)
	}
	for _, mode := range []window.Mode{window.Refund, window.Always} {
		for i, c := range asks {
			if c.Mode != mode {
				continue
			}
			if !isFirst(checks, i) {
				room[i] = room[slices.IndexFunc(checks, func(o window.Check) bool { return sameAsk(o, c) })]
				continue
			}
			room[i] = c.Mode == window.Refund || f.room(clock, c)
			f.record(clock, c)
		}
	}
	for i, c := range asks {
		if c.Mode != window.Refund && c.Mode != window.Always {
			room[i] = f.room(clock, c)
		}
	}
	allowed := verdict(asks, room)
	for i, c := range asks {
		if allowed && room[i] && c.Mode != window.Refund && c.Mode != window.Always && isFirst(checks, i) {
			f.record(clock, c)
		}
	}
	decisions := make([]window.Decision, len(checks))
	for i, c := range asks {
		decisions[i] = f.answer(clock, c, room[i])
	}
	return decisions
}

func (f *flight) room(clock time.Duration, c window.Check) bool {
	l := f.log(c.Key).at(clock)
	switch {
	case c.Limit.Hits == window.MaxHits:
		return true
	case c.Limit.Hits == 0 && c.Mode != window.Always || f.ended[c.Stream] > clock:
		return false
	case l.of(c.Stream) >= 0:
		return true
	}
	return fits(l.used(), c.Cost, c.Limit.Hits)
}

func (f *flight) record(clock time.Duration, c window.Check) {
	l := f.log(c.Key).at(clock)
	i := l.of(c.Stream)
	switch {
	case c.Cost == 0 || c.Limit.Hits == window.MaxHits:
	case c.Mode == window.Refund && i >= 0:
		l.held[i].cost -= min(c.Cost, l.held[i].cost)
		f.keep(c.Key, l)
	case c.Mode != window.Refund && i < 0 && f.ended[c.Stream] <= clock:
		l.held = append(l.held, held{c.Stream, roundMilli(l.wrote + c.Limit.Window), c.Cost})
		f.keep(c.Key, l)
		delete(f.ended, c.Stream) // that is over, also if the clock is set back
	}
}

func (f *flight) answer(clock time.Duration, c window.Check, room bool) window.Decision {
	limit := c.Limit.Hits
	switch {
	case limit == window.MaxHits:
		return window.Decision{Allowed: true, Remaining: window.MaxHits}
	case limit == 0 && !c.Mode.Unconditional():
		return window.Decision{Never: true}
	}
	l := f.log(c.Key).at(clock)
	used := l.used()
	d := window.Decision{Allowed: room, Never: !room && (limit == 0 || c.Cost > limit), Remaining: limit - min(limit, used)}
	d.Unsettled = !d.Never && (!room || d.Remaining == 0)
	if !room && !d.Never {
		d.RetryAfter = max(l.wait(clock, func(used uint64) bool { return fits(used, c.Cost, limit) }), f.ended[c.Stream]-clock, 0)
	}
	if limit > 0 && used > 0 {
		d.UnitAfter = l.wait(clock, func(now uint64) bool { return limit-min(limit, now) > d.Remaining })
	}
	d.ResetAfter = l.wait(clock, func(used uint64) bool { return used == 0 })
	return d
}

// wait returns the wait until what is used is good, if holds only expire.
func (l *flightLog) wait(clock time.Duration, good func(used uint64) bool) time.Duration {
	left := slices.SortedFunc(slices.Values(l.held), func(a, b held) int { return cmp.Compare(a.until, b.until) })
	used := l.used()
	if good(used) {
		return 0
	}
	for _, h := range left {
		if used -= h.cost; good(used) {
			return h.until - clock
		}
	}
	panic("windowtest: nothing is held, and a cost within the limit has no room")
}

// runFlightRandom compares the stores with the oracle over random histories of charges and
// ends: ends that come before their charges, twice, and after the hold has expired.
func runFlightRandom(t *testing.T, open func(*testing.T) InFlightHarness, o Options) {
	seed := random.Seed(t)
	const each = 120
	for done := 0; done < o.Steps && !t.Failed(); done += perHarness {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := open(t)
			for n := 0; n < min(perHarness, o.Steps-done); n += each {
				runFlightHistory(t, &h, seed, each, o.Pieces)
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
		f      = &flight{epoch: h.Epoch, logs: map[string]*flightLog{}, ended: map[window.StreamID]time.Duration{}}
		now    = upTo(r, year).Truncate(pick(r, micro, milli, time.Second))
		limit  = pick[uint64](r, 1, 2, 3, 5, 12, 40)
		spread = pick(r, 2*limit, 3, limit+1)
		past   []string
		moves  = pick(r, 12, 12, 200) // rarely: more holds at a time than a store reads first
	)
	if moves > 12 {
		limit, spread = 40, 60
	}
	for range steps {
		switch r.IntN(moves) {
		case 0:
			now += upTo(r, flightHold)
		case 1:
			if !forward {
				now = max(now-upTo(r, 3*time.Second), 0)
			}
		case 2:
			now += flightHold + pick(r, -micro, 0, milli, time.Hour)
		case 3, 4, 5:
			now += pick(r, micro, milli, 100*milli, time.Second)
		}
		now = now.Truncate(micro)
		h.SetNow(now)
		store := h.Stores[r.IntN(len(h.Stores))]
		stream := window.StreamID(seed<<16 | 1 + r.Uint64N(spread))
		if r.IntN(moves/4) == 0 {
			deny := pick(r, 0, milli, time.Second, time.Second+micro, 5*time.Second, 20*time.Second)
			want := f.end(now, stream, deny)
			past = append(past, fmt.Sprintf("%v: end %d deny %v: held %v", now, stream&0xffff, deny, want))
			if got := end(t, store, stream, deny); got != want {
				t.Errorf("%s\nheld %v, want %v", tail(past), got, want)
				return
			}
			continue
		}
		checks := make([]window.Check, pick(r, 1, 1, 1, 2, 3))
		mode := pick(r, window.Enforce, window.Enforce, window.Enforce, window.Any, window.Observe)
		for i := range checks {
			c := holding(stream, fmt.Sprintf("{%d}%s", seed, pick(r, "a", "a", "b")), pick(r, limit, limit, limit, limit/2+1, limit+3), pick[uint64](r, 0, 1, 1, 1, 1, 2, limit, limit+1))
			if c.Mode = mode; r.IntN(10) == 0 {
				c.Mode = pick(r, window.Always, window.Refund)
			}
			c.Limit.Window = pick(r, flightHold, flightHold, flightHold, window.MinHold, time.Minute+micro)
			if r.IntN(60) == 0 {
				c.Limit.Hits = pick[uint64](r, 0, window.MaxHits)
			}
			checks[i] = c
		}
		want := f.take(now, checks)
		for i, c := range checks {
			past = append(past, fmt.Sprintf("%v: %v %s stream %d cost %d of %d for %v: %+v", now, c.Mode, c.Key, c.Stream&0xffff, c.Cost, c.Limit.Hits, c.Limit.Window, want[i]))
		}
		if got := take(t, store, checks); !slices.Equal(got, want) {
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
	const each = 60
	h.begin()
	concurrently(func(n int) {
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
		got := try(t, store, group(holding(stream, "{k}a", most, cost), holding(stream, "{k}b", 3*most, cost)))
		allowed := got != nil && Allowed(got)
		if allowed {
			up.serve(int64(cost), func() bool { return false })
		}
		if held, err := store.(window.Ender).End(t.Context(), stream, time.Second); err != nil || held != allowed {
			t.Errorf("End: held %v, error %v, want %v", held, err, allowed)
		}
	})
	t.Logf("%d streams served, %d at once", up.served.Load(), up.peak.Load())
	wantNothingLeft(t, h, most)
	// The limit can be reached again.
	for i := range most {
		if got := take(t, h.Stores[0], one(holding(window.StreamID(1e6+i), "{k}a", most, 1))); !Allowed(got) {
			t.Fatalf("%d of %d are denied at rest", i+1, most)
		}
	}
}

// wantNothingLeft fails the test if something is held.
func wantNothingLeft(t *testing.T, h InFlightHarness, most uint64) {
	t.Helper()
	for _, key := range []string{"{k}a", "{k}b", "{l}a"} {
		got := take(t, h.Stores[0], one(holding(1<<40, key, most, 0)))[0]
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
			if _, err := s.(window.Ender).End(t.Context(), stream, time.Minute); err != nil {
				t.Errorf("End: %v", err)
			}
		}
		switch turn % 3 {
		case 0:
			ends.Go(func() { stop(other) })
		case 1:
			stop(other)
		}
		got := try(t, store, group(holding(stream, "{k}a", most, 1), holding(stream, "{k}b", most, 1), holding(stream, "{l}a", most, 1)))
		if allowed := got != nil && Allowed(got); allowed && turn%3 == 1 {
			t.Errorf("stream %d had ended, and was allowed", stream)
		} else if allowed && !ended.Load() {
			up.serve(1, ended.Load)
		}
		ends.Wait()
		stop(store)
	})
	wantNothingLeft(t, h, most)
}
