package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/fallback"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// budget is a limit of 1000 an hour that reserves 100, and at most 500, for a minute.
func budget(change func(*rules.Limit)) rules.Terms {
	l := rules.Limit{
		Limit:  window.Limit{Hits: 1000, Window: time.Hour},
		Budget: &rules.Budget{Reserve: 100, Max: 500, Budget: window.Budget{Hold: time.Minute}},
	}
	if change != nil {
		change(&l)
	}
	return rules.Terms{Limits: []rules.Limit{l}}
}

// newBudgets is newFlight with the budgets tokens, bytes (half a unit for each byte), wide (up to 2^53), thrice
// (each cost counts three times) and observed, and the limit rate of 10 requests an hour.
func newBudgets(t *testing.T, change func(*Options)) *flight {
	t.Helper()
	f := newFlight(t, change)
	observed := budget(nil)
	observed.Observe = 1
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for _, r := range []rules.Rule{
		rule("tokens", budget(nil), anyOf("tokens")),
		rule("bytes", budget(func(l *rules.Limit) { l.Budget.PerByte = 0.5 }), anyOf("bytes")),
		rule("wide", budget(func(l *rules.Limit) { l.Budget.Max = rules.MaxCost }), anyOf("wide")),
		with(rule("thrice", budget(nil), anyOf("thrice")), func(r *rules.Rule) { r.Charge.Factor = 3 }),
		rule("observed", observed, anyOf("observed")),
		rule("rate", per(10, time.Hour), anyOf("rate")),
		rule("backend", rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}}}}, one("in_flight", "backend")),
	} {
		r.Domain, r.Charge.AllowedOnly = "edge", true
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	f.Swap(rs)
	return f
}

func (c *streamCounts) Meter(_, rule string) Meter { return budgetCount{c: c, rule: rule} }

type budgetCount struct {
	uncounted
	c    *streamCounts
	rule string
}

func (b budgetCount) Budget(o inflight.BudgetOutcome, requests, units uint64) {
	for range requests {
		b.c.add(fmt.Sprint(b.rule, " ", inflight.BudgetOutcomes[o], " ", units, ":"))
	}
}

// ask asks for a cost; a negative one stands for none.
func ask(id, ending string, cost int64, ds ...string) *Request {
	if ending != "" {
		ds = append([]string{"slidegate=end"}, ds...)
	}
	r := stream(id, ending, ds...)
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		d.Cost, d.Unpriced = uint64(max(cost, 1)), cost < 0
		if cost == 0 {
			d.Cost = 0
		}
	}
	return r
}

// stands compares a budget with "left 900, reserved 100".
func (f *flight) stands(ds, want string) {
	f.t.Helper()
	v := decide(f.t, f.Decider, ask("", "", 0, ds))
	d := v.Limits[0].Decision
	if got := fmt.Sprintf("left %d, reserved %d", d.Remaining, d.Reserved); got != want {
		f.t.Errorf("%s: %s, want %s", ds, got, want)
	}
	if spent, want := v.Limits[0].Spent(), 1000-min(d.Remaining+d.Reserved, 1000); spent != want {
		f.t.Errorf("%s: spent %d, want %d", ds, spent, want)
	}
}

func TestBudget(t *testing.T) {
	f := newBudgets(t, nil)
	v := decide(t, f.Decider, ask("a", "", 300, "tokens=x"))
	if !v.Allowed || v.Limits[0].Cost != 300 || v.Limits[0].Decision.Reserved != 300 {
		t.Errorf("a reservation: %+v", v.Limits[0].Decision)
	}
	decide(t, f.Decider, ask("a", "", 300, "tokens=x")) // once more
	f.stands("tokens=x", "left 700, reserved 300")
	decide(t, f.Decider, ask("b", "", 500, "tokens=x"))
	if v := decide(t, f.Decider, ask("c", "", 201, "tokens=x", "rate=x")); v.Allowed {
		t.Error("a reservation above what is left is allowed")
	}
	if n := f.left("rate=x"); n != 10 {
		t.Errorf("a denied request is charged: %d are left, want 10", n)
	}
	for range 2 { // a lost answer makes Envoy send the end again
		decide(t, f.Decider, ask("a", "via_upstream", 120, "tokens=x"))
	}
	f.stands("tokens=x", "left 380, reserved 500")
	if v := decide(t, f.Decider, ask("a", "", 1, "tokens=x")); v.Allowed {
		t.Error("a reservation after the end of its stream is allowed")
	}
	decide(t, f.Decider, ask("b", "via_upstream", 700, "tokens=x"))
	f.stands("tokens=x", "left 180, reserved 0")
	f.counts.want(t, "held_nothing 1, released 2, tokens above_estimate 200: 1, tokens reserved 300: 1, tokens reserved 500: 1, tokens settled 120: 1, tokens settled 700: 1")
}

// used is a Recorder that keeps how much of a budget is used.
type used []string

func (*used) Denied(*Request, *Verdict, *LimitStatus) {}
func (*used) Near(*Request, *Verdict, *LimitStatus)   {}
func (u *used) Budget(_ *Request, s *LimitStatus, log string) {
	*u = append(*u, fmt.Sprintf("%s: %d of %d, %d reserved", log[strings.LastIndex(log, ":")+1:], s.Spent(), s.Limit.Hits, s.Decision.Reserved))
}

// TestBudgetUse: the Recorder learns how much of a budget is used when a request asks for it, and at its end.
func TestBudgetUse(t *testing.T) {
	var got used
	f := newBudgets(t, func(o *Options) { o.Recorder = &got })
	decide(t, f.Decider, ask("a", "", 300, "tokens=x"))
	decide(t, f.Decider, ask("b", "", 500, "tokens=x"))
	decide(t, f.Decider, ask("c", "", 400, "tokens=x"))
	decide(t, f.Decider, ask("a", "via_upstream", 350, "tokens=x"))
	decide(t, f.Decider, ask("b", "via_upstream", -1, "tokens=x"))
	decide(t, f.Decider, ask("d", "via_upstream", 450, "tokens=x")) // without a reservation
	want := []string{
		"x: 0 of 1000, 300 reserved", "x: 0 of 1000, 800 reserved", "x: 0 of 1000, 800 reserved",
		"x: 350 of 1000, 500 reserved", "x: 1000 of 1000, 0 reserved",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEstimates: what a request reserves.
func TestEstimates(t *testing.T) {
	for name, tt := range map[string]struct {
		rule, stream string
		cost         uint64
		unpriced     bool
		text         string
		reserves     uint64
		misuse       string
	}{
		"an estimate":             {"tokens", "a", 7, false, "", 7, ""},
		"the largest":             {"tokens", "a", 500, false, "", 500, ""},
		"above the largest":       {"tokens", "a", 501, false, "", 500, inflight.MisuseEstimate},
		"0, or a fraction":        {"tokens", "a", 0, false, "", 100, inflight.MisuseEstimate},
		"NaN":                     {"tokens", "a", 1 << 63, false, "", 100, inflight.MisuseEstimate},
		"none":                    {"tokens", "a", 1, true, "", 100, ""},
		"as text":                 {"tokens", "a", 1, true, "12.25", 13, ""},
		"a text beside a number":  {"tokens", "a", 7, false, "12", 7, ""},
		"a negative text":         {"tokens", "a", 1, true, "-1", 100, inflight.MisuseEstimate},
		"no number":               {"tokens", "a", 1, true, "much", 100, inflight.MisuseEstimate},
		"infinite":                {"tokens", "a", 1, true, "Inf", 100, inflight.MisuseEstimate},
		"above the limit":         {"wide", "a", 1, true, "5000000000", 0, ""},
		"times the cost":          {"thrice", "a", 5, false, "", 15, ""},
		"no stream":               {"tokens", "", 7, false, "", 7, inflight.MisuseBudgetNoStream},
		"no stream, and none":     {"tokens", "", 1, true, "", 100, inflight.MisuseBudgetNoStream},
		"a question, no stream":   {"tokens", "", 0, false, "", 0, ""},
		"beyond the largest cost": {"wide", "a", 1, true, "9007199254740994", 100, inflight.MisuseEstimate},
	} {
		t.Run(name, func(t *testing.T) {
			f := newBudgets(t, nil)
			r := ask(tt.stream, "", 1, tt.rule+"=x")
			r.Descriptors[0].Cost, r.Descriptors[0].Unpriced, r.Reported.Cost = tt.cost, tt.unpriced, tt.text
			v := decide(t, f.Decider, r)
			if never := v.Limits[0].Decision.Never; never != (name == "above the limit") {
				t.Errorf("never: %v", never)
			}
			f.misused(tt.misuse)
			f.stands(tt.rule+"=x", fmt.Sprintf("left %d, reserved %d", 1000-tt.reserves, tt.reserves))
		})
	}
}

// misused compares the lines of the log with one misuse, or none.
func (f *flight) misused(want string) {
	f.t.Helper()
	var got []string
	for _, entry := range f.logged.TakeAll() {
		got = append(got, entry.Message)
	}
	if strings.Join(got, "\n") != want {
		f.t.Errorf("logged %q, want %q", got, want)
	}
}

// TestSettlements: what the end of a stream records, for a reservation of 200.
func TestSettlements(t *testing.T) {
	type end struct {
		ending   string
		cost     int64
		unheld   bool
		text     string
		wire     string
		sent     string
		ds       string
		attempts string
		withhold bool // slidegate=end does not come
	}
	for name, tt := range map[string]struct {
		end
		left   uint64
		counts string
		misuse string
	}{
		"a cost":                      {end{ending: "via_upstream", cost: 50}, 950, "released 1, tokens settled 50: 1", ""},
		"a cost of 0":                 {end{ending: "via_upstream", cost: 0}, 1000, "released 1, tokens settled 0: 1", ""},
		"a cost without an upstream":  {end{ending: "via_upstream", cost: 50, wire: "0"}, 950, "released 1, tokens settled 50: 1", ""},
		"above the estimate":          {end{ending: "via_upstream", cost: 700}, 300, "released 1, tokens above_estimate 500: 1, tokens settled 700: 1", ""},
		"as text":                     {end{ending: "via_upstream", cost: -1, text: "12.345678"}, 987, "released 1, tokens settled 13: 1", ""},
		"unknown":                     {end{ending: "via_upstream", cost: -1, wire: "199"}, 800, "released 1, tokens unknown 200: 1", ""},
		"unknown, no descriptor":      {end{ending: "http2.remote_reset", ds: "none"}, 800, "released 1, tokens unknown 200: 1", ""},
		"unknown, wire of an old one": {end{ending: "via_upstream", cost: -1, wire: ""}, 800, "released 1, tokens unknown 200: 1", ""},
		"no upstream":                 {end{ending: "rate_limiter_error", cost: -1, wire: "0"}, 1000, "released 1, tokens unknown 0: 1", ""},
		"NaN":                         {end{ending: "via_upstream", cost: -1, text: "NaN"}, 800, "misused 1, released 1, tokens unknown 200: 1", inflight.MisuseCost},
		"negative":                    {end{ending: "via_upstream", cost: -1, text: "-5"}, 800, "misused 1, released 1, tokens unknown 200: 1", inflight.MisuseCost},
		"2^63":                        {end{ending: "via_upstream", cost: 1 << 62}, 800, "misused 1, released 1, tokens unknown 200: 1", inflight.MisuseCost},
		"denied":                      {end{ending: "request_rate_limited", cost: 50, unheld: true}, 1000, "held_nothing 1", ""},
		"fail-open":                   {end{ending: "via_upstream", cost: 50, unheld: true}, 950, "held_nothing 1, tokens unreserved 50: 1", ""},
		"fail-open, unknown":          {end{ending: "via_upstream", cost: -1, unheld: true, wire: "199"}, 900, "held_nothing 1, tokens unreserved 100: 1", ""},
		"fail-open, NaN":              {end{ending: "via_upstream", cost: -1, unheld: true, wire: "1", text: "NaN"}, 900, "held_nothing 1, misused 1, tokens unreserved 100: 1", inflight.MisuseCost},
		"fail-open, no budget named":  {end{ending: "via_upstream", cost: -1, unheld: true, wire: "199", ds: "none"}, 1000, "held_nothing 1", ""},
		"fail-open, nothing sent":     {end{ending: "via_upstream", cost: -1, unheld: true, wire: "0"}, 1000, "held_nothing 1", ""},
		"fail-open, sent unknown":     {end{ending: "via_upstream", cost: -1, unheld: true}, 1000, "held_nothing 1", ""},
		"denied, and something sent":  {end{ending: "request_rate_limited", cost: -1, unheld: true, wire: "199"}, 1000, "held_nothing 1", ""},
		"three times the estimate":    {end{ending: "via_upstream", cost: -1, unheld: true, wire: "1", ds: "thrice=x"}, 700, "held_nothing 1, thrice unreserved 300: 1", ""},
		"bytes":                       {end{ending: "via_upstream", cost: -1, sent: "101", ds: "bytes=x"}, 949, "bytes unknown 51: 1, released 1", ""},
		"bytes above the estimate":    {end{ending: "via_upstream", cost: -1, sent: "90000", ds: "bytes=x"}, 800, "bytes unknown 200: 1, released 1", ""},
		"unknown bytes":               {end{ending: "via_upstream", cost: -1, sent: "?", ds: "bytes=x"}, 800, "bytes unknown 200: 1, released 1", ""},
		"one attempt":                 {end{ending: "via_upstream", cost: 50, attempts: "1"}, 950, "released 1, tokens settled 50: 1", ""},
		"three attempts":              {end{ending: "via_upstream", cost: 50, attempts: "3"}, 950, "released 1, tokens retried 50: 1, tokens settled 50: 1", ""},
		"attempts that are no number": {end{ending: "via_upstream", cost: 50, attempts: "-"}, 950, "released 1, tokens settled 50: 1", ""},
		"no slidegate=end":            {end{ending: "via_upstream", cost: 50, withhold: true}, 750, "misused 1", inflight.MisuseBudgetAtEnd},
	} {
		t.Run(name, func(t *testing.T) {
			f := newBudgets(t, nil)
			ds := "tokens=x"
			if strings.HasSuffix(tt.ds, "=x") {
				ds = tt.ds
			}
			if !tt.unheld {
				decide(t, f.Decider, ask("a", "", 200, ds))
			}
			f.counts.n = nil
			r := ask("a", tt.ending, tt.cost, ds)
			switch {
			case tt.ds == "none":
				r = ask("a", tt.ending, tt.cost)
			case tt.withhold:
				r.Descriptors = slices.Delete(r.Descriptors, 0, 1)
			}
			r.Reported = identity.Reported{Cost: tt.text, Upstream: tt.wire, Downstream: tt.sent, Attempts: tt.attempts}
			if v := decide(t, f.Decider, r); !v.Allowed {
				t.Error("an end is denied")
			}
			f.counts.want(t, tt.counts)
			f.misused(tt.misuse)
			if !tt.withhold {
				decide(t, f.Decider, r) // once more
			}
			reserved := 0
			if tt.withhold {
				reserved = 200
			}
			f.stands(ds, fmt.Sprintf("left %d, reserved %d", tt.left, reserved))
		})
	}
}

// TestBudgetWait: a request that has no room only because of what others have reserved gets a short wait, because they
// may end at any time.
func TestBudgetWait(t *testing.T) {
	for name, tt := range map[string]struct {
		spent, reserved, cost int64
		want                  time.Duration
	}{
		"reserved":           {0, 500, 501, time.Second},
		"spent and reserved": {400, 300, 301, time.Second},
		"spent":              {600, 100, 401, time.Hour},
		"spent alone":        {600, 0, 401, time.Hour},
		"never":              {600, 100, 1001, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newBudgets(t, nil)
				decide(t, f.Decider, ask("first", "via_upstream", tt.spent, "wide=x"))
				if tt.reserved > 0 {
					decide(t, f.Decider, ask("busy", "", tt.reserved, "wide=x"))
				}
				v := decide(t, f.Decider, ask("a", "", tt.cost, "wide=x"))
				if got := v.Limits[0].Wait().Round(time.Second); v.Allowed || got != tt.want {
					t.Errorf("allowed %v, a wait of %v, want %v", v.Allowed, got, tt.want)
				}
			})
		})
	}
}

// TestObservedBudget: a budget that denies nothing charges what it would have charged if it did.
func TestObservedBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		estimate, cost int64
		left           string
	}{
		"a request that has room":        {300, 250, "left 350, reserved 0"},
		"a request that has no room":     {500, 450, "left 600, reserved 0"},
		"no room, and an unknown cost":   {500, -1, "left 600, reserved 0"},
		"room, and more than there is":   {300, 700, "left 0, reserved 0"},
		"room, and an unknown cost":      {300, -1, "left 300, reserved 0"},
		"no room, and what would fit in": {500, 1, "left 600, reserved 0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newBudgets(t, nil)
			decide(t, f.Decider, ask("first", "", 400, "observed=x"))
			decide(t, f.Decider, ask("first", "via_upstream", 400, "observed=x"))
			decide(t, f.Decider, ask("busy", "", 250, "observed=x"))
			if v := decide(t, f.Decider, ask("a", "", tt.estimate, "observed=x")); !v.Allowed {
				t.Error("an observed budget denies")
			}
			r := ask("a", "via_upstream", tt.cost, "observed=x")
			r.Reported.Upstream = "199"
			decide(t, f.Decider, r)
			decide(t, f.Decider, ask("busy", "via_upstream", 0, "observed=x"))
			f.stands("observed=x", tt.left)
		})
	}
}

// TestSettlementsBesideOthers: a request under two budgets, a limit and one in flight has all or none, and
// its end settles all.
func TestSettlementsBesideOthers(t *testing.T) {
	f := newBudgets(t, nil)
	all := []string{"tokens=x", "bytes=x", "rate=x", "in_flight=backend"}
	for i, want := range []bool{true, true, false} {
		r := ask(fmt.Sprint("s", i), "", 1, all...)
		r.Descriptors[0].Cost, r.Descriptors[1].Cost = 300, 40
		if v := decide(t, f.Decider, r); v.Allowed != want {
			t.Errorf("request %d: allowed is %v, want %v", i, v.Allowed, want)
		}
	}
	f.stands("tokens=x", "left 400, reserved 600")
	f.stands("bytes=x", "left 920, reserved 80")
	r := ask("s0", "via_upstream", 5, "tokens=x", "bytes=x", "rate=x")
	r.Descriptors[1].Unpriced = true
	decide(t, f.Decider, r)
	f.stands("tokens=x", "left 400, reserved 300")
	f.stands("bytes=x", "left 955, reserved 40")
	if n := f.left("rate=x"); n != 3 { // two requests, and the cost of an end
		t.Errorf("%d of the rate are left, want 3", n)
	}
	if n := f.left("in_flight=backend"); n != 1 {
		t.Errorf("%d slots are left, want 1", n)
	}
}

// TestSettlementInParts: two descriptors of one budget, such as input and output, reserve and cost their sum,
// and the stream gives its other slots back.
func TestSettlementInParts(t *testing.T) {
	f := newBudgets(t, nil)
	r := ask("a", "", 200, "tokens=x", "in_flight=backend", "tokens=x")
	r.Descriptors[1].Cost = 1
	decide(t, f.Decider, r)
	f.stands("tokens=x", "left 600, reserved 400")
	r = ask("a", "via_upstream", 1, "tokens=x", "bytes=x", "tokens=x", "tokens=y")
	r.Descriptors[1].Cost, r.Descriptors[3].Cost = 30, 20
	decide(t, f.Decider, r)
	f.stands("tokens=x", "left 950, reserved 0")
	f.stands("tokens=y", "left 999, reserved 0")
	if n := f.left("in_flight=backend"); n != 2 {
		t.Errorf("%d slots are left, want 2", n)
	}
}

// TestSettlementNamed: a descriptor without a cost names the budget, and changes nothing if another one has the cost.
func TestSettlementNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		costs string // of the descriptors tokens=x; - says nothing
		held  bool
		want  string
	}{
		"before the cost":      {"- 50", true, "left 950, reserved 0"},
		"behind the cost":      {"50 -", true, "left 950, reserved 0"},
		"alone":                {"-", true, "left 800, reserved 0"},
		"twice, alone":         {"- -", true, "left 800, reserved 0"},
		"without a hold":       {"- 50", false, "left 950, reserved 0"},
		"alone without a hold": {"-", false, "left 900, reserved 0"},
		"in two parts":         {"30 - 20", false, "left 950, reserved 0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newBudgets(t, nil)
			if tt.held {
				decide(t, f.Decider, ask("a", "", 200, "tokens=x"))
			}
			r := ask("a", "via_upstream", -1)
			for _, cost := range strings.Fields(tt.costs) {
				d := ask("a", "", -1, "tokens=x").Descriptors[0]
				if n, err := fmt.Sscan(cost, &d.Cost); n == 1 && err == nil {
					d.Unpriced = false
				}
				r.Descriptors = append(r.Descriptors, d)
			}
			r.Reported.Upstream = "10"
			decide(t, f.Decider, r)
			f.stands("tokens=x", tt.want)
		})
	}
}

// TestLateSettlement: an estimate that has expired is spent, and a late end corrects it. What has expired is counted once, by
// the next end or reservation.
func TestLateSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBudgets(t, nil)
		decide(t, f.Decider, ask("a", "", 200, "tokens=x"))
		decide(t, f.Decider, ask("", "", 30, "tokens=x")) // without a stream
		time.Sleep(time.Minute)
		f.stands("tokens=x", "left 770, reserved 0")
		f.counts.n = nil
		decide(t, f.Decider, ask("a", "via_upstream", 50, "tokens=x"))
		f.stands("tokens=x", "left 920, reserved 0")
		f.counts.want(t, "released 1, tokens expired 230: 2, tokens settled 50: 1")
		f.counts.n = nil
		decide(t, f.Decider, ask("b", "", 7, "tokens=x"))
		time.Sleep(time.Minute)
		f.counts.n = nil
		decide(t, f.Decider, ask("c", "", 8, "tokens=x"))
		f.counts.want(t, "tokens expired 7: 1, tokens reserved 8: 1")
		time.Sleep(58*time.Minute + time.Millisecond)
		f.stands("tokens=x", "left 935, reserved 0") // the estimate without a stream is an hour old
	})
}

// TestSettlementAfterAChange: the rules change between the request and its end.
func TestSettlementAfterAChange(t *testing.T) {
	for name, tt := range map[string]struct {
		terms  rules.Terms
		counts string
		left   int // negative: there is no limit
	}{
		"the same window":        {budget(func(l *rules.Limit) { l.Hits = 2000 }), "released 1, tokens settled 50: 1", 1950},
		"another window":         {budget(func(l *rules.Limit) { l.Window = time.Minute }), "released 1, tokens unknown 200: 1, tokens unreserved 50: 1", 950},
		"no budget any more":     {per(1000, time.Hour), "released 1, tokens unknown 200: 1", 950},
		"no budget, and a bound": {per(100, time.Hour), "released 1, tokens unknown 200: 1", 50},
		"no limit any more":      {rules.Terms{Unlimited: true}, "released 1, tokens unknown 200: 1", -1},
		"the rule is removed":    {rules.Terms{}, "released 1", -1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newBudgets(t, nil)
			decide(t, f.Decider, ask("a", "", 200, "tokens=x"))
			rs := rules.NewRules(rules.Identity{Secrets: secrets})
			r := rule("tokens", tt.terms, anyOf("tokens"))
			if name == "the rule is removed" {
				r = rule("other", per(1, time.Hour), anyOf("other"))
			}
			if r.Domain = "edge"; rs.Add(r) != nil {
				t.Fatal("Add")
			}
			f.Swap(rs)
			f.counts.n = nil
			for range 2 {
				decide(t, f.Decider, ask("a", "via_upstream", 50, "tokens=x"))
				f.counts.n["held_nothing"] = 0
			}
			delete(f.counts.n, "held_nothing")
			f.counts.want(t, tt.counts)
			if tt.left >= 0 && f.left("tokens=x") != uint64(tt.left) {
				t.Errorf("%d are left, want %d", f.left("tokens=x"), tt.left)
			}
		})
	}
}

// TestSettlementWithoutTheCustomer: the customer source fails at the end of a request, which pays its true cost all the
// same.
func TestSettlementWithoutTheCustomer(t *testing.T) {
	for cost, want := range map[int64]string{50: "left 950, reserved 0", 700: "left 300, reserved 0", 200: "left 800, reserved 0", -1: "left 800, reserved 0"} {
		source := &tableResolver{answers: map[string]tier.Answer{secrets.Digest("k"): known(tier.Subject{ID: "zeta", Tier: "starter"})}}
		f := newFlight(t, func(o *Options) { o.Subjects, o.Wait, o.DenyUnresolved = source, time.Second, true })
		rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t)})
		r := rule("tokens", budget(nil), one("budget", "tokens"), anyOf("api_key"))
		if r.Domain = "edge"; rs.Add(r) != nil {
			t.Fatal("Add")
		}
		f.Swap(rs)
		const ds = "budget=tokens api_key=k"
		decide(t, f.Decider, ask("a", "", 200, ds))
		f.stands(ds, "left 800, reserved 200")
		answers := source.answers
		source.answers = map[string]tier.Answer{secrets.Digest("k"): {Unavailable: true}}
		decide(t, f.Decider, ask("a", "via_upstream", cost, ds))
		source.answers = answers
		f.stands(ds, want)
	}
}

// TestSettlementFails: the adapter learns that the store could not settle, so that Envoy sends the end again.
func TestSettlementFails(t *testing.T) {
	f := newBudgets(t, nil)
	decide(t, f.Decider, ask("a", "", 200, "tokens=x"))
	working := f.releases.Store
	f.releases.Store = failingReleaser{}
	if _, err := decideErr(t.Context(), f.Decider, ask("a", "via_upstream", 50, "tokens=x")); err == nil {
		t.Error("no error")
	}
	f.releases.Store = working
	decide(t, f.Decider, ask("a", "via_upstream", 50, "tokens=x"))
	f.stands("tokens=x", "left 950, reserved 0")
}

// An outage is a store that may be away.
type outage struct {
	*memstore.Store
	away bool
}

var errAway = errors.New("away")

func (o *outage) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if o.away {
		return true, errAway
	}
	return o.Store.Take(ctx, wait, checks, decisions)
}

func (o *outage) End(ctx context.Context, e window.Ending) (window.Settled, error) {
	if o.away {
		return window.Settled{}, errAway
	}
	return o.Store.End(ctx, e)
}

// TestSettlementWithoutTheStore: a reservation of the local store during an outage is charged to the shared one when the
// stream ends, even if its cost is unknown, and even if the first end fails.
func TestSettlementWithoutTheStore(t *testing.T) {
	for name, tt := range map[string]struct {
		cost   int64
		wire   string
		early  bool // the first end comes during the outage
		counts string
		want   string
	}{
		"a cost":               {50, "10", false, "released 1, tokens unreserved 50: 1", "left 950, reserved 0"},
		"unknown":              {-1, "10", false, "released 1, tokens unreserved 200: 1", "left 800, reserved 0"},
		"unknown, not said":    {-2, "", false, "released 1, tokens unreserved 200: 1", "left 800, reserved 0"},
		"nothing sent":         {-1, "0", false, "released 1", "left 1000, reserved 0"},
		"unknown, ended early": {-1, "10", true, "failed 1, held_nothing 1, tokens unreserved 200: 1", "left 800, reserved 0"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &outage{Store: memstore.New(memstore.Options{})}
			local, err := fallback.New(fallback.Options{})
			if err != nil {
				t.Fatal(err)
			}
			f := newFlight(t, func(o *Options) { o.Store, o.Local = store, local })
			rs := rules.NewRules(rules.Identity{Secrets: secrets})
			r := rule("tokens", budget(nil), anyOf("tokens"))
			if r.Domain, r.Storage.OnError = "edge", rules.StoreErrorLocal; rs.Add(r) != nil {
				t.Fatal("Add")
			}
			f.Swap(rs)
			store.away = true
			if v := decide(t, f.Decider, ask("a", "", 200, "tokens=x")); !v.Allowed {
				t.Fatal("denied")
			}
			end := func() error {
				r := ask("a", "via_upstream", tt.cost, "tokens=x")
				if tt.cost == -2 {
					r = ask("a", "http2.remote_reset", 0)
				}
				r.Reported.Upstream = tt.wire
				_, err := decideErr(t.Context(), f.Decider, r)
				return err
			}
			if tt.early && end() == nil {
				t.Error("no error, so Envoy would not repeat the end")
			}
			store.away = false
			if err := end(); err != nil {
				t.Error(err)
			}
			f.counts.want(t, tt.counts)
			if err := end(); err != nil {
				t.Error(err)
			}
			f.stands("tokens=x", tt.want)
		})
	}
}
