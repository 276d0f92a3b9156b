package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/test/servers"
)

// BenchmarkTake measures one request to one Redis on this machine: groups of one
// and three checks, allowed and denied, by one caller and by many, on a thousand
// keys.
func BenchmarkTake(b *testing.B) {
	const keys = 1000
	client := newClient(b, servers.Redis(b))
	s := redisstore.New(client, redisstore.Options{})

	groups := func(name string, size int, limit window.Limit) [][]window.Check {
		all := make([][]window.Check, keys)
		for i := range all {
			for j := range size {
				all[i] = append(all[i], window.Check{
					Key: fmt.Sprintf("%s:%d:%d", name, i, j), Limit: limit, Cost: 1,
				})
			}
		}
		return all
	}
	for _, size := range []int{1, 3} {
		for _, outcome := range []struct {
			name  string
			limit window.Limit
			allow bool
		}{
			{"allowed", window.Limit{Hits: window.MaxHits - 1, Window: 10 * time.Second}, true},
			{"denied", window.Limit{Hits: 5, Window: time.Hour}, false},
		} {
			name := fmt.Sprintf("checks=%d/%s", size, outcome.name)
			all := groups(name, size, outcome.limit)
			for i := range all {
				for range 5 {
					take(b, s, all[i]...)
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
				b.SetParallelism(16)
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
