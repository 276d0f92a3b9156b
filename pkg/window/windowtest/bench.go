package windowtest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// BenchmarkTake measures requests to a store: groups of one and three checks, allowed and denied, by one
// caller and by many, which are parallelism for each processor. There are as many groups as keys.
// allowed is a limit that no request reaches.
func BenchmarkTake(b *testing.B, s window.Store, keys, parallelism int, allowed window.Limit) {
	for _, size := range []int{1, 3} {
		for _, outcome := range []struct {
			name  string
			limit window.Limit
			allow bool
		}{
			{"allowed", allowed, true},
			{"denied", window.Limit{Hits: 5, Window: time.Hour}, false},
		} {
			name := fmt.Sprintf("checks=%d/%s", size, outcome.name)
			groups := make([][]window.Check, keys)
			for i := range groups {
				for j := range size {
					groups[i] = append(groups[i], window.Check{Key: fmt.Sprintf("%s:%d:%d", name, i, j), Limit: outcome.limit, Cost: 1})
				}
				d := make([]window.Decision, size)
				for range 5 {
					if _, err := s.Take(b.Context(), window.MayWait, groups[i], d); err != nil {
						b.Fatal(err)
					}
				}
			}
			BenchmarkGroups(b, s, name, groups, parallelism, outcome.allow)
		}
	}
}

// BenchmarkGroups measures requests of groups of the same size, by one caller and by many, which are
// parallelism for each processor. All requests have the same outcome.
func BenchmarkGroups(b *testing.B, s window.Store, name string, groups [][]window.Check, parallelism int, allow bool) {
	call := func(b *testing.B, i int, d []window.Decision) {
		if _, err := s.Take(b.Context(), window.MayWait, groups[i%len(groups)], d); err != nil {
			b.Error(err)
		} else if reference.Allowed(d) != allow {
			b.Errorf("got %+v, want allowed %t", d, allow)
		}
	}
	size := len(groups[0])
	b.Run(name+"/serial", func(b *testing.B) {
		b.ReportAllocs()
		d := make([]window.Decision, size)
		for i := 0; b.Loop(); i++ {
			call(b, i, d)
		}
	})
	b.Run(name+"/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(parallelism)
		var start atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			d := make([]window.Decision, size)
			for i := int(start.Add(7919)); pb.Next(); i++ {
				call(b, i, d)
			}
		})
	})
}
