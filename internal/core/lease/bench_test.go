package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// free is a store that allows every check at no cost. One hit remains.
type free struct{}

func (free) Take(_ context.Context, wait bool, _ []window.Check, d []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	for i := range d {
		d[i] = window.Decision{Allowed: true, Remaining: 1, ResetAfter: time.Second}
	}
	return true, nil
}

func (free) Close() error { return nil }

// stock is free, and allows every reservation.
type stock struct{ free }

func (stock) Reserve(context.Context, window.Check, time.Duration) (window.Decision, window.Reservation, error) {
	return window.Decision{Allowed: true, Remaining: 1 << 31, ResetAfter: time.Second}, window.Reservation{}, nil
}

func (stock) Return(_ context.Context, _ window.Reservation, cost uint64) (uint64, error) {
	return cost, nil
}

func (stock) Take(_ context.Context, wait bool, _ []window.Check, d []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	for i := range d {
		d[i] = window.Decision{Allowed: true, Remaining: 1 << 31, ResetAfter: time.Second}
	}
	return true, nil
}

// BenchmarkTake measures denials from memory, and what Store adds to allowed calls. It
// uses 100,000 keys, and a single key.
func BenchmarkTake(b *testing.B) {
	for _, keys := range []int{1, 100_000} {
		for _, size := range []int{1, 3} {
			for _, allow := range []bool{false, true} {
				outcome := "denied"
				if allow {
					outcome = "allowed"
				}
				name := fmt.Sprintf("%s/keys=%d/checks=%d", outcome, keys, size)
				var store window.Store = free{}
				if !allow {
					store = memstore.New(memstore.Options{})
				}
				p, err := lease.New(store, lease.Options{Keys: 4 * 100_000})
				if err != nil {
					b.Fatal(err)
				}
				p.SetMaxAge(time.Hour)
				groups := make([][]window.Check, keys)
				for i := range groups {
					for j := range size {
						// The first check denies. Of the others nothing remains either.
						groups[i] = append(groups[i], window.Check{
							Key:   fmt.Sprintf("{id.customer-%d}:edge|route=search/api_key:%d", i, j),
							Limit: window.Limit{Hits: 1, Window: 24 * time.Hour}, Cost: 1,
						})
					}
					take(b, p, groups[i]...)
				}
				for i := range groups { // a denied answer is believed for longer
					take(b, p, groups[i]...)
				}
				call := func(b *testing.B, i int, d []window.Decision) {
					if _, err := p.Take(b.Context(), window.MayWait, groups[i%keys], d); err != nil {
						b.Error(err)
					} else if d[0].Allowed != allow {
						b.Errorf("got %+v, want allowed %t", d, allow)
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
				if err := p.Close(); err != nil {
					b.Error(err)
				}
			}
		}
	}
}
