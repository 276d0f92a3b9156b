// Package inspecttest is the suite of [inspect.Inspector].
package inspecttest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
)

// Run runs the suite of [inspect.Inspector] as subtests of t. The stores that open makes
// must also be inspectors.
func Run(t *testing.T, open func(t *testing.T) windowtest.Harness) {
	t.Helper()
	t.Run("Random", func(t *testing.T) { runInspectorRandom(t, open(t)) })
	t.Run("Large", func(t *testing.T) { runInspectorLarge(t, open(t)) })
	t.Run("Policies", func(t *testing.T) { runInspectorPolicies(t, open(t)) })
	t.Run("HoldsExpire", func(t *testing.T) { runInspectorHolds(t, open(t)) })
	RunInRealTime(t, open)
}

// RunInRealTime runs the part of [Run] that needs no clock: [windowtest.Harness.SetNow] may
// do nothing. It takes less than the shortest window of ten seconds.
func RunInRealTime(t *testing.T, open func(t *testing.T) windowtest.Harness) {
	t.Helper()
	t.Run("List", func(t *testing.T) { runList(t, open(t)) })
	t.Run("ListMeanwhile", func(t *testing.T) { runListMeanwhile(t, open(t)) })
	t.Run("RemoveMeanwhile", func(t *testing.T) { runRemoveMeanwhile(t, open(t)) })
	t.Run("Arguments", func(t *testing.T) { runInspectorArguments(t, open(t)) })
	t.Run("RemoveInFlight", func(t *testing.T) { runRemoveInFlight(t, open(t)) })
}

func inspectorOf(t *testing.T, h *windowtest.Harness) inspect.Inspector {
	t.Helper()
	k, ok := h.Store.(inspect.Inspector)
	if !ok {
		t.Fatalf("%T is no inspect.Inspector", h.Store)
	}
	return k
}

// runInspectorRandom makes random calls, reads and removals. The oracle knows what is in every
// log.
func runInspectorRandom(t *testing.T, h windowtest.Harness) {
	const steps = 3000
	var (
		seed = random.Seed(t)
		r    = rand.New(rand.NewPCG(seed, 0))
		o    = oracle.New(h.Epoch)
		k    = inspectorOf(t, &h)
		now  = time.Hour
		ids  []window.LogID
	)
	for _, tag := range []string{"id.a", "id.b"} {
		for i := range 4 {
			for _, w := range []time.Duration{windowtest.Win, 3 * windowtest.Win, 10 * 24 * time.Hour} {
				ids = append(ids, window.LogID{Key: fmt.Sprintf("{%s}:rule%d", tag, i), Window: w})
			}
		}
	}
	some := func() []window.LogID {
		n := 1 + r.IntN(5)
		var those []window.LogID
		for _, i := range r.Perm(len(ids))[:n] {
			those = append(those, ids[i])
		}
		return those
	}
	for step := range steps {
		now += time.Duration(r.IntN(5)) * windowtest.Win / 20
		h.SetNow(now)
		switch r.IntN(10) {
		case 0, 1:
			those := some()
			got, err := k.Read(t.Context(), those)
			compareReadings(t, o, fmt.Sprintf("step %d: Read", step), now, those, got, err)
		case 2:
			those := some()
			got, err := k.Remove(t.Context(), those)
			compareReadings(t, o, fmt.Sprintf("step %d: Remove", step), now, those, got, err)
			for _, id := range those {
				delete(o.Logs, id)
			}
			empty, err := k.Read(t.Context(), those)
			compareReadings(t, o, fmt.Sprintf("step %d: Read of what was removed", step), now, those, empty, err)
		default:
			id := ids[r.IntN(len(ids))]
			c := windowtest.AskIn(id.Window, id.Key, uint64(5+r.IntN(40)), uint64(1+r.IntN(4)))
			c.Mode = []window.Mode{window.Enforce, window.Enforce, window.Always, window.Refund}[r.IntN(4)]
			got, want := windowtest.Take(t, h.Store, windowtest.One(c)), o.Take(now, windowtest.One(c))
			if d := diff.Diff(want, got); d != "" {
				t.Fatalf("step %d: %+v at %v (-want +got)\n%s", step, c, now, d)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// compare compares readings with what the oracle knows at the time clock.
func compareReadings(t *testing.T, o *oracle.Oracle, what string, clock time.Duration, ids []window.LogID, got []inspect.Reading, err error) {
	t.Helper()
	if err != nil || len(got) != len(ids) {
		t.Fatalf("%s: got %d readings and the error %v, want %d", what, len(got), err, len(ids))
	}
	clock += o.Epoch
	for i, id := range ids {
		l := o.Logs[id]
		if l == nil {
			l = &oracle.Ledger{Win: id.Window}
		}
		if got[i].ID != id || got[i].Now != clock {
			t.Errorf("%s: got log %v at %v, want %v at %v", what, got[i].ID, got[i].Now, id, clock)
		}
		var want []packed.Entry
		for _, e := range l.Spent {
			if l.Now(clock) >= e.At+l.Win || e.Cost == 0 {
				continue
			}
			if n := len(want); n > 0 && want[n-1].At == e.At {
				want[n-1].Cost += uint32(e.Cost)
			} else {
				want = append(want, packed.Entry{At: e.At, Cost: uint32(e.Cost)})
			}
		}
		if d := diff.Diff(want, counting(got[i])); d != "" {
			t.Errorf("%s of %v at %v (-want +got)\n%s", what, id, clock, d)
		}
	}
}

// counting returns the entries of a reading that still count.
func counting(r inspect.Reading) (entries []packed.Entry) {
	now := max(r.Now, r.Contents.Clock)
	for _, e := range r.Contents.Entries {
		if e.At > now-r.ID.Window {
			entries = append(entries, e)
		}
	}
	return entries
}

// runInspectorLarge reads a log of the largest size that the default precision allows.
func runInspectorLarge(t *testing.T, h windowtest.Harness) {
	c := windowtest.AskIn(time.Hour, "{id.large}:r", window.ExactHits, 1)
	var now time.Duration
	for range window.ExactHits {
		now += time.Millisecond
		h.SetNow(now)
		windowtest.Take(t, h.Store, windowtest.One(c))
	}
	got, err := inspectorOf(t, &h).Read(t.Context(), []window.LogID{c.Log()})
	if err != nil {
		t.Fatal(err)
	}
	entries := counting(got[0])
	if len(entries) != window.ExactHits {
		t.Fatalf("got %d entries, want %d", len(entries), window.ExactHits)
	}
	for i, e := range entries {
		if want := (packed.Entry{At: h.Epoch + time.Duration(i+1)*time.Millisecond, Cost: 1}); e != want {
			t.Fatalf("entry %d: got %v, want %v", i, e, want)
		}
	}
}

// listed returns all ids that match m, in order of their keys and windows.
func listed(t *testing.T, k inspect.Inspector, m inspect.Match) []window.LogID {
	t.Helper()
	var all []window.LogID
	for cursor, calls := "", 0; calls == 0 || cursor != ""; calls++ {
		ids, next, err := k.List(t.Context(), m, cursor)
		if err != nil {
			t.Fatalf("List(%+v, %q): %v", m, cursor, err)
		}
		if calls > 10_000 {
			t.Fatal("List does not end")
		}
		all = append(all, ids...)
		cursor = next
	}
	slices.SortFunc(all, byLog)
	return slices.Compact(all)
}

func byLog(a, b window.LogID) int {
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Window, b.Window))
}

// runList lists logs by all kinds of matches, with characters that mean something in
// patterns.
func runList(t *testing.T, h windowtest.Harness) {
	h.SetNow(time.Hour)
	k := inspectorOf(t, &h)
	if got := listed(t, k, inspect.Match{}); len(got) != 0 {
		t.Fatalf("an empty store lists %v", got)
	}
	var all []window.LogID
	for _, tag := range []string{"id.a", "id.ab", "id.*", "id.?", `id.\`, "id.[ab]", "id.^a", "x"} {
		for i := range 120 {
			c := windowtest.AskIn(time.Hour, fmt.Sprintf("{%s}:edge|route=/%d*[x]:id.acme", tag, i), 5, 1)
			if i%7 == 0 {
				c.Limit.Window = 3 * time.Hour
			}
			if i%2 == 0 {
				c = anyPolicy(h, time.Hour, c, window.Policy(i/2%6))
			}
			windowtest.Take(t, h.Store, windowtest.One(c))
			all = append(all, c.Log())
		}
	}
	slices.SortFunc(all, byLog)
	for _, m := range []inspect.Match{
		{},
		{Tag: "id.a"},
		{Tag: "id.*"},
		{Tag: "id.?"},
		{Tag: `id.\`},
		{Tag: "id.[ab]"},
		{Tag: "id.^a"},
		{Tag: "id"},
		{Tag: "*"},
		{Tag: "id.none"},
		{Contains: "/7*[x]:"},
		{Contains: "id.acme"},
		{Contains: "*"},
		{Contains: "?"},
		{Contains: `\`},
		{Contains: "[x]"},
		{Contains: "[a]"},
		{Contains: "3600000000"}, // a part of the window, not of the key
		{Tag: "id.a", Contains: "/11"},
		{Tag: "id.a", Contains: "id.a}"},
	} {
		var want []window.LogID
		for _, id := range all {
			if (m.Tag == "" || strings.HasPrefix(id.Key, "{"+m.Tag+"}")) && strings.Contains(id.Key, m.Contains) {
				want = append(want, id)
			}
		}
		if d := diff.Diff(want, listed(t, k, m)); d != "" {
			t.Errorf("%+v (-want +got)\n%s", m, d)
		}
	}
}

// runListMeanwhile lists logs while others come and go.
func runListMeanwhile(t *testing.T, h windowtest.Harness) {
	const stay, rounds = 2000, 4
	h.SetNow(time.Hour)
	k := inspectorOf(t, &h)
	var want []window.LogID
	for i := range stay {
		c := windowtest.Ask(fmt.Sprintf("{stays%d}:r", i), 5, 1)
		windowtest.Take(t, h.Store, windowtest.One(c))
		want = append(want, c.Log())
	}
	slices.SortFunc(want, byLog)

	for round := range rounds {
		var got, added []window.LogID
		for cursor, calls := "", 0; calls == 0 || cursor != ""; calls++ {
			ids, next, err := k.List(t.Context(), inspect.Match{Contains: "stays"}, cursor)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ids...)
			// The first rounds grow the table between two calls, the others shrink it.
			if round%2 == 0 {
				for i := range 500 {
					c := windowtest.Ask(fmt.Sprintf("{comes%d.%d}:r", calls, i), 5, 1)
					windowtest.Take(t, h.Store, windowtest.One(c))
					added = append(added, c.Log())
				}
			}
			cursor = next
		}
		if len(added) > 0 {
			if _, err := k.Remove(t.Context(), added); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(got, byLog)
		if d := diff.Diff(want, slices.Compact(got)); d != "" {
			t.Errorf("round %d (-want +got)\n%s", round, d)
		}
	}
}

// runRemoveMeanwhile removes two logs with one tag while callers charge both. The clock
// stands still, so a log holds all that was admitted since it was removed.
func runRemoveMeanwhile(t *testing.T, h windowtest.Harness) {
	const (
		limit    = 50
		each     = 60 // calls of every caller
		removals = 20
	)
	h.SetNow(time.Hour)
	k := inspectorOf(t, &h)
	checks := windowtest.Group(windowtest.Ask("{id.a}:one", limit, 1), windowtest.AskIn(2*windowtest.Win, "{id.a}:two", 2*limit, 1))
	ids := []window.LogID{checks[0].Log(), checks[1].Log()}
	var admitted, removed atomic.Uint64
	used := func(readings []inspect.Reading, err error) uint64 {
		if err != nil || len(readings) != 2 {
			t.Errorf("got %d readings and the error %v", len(readings), err)
			return 0
		}
		one, two := readings[0].Contents.Used(), readings[1].Contents.Used()
		if one != two || one > limit {
			t.Errorf("the logs had %d and %d at once, want the same, and at most the limit of %d", one, two, limit)
		}
		return one
	}
	windowtest.Concurrently(func(n int) {
		charge := func() {
			if got := windowtest.Try(t, h.Store, checks); got != nil && reference.Allowed(got) {
				admitted.Add(1)
			}
		}
		if n == 0 {
			for range removals { // and charges, so that more than the limit is admitted in any order
				charge()
				removed.Add(used(k.Remove(t.Context(), ids)))
			}
			return
		}
		for range each {
			charge()
		}
	})
	rest := used(k.Read(t.Context(), ids))
	if got, want := removed.Load()+rest, admitted.Load(); got != want {
		t.Errorf("%d hits were removed and %d are left, want %d, which were admitted", removed.Load(), rest, want)
	}
	if admitted.Load() <= limit {
		t.Errorf("admitted %d: nothing was proven", admitted.Load())
	}

	// After a removal a log decides as a new one.
	used(k.Remove(t.Context(), ids))
	for i, want := range []bool{true, false} {
		if got := windowtest.Take(t, h.Store, windowtest.One(windowtest.Ask("{id.a}:one", limit, limit))); got[0].Allowed != want || got[0].Remaining != 0 {
			t.Errorf("call %d after a removal: got %+v, want allowed %t", i+1, got[0], want)
		}
	}
}

// runInspectorArguments asks for nothing, for logs that are not there, for a log twice, and from
// bad cursors.
func runInspectorArguments(t *testing.T, h windowtest.Harness) {
	h.SetNow(time.Hour)
	k := inspectorOf(t, &h)
	for _, f := range []func() ([]inspect.Reading, error){
		func() ([]inspect.Reading, error) { return k.Read(t.Context(), nil) },
		func() ([]inspect.Reading, error) { return k.Remove(t.Context(), nil) },
	} {
		if got, err := f(); err != nil || len(got) != 0 {
			t.Errorf("for no logs: got %v, %v", got, err)
		}
	}
	c := windowtest.Ask("{a}:r", 5, 2)
	windowtest.Take(t, h.Store, windowtest.One(c))
	absent := window.LogID{Key: "{b}:r", Window: windowtest.Win}
	got, err := k.Remove(t.Context(), []window.LogID{absent, c.Log(), c.Log()})
	if err != nil || len(got) != 3 || got[0].Contents.Used() != 0 || got[1].Contents.Used() != 2 || got[2].Contents.Used() != 0 {
		t.Errorf("removing an absent log and one twice: got %+v, %v", got, err)
	}
	for _, cursor := range []string{"x", "-1", "ffffffffffffffffffffff", "nowhere/12", strings.Repeat("9", 4000)} {
		if _, _, err := k.List(t.Context(), inspect.Match{}, cursor); !errors.Is(err, inspect.ErrCursor) {
			t.Errorf("cursor %.30q: got the error %v, want ErrCursor", cursor, err)
		}
	}
}
