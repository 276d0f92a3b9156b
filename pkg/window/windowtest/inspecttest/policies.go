package inspecttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/test/random"
)

// anyPolicy returns a check with the key, the window, the limit and the cost of c, and with a
// policy that counts in its own way. now is the time at which the check will be asked.
func anyPolicy(h windowtest.Harness, now time.Duration, c window.Check, p window.Policy) window.Check {
	c.Limit.Policy = p
	switch p {
	case window.TokenBucket:
		c.Limit.Rate = 2
	case window.Calendar:
		c.Limit.Window = policytest.Cycles[0].Nominal
		c.Period = policytest.Cycles[0].In(now+h.Epoch, 0)
	case window.InFlight:
		c.Limit.Window = policytest.FlightHold
		c.Stream = 1
	default:
	}
	return c
}

// An inspectorCaller makes random calls of a [inspect.Inspector] with logs of every policy, and of the
// store and the oracles behind it.
type inspectorCaller struct {
	h         windowtest.Harness
	r         *rand.Rand
	inspector inspect.Inspector
	now       time.Duration
	counts    *oracle.Oracle
	flight    *oracle.Flight
	asks      []window.Check // a question to each log
}

// runInspectorPolicies makes random calls, ends, reads and removals of logs of every policy. What a
// reading says must be what the oracles answer.
func runInspectorPolicies(t *testing.T, h windowtest.Harness) {
	const steps = 3000
	seed := random.Seed(t)
	k := &inspectorCaller{
		h: h, r: rand.New(rand.NewPCG(seed, 21)), inspector: inspectorOf(t, &h), now: windowtest.Year,
		counts: oracle.New(h.Epoch),
		flight: &oracle.Flight{Epoch: h.Epoch, Logs: map[string]*oracle.FlightLog{}, Ended: map[window.StreamID]time.Duration{}},
	}
	for i := range 12 {
		for p := window.Sliding; p <= window.InFlight; p++ {
			c := windowtest.AskIn(windowtest.Pick(k.r, windowtest.Win, 3*windowtest.Win, windowtest.Day), fmt.Sprintf("{id.%d}:rule%d", i%2, i), 0, 0)
			k.asks = append(k.asks, anyPolicy(h, k.now, c, p))
		}
	}
	for step := range steps {
		k.now += windowtest.Pick(k.r, 0, 0, windowtest.Micro, windowtest.Millisecond, windowtest.Win/20, windowtest.Win/3, time.Minute).Truncate(windowtest.Micro)
		h.SetNow(k.now)
		switch k.r.IntN(10) {
		case 0, 1:
			k.read(t, false)
		case 2:
			k.read(t, true)
		case 3:
			k.end(t)
		default:
			k.take(t)
		}
		if t.Failed() {
			t.Fatalf("step %d; repeat this history alone with %s=%d", step, random.SeedVariable, seed)
		}
	}
}

// limited returns the question at an index with a limit and, of a bucket, a rate.
func (k *inspectorCaller) limited(i int) window.Check {
	c := k.asks[i]
	c.Limit.Hits = uint64(5 + k.r.IntN(40))
	switch c.Limit.Policy {
	case window.TokenBucket:
		c.Limit.Rate = windowtest.Pick[uint32](k.r, 1, 2, 7)
	case window.Calendar:
		c.Period = policytest.Cycles[0].In(k.now+k.h.Epoch, 0)
	default:
	}
	return c
}

// want returns the answer of the oracle to a check.
func (k *inspectorCaller) want(c window.Check) window.Decision {
	if c.Limit.Policy == window.InFlight {
		return k.flight.Take(k.now, windowtest.One(c))[0]
	}
	return k.counts.Take(k.now, windowtest.One(c))[0]
}

// take makes a call of the store.
func (k *inspectorCaller) take(t *testing.T) {
	t.Helper()
	c := k.limited(k.r.IntN(len(k.asks)))
	c.Cost = uint64(1 + k.r.IntN(4))
	c.Mode = windowtest.Pick(k.r, window.Enforce, window.Enforce, window.Always, window.Refund)
	if c.Limit.Policy == window.InFlight {
		c.Stream = window.StreamID(1 + k.r.IntN(20))
		c.Limit.Window = windowtest.Pick(k.r, window.MinHold, policytest.FlightHold, time.Minute)
	}
	if got, want := windowtest.Take(t, k.h.Store, windowtest.One(c))[0], k.want(c); got != want {
		t.Errorf("%+v at %v: got %+v, want %+v", c, k.now, got, want)
	}
}

// end ends a stream. It holds something only in logs that were not removed.
func (k *inspectorCaller) end(t *testing.T) {
	t.Helper()
	stream, deny := window.StreamID(1+k.r.IntN(20)), windowtest.Pick(k.r, 0, windowtest.Second)
	if got, want := policytest.End(t, k.h.Store, stream, deny), k.flight.End(k.now, stream, deny); got != want {
		t.Errorf("End(%d) at %v: released %t, want %t", stream, k.now, got, want)
	}
}

// read reads or removes some logs. Removed logs are empty afterwards.
func (k *inspectorCaller) read(t *testing.T, remove bool) {
	t.Helper()
	var (
		those = k.r.Perm(len(k.asks))[:1+k.r.IntN(8)]
		ids   = make([]window.LogID, len(those))
	)
	for n, i := range those {
		ids[n] = k.asks[i].Log()
	}
	if !remove {
		got, err := k.inspector.Read(t.Context(), ids)
		k.compare(t, "Read", those, got, err)
		return
	}
	got, err := k.inspector.Remove(t.Context(), ids)
	k.compare(t, "Remove", those, got, err)
	for _, id := range ids {
		delete(k.counts.Logs, id)
		delete(k.counts.Books, id)
		if id.Policy == window.InFlight {
			delete(k.flight.Logs, id.Key)
		}
	}
	got, err = k.inspector.Read(t.Context(), ids)
	k.compare(t, "Read of what was removed", those, got, err)
	for i := range got {
		if got[i].Contents.Bytes != 0 {
			t.Errorf("%v has %d bytes after it was removed", ids[i], got[i].Contents.Bytes)
		}
	}
}

// compare compares readings with what the oracles answer to a question.
func (k *inspectorCaller) compare(t *testing.T, what string, those []int, got []inspect.Reading, err error) {
	t.Helper()
	if err != nil || len(got) != len(those) {
		t.Fatalf("%s: got %d readings and the error %v, want %d", what, len(got), err, len(those))
	}
	for n, i := range those {
		c, r := k.limited(i), &got[n]
		if c.Stream != 0 {
			c.Stream = 1000 // it never holds anything
		}
		if r.ID != c.Log() || r.Now != k.now+k.h.Epoch {
			t.Errorf("%s: got log %v at %v, want %v at %v", what, r.ID, r.Now, c.Log(), k.now+k.h.Epoch)
		}
		if got, want := r.Ask(c.Limit), k.want(c); got != want {
			t.Errorf("%s: %+v at %v: Ask says %+v, want %+v\n%v", what, c, k.now, got, want, r.Contents)
		}
		c.Limit.Hits = window.MaxInFlight
		used := c.Limit.Hits - k.want(c).Remaining
		if got := min(r.Used(c.Limit), c.Limit.Hits); got != used {
			t.Errorf("%s: %+v at %v: Used says %d, want %d\n%v", what, c, k.now, got, used, r.Contents)
		}
	}
}

// runInspectorHolds reads a log in flight until its holds have expired: used is their cost then,
// and the waits are those of the holds.
func runInspectorHolds(t *testing.T, h windowtest.Harness) {
	k := inspectorOf(t, &h)
	h.SetNow(time.Hour)
	windowtest.Take(t, h.Store, windowtest.One(policytest.Holding(1, "{f}:r", 9, 3)))
	h.SetNow(time.Hour + 4*windowtest.Second)
	windowtest.Take(t, h.Store, windowtest.One(policytest.Holding(2, "{f}:r", 9, 2)))
	limit := policytest.Holding(1, "", 9, 0).Limit
	for _, tt := range []struct {
		at, free, empty time.Duration
		used            uint64
		holds           int // with those that have expired
	}{
		{4 * windowtest.Second, 6 * windowtest.Second, 10 * windowtest.Second, 5, 2},
		{10*windowtest.Second - windowtest.Micro, windowtest.Micro, 4*windowtest.Second + windowtest.Micro, 5, 2},
		{10 * windowtest.Second, 4 * windowtest.Second, 4 * windowtest.Second, 2, 2},
		{14 * windowtest.Second, 0, 0, 0, 2},
	} {
		h.SetNow(time.Hour + tt.at)
		got, err := k.Read(t.Context(), []window.LogID{{Key: "{f}:r", Policy: window.InFlight}})
		if err != nil {
			t.Fatal(err)
		}
		d := got[0].Ask(limit)
		if used := got[0].Used(limit); used != tt.used || d.Remaining != 9-tt.used || d.UnitAfter != tt.free || d.ResetAfter != tt.empty {
			t.Errorf("after %v: used %d and %+v, want %+v", tt.at, used, d, tt)
		}
		if n := len(got[0].Contents.Holds); n != tt.holds {
			t.Errorf("after %v: the log has %d holds, want %d", tt.at, n, tt.holds)
		}
	}
}

// runRemoveInFlight removes a log in which streams hold something. They do not count any more,
// their ends change nothing, and what they hold in other logs is given back by their ends.
func runRemoveInFlight(t *testing.T, h windowtest.Harness) {
	const most = 3
	h.SetNow(time.Hour)
	k := inspectorOf(t, &h)
	id := window.LogID{Key: "{f}:one", Policy: window.InFlight}
	both := func(stream window.StreamID) []window.Check {
		return windowtest.Group(policytest.Holding(stream, "{f}:one", most, 1), policytest.Holding(stream, "{g}:two", most, 1))
	}
	left := func(step string, want ...uint64) {
		t.Helper()
		for i, c := range both(1000) {
			c.Cost = 0
			if got := windowtest.Take(t, h.Store, windowtest.One(c))[0]; got.Remaining != want[i] {
				t.Errorf("%s: %d of %d remain in %s, want %d", step, got.Remaining, most, c.Key, want[i])
			}
		}
	}
	for stream := range window.StreamID(most) {
		windowtest.Take(t, h.Store, both(1+stream))
	}
	left("full", 0, 0)
	removed, err := k.Remove(t.Context(), []window.LogID{id})
	if err != nil || len(removed) != 1 || removed[0].Contents.Used() != most {
		t.Fatalf("Remove: got %+v and the error %v, want %d used", removed, err, most)
	}
	left("removed", most, 0)
	// A stream that goes on holds something again. Others take the slots that are free.
	windowtest.Take(t, h.Store, windowtest.One(policytest.Holding(1, "{f}:one", most, 1)))
	windowtest.Take(t, h.Store, windowtest.One(policytest.Holding(11, "{f}:one", most, 1)))
	left("after new holds", most-2, 0)
	if !policytest.End(t, h.Store, 2, windowtest.Second) {
		t.Error("the stream holds something in a log that was not removed, and its end says that it does not")
	}
	left("a stream of the removed log has ended", most-2, 1)
	if !policytest.End(t, h.Store, 1, windowtest.Second) || !policytest.End(t, h.Store, 11, windowtest.Second) {
		t.Error("the streams hold something, and their ends say that they do not")
	}
	left("all have ended but one", most, 2)

	// The end of a stream whose only log was removed changes nothing.
	windowtest.Take(t, h.Store, windowtest.One(policytest.Holding(21, "{f}:one", most, 1)))
	if _, err := k.Remove(t.Context(), []window.LogID{id}); err != nil {
		t.Fatal(err)
	}
	windowtest.Take(t, h.Store, windowtest.One(policytest.Holding(22, "{f}:one", most, 1)))
	if policytest.End(t, h.Store, 21, windowtest.Second) {
		t.Error("the log of a stream was removed, and its end says that it had a hold")
	}
	left("an end after a removal", most-1, 2)
	ids := listed(t, k, inspect.Match{})
	if want := []window.LogID{id, {Key: "{g}:two", Policy: window.InFlight}}; !slices.Equal(ids, want) {
		t.Errorf("the logs are %v, want %v", ids, want)
	}
}
