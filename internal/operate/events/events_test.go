package events

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// A bench has an Events with a clock, and what it announces.
type bench struct {
	*Events
	now     time.Time
	lines   *observer.ObservedLogs
	counted []string
	ids     []string
}

func newBench() *bench {
	core, lines := observer.New(zap.InfoLevel)
	b := &bench{now: time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC), lines: lines}
	b.Events = New(Options{
		Instance: "pod-1", Log: zap.New(core), Now: func() time.Time { return b.now },
		Count: func(domain, rule string, threshold int) {
			b.counted = append(b.counted, fmt.Sprint(domain, " ", rule, " ", threshold))
		},
		Webhook: NewWebhook(WebhookOptions{}),
	})
	return b
}

// month is a budget of 1000 a calendar month.
func month(now time.Time) decide.LimitStatus {
	begin := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	return decide.LimitStatus{
		Rule: &rules.Rule{Domain: "edge", Name: "dollars"}, Subject: "acme", Tier: "pro",
		Limit:  rules.Limit{Limit: window.Limit{Hits: 1000, Policy: window.Calendar, Window: 30 * 24 * time.Hour}},
		Period: verdict.Period{Period: window.Period{Start: begin.Unix(), End: begin.AddDate(0, 1, 0).Unix()}},
	}
}

// ask gives the bench a decision that admitted a request, and returns the thresholds that it announced.
func (b *bench) ask(s decide.LimitStatus, log string, spent, reserved uint64) (thresholds []int) {
	s.Decision.Allowed = true
	return b.put(s, log, spent, reserved)
}

func (b *bench) put(s decide.LimitStatus, log string, spent, reserved uint64) (thresholds []int) {
	s.Decision.Reserved, s.Decision.Remaining = reserved, s.Limit.Hits-min(spent+reserved, s.Limit.Hits)
	if s.Limit.Policy == window.Calendar {
		s.Decision.ResetAfter = time.Unix(s.Period.End, 0).Sub(b.now)
	}
	b.Budget(&decide.Request{Domain: "edge"}, &s, log)
	for m, ok := b.o.Webhook.take(); ok; m, ok = b.o.Webhook.take() {
		var e Event
		if err := json.Unmarshal(m.body, &e); err != nil {
			panic(err)
		}
		thresholds, b.ids = append(thresholds, e.Data.Threshold), append(b.ids, m.id)
	}
	return thresholds
}

// TestThresholds: each threshold is announced once, and again after usage has fallen below it or in
// the next period.
func TestThresholds(t *testing.T) {
	b := newBench()
	for _, step := range []struct {
		what            string
		later           time.Duration
		spent, reserved uint64
		want            []int
	}{
		{"below", 0, 799, 201, nil},
		{"at 80 %", 0, 800, 0, []int{80}},
		{"again", 0, 850, 100, nil},
		{"all reserved is not spent", 0, 850, 150, nil},
		{"all", 0, 1000, 0, []int{100}},
		{"after a reset", 0, 0, 0, nil},
		{"the same period", time.Hour, 1000, 0, nil},
		{"the next period", 31 * 24 * time.Hour, 10, 0, nil},
		{"both at once", time.Hour, 1000, 0, []int{80, 100}},
		{"a period later, at once", 31 * 24 * time.Hour, 900, 0, []int{80}},
	} {
		b.now = b.now.Add(step.later)
		if got := b.ask(month(b.now), "{id.acme}:edge|api_key:id.acme", step.spent, step.reserved); !slices.Equal(got, step.want) {
			t.Errorf("%s: got %v, want %v", step.what, got, step.want)
		}
	}
	if want := []string{"edge dollars 80", "edge dollars 100", "edge dollars 80", "edge dollars 100", "edge dollars 80"}; !slices.Equal(b.counted, want) {
		t.Errorf("counted %q, want %q", b.counted, want)
	}
	slices.Sort(b.ids)
	if ids := slices.Compact(b.ids); len(ids) != 5 || b.lines.Len() != 5 {
		t.Errorf("got the ids %q and %d lines, want 5", b.ids, b.lines.Len())
	}
}

// TestTooLittleLeft: a budget is spent if a request is denied because of what is spent alone.
func TestTooLittleLeft(t *testing.T) {
	for _, tt := range []struct {
		decision        window.Decision
		spent, reserved uint64
		want            []int
	}{
		{window.Decision{}, 990, 0, []int{80, 100}},
		{window.Decision{}, 990, 5, []int{80}},
		{window.Decision{Never: true}, 990, 0, []int{80}},
		{window.Decision{}, 700, 0, nil},
	} {
		b := newBench()
		s := month(b.now)
		s.Decision = tt.decision
		if got := b.put(s, "log", tt.spent, tt.reserved); !slices.Equal(got, tt.want) {
			t.Errorf("%+v, %d spent, %d reserved: got %v, want %v", tt.decision, tt.spent, tt.reserved, got, tt.want)
		}
	}
}

// TestIDs: all instances give an event the same id, also at the border of two periods, and another one
// in another period, for another log, limit or threshold.
func TestIDs(t *testing.T) {
	id := func(change func(*bench, *decide.LimitStatus), log string) string {
		b := newBench()
		s := month(b.now)
		change(b, &s)
		b.ask(s, log, s.Limit.Hits*9/10, 0)
		if len(b.ids) != 1 {
			t.Fatalf("got %d events, want 1", len(b.ids))
		}
		return b.ids[0]
	}
	fixed := func(b *bench, s *decide.LimitStatus, at, rest time.Duration) {
		s.Limit.Policy, s.Limit.Window, s.Period = window.Fixed, time.Hour, verdict.Period{}
		s.Decision.ResetAfter = rest
		b.now = b.now.Add(at)
	}
	sliding := func(at time.Duration) func(*bench, *decide.LimitStatus) {
		return func(b *bench, s *decide.LimitStatus) {
			s.Limit.Policy, s.Limit.Window, s.Period = window.Sliding, time.Hour, verdict.Period{}
			b.now = b.now.Add(at)
		}
	}
	plain := func(*bench, *decide.LimitStatus) {}
	later := func(b *bench, _ *decide.LimitStatus) { b.now = b.now.Add(20 * 24 * time.Hour) }
	same := []string{id(plain, "log"), id(later, "log")}
	if same[0] != same[1] || !strings.HasPrefix(same[0], "evt_") {
		t.Errorf("in one month: %q", same)
	}
	// The store is 20 ms behind this process or ahead of it: both are in the period that begins at 12:00.
	begin := id(func(b *bench, s *decide.LimitStatus) {
		fixed(b, s, -10*time.Millisecond, time.Hour-10*time.Millisecond)
	}, "log")
	end := id(func(b *bench, s *decide.LimitStatus) { fixed(b, s, time.Hour+10*time.Millisecond, 10*time.Millisecond) }, "log")
	middle := id(func(b *bench, s *decide.LimitStatus) { fixed(b, s, 30*time.Minute, 30*time.Minute) }, "log")
	if begin != middle || end != middle {
		t.Errorf("in one hour: %q, %q, %q", begin, middle, end)
	}
	all := []string{
		same[0], middle, id(plain, "log of another"), id(sliding(0), "log"), id(sliding(time.Hour), "log"),
		id(func(_ *bench, s *decide.LimitStatus) { s.Limit.Hits = 2000 }, "log"),
		id(func(b *bench, s *decide.LimitStatus) { b.now = b.now.AddDate(0, 1, 0); *s = month(b.now) }, "log"),
	}
	slices.Sort(all)
	if unique := slices.Compact(slices.Clone(all)); len(unique) != len(all) {
		t.Errorf("different events have one id: %q", all)
	}
}

// TestWithoutAnnouncement: nothing is announced for a limit without a number, or that the store did not decide.
func TestWithoutAnnouncement(t *testing.T) {
	for what, change := range map[string]func(*decide.LimitStatus){
		"unlimited":     func(s *decide.LimitStatus) { s.Limit.Hits = window.Unlimited },
		"a limit of 0":  func(s *decide.LimitStatus) { s.Limit.Hits = 0 },
		"without store": func(s *decide.LimitStatus) { s.DecidedBy = verdict.ByLocal },
	} {
		b := newBench()
		s := month(b.now)
		change(&s)
		if got := b.ask(s, "log", s.Limit.Hits, 0); got != nil {
			t.Errorf("%s: got %v", what, got)
		}
	}
}

// TestMemoryIsBounded: more logs than are remembered are announced too, and none is kept below its threshold.
func TestMemoryIsBounded(t *testing.T) {
	b := newBench()
	for i := range MaxLogs + 10 {
		if got := b.ask(month(b.now), fmt.Sprint(i), 900, 0); !slices.Equal(got, []int{80}) {
			t.Fatalf("log %d: got %v", i, got)
		}
	}
	if len(b.logs) > MaxLogs {
		t.Errorf("remembers %d logs, want at most %d", len(b.logs), MaxLogs)
	}
	b.now = b.now.AddDate(0, 1, 0)
	for i := range MaxLogs + 10 {
		b.ask(month(b.now), fmt.Sprint(i), 1, 0)
	}
	if len(b.logs) != 0 {
		t.Errorf("remembers %d logs below their threshold in a new period", len(b.logs))
	}
}
