package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// TestNotesOfCounting: what validate says of tiers that count in different ways.
func TestNotesOfCounting(t *testing.T) {
	terms := func(limits ...window.Limit) (t rules.Terms) {
		for _, l := range limits {
			t.Limits = append(t.Limits, rules.Limit{Limit: l})
		}
		return t
	}
	bucket := func(per time.Duration) window.Limit {
		return window.Limit{Policy: window.TokenBucket, Rate: 1, Hits: 1, Window: per}
	}
	hits := func(p window.Policy) window.Limit { return window.Limit{Policy: p, Hits: 1, Window: time.Hour} }
	day := 31
	late, err := calendar.New(calendar.Spec{Unit: "month", Starts: calendar.Starts{Day: &day}})
	if err != nil {
		t.Fatal(err)
	}
	type tiers []rules.Terms
	for name, c := range map[string]struct {
		tiers tiers
		want  []string
	}{
		"one way":   {tiers{terms(bucket(time.Second)), terms(bucket(time.Second)), {Unlimited: true}}, nil},
		"sliding":   {tiers{terms(hits(0)), terms(window.Limit{Hits: 1, Window: time.Second})}, nil},
		"policies":  {tiers{terms(hits(0)), terms(bucket(time.Second), hits(window.Fixed)), terms(hits(0))}, []string{"tiers count with bucket-1s and fixed, or with sliding: a subject that changes between such tiers starts with nothing used"}},
		"rates":     {tiers{terms(bucket(time.Second)), terms(bucket(time.Minute))}, []string{"tiers count with bucket-1m, or with bucket-1s: a subject that changes between such tiers starts with nothing used"}},
		"in flight": {tiers{terms(hits(window.InFlight))}, []string{"requests in flight need the filters of envoy/in-flight.yaml: without its ids a slot is kept for 1 second, and without its ends until hold has passed"}},
		"budgets":   {tiers{{Limits: []rules.Limit{{Budget: new(rules.Budget)}}}}, []string{"budgets need the filters of envoy/budgets.yaml: without its ids, or without its ends, each request costs its estimate"}},
		"late":      {tiers{{Limits: []rules.Limit{{Calendar: late}}}}, []string{"in a month without that day the period starts on the last day"}},
	} {
		var count counting
		for _, tier := range c.tiers {
			count.add(&tier)
		}
		if diff := cmp.Diff(c.want, count.notes()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}
