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
		for _, w := range []time.Duration{win, 2 * win} {
			got := take(t, h.Store, one(askIn(w, key, hits, hits)))
			if diff := cmp.Diff(answers(allowedLast(w, w)), got); diff != "" {
				t.Errorf("key %q in %v: first charge: (-want +got)\n%s", key, w, diff)
			}
		}
	}
	for i, key := range keys {
		got := take(t, h.Store, one(ask(key, uint64(i+2), 0)))
		if diff := cmp.Diff(answers(allowed(1, win)), got); diff != "" {
			t.Errorf("key %q: after all charges: (-want +got)\n%s", key, diff)
		}
	}
}

// runBadChecks proves that arguments outside the contract are refused by name,
// and that a group with a bad check is not charged at all.
func runBadChecks(t *testing.T, h Harness) {
	good := ask("good", 2, 1)
	h.SetNow(0)
	for _, tt := range []struct {
		name      string
		checks    []window.Check
		decisions int
	}{
		{"fewer decisions than checks", group(good, ask("other", 2, 1)), 1},
		{"more decisions than checks", one(good), 2},
		{"no decisions", one(good), 0},
		{"empty key", group(good, ask("", 2, 1)), 2},
		{"no window", group(good, askIn(0, "k", 2, 1)), 2},
		{"negative window", group(good, askIn(-second, "k", 2, 1)), 2},
		{"window too short", group(good, askIn(window.MinWindow-micro, "k", 2, 1)), 2},
		{"window too long", group(good, askIn(window.MaxWindow+micro, "k", 2, 1)), 2},
		{"window of a part of a microsecond", group(good, askIn(second+1, "k", 2, 1)), 2},
		{"an unknown mode", group(good, in(window.Refund+1, ask("k", 2, 1))), 2},
		{"a precision below zero", group(good, precise(-1, ask("k", 2, 1))), 2},
		{"a precision above the window", group(good, precise(win+1, ask("k", 2, 1))), 2},
		{"a bad check without a log", group(good, precise(-1, ask("k", 0, 1))), 2},
		{"one bad check", one(precise(win+1, ask("good", 2, 1))), 1},
		{"enforce and any of one log", group(good, in(window.Any, good)), 2},
		{"any and observe of one log", group(good, in(window.Any, ask("k", 2, 1)), in(window.Observe, ask("k", 3, 0))), 3},
		{"observe and enforce of one log", group(in(window.Observe, good), ask("k", 2, 1), good), 3},
		{"always beside what is refused", group(in(window.Always, good), in(window.Any, ask("k", 2, 1)), ask("k", 2, 1)), 3},
		{"a refund beside what is refused", group(good, in(window.Refund, good), in(window.Observe, good)), 3},
		{"limit too large", group(good, ask("k", window.MaxHits+1, 1)), 2},
	} {
		_, err := h.Store.Take(t.Context(), window.MayWait, tt.checks, make([]window.Decision, tt.decisions))
		if !errors.Is(err, window.ErrBadCheck) {
			t.Errorf("%s: got error %v, want one that wraps %q", tt.name, err, window.ErrBadCheck)
		}
	}
	if diff := cmp.Diff(answers(allowed(2, 0)), take(t, h.Store, one(ask("good", 2, 0)))); diff != "" {
		t.Errorf("after refused calls: (-want +got)\n%s", diff)
	}

	// Other modes of one log are good, and so is one log's mode in another window.
	checks := group(
		good, good, in(window.Always, ask("good", 3, 0)), in(window.Refund, ask("good", 2, 1)),
		in(window.Any, askIn(2*win, "good", 2, 0)), in(window.Observe, ask("k", 2, 0)),
	)
	want := answers(
		allowedLast(win, win), allowedLast(win, win), allowed(1, win), allowedLast(win, win),
		allowed(2, 0), allowed(2, 0),
	)
	if diff := cmp.Diff(want, take(t, h.Store, checks)); diff != "" {
		t.Errorf("modes that may stand together: (-want +got)\n%s", diff)
	}

	// The bounds themselves are good.
	for _, w := range []time.Duration{window.MinWindow, window.MaxWindow} {
		if diff := cmp.Diff(answers(allowed(1, w)), take(t, h.Store, one(askIn(w, "bound", 2, 1)))); diff != "" {
			t.Errorf("window %v: (-want +got)\n%s", w, diff)
		}
	}
}

// runContext proves that a caller who has given up is not charged.
func runContext(t *testing.T, h Harness) {
	h.SetNow(0)
	take(t, h.Store, one(ask("k", 5, 1)))

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
		_, err := h.Store.Take(tt.ctx, window.MayWait, one(ask("k", 5, 1)), make([]window.Decision, 1))
		if !errors.Is(err, tt.want) {
			t.Errorf("a context that is done: got error %v, want one that wraps %q", err, tt.want)
		}
	}
	if diff := cmp.Diff(answers(allowed(4, win)), take(t, h.Store, one(ask("k", 5, 0)))); diff != "" {
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

	checks := group(ask("a", 5, 1), ask("b", 5, 2), ask("a", 4, 1))
	before := slices.Clone(checks)
	got := take(t, h.Store, checks)
	if diff := cmp.Diff(before, checks); diff != "" {
		t.Errorf("Take changed the checks: (-before +after)\n%s", diff)
	}
	for i := range checks {
		checks[i] = ask("overwritten", 1, 1)
		got[i] = window.Decision{}
	}
	want := answers(allowed(3, win), allowed(3, win))
	if diff := cmp.Diff(want, take(t, h.Store, group(ask("a", 5, 0), ask("b", 5, 0)))); diff != "" {
		t.Errorf("after the slices were overwritten: (-want +got)\n%s", diff)
	}
}
