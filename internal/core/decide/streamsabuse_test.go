package decide

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// inFlightOf returns terms with one limit of requests in flight.
func inFlightOf(most uint64) rules.Terms {
	return rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: most, Window: time.Minute, Policy: window.InFlight}}}}
}

// withRules replaces the rules of f, all in the domain edge and allowed only.
func (f *flight) withRules(rs *rules.Rules, all ...rules.Rule) {
	f.t.Helper()
	for _, r := range all {
		if r.Domain == "" {
			r.Domain = "edge"
		}
		r.Charge.AllowedOnly = true
		if err := rs.Add(r); err != nil {
			f.t.Fatal(err)
		}
	}
	f.Swap(rs)
}

// ask decides one request of a stream with a cost.
func (f *flight) ask(id, ds string, cost uint64) Verdict {
	f.t.Helper()
	r := stream(id, "", ds)
	r.Descriptors[0].Cost = cost
	return decide(f.t, f.Decider, r)
}

// TestCostsInFlight holds as many places as a request costs. A question holds none.
func TestCostsInFlight(t *testing.T) {
	f := newFlight(t, nil)
	f.withRules(rules.NewRules(rules.Identity{Secrets: secrets}), rule("backend", inFlightOf(10), one("in_flight", "backend")))
	const ds = "in_flight=backend"
	for _, step := range []struct {
		stream  string
		cost    uint64
		allowed bool
		left    uint64
	}{
		{"a", 3, true, 7},
		{"a", 9, true, 7}, // the same stream, whatever it costs now
		{"b", 8, false, 7},
		{"b", 7, true, 0},
		{"c", 0, false, 0},
		{"d", 11, false, 0},
		{"e", 1 << 32, false, 0},
		{"e", 1 << 63, false, 0},
	} {
		if v := f.ask(step.stream, ds, step.cost); v.Allowed != step.allowed {
			t.Errorf("%+v: allowed is %v", step, v.Allowed)
		}
		if n := f.left(ds); n != step.left {
			t.Errorf("%+v: %d are left", step, n)
		}
	}
	f.end("a", "via_upstream")
	f.end("b", "via_upstream")
	if n := f.left(ds); n != 10 {
		t.Errorf("%d are left at rest, want 10", n)
	}
	f.ask("question", ds, 0)
	f.counts.n = nil
	f.end("question", "via_upstream")
	f.counts.want(t, "held_nothing 1")
}

// TestOneStreamInTwoDomains holds a place in each domain. An end in either gives both back.
func TestOneStreamInTwoDomains(t *testing.T) {
	f := newFlight(t, nil)
	other := rule("there", inFlightOf(2), one("in_flight", "backend"))
	other.Domain = "other"
	f.withRules(rules.NewRules(rules.Identity{Secrets: secrets}), rule("here", inFlightOf(2), one("in_flight", "backend")), other)
	there := stream("a", "", "in_flight=backend")
	there.Domain = "other"
	f.charge("a")
	decide(t, f.Decider, there)
	end := stream("a", "via_upstream", "slidegate=end")
	end.Domain = "unknown"
	decide(t, f.Decider, end)
	question := stream("", "", "in_flight=backend")
	question.Domain, question.Descriptors[0].Cost = "other", 0
	if here, there := f.left("in_flight=backend"), decide(t, f.Decider, question).Limits[0].Decision.Remaining; here != 2 || there != 2 {
		t.Errorf("%d and %d places are left, want 2 and 2", here, there)
	}
}

// TestTierChangesWhileHeld gives back what a stream holds, although the limit is another one by
// then, or the rule is gone.
func TestTierChangesWhileHeld(t *testing.T) {
	f := newFlight(t, nil)
	most := func(n uint64) *rules.Rules {
		rs := rules.NewRules(rules.Identity{Secrets: secrets})
		f.withRules(rs, rule("backend", inFlightOf(n), one("in_flight", "backend")))
		return rs
	}
	most(5)
	for i := range 5 {
		f.charge(fmt.Sprint(i))
	}
	most(2)
	if f.charge("new") || f.left("in_flight=backend") != 0 {
		t.Error("a smaller limit does not count what is held")
	}
	for _, id := range []string{"0", "1", "2", "3"} {
		f.end(id, "via_upstream")
	}
	if !f.charge("next") || f.charge("too many") {
		t.Error("a smaller limit is not reached by the ends of streams")
	}
	f.Swap(rules.NewRules(rules.Identity{Secrets: secrets}))
	for _, id := range []string{"4", "next"} {
		f.end(id, "via_upstream")
	}
	most(5)
	if n := f.left("in_flight=backend"); n != 5 {
		t.Errorf("%d places are left after the rule came back, want 5", n)
	}
}

// TestSubjectsOwnMaximum counts what a subject holds under its own maximum, which never names
// another log.
func TestSubjectsOwnMaximum(t *testing.T) {
	rule := []rules.Limit{{Limit: window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}}, {Limit: window.Limit{Hits: 10, Window: time.Hour}}}
	own, ok := rules.OverrideLimits(nil, rule, []window.Limit{{Hits: 5, Policy: window.InFlight}})
	if !ok || len(own) != 2 || own[0].Hits != 5 || own[0].Window != time.Minute || own[0].Window != rule[0].Window || own[0].Policy != rule[0].Policy || own[1].Hits != 10 {
		t.Errorf("got %+v, %v", own, ok)
	}
}

// TestShadowInFlight passes everything, holds what has room and leaves nothing.
func TestShadowInFlight(t *testing.T) {
	f := newFlight(t, nil)
	shadow := inFlightOf(2)
	shadow.Observe = 1
	f.withRules(rules.NewRules(rules.Identity{Secrets: secrets}), rule("backend", shadow, one("in_flight", "backend")))
	for i := range 5 {
		if !f.charge(fmt.Sprint(i)) {
			t.Errorf("request %d is denied by a rule that is only observed", i)
		}
	}
	if n := f.left("in_flight=backend"); n != 0 {
		t.Errorf("%d places are left, want 0", n)
	}
	for i := range 5 {
		f.end(fmt.Sprint(i), "via_upstream")
	}
	f.counts.want(t, "held_nothing 3, released 2")
	if n := f.left("in_flight=backend"); n != 2 {
		t.Errorf("%d places are left at rest, want 2", n)
	}
}

// TestQuotaInFlight passes a request if one of two limits has room, and holds only there.
func TestQuotaInFlight(t *testing.T) {
	f := newFlight(t, nil)
	small, large := rule("small", inFlightOf(1), one("in_flight", "small")), rule("large", inFlightOf(2), one("in_flight", "large"))
	small.Quota, large.Quota = true, true
	f.withRules(rules.NewRules(rules.Identity{Secrets: secrets}), small, large)
	for i, want := range []bool{true, true, false} {
		if v := decide(t, f.Decider, stream(fmt.Sprint(i), "", "in_flight=small", "in_flight=large")); v.Allowed != want {
			t.Errorf("request %d: allowed is %v, want %v", i, v.Allowed, want)
		}
	}
	for i := range 3 {
		f.end(fmt.Sprint(i), "via_upstream")
	}
	if s, l := f.left("in_flight=small"), f.left("in_flight=large"); s != 1 || l != 2 {
		t.Errorf("%d and %d places are left at rest, want 1 and 2", s, l)
	}
}

// TestEndInAHeader has a client choose the value of a descriptor with the key slidegate. It does
// not evade the rule of that key, and ends nothing.
func TestEndInAHeader(t *testing.T) {
	f := newFlight(t, nil)
	f.withRules(rules.NewRules(rules.Identity{Secrets: secrets}), rule("backend", inFlightOf(2), one("in_flight", "backend")), rule("header", per(1, time.Hour), anyOf("slidegate")))
	f.charge("a")
	for i, want := range []bool{true, false} {
		if v := decide(t, f.Decider, stream("a", "", "slidegate=end")); v.Allowed != want {
			t.Errorf("request %d: allowed is %v, want %v", i, v.Allowed, want)
		}
	}
	if n := f.left("in_flight=backend"); n != 1 {
		t.Errorf("%d places are left, want 1", n)
	}
}

// TestManyEnds ends a great number of streams that hold nothing. They take no room from what is
// held and counted, and leave none taken when their tombstones have expired.
func TestManyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{MaxBytes: 128 << 10})
		defer store.Close()
		f := newFlight(t, func(o *Options) { o.Store = store })
		f.charge("a")
		f.charge("b")
		decide(t, f.Decider, stream("", "", "rate=x"))
		for i := range 20_000 {
			f.end(fmt.Sprint("unknown ", i), "downstream_remote_disconnect")
		}
		if n := store.Stats().Bytes; n > 128<<10 {
			t.Errorf("%d bytes of logs, want at most 128 kB", n)
		}
		if places, rate := f.left("in_flight=backend"), f.left("rate=x"); places != 0 || rate != 9 {
			t.Errorf("%d places and %d of the rate are left, want 0 and 9", places, rate)
		}
		f.end("a", "via_upstream")
		if !f.charge("c") || f.charge("d") {
			t.Error("not one place is free after one end")
		}
	})
}
