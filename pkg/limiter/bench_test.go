package limiter_test

import (
	"testing"

	"github.com/slidegate/slidegate/pkg/limiter"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

const plenty = `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {window: 1h, requests: 1000000000}
  - key: api_key
    rate_limit: {window: 1h, requests: 1000000000}
`

// BenchmarkAllow decides requests that are allowed. "store" is the call of the store alone: the
// figures are ratios to it.
func BenchmarkAllow(b *testing.B) {
	b.Run("store", func(b *testing.B) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		many := window.Limit{Hits: 1_000_000_000, Window: 3_600_000_000_000}
		checks := []window.Check{{Key: "{192.0.2.1}:edge|remote_address:192.0.2.1", Limit: many, Cost: 1, Precision: window.Precision(many)}}
		decisions := make([]window.Decision, 1)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := store.Take(b.Context(), window.MayWait, checks, decisions); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, req := range map[string]limiter.Request{
		"address": limiter.One("edge", "remote_address", "192.0.2.1"),
		"key":     limiter.One("edge", "api_key", "k1"),
		"none":    limiter.One("edge", "other", "x"),
	} {
		b.Run(name, func(b *testing.B) {
			l, _ := benchLimiter(b)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if d, err := l.Allow(ctx, req); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

func benchLimiter(tb testing.TB) (*limiter.Limiter, *memstore.Store) {
	store := memstore.New(memstore.Options{})
	tb.Cleanup(func() { store.Close() })
	l, err := limiter.New(store, parse(tb, plenty))
	if err != nil {
		tb.Fatal(err)
	}
	return l, store
}
