package decide

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// costing returns a request with the cost of each descriptor, as "a=x 10".
func costing(costs []uint64, ds ...string) *Request {
	r := request(ds...)
	for i, cost := range costs {
		r.Descriptors[i].Cost = cost
	}
	return r
}

func spend(text string, cost uint64) *Request { return costing([]uint64{cost}, text) }

func TestUsageReports(t *testing.T) {
	const hour = time.Hour
	var (
		reference = (*rules.Rules).ReportUsage
		allowed   = func(r *rules.Rule) { r.Charge.AllowedOnly = true }
		l21       = rule("a", per(21, hour), anyOf("a"))
		l10       = rule("a", per(10, hour), anyOf("a"))
		l2        = rule("a", per(2, hour), anyOf("a"))
		two       = rule("b", per(2, hour), anyOf("b"))
		watch     = func(r *rules.Rule) { r.Terms.Observe = 1 }
		quota     = func(r *rules.Rule) { r.Quota = true }
		override  = func(hits, cost uint64) *Request {
			r := spend("none=x", cost)
			r.Descriptors[0].Override = &window.Limit{Hits: hits, Window: hour}
			return r
		}
		refund = func(text string, cost uint64) *Request {
			r := spend(text, cost)
			r.Descriptors[0].Refund = true
			return r
		}
	)
	type ask struct {
		req  *Request
		want string
	}
	for _, tt := range []struct {
		name    string
		prepare func(*rules.Rules)
		rules   []rules.Rule
		asks    []ask
	}{
		{"asked with 0, reported with 10, as the reference", reference, []rules.Rule{l21}, []ask{
			{spend("a=x", 0), "OK ok:21 by a"},
			{spend("a=x", 10), "OK ok:11 by a"},
			{spend("a=x", 0), "OK ok:11 by a"},
			{spend("a=x", 10), "OK ok:1 by a"},
			{spend("a=x", 0), "OK ok:1 by a"},
			{spend("a=x", 10), "OVER over:0 by a in 1h0m0s"},
			{spend("a=x", 0), "OVER over:0 by a in 1h0m0s"},
			{spend("a=y", 0), "OK ok:21 by a"},
		}},
		{"the same natively: a cost that does not fit is free", nil, []rules.Rule{l21}, []ask{
			{spend("a=x", 0), "OK ok:21 by a"},
			{spend("a=x", 20), "OK ok:1 by a"},
			{spend("a=x", 10), "OVER over:1 by a in 1h0m0s"},
			{spend("a=x", 0), "OK ok:1 by a"},
		}},
		{"a quota check needs the room of one hit", reference, []rules.Rule{l2}, []ask{
			{spend("a=x", 0), "OK ok:2 by a"},
			{spend("a=x", 1), "OK ok:1 by a"},
			{spend("a=x", 1), "OK ok:0 by a"},
			{spend("a=x", 0), "OVER over:0 by a in 1h0m0s"},
			{spend("a=x", 1), "OVER over:0 by a in 1h0m0s"},
			{refund("a=x", 1), "OK ok:1"},
		}},
		{"asked with 1, reported with 20, as the reference", reference, []rules.Rule{l10}, []ask{
			{spend("a=x", 1), "OK ok:9 by a"},
			{spend("a=x", 20), "OVER over:0 by a, never"},
			{spend("a=x", 1), "OVER over:0 by a in 1h0m0s"},
			// Nothing remains, so this is free.
			{spend("a=x", 20), "OVER over:0 by a, never"},
			{refund("a=x", 19), "OK ok:9"},
			// The debt was one limit: 19 of those 20 hits.
		}},
		{"the same natively: a cost that does not fit is free", nil, []rules.Rule{l10}, []ask{
			{spend("a=x", 1), "OK ok:9 by a"},
			{spend("a=x", 20), "OVER over:9 by a, never"},
			{spend("a=x", 1), "OK ok:8 by a"},
		}},
		{"a denied cost of 1 is free, whatever the factor", reference, []rules.Rule{l2, with(two, func(r *rules.Rule) { r.Charge.Factor = 3 })}, []ask{
			{spend("a=x", 1), "OK ok:1 by a"},
			{spend("a=x", 1), "OK ok:0 by a"},
			{spend("a=x", 1), "OVER over:0 by a in 1h0m0s"},
			{refund("a=x", 1), "OK ok:1"},
			{spend("b=x", 1), "OVER over:2 by b, never"},
			{spend("b=x", 2), "OVER over:0 by b, never"},
		}},
		{"charge: allowed", reference, []rules.Rule{with(l10, allowed)}, []ask{
			{spend("a=x", 0), "OK ok:10 by a"},
			{spend("a=x", 8), "OK ok:2 by a"},
			{spend("a=x", 20), "OVER over:2 by a, never"},
			{spend("a=x", 3), "OVER over:2 by a in 1h0m0s"},
			{spend("a=x", 2), "OK ok:0 by a"},
			{spend("a=x", 0), "OVER over:0 by a in 1h0m0s"},
		}},
		{"of several descriptors, only the one that overflows is recorded", reference, []rules.Rule{l10, two}, []ask{
			{costing([]uint64{20, 2}, "a=x", "b=x"), "OVER over:0 ok:2 by a, never"},
			{costing([]uint64{0, 1}, "a=x", "b=x"), "OVER over:0 ok:2 by a in 1h0m0s"},
			{costing([]uint64{3, 3}, "a=y", "b=x"), "OVER ok:10 over:0 by b, never"},
			{spend("a=y", 0), "OK ok:10 by a"},
		}},
		{"of several limits of a rule, too", reference, []rules.Rule{rule("a", rules.Terms{Limits: append(per(5, time.Second).Limits, per(100, hour).Limits...)}, anyOf("a"))}, []ask{
			{spend("a=x", 20), "OVER over:0 by a, never"},
			{spend("a=x", 1), "OVER over:0 by a in 1s"},
		}},
		{"a limit of 0", reference, []rules.Rule{rule("a", per(0, hour), anyOf("a"))}, []ask{
			{spend("a=x", 1), "OVER over:0 by a, never"},
			{spend("a=x", 5), "OVER over:0 by a, never"},
			{spend("a=x", 0), "OVER over:0 by a, never"},
		}},
		{"the largest limits and costs", reference, []rules.Rule{rule("a", per(math.MaxUint32-1, hour), anyOf("a")), rule("b", per(math.MaxUint32, hour), anyOf("b"))}, []ask{
			{spend("a=x", math.MaxUint64), "OVER over:0 by a, never"},
			{spend("a=x", 0), "OVER over:0 by a in 1h0m0s"},
			{spend("b=x", 0), "OK ok:4294967295 by b"},
			{spend("b=x", math.MaxUint64), "OK ok:4294967295 by b"},
		}},
		{"an observed rule counts reports too, and never denies", reference, []rules.Rule{with(l21, watch)}, []ask{
			{spend("a=x", 20), "OK ok:1"},
			{spend("a=x", 10), "OK ok:0 shadow a"},
			{spend("a=x", 0), "OK ok:0 shadow a"},
			{spend("a=x", 5), "OK ok:0 shadow a"},
			{refund("a=x", 9), "OK ok:0"},
			{refund("a=x", 1), "OK ok:1"},
		}},
		{"all rules observed", func(rs *rules.Rules) { rs.ReportUsage(); rs.ObserveAll() }, []rules.Rule{l21, two}, []ask{
			{costing([]uint64{30, 3}, "a=x", "b=x"), "OK ok:0 ok:0 shadow a"},
			{costing([]uint64{0, 1}, "a=x", "b=x"), "OK ok:0 ok:0 shadow a"},
		}},
		{"quota rules: one of several with room is enough, and both count", reference, []rules.Rule{with(l10, quota), with(two, quota)}, []ask{
			{costing([]uint64{0, 0}, "a=x", "b=x"), "OK ok:10 ok:2 by a"},
			{costing([]uint64{5, 5}, "a=x", "b=x"), "OK ok:5 over:0 by a"},
			{costing([]uint64{0, 0}, "a=x", "b=x"), "OK ok:5 over:0 by a"},
			{costing([]uint64{6, 6}, "a=x", "b=x"), "OVER over:0 over:0 by a in 1h0m0s"},
			{costing([]uint64{0, 0}, "a=x", "b=x"), "OVER over:0 over:0 by a in 1h0m0s"},
		}},
		{"limits that come with a request", reference, nil, []ask{
			{override(2, 0), "OK ok:2 by override"},
			{override(2, 1), "OK ok:1 by override"},
			{override(2, 2), "OVER over:0 by override in 1h0m0s"},
			{override(2, 1), "OVER over:0 by override in 1h0m0s"},
			{override(2, 0), "OVER over:0 by override in 1h0m0s"},
		}},
		{"limits that come with a request, natively", nil, nil, []ask{
			{override(2, 0), "OK ok:2 by override"},
			{override(2, 2), "OK ok:0 by override"},
			{override(2, 1), "OVER over:0 by override in 1h0m0s"},
			{override(3, 1), "OK ok:0 by override"},
		}},
		{"a refund of 0 is no question", nil, []rules.Rule{l2}, []ask{
			{refund("a=x", 0), "OK ok:2"},
			{spend("a=x", 3), "OVER over:2 by a, never"},
			{spend("a=x", 2), "OK ok:0 by a"},
		}},
		{"a log that is named twice", reference, []rules.Rule{l2}, []ask{
			{costing([]uint64{0, 0}, "a=x", "a=x"), "OK ok:2 ok:2 by a"},
			{costing([]uint64{0, 2}, "a=x", "a=x"), "OK ok:0 ok:0 by a"},
			{costing([]uint64{1, 1}, "a=x", "a=x"), "OVER over:0 over:0 by a in 1h0m0s"},
			{costing([]uint64{0, 0}, "a=x", "a=x"), "OVER over:0 over:0 by a in 1h0m0s"},
		}},
		{"a log that is named twice, before anything was asked", reference, []rules.Rule{l10}, []ask{
			{costing([]uint64{6, 6}, "a=x", "a=x"), "OVER over:0 over:0 by a, never"},
			{refund("a=x", 3), "OK ok:1"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var now time.Duration
			d, _ := newModes(t, func(rs *rules.Rules) {
				if tt.prepare != nil {
					tt.prepare(rs)
				}
				if err := rs.AddDomain("edge"); err != nil {
					t.Fatal(err)
				}
			}, &now, tt.rules...)
			for i, ask := range tt.asks {
				v := decide(t, d, ask.req)
				if got := say(&v); got != ask.want {
					t.Errorf("%d: %s, want %s", i, got, ask.want)
				}
			}
		})
	}
}

// TestAdviceAboutCharge logs a rule once if quota checks and costs come to it and it does not say how
// it charges. The ends of streams and refunds need no charge: always.
func TestAdviceAboutCharge(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for name, change := range map[string]func(*rules.Rule){
		"a": nil, "b": nil, "always": func(r *rules.Rule) { r.Charge.Always = true }, "allowed": func(r *rules.Rule) { r.Charge.AllowedOnly = true },
	} {
		r := with(rule(name, per(2, time.Minute), anyOf(name)), func(r *rules.Rule) { r.Domain = "edge" })
		if change != nil {
			change(&r)
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	store := memstore.New(memstore.Options{Clock: func() time.Duration { return 0 }})
	t.Cleanup(func() { store.Close() })
	d := NewDecider(rs, Options{Store: store, Meters: counts{}, Log: logTo(core)})
	end, refund := spend("a=x", 3), spend("a=x", 3)
	end.Ending, refund.Descriptors[0].Refund = "via_upstream", true
	asks := []*Request{spend("a=x", 1), spend("a=x", 0), end, refund}
	for _, name := range []string{"b", "always", "allowed"} {
		asks = append(asks, spend(name+"=x", 0), spend(name+"=x", 3), spend(name+"=x", 0), spend(name+"=y", 3))
	}
	for _, ask := range asks {
		decide(t, d, ask)
	}
	if logs.Len() != 1 || logs.All()[0].ContextMap()["rule"] != "edge|b" || !strings.Contains(logs.All()[0].Message, "charge: always") {
		t.Errorf("logged %v", logs.All())
	}
}

// TestOverdraftIsOneLimit proves that usage updates charge at most one limit over it, whatever they say and
// however many there are, and that what is beyond is counted.
func TestOverdraftIsOneLimit(t *testing.T) {
	for _, l := range []rules.Limit{slidingLimit, fixedLimit, counterLimit, bucketLimit} {
		for _, cost := range []uint64{math.MaxUint64, math.MaxUint32, 3 * l.Hits, l.Hits + 1, l.Hits/2 + 1} {
			now := time.Hour
			r := rule("a", rules.Terms{Limits: []rules.Limit{l}}, anyOf("a"))
			r.Charge.Always = true
			d, got := newModes(t, nil, &now, r)
			for range 6 {
				decide(t, d, spend("a=x", cost))
			}
			if got["cut update"] == 0 {
				t.Errorf("%v, cost %d: nothing was counted", l.Policy, cost)
			}
			refund := spend("a=x", l.Hits)
			refund.Descriptors[0].Refund = true
			if v := decide(t, d, refund); v.Limits[0].Decision.Remaining != 0 {
				t.Errorf("%v, cost %d: the debt is less than one limit", l.Policy, cost)
			}
			refund.Descriptors[0].Cost = 1
			if v := decide(t, d, refund); v.Limits[0].Decision.Remaining != 1 {
				t.Errorf("%v, cost %d: the debt is more than one limit", l.Policy, cost)
			}
		}
	}
}

// TestReportsWithoutStore proves that reports count in the local logs too.
func TestReportsWithoutStore(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	rs.ReportUsage()
	for name, choice := range map[string]rules.OnStoreError{"local": rules.StoreErrorLocal, "allow": rules.StoreErrorAllow, "deny": rules.StoreErrorDeny} {
		if err := rs.Add(with(rule(name, per(2, time.Minute), anyOf(name)), func(r *rules.Rule) { r.Domain, r.Storage.OnError = "edge", choice })); err != nil {
			t.Fatal(err)
		}
	}
	local := memstore.New(memstore.Options{Clock: func() time.Duration { return 0 }})
	t.Cleanup(func() { local.Close() })
	d := NewDecider(rs, Options{Store: &recordingStore{err: errors.New("no store")}, Local: local, Meters: counts{}, Log: dropAll})
	for i, ask := range []struct {
		req  *Request
		want string
	}{
		{spend("local=x", 3), "OVER over:0 by local, never"},
		{spend("local=x", 1), "OVER over:0 by local in 1m0s"},
		{spend("local=y", 2), "OK ok:0 by local"},
		{spend("local=y", 0), "OVER over:0 by local in 1m0s"},
		{spend("allow=x", 3), "OK none"},
		{spend("allow=x", 0), "OK none"},
		{spend("deny=x", 3), "OVER over:0 by deny in 1s"},
		{spend("deny=x", 0), "OVER over:0 by deny in 1s"},
		{costing([]uint64{3, 0}, "local=z", "allow=x"), "OVER over:0 none by local, never"},
	} {
		v := decide(t, d, ask.req)
		if got := say(&v); got != ask.want {
			t.Errorf("%d: %s, want %s", i, got, ask.want)
		}
	}
}
