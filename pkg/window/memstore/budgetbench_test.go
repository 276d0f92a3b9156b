package memstore_test

import (
	"testing"

	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

// BenchmarkBudget measures a plain hit, and a reservation with its settlement.
func BenchmarkBudget(b *testing.B) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	policytest.BenchmarkBudget(b, s, 10_000)
}
