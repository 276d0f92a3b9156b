package memstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// BenchmarkTake measures one request on the store's own clock: groups of one and
// three checks, allowed and denied, by one caller and by many, on a hundred
// thousand keys.
func BenchmarkTake(b *testing.B) {
	const keys = 100_000
	s := memstore.New(memstore.Options{})
	defer s.Close()

	for _, size := range []int{1, 3} {
		for _, outcome := range []struct {
			name  string
			limit window.Limit
			allow bool
		}{
			{"allowed", window.Limit{Hits: 1 << 30, Window: time.Second}, true},
			{"denied", window.Limit{Hits: 5, Window: time.Hour}, false},
		} {
			name := fmt.Sprintf("checks=%d/%s", size, outcome.name)
			all := make([][]window.Check, keys)
			for i := range all {
				for j := range size {
					all[i] = append(all[i], window.Check{Key: fmt.Sprintf("%s:%d:%d", name, i, j), Limit: outcome.limit, Cost: 1})
				}
				d := make([]window.Decision, size)
				for range 5 {
					if _, err := s.Take(b.Context(), window.MayWait, all[i], d); err != nil {
						b.Fatal(err)
					}
				}
			}
			call := func(b *testing.B, i int, d []window.Decision) {
				if _, err := s.Take(b.Context(), window.MayWait, all[i%keys], d); err != nil {
					b.Error(err)
				} else if windowtest.Allowed(d) != outcome.allow {
					b.Errorf("got %+v, want allowed %t", d, outcome.allow)
				}
			}
			b.Run(name+"/serial", func(b *testing.B) {
				b.ReportAllocs()
				d := make([]window.Decision, size)
				for i := 0; b.Loop(); i++ {
					call(b, i, d)
				}
			})
			b.Run(name+"/parallel", func(b *testing.B) {
				b.ReportAllocs()
				var start atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					d := make([]window.Decision, size)
					for i := int(start.Add(7919)); pb.Next(); i++ {
						call(b, i, d)
					}
				})
			})
		}
	}
}
