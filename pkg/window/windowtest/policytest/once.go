package policytest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// RunOnce runs the suite of [window.Check.Once] as subtests of t. open makes a harness for each
// of them, and for long random runs several.
func RunOnce(t *testing.T, o windowtest.Options, open func(t *testing.T) windowtest.Harness) {
	t.Helper()
	o.Steps = o.StepCount(t)
	open = windowtest.UnwaitedFirst(2, open)
	t.Run("Steps", func(t *testing.T) { runOnceSteps(t, open) })
	t.Run("BadCheck", func(t *testing.T) { runBadOnce(t, open(t)) })
	t.Run("Groups", func(t *testing.T) { runOnceGroups(t, open(t)) })
	t.Run("Random", func(t *testing.T) { windowtest.RunRandom(t, open, attempts(o.ShortWindows, o.CheckByCheck), o.Steps) })
	t.Run("Concurrent", func(t *testing.T) { RunOnceAtOnce(t, open(t)) })
}

// onceFor is the usual life of an idempotency record in the suite.
const onceFor = 30 * time.Second

// trying returns a check of an attempt, with two repeats.
func trying(id uint64, hits, cost uint64) window.Check {
	c := ask("{t}k", hits, cost)
	c.Once = window.Once{ID: id, For: onceFor, Repeats: 2}
	return c
}

// A onceStep is one call with one check.
type onceStep struct {
	at   time.Duration
	ask  window.Check
	want window.Decision
}

// repeated returns the answer to a repeat.
func repeated(remaining uint64, unit, reset time.Duration) window.Decision {
	return window.Decision{Allowed: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset, Repeated: true}
}

// onceSteps are tables whose answers are written by hand. The window has 10 seconds.
func onceSteps() map[string][]onceStep {
	room := func(remaining uint64, unit, reset time.Duration) window.Decision {
		return window.Decision{Allowed: true, Remaining: remaining, UnitAfter: unit, ResetAfter: reset}
	}
	denied := func(retry, unit, reset time.Duration) window.Decision {
		return window.Decision{RetryAfter: retry, UnitAfter: unit, ResetAfter: reset}
	}
	long := trying(1, 2, 1)
	long.Key = "{t}other"
	return map[string][]onceStep{
		"ChargedOnce": {
			{at: 0, ask: trying(1, 2, 1), want: room(1, 10*sec, 10*sec)},
			{at: sec, ask: trying(1, 2, 1), want: repeated(1, 9*sec, 9*sec)},
			{at: 2 * sec, ask: trying(2, 2, 1), want: room(0, 8*sec, 10*sec)},
			{at: 2 * sec, ask: trying(3, 2, 1), want: denied(8*sec, 8*sec, 10*sec)}, // leaves no idempotency record
			{at: 2 * sec, ask: trying(3, 2, 1), want: denied(8*sec, 8*sec, 10*sec)},
			{at: 3 * sec, ask: trying(1, 2, 1), want: repeated(0, 7*sec, 9*sec)},   // the limit is used up
			{at: 4 * sec, ask: trying(1, 2, 1), want: denied(6*sec, 6*sec, 8*sec)}, // the third repeat
			{at: 4 * sec, ask: trying(2, 2, 1), want: repeated(0, 6*sec, 8*sec)},
			{at: 10 * sec, ask: trying(1, 2, 1), want: room(0, 2*sec, 10*sec)}, // charged, and no other idempotency record
			{at: 12 * sec, ask: trying(1, 2, 1), want: room(0, 8*sec, 10*sec)},
			{at: 12 * sec, ask: trying(0, 2, 1), want: denied(8*sec, 8*sec, 10*sec)},
		},
		"EndsExactly": {
			{at: 0, ask: trying(1, 1, 1), want: room(0, 10*sec, 10*sec)},
			{at: 30*sec - micro, ask: trying(1, 1, 1), want: repeated(1, 0, 0)},
			{at: 30 * sec, ask: trying(1, 1, 1), want: room(0, 10*sec, 10*sec)},
			{at: 59 * sec, ask: trying(1, 1, 1), want: repeated(1, 0, 0)}, // the idempotency record is a new one
			{at: 59 * sec, ask: trying(1, 1, 1), want: repeated(1, 0, 0)},
			{at: 59 * sec, ask: trying(1, 1, 1), want: room(0, 10*sec, 10*sec)},
		},
		"SetBack": {
			{at: 60 * sec, ask: trying(1, 1, 1), want: room(0, 10*sec, 10*sec)},
			{at: 50 * sec, ask: trying(1, 1, 1), want: repeated(0, 20*sec, 20*sec)},
			{at: 90*sec - micro, ask: trying(1, 1, 1), want: repeated(1, 0, 0)},
		},
		"OtherLogs": {
			{at: 0, ask: trying(1, 2, 1), want: room(1, 10*sec, 10*sec)},
			{at: 0, ask: long, want: room(1, 10*sec, 10*sec)},
			{at: 0, ask: withWindow(20*sec, trying(1, 2, 1)), want: room(1, 20*sec, 20*sec)},
			{at: 0, ask: withWindow(20*sec, trying(1, 2, 1)), want: repeated(1, 20*sec, 20*sec)},
			{at: 0, ask: long, want: repeated(1, 10*sec, 10*sec)},
		},
		"Costs": {
			{at: 0, ask: trying(1, 9, 3), want: room(6, 10*sec, 10*sec)},
			{at: 0, ask: trying(1, 9, 0), want: room(6, 10*sec, 10*sec)}, // asks, and uses no repeat
			{at: 0, ask: trying(1, 9, 4), want: room(2, 10*sec, 10*sec)}, // another request
			{at: 0, ask: trying(1, 9, 4), want: window.Decision{Remaining: 2, RetryAfter: 10 * sec, UnitAfter: 10 * sec, ResetAfter: 10 * sec}},
			{at: 0, ask: trying(1, 9, 3), want: repeated(2, 10*sec, 10*sec)},
			{at: 0, ask: trying(1, 9, 1), want: repeated(2, 10*sec, 10*sec)},
			{at: 0, ask: trying(1, 9, 1), want: room(1, 10*sec, 10*sec)},
			{at: 0, ask: trying(1, 0, 1), want: window.Decision{Never: true}},
			{at: 0, ask: trying(1, window.Unlimited, 1), want: window.Decision{Allowed: true, Remaining: window.Unlimited}},
		},
		"Modes": {
			{at: 0, ask: inMode(window.Observe, trying(1, 1, 1)), want: room(0, 10*sec, 10*sec)},
			{at: 0, ask: inMode(window.Observe, trying(2, 1, 1)), want: denied(10*sec, 10*sec, 10*sec)},
			{at: 0, ask: inMode(window.Any, trying(1, 1, 1)), want: repeated(0, 10*sec, 10*sec)},
			{at: 0, ask: trying(1, 1, 1), want: repeated(0, 10*sec, 10*sec)},
			{at: 0, ask: trying(2, 1, 1), want: denied(10*sec, 10*sec, 10*sec)}, // it was not charged
		},
	}
}

// withWindow returns a check with another window.
func withWindow(w time.Duration, c window.Check) window.Check {
	c.Limit.Window = w
	return c
}

// runOnceSteps plays the tables.
func runOnceSteps(t *testing.T, open func(*testing.T) windowtest.Harness) {
	for name, steps := range onceSteps() {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			for i, step := range steps {
				h.SetNow(time.Hour + step.at)
				if got := take(t, h.Store, one(step.ask)); got[0] != step.want {
					t.Fatalf("step %d at %v: %+v: (-want +got)\n%s", i, step.at, step.ask, cmp.Diff(step.want, got[0]))
				}
			}
		})
	}
}

// runBadOnce checks what Take refuses.
func runBadOnce(t *testing.T, h windowtest.Harness) {
	h.SetNow(time.Hour)
	with := func(change func(*window.Check)) window.Check {
		c := trying(1, 5, 1)
		change(&c)
		return c
	}
	for name, c := range map[string]window.Check{
		"TooShort":    with(func(c *window.Check) { c.Once.For = window.MinOnce - micro }),
		"TooLong":     with(func(c *window.Check) { c.Once.For = window.MaxOnce + micro }),
		"NotWhole":    with(func(c *window.Check) { c.Once.For++ }),
		"NoRepeats":   with(func(c *window.Check) { c.Once.Repeats = 0 }),
		"TooMany":     with(func(c *window.Check) { c.Once.Repeats = window.MaxRepeats + 1 }),
		"Always":      with(func(c *window.Check) { c.Mode = window.Always }),
		"Refund":      with(func(c *window.Check) { c.Mode = window.Refund }),
		"NoHashTag":   with(func(c *window.Check) { c.Key = "k" }),
		"EmptyTag":    with(func(c *window.Check) { c.Key = "{}k" }),
		"InFlight":    with(func(c *window.Check) { c.Limit.Policy, c.Stream = window.InFlight, 1 }),
		"OfUnlimited": with(func(c *window.Check) { c.Limit.Hits, c.Once.Repeats = window.Unlimited, 0 }),
	} {
		_, err := h.Store.Take(context.WithoutCancel(t.Context()), window.MayWait, one(c), make([]window.Decision, 1))
		if !errors.Is(err, window.ErrBadCheck) {
			t.Errorf("%s: got error %v, want ErrBadCheck", name, err)
		}
	}
	if got := take(t, h.Store, one(trying(1, 5, 0))); got[0].Remaining != 5 {
		t.Errorf("a refused check was charged: %+v", got)
	}
}

// runOnceGroups checks groups of checks with and without idempotency records.
func runOnceGroups(t *testing.T, h windowtest.Harness) {
	h.SetNow(time.Hour)
	plain := func(hits, cost uint64) window.Check { return ask("{t}plain", hits, cost) }
	left := func(step string, once, other uint64) {
		t.Helper()
		got := take(t, h.Store, group(trying(0, 9, 0), plain(3, 0)))
		if got[0].Remaining != once || got[1].Remaining != other {
			t.Fatalf("%s: %d and %d remain, want %d and %d", step, got[0].Remaining, got[1].Remaining, once, other)
		}
	}
	is := func(step string, checks []window.Check, allowed bool, repeats ...bool) {
		t.Helper()
		got := take(t, h.Store, checks)
		if window.GroupAllowed(checks, got) != allowed {
			t.Fatalf("%s: %+v, want allowed %v", step, got, allowed)
		}
		for i, want := range repeats {
			if got[i].Repeated != want {
				t.Fatalf("%s: check %d repeated %v, want %v", step, i, got[i].Repeated, want)
			}
		}
	}
	is("denied by the other", group(trying(1, 9, 1), plain(3, 4)), false, false, false)
	is("so there is no idempotency record", group(trying(1, 9, 1), plain(3, 1)), true, false, false)
	left("charged", 8, 2)
	is("a repeat", group(plain(3, 1), trying(1, 9, 1)), true, false, true)
	left("the other is charged again", 8, 1)
	is("a repeat that the other denies", group(plain(3, 2), trying(1, 9, 1)), false, false, true)
	is("it used no repeat", group(trying(1, 9, 1), plain(3, 1)), true, true, false)
	is("that was the last", one(trying(1, 9, 1)), true, false)
	left("charged again", 7, 0)
	is("one log twice", group(trying(2, 9, 1), trying(2, 9, 1)), true, false, false)
	is("their cost together", group(trying(2, 9, 1), trying(2, 9, 1)), true, true, true)
	left("charged for two", 5, 0)
	is("two keys for one log", group(trying(2, 9, 1), trying(3, 9, 1)), true, false, false)
	is("with and without", group(trying(2, 9, 1), trying(0, 9, 1)), true, false, false)
	left("charged each time", 1, 0)
	is("with a refund of the log", group(trying(4, 9, 3), inMode(window.Refund, trying(0, 9, 2))), true, false, false)
	left("charged into what came back", 0, 0)
	is("a repeat next to an excess", group(trying(4, 9, 3), inMode(window.Always, ask("{t}more", 5, 1))), true, true, false)
	is("a repeat with a check without room", group(trying(4, 9, 3), ask("{t}zero", 0, 1)), false, true, false)
	is("quota: it has room", group(inMode(window.Any, trying(4, 9, 3)), inMode(window.Any, plain(3, 1))), true, true, false)
}

// attempts makes histories of all policies in which some checks have idempotency records. Calls repeat
// few IDs, also in one group. Times are those of the other policies, and the ends of idempotency records.
func attempts(shortWindows, steady bool) windowtest.Generator {
	inner := policies(shortWindows, steady)
	return windowtest.Generator{Steps: inner.Steps, Repeats: true, Start: func(r *rand.Rand, h *windowtest.Harness) (windowtest.Caller, time.Duration) {
		c, now := inner.Start(r, h)
		return &attemptCaller{Caller: c, ids: 1 + r.Uint64N(3), life: windowtest.Pick(r, win, win+micro, time.Minute, day)}, now
	}}
}

type attemptCaller struct {
	windowtest.Caller
	ids  uint64
	life time.Duration
}

func (a *attemptCaller) Next(r *rand.Rand, past *windowtest.History) (time.Duration, []window.Check) {
	at, checks := a.Caller.Next(r, past)
	once := a.once(r)
	for i := range checks {
		if c := &checks[i]; !c.Mode.Unconditional() && r.IntN(8) > 0 {
			if c.Once = once; r.IntN(16) == 0 {
				c.Once = a.once(r) // next to another of the same log, it has no effect
			}
		}
	}
	if r.IntN(5) == 0 {
		for _, p := range past.Oracle.Paid {
			// Periods of calendars are those of the time that the other caller has chosen.
			if end := p.Ends - past.Oracle.Epoch + windowtest.Pick(r, -micro, 0, micro); end > at && end-at < second {
				at = end
			}
			break
		}
	}
	return at, checks
}

func (a *attemptCaller) once(r *rand.Rand) window.Once {
	return window.Once{ID: 1 + r.Uint64N(a.ids), For: windowtest.Pick(r, a.life, a.life, win), Repeats: windowtest.Pick[uint8](r, 1, 2, 2, 3, window.MaxRepeats)}
}

// RunOnceAtOnce lets many callers repeat few attempts at the same instant. Of each, one is charged,
// and those that the idempotency record does not cover.
func RunOnceAtOnce(t *testing.T, h windowtest.Harness) {
	if h.SetNow != nil {
		h.SetNow(time.Hour)
	}
	for _, repeats := range []uint8{1, 3, window.MaxRepeats} {
		const each = 3
		key := "{t}" + string('a'+rune(repeats))
		var charged, free atomic.Uint64
		windowtest.Concurrently(func(int) {
			for range each {
				c := ask(key, 100_000, 1)
				c.Limit.Window = time.Hour
				c.Once = window.Once{ID: 1, For: time.Hour, Repeats: repeats}
				switch got := windowtest.Try(t, h.Store, one(c)); {
				case got == nil || !got[0].Allowed:
					t.Errorf("got %+v", got)
				case got[0].Repeated:
					free.Add(1)
				default:
					charged.Add(1)
				}
			}
		})
		const calls = windowtest.Callers * each
		want := min(uint64(repeats), calls-1)
		if free.Load() != want || charged.Load() != calls-want {
			t.Errorf("%d repeats: %d were free and %d charged, want %d and %d", repeats, free.Load(), charged.Load(), want, calls-want)
		}
		c := ask(key, 100_000, 0)
		c.Limit.Window = time.Hour
		if got := take(t, h.Store, one(c)); 100_000-got[0].Remaining != calls-want {
			t.Errorf("%d repeats: the log holds %d, want %d", repeats, 100_000-got[0].Remaining, calls-want)
		}
	}
}
