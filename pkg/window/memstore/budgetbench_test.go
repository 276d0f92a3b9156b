package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

// BenchmarkBudget measures a reservation with its settlement, and a plain hit. They take turns, so only the ratio
// is of use on a busy machine. With others, each log has so many reservations of other streams.
func BenchmarkBudget(b *testing.B) {
	for _, others := range []int{0, 100, 10_000} {
		for _, p := range []window.Policy{window.Sliding, window.Fixed} {
			b.Run(fmt.Sprintf("%v/others=%d", p, others), func(b *testing.B) {
				s := memstore.New(memstore.Options{})
				defer s.Close()
				limit := window.Limit{Hits: 1 << 31, Window: time.Hour, Policy: p}
				plain, budget := policytest.BudgetCalls(b, s, limit, max(1000/(others+1), 1), others)
				var spent [2]time.Duration
				turns := 0
				b.ReportAllocs()
				for b.Loop() {
					for i, call := range []func(){plain, budget} {
						start := time.Now()
						for range 200 {
							call()
						}
						spent[i] += time.Since(start)
					}
					turns += 200
				}
				b.ReportMetric(float64(spent[0])/float64(turns), "ns/plain")
				b.ReportMetric(float64(spent[1])/float64(turns), "ns/budget")
				b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
				b.ReportMetric(testing.AllocsPerRun(100, plain), "allocs/plain")
				b.ReportMetric(testing.AllocsPerRun(100, budget), "allocs/budget")
			})
		}
	}
}
