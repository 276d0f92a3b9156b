package policytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// BudgetCalls returns two calls of a store for a benchmark, on so many keys: a plain hit, and a reservation with its settlement.
// Each log of the second has so many reservations of other streams.
func BudgetCalls(b *testing.B, s window.Store, l window.Limit, keys, others int) (plain, budget func()) {
	var names, budgets []string
	for i := range keys {
		names, budgets = append(names, fmt.Sprintf("{budget:%d}", i)), append(budgets, fmt.Sprintf("of {budget:%d}", i))
	}
	streams := window.StreamID(0) // each reservation has its own
	checks, d, costs := make([]window.Check, 1), make([]window.Decision, 1), make([]window.Check, 1)
	hit := func() {
		if _, err := s.Take(b.Context(), window.MayWait, checks, d); err != nil || !d[0].Allowed {
			b.Fatalf("%+v, error %v", d, err)
		}
	}
	forever := &window.Budget{Hold: time.Hour}
	reserve := func(key string) {
		streams += 0x9e3779b97f4a7c15 // odd, so none comes twice; its bytes are spread, as those of a digest
		checks[0] = window.Check{Key: key, Limit: l, Cost: 5, Stream: streams, Budget: forever}
		hit()
	}
	for i := range keys * others {
		reserve(budgets[i%keys])
	}
	turn, turnOfBudget := 0, 0
	plain = func() {
		turn++
		checks[0] = window.Check{Key: names[turn%keys], Limit: l, Cost: 1}
		hit()
	}
	budget = func() {
		turnOfBudget++
		reserve(budgets[turnOfBudget%keys])
		costs[0] = spends(checks[0], 1)
		if _, err := s.(window.Releaser).End(b.Context(), window.Ending{Stream: streams, Deny: 10 * time.Second, Costs: costs}); err != nil {
			b.Fatal(err)
		}
	}
	return plain, budget
}
