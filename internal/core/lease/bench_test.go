package lease_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
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
				windowtest.BenchmarkGroups(b, p, name, groups, 1, allow)
				if err := p.Close(); err != nil {
					b.Error(err)
				}
			}
		}
	}
}
