package policytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// BenchmarkBudget measures a plain hit, and a reservation with its settlement, on so many keys.
func BenchmarkBudget(b *testing.B, s window.Store, keys int) {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("{budget:%d}", i)
	}
	streams := window.StreamID(1 << 40) // each has its own
	for _, l := range []window.Limit{
		{Hits: 1 << 31, Window: time.Second},
		{Hits: 1 << 31, Window: 24 * time.Hour, Policy: window.Fixed},
	} {
		hit := func(b *testing.B, c window.Check) {
			var d [1]window.Decision
			if _, err := s.Take(b.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil || !d[0].Allowed {
				b.Fatalf("%+v, error %v", d, err)
			}
		}
		b.Run(l.Policy.String()+"/plain", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				hit(b, window.Check{Key: names[i%keys], Limit: l, Cost: 1})
			}
		})
		b.Run(l.Policy.String()+"/reserve and settle", func(b *testing.B) {
			b.ReportAllocs()
			costs := make([]window.Check, 1)
			for i := 0; b.Loop(); i++ {
				streams++
				c := window.Check{Key: names[i%keys], Limit: l, Cost: 5, Stream: streams, Budget: budgetOf10s}
				hit(b, c)
				costs[0] = spends(c, 1)
				if _, err := s.(window.Releaser).End(b.Context(), window.Ending{Stream: c.Stream, Deny: 10 * time.Second, Costs: costs}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
