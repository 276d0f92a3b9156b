package insight

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// A listing is an Inspector whose lists never end.
type listing struct{ inspect.Inspector }

// List implements inspect.Inspector.
func (listing) List(ctx context.Context, _ inspect.Match, _ string) ([]window.LogID, string, error) {
	select {
	case <-ctx.Done():
		return nil, "", ctx.Err()
	case <-time.After(time.Second):
		return nil, "more", nil
	}
}

// TestResetRemovesWhatItFinds resets a subject while the store does not end its lists. The logs
// whose names are known without a list are removed.
func TestResetRemovesWhatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCounted(t, func(o *Options) { o.Inspector = listing{o.Inspector} })
		if !a.ask(1, "api_key="+plantedKey) {
			t.Fatal("the first request is denied")
		}
		r, err := a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme"}, Reason: "ticket 4711"})
		if err != nil || r.Logs == 0 || !strings.Contains(r.Problem, "took too long to list") || strings.Contains(r.Problem, "may not be removed") {
			t.Errorf("got %+v and %v, want removed logs, and a problem with the list", r, err)
		}
	})
}

// TestResetNamesEveryPolicy: a reset names the logs of every policy that it has removed.
func TestResetNamesEveryPolicy(t *testing.T) {
	a := newCounted(t, nil)
	days, err := calendar.New(calendar.Spec{Unit: "day"})
	if err != nil {
		t.Fatal(err)
	}
	limits := []rules.Limit{
		{Limit: window.Limit{Hits: 9, Window: time.Hour}},
		{Limit: window.Limit{Hits: 9, Rate: 1, Window: time.Hour, Policy: window.TokenBucket}},
		{Limit: window.Limit{Hits: 9, Window: time.Hour, Policy: window.Fixed}},
		{Limit: window.Limit{Hits: 9, Window: calendar.Day.Nominal(), Policy: window.Calendar}, Calendar: days},
		{Limit: window.Limit{Hits: 9, Window: time.Hour, Policy: window.SlidingCounter}},
		{Limit: window.Limit{Hits: 9, Window: time.Hour, Policy: window.InFlight}},
	}
	if err := a.rules.Add(rules.Rule{Domain: "edge", Name: "policies", Path: pathOf("policies"), Terms: rules.Terms{Limits: limits}}); err != nil {
		t.Fatal(err)
	}
	a.decider = decide.NewDecider(a.rules, decide.Options{Store: a.store})
	*a.clock = time.Duration(time.Now().UnixNano()) // the calendar of a request has the machine's clock
	if !a.ask(3, "policies=x") {
		t.Fatal("the first request is denied")
	}
	for _, want := range []int{len(limits), 0} {
		r, err := a.Reset(t.Context(), ResetRequest{Query: Query{Descriptor: "edge/policies=x"}, Reason: "ticket 4711"})
		if err != nil {
			t.Fatal(err)
		}
		if r.Logs != want || len(r.Removed) != want {
			t.Errorf("%d logs were removed, and %d of them are named, want %d", r.Logs, len(r.Removed), want)
		}
		for _, l := range r.Removed {
			if l.Used != 3 {
				t.Errorf("%s: %d used, want 3", l.Policy, l.Used)
			}
		}
	}
}
