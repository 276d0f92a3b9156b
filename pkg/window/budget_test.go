package window

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// reserving returns a check that reserves a cost, changed.
func reserving(change func(c *Check)) Check {
	c := ask("{a}k", time.Minute, 100, 5)
	c.Stream, c.Budget = 1, &Budget{Hold: time.Minute}
	change(&c)
	return c
}

func TestValidateBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(c *Check)
		want   string // a part of the error; empty: none
	}{
		"a budget":          {func(*Check) {}, ""},
		"bytes":             {func(c *Check) { c.Budget.PerByte = 0.25 }, ""},
		"any":               {func(c *Check) { c.Mode = Any }, ""},
		"a bucket":          {func(c *Check) { c.Limit.Policy, c.Limit.Rate = TokenBucket, 10 }, ""},
		"a precision":       {func(c *Check) { c.Precision = time.Second }, ""},
		"the shortest hold": {func(c *Check) { c.Budget.Hold = MinHold }, ""},
		"the longest hold":  {func(c *Check) { c.Budget.Hold = MaxBudgetHold }, ""},
		"no stream":         {func(c *Check) { c.Stream = 0 }, "needs one"},
		"only a stream":     {func(c *Check) { c.Budget = nil }, "only a check in flight or with a budget has a stream"},
		"a short hold":      {func(c *Check) { c.Budget.Hold = MinHold - time.Millisecond }, "want 1s to 24h0m0s"},
		"a long hold":       {func(c *Check) { c.Budget.Hold = MaxBudgetHold + time.Millisecond }, "want 1s to 24h0m0s"},
		"a fraction":        {func(c *Check) { c.Budget.Hold += time.Microsecond }, "whole milliseconds"},
		"negative bytes":    {func(c *Check) { c.Budget.PerByte = -1 }, "for each byte"},
		"no number":         {func(c *Check) { c.Budget.PerByte = math.NaN() }, "for each byte"},
		"infinite":          {func(c *Check) { c.Budget.PerByte = math.Inf(1) }, "for each byte"},
		"in flight":         {func(c *Check) { c.Limit.Policy = InFlight }, "in flight has no budget"},
		"always":            {func(c *Check) { c.Mode = Always }, "reserves nothing"},
		"a refund":          {func(c *Check) { c.Mode = Refund }, "reserves nothing"},
		"a lease":           {func(c *Check) { c.Lease.Length = time.Second }, "no lease"},
		"no hash tag":       {func(c *Check) { c.Key = "k" }, "needs a hash tag"},
		"once":              {func(c *Check) { c.Once = Once{ID: 1, For: time.Minute, Repeats: 1} }, "no idempotency record"},
	} {
		err := Validate([]Check{reserving(tt.change)}, make([]Decision, 1))
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrBadCheck) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
	}
}

// TestFoldBudget: of two checks of one log, one of which has a budget, both are reserved.
func TestFoldBudget(t *testing.T) {
	with, without := reserving(func(*Check) {}), reserving(func(c *Check) { c.Budget, c.Stream = nil, 0 })
	for _, checks := range [][]Check{{with, without}, {without, with}} {
		folded, _ := Fold(checks)
		if want := reserving(func(c *Check) { c.Budget, c.Cost = with.Budget, 10 }); len(folded) != 1 || folded[0] != want {
			t.Errorf("got %+v, want %+v", folded, want)
		}
	}
}

func TestEndingValid(t *testing.T) {
	cost := ask("k", time.Minute, 100, 5)
	cost.Mode = Always
	observed := cost
	observed.Mode = Observe
	for name, tt := range map[string]struct {
		end  Ending
		want string
	}{
		"a stream":     {Ending{Stream: 1}, ""},
		"a cost":       {Ending{Stream: 1, Costs: []Check{cost}}, ""},
		"no stream":    {Ending{Costs: []Check{cost}}, "an end of no stream"},
		"no key":       {Ending{Stream: 1, Costs: []Check{{Mode: Always}}}, "has no key"},
		"twice":        {Ending{Stream: 1, Costs: []Check{cost, cost}}, "two costs have one log"},
		"an estimate":  {Ending{Stream: 1, Costs: []Check{ask("k", time.Minute, 100, 5)}}, ""},
		"observed":     {Ending{Stream: 1, Costs: []Check{observed}}, ""},
		"another mode": {Ending{Stream: 1, Costs: []Check{{Key: "k", Mode: Refund}}}, "cost 0 has the mode refund"},
		"in flight":    {Ending{Stream: 1, Costs: []Check{{Key: "k", Mode: Always, Stream: 1, Limit: Limit{Policy: InFlight, Window: time.Second}}}}, "the policy in_flight"},
	} {
		err := tt.end.Valid()
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrBadCheck) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
	}
}
