package windowtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// runKeys proves that a key is any bytes and that no two share a log.
func runKeys(t *testing.T, h Harness) {
	keys := []string{
		"k", "K", " k", "k ", "k:", ":k", ":", "::", "k:10000000", "k:10000000:10000000",
		"{k}", "{k}:a", "{k}:b", "{", "}", "{}", "{}k", "k{a}{b}",
		"\x00", "k\x00", "\x00k", "\xff\xfe", "\xc3\x28", "ключ", "\r\n", "*1\r\n$4\r\nPING\r\n", "%d%s", "k\\x00",
		string(make([]byte, 4096)),
	}
	h.SetNow(0)
	for i, key := range keys {
		hits := uint64(i + 1) // any other number means that a log is shared
		for _, w := range []time.Duration{Win, 2 * Win} {
			got := Take(t, h.Store, One(AskIn(w, key, hits, hits)))
			if diff := cmp.Diff(Answers(AllowedLast(w, w)), got); diff != "" {
				t.Errorf("key %q in %v: first charge: (-want +got)\n%s", key, w, diff)
			}
		}
	}
	for i, key := range keys {
		got := Take(t, h.Store, One(Ask(key, uint64(i+2), 0)))
		if diff := cmp.Diff(Answers(Allowed(1, Win)), got); diff != "" {
			t.Errorf("key %q: after all charges: (-want +got)\n%s", key, diff)
		}
	}
}

// runBadChecks proves that arguments outside the contract are refused by name,
// and that a group with a bad check is not charged at all.
func runBadChecks(t *testing.T, h Harness) {
	good := Ask("good", 2, 1)
	h.SetNow(0)
	for _, tt := range []struct {
		name      string
		checks    []window.Check
		decisions int
	}{
		{"fewer decisions than checks", Group(good, Ask("other", 2, 1)), 1},
		{"more decisions than checks", One(good), 2},
		{"no decisions", One(good), 0},
		{"empty key", Group(good, Ask("", 2, 1)), 2},
		{"no window", Group(good, AskIn(0, "k", 2, 1)), 2},
		{"negative window", Group(good, AskIn(-Second, "k", 2, 1)), 2},
		{"window too short", Group(good, AskIn(window.MinWindow-Micro, "k", 2, 1)), 2},
		{"window too long", Group(good, AskIn(window.MaxWindow+Micro, "k", 2, 1)), 2},
		{"window of a part of a microsecond", Group(good, AskIn(Second+1, "k", 2, 1)), 2},
		{"an unknown mode", Group(good, in(window.Refund+1, Ask("k", 2, 1))), 2},
		{"a precision below zero", Group(good, Precise(-1, Ask("k", 2, 1))), 2},
		{"a precision above the window", Group(good, Precise(Win+1, Ask("k", 2, 1))), 2},
		{"a bad check without a log", Group(good, Precise(-1, Ask("k", 0, 1))), 2},
		{"one bad check", One(Precise(Win+1, Ask("good", 2, 1))), 1},
		{"enforce and any of one log", Group(good, in(window.Any, good)), 2},
		{"any and observe of one log", Group(good, in(window.Any, Ask("k", 2, 1)), in(window.Observe, Ask("k", 3, 0))), 3},
		{"observe and enforce of one log", Group(in(window.Observe, good), Ask("k", 2, 1), good), 3},
		{"always with what is refused", Group(in(window.Always, good), in(window.Any, Ask("k", 2, 1)), Ask("k", 2, 1)), 3},
		{"a refund with what is refused", Group(good, in(window.Refund, good), in(window.Observe, good)), 3},
		{"limit too large", Group(good, Ask("k", window.Unlimited+1, 1)), 2},
	} {
		_, err := h.Store.Take(t.Context(), window.MayWait, tt.checks, make([]window.Decision, tt.decisions))
		if !errors.Is(err, window.ErrBadCheck) {
			t.Errorf("%s: got error %v, want one that wraps %q", tt.name, err, window.ErrBadCheck)
		}
	}
	if diff := cmp.Diff(Answers(Allowed(2, 0)), Take(t, h.Store, One(Ask("good", 2, 0)))); diff != "" {
		t.Errorf("after refused calls: (-want +got)\n%s", diff)
	}

	// Other modes of one log are good, and so is one log's mode in another window.
	checks := Group(
		good, good, in(window.Always, Ask("good", 3, 0)), in(window.Refund, Ask("good", 2, 1)),
		in(window.Any, AskIn(2*Win, "good", 2, 0)), in(window.Observe, Ask("k", 2, 0)),
	)
	want := Answers(
		AllowedLast(Win, Win), AllowedLast(Win, Win), Allowed(1, Win), AllowedLast(Win, Win),
		Allowed(2, 0), Allowed(2, 0),
	)
	if diff := cmp.Diff(want, Take(t, h.Store, checks)); diff != "" {
		t.Errorf("modes that may stand together: (-want +got)\n%s", diff)
	}

	// The bounds themselves are good.
	for _, w := range []time.Duration{window.MinWindow, window.MaxWindow} {
		if diff := cmp.Diff(Answers(Allowed(1, w)), Take(t, h.Store, One(AskIn(w, "bound", 2, 1)))); diff != "" {
			t.Errorf("window %v: (-want +got)\n%s", w, diff)
		}
	}
}

// runContext proves that a caller who has given up is not charged.
func runContext(t *testing.T, h Harness) {
	h.SetNow(0)
	Take(t, h.Store, One(Ask("k", 5, 1)))

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, tt := range []struct {
		ctx  context.Context
		want error
	}{
		{canceled, context.Canceled},
		{late, context.DeadlineExceeded},
	} {
		_, err := h.Store.Take(tt.ctx, window.MayWait, One(Ask("k", 5, 1)), make([]window.Decision, 1))
		if !errors.Is(err, tt.want) {
			t.Errorf("a context that is done: got error %v, want one that wraps %q", err, tt.want)
		}
	}
	if diff := cmp.Diff(Answers(Allowed(4, Win)), Take(t, h.Store, One(Ask("k", 5, 0)))); diff != "" {
		t.Errorf("after calls whose context was done: (-want +got)\n%s", diff)
	}
}

// runArguments proves that the slices stay the caller's: the checks are only
// read, neither is kept, and an empty group is allowed.
func runArguments(t *testing.T, h Harness) {
	h.SetNow(0)
	if _, err := h.Store.Take(t.Context(), window.MayWait, nil, nil); err != nil {
		t.Errorf("an empty group: got error %v", err)
	}

	checks := Group(Ask("a", 5, 1), Ask("b", 5, 2), Ask("a", 4, 1))
	before := slices.Clone(checks)
	got := Take(t, h.Store, checks)
	if diff := cmp.Diff(before, checks); diff != "" {
		t.Errorf("Take changed the checks: (-before +after)\n%s", diff)
	}
	for i := range checks {
		checks[i] = Ask("overwritten", 1, 1)
		got[i] = window.Decision{}
	}
	want := Answers(Allowed(3, Win), Allowed(3, Win))
	if diff := cmp.Diff(want, Take(t, h.Store, Group(Ask("a", 5, 0), Ask("b", 5, 0)))); diff != "" {
		t.Errorf("after the slices were overwritten: (-want +got)\n%s", diff)
	}
}
