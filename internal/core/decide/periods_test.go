package decide

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A monthly is a rule with a month of so many hits from day 1 at 00:00 in Berlin, or from the
// day of the label billing_day, on the embedded store.
type monthly struct {
	decider *Decider
	now     time.Duration
	log     *observer.ObservedLogs
	budget  *rules.Budget // of the rules that come; nil: none
}

func newMonthly(tb testing.TB, hits uint64, labels map[string]string) *monthly {
	tb.Helper()
	m := &monthly{}
	dir, err := tier.NewDirectory([]string{"free"}, "free")
	if err != nil {
		tb.Fatal(err)
	}
	if err := dir.Add(tier.Subject{ID: "acme", Extra: &tier.Extra{Labels: labels}}, secrets.Digest("acme-key")); err != nil {
		tb.Fatal(err)
	}
	rs := m.rules(tb, hits, dir)
	store := memstore.New(memstore.Options{Clock: func() time.Duration { return m.now }})
	tb.Cleanup(func() { store.Close() })
	core, log := observer.New(zapcore.WarnLevel)
	m.log = log
	m.decider = NewDecider(rs, Options{Store: store, Log: logTo(core), Clock: store.Now})
	return m
}

func (m *monthly) rules(tb testing.TB, hits uint64, dir *tier.Directory) *rules.Rules {
	tb.Helper()
	c, err := calendar.New(calendar.Spec{Unit: "month", TimeZone: "Europe/Berlin"})
	if err != nil {
		tb.Fatal(err)
	}
	limit := rules.Limit{Limit: window.Limit{Hits: hits, Window: c.Unit().Nominal(), Policy: window.Calendar}, Calendar: c, StartsLabel: "billing_day", Budget: m.budget}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	err = rs.Add(rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("api_key")}, Name: "quota", Terms: rules.Terms{Limits: []rules.Limit{limit}}})
	if err != nil {
		tb.Fatal(err)
	}
	return rs
}

// at sets the clock.
func (m *monthly) at(tb testing.TB, text string) {
	tb.Helper()
	at, err := time.Parse(time.DateTime, text)
	if err != nil {
		tb.Fatal(err)
	}
	m.now = time.Duration(at.UnixNano())
}

// TestPeriodOfARequest has periods from the rule's day, and from the subject's own day.
func TestPeriodOfARequest(t *testing.T) {
	for _, tt := range []struct {
		name   string
		key    string
		labels map[string]string
		start  string // UTC
		end    string
		log    string
	}{
		{"an unknown key", "x", nil, "2026-02-28 23:00:00", "2026-03-31 22:00:00", ""},
		{"a day", "acme-key", map[string]string{"billing_day": "15"}, "2026-03-14 23:00:00", "2026-04-14 22:00:00", ""},
		{"the last day", "acme-key", map[string]string{"billing_day": "31"}, "2026-02-27 23:00:00", "2026-03-30 22:00:00", ""},
		{"no label", "acme-key", map[string]string{"region": "eu"}, "2026-02-28 23:00:00", "2026-03-31 22:00:00", "the subject does not have the label"},
		{
			"not a day", "acme-key",
			map[string]string{"billing_day": "first"},
			"2026-02-28 23:00:00", "2026-03-31 22:00:00", "calendar: the text is not a day of the month: write 1 to 31",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMonthly(t, 10, tt.labels)
			m.at(t, "2026-03-20 12:00:00")
			var c Call
			m.decider.Begin(&c, *request("api_key=" + tt.key))
			if decided, err := c.Decide(t.Context(), window.NoWait); !decided || err != nil {
				t.Fatalf("Decide = %v, %v", decided, err)
			}
			p := c.batch.checks[0].Period
			start, end := time.Unix(p.Start, 0).UTC().Format(time.DateTime), time.Unix(p.End, 0).UTC().Format(time.DateTime)
			if start != tt.start || end != tt.end {
				t.Errorf("the period is %s to %s, want %s to %s", start, end, tt.start, tt.end)
			}
			if want := p.End - int64(m.now/time.Second); int64(c.Verdict().Limits[0].Decision.ResetAfter/time.Second) != want {
				t.Errorf("ResetAfter = %v, want %d s", c.Verdict().Limits[0].Decision.ResetAfter, want)
			}
			got := ""
			for _, e := range m.log.All() {
				fields := e.ContextMap()
				if got = fields["error"].(string); fields["subject"] != "acme" || fields["label"] != "billing_day" {
					t.Errorf("the log has %v", fields)
				}
			}
			if got != tt.log {
				t.Errorf("the log has the error %q, want %q", got, tt.log)
			}
		})
	}
}

// TestAnotherBillingDay changes a subject's billing day in the middle of a period that is used
// up. The next period must not begin before the current one ends.
func TestAnotherBillingDay(t *testing.T) {
	m := newMonthly(t, 1, map[string]string{"billing_day": "15"})
	allowed := func(at string, want bool) {
		t.Helper()
		m.at(t, at)
		if v := decide(t, m.decider, request("api_key=acme-key")); v.Allowed != want {
			t.Errorf("at %s: allowed = %v, want %v", at, v.Allowed, want)
		}
	}
	allowed("2026-03-14 23:00:00", true)
	allowed("2026-03-20 12:00:00", false)

	dir, err := tier.NewDirectory([]string{"free"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Add(tier.Subject{ID: "acme", Extra: &tier.Extra{Labels: map[string]string{"billing_day": "25"}}}, secrets.Digest("acme-key")); err != nil {
		t.Fatal(err)
	}
	m.decider.Swap(m.rules(t, 1, dir))
	allowed("2026-03-25 12:00:00", false) // its new period would have begun
	allowed("2026-04-14 21:59:59", false)
	allowed("2026-04-14 22:00:00", true) // the old one is over
	allowed("2026-04-24 21:59:59", false)
	allowed("2026-04-24 22:00:00", true) // from now on the new day
}

// TestPeriodsAllocateNothing compares a rule with a calendar and the same rule without one.
func TestPeriodsAllocateNothing(t *testing.T) {
	m := newMonthly(t, 1e9, map[string]string{"billing_day": "15"})
	m.at(t, "2026-03-20 12:00:00")
	s := &LimitStatus{Limit: m.decider.Rules().All()[0].Terms.Limits[0]}
	subject := &tier.Subject{ID: "acme", Extra: &tier.Extra{Labels: map[string]string{"billing_day": "15"}}}
	c := Call{decider: m.decider}
	if n := testing.AllocsPerRun(100, func() { c.clock = 0; c.period(s, subject) }); n != 0 {
		t.Errorf("a period allocates %v times", n)
	}
}

// TestBudgetsOfMonths: a reservation counts in the next month until its request has ended. The month of the end pays
// the cost; without an end the month of the request pays the estimate. No cost is lost, also if the clock goes back
// over the border.
func TestBudgetsOfMonths(t *testing.T) {
	m := newMonthly(t, 1000, nil)
	m.budget = &rules.Budget{Reserve: 100, Max: 500, Budget: window.Budget{Hold: time.Minute}}
	dir, err := tier.NewDirectory([]string{"free"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	m.decider.Swap(m.rules(t, 1000, dir))
	do := func(at string, in *Request) {
		t.Helper()
		m.at(t, at)
		decide(t, m.decider, in)
	}
	stands := func(at, want string) {
		t.Helper()
		m.at(t, at)
		d := decide(t, m.decider, ask("", "", 0, "api_key=x")).Limits[0].Decision
		if got := fmt.Sprintf("left %d, reserved %d", d.Remaining, d.Reserved); got != want {
			t.Errorf("at %s: %s, want %s", at, got, want)
		}
	}
	const before, border, after, late = "2026-03-31 21:59:50", "2026-03-31 22:00:00", "2026-03-31 22:00:10", "2026-03-31 22:02:00" // at 22:00 it is midnight in Berlin
	do(before, ask("settled", "", 300, "api_key=x"))
	do(before, ask("lost", "", 200, "api_key=x"))
	do(before, ask("late", "", 100, "api_key=x"))
	stands(before, "left 400, reserved 600")
	stands(border, "left 400, reserved 600")
	do(after, ask("april", "", 300, "api_key=x"))
	do(after, ask("settled", "via_upstream", 120, "api_key=x"))
	stands(after, "left 280, reserved 600")
	stands(late, "left 580, reserved 0") // an estimate is spent in the month of its request
	do(late, ask("late", "via_upstream", 90, "api_key=x"))
	do(late, ask("april", "via_upstream", 50, "api_key=x"))
	stands(late, "left 740, reserved 0")
	do(before, ask("stepped back", "", 100, "api_key=x"))
	stands(before, "left 640, reserved 100")
	do(after, ask("stepped back", "via_upstream", 10, "api_key=x"))
	stands(after, "left 730, reserved 0")
	stands(late, "left 730, reserved 0")
}
