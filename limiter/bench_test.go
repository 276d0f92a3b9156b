package limiter

import (
	"crypto/sha256"
	"math"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// BenchmarkAllow decides requests that are allowed, in memory: by an address, by an API key, and
// without a limit. Each is a whole decision, as a program gets it: the request is read, an API key
// digested, the rule matched, the log named, found and charged by the clock of now, and the
// [Decision] made with all that headers need. Headers themselves are not made.
//
// "policy" is the decision of the same address without the library, and "store" the call of the
// store alone. "sha256" digests 32 bytes, so that figures of two machines can be compared as ratios.
// Compare the figures of one run only.
func BenchmarkAllow(b *testing.B) {
	rules, err := ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {window: 1h, requests: 1000000000}
  - key: api_key
    rate_limit: {window: 1h, requests: 1000000000}
`))
	if err != nil {
		b.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := New(store, rules)
	if err != nil {
		b.Fatal(err)
	}
	for _, key := range []string{"remote_address", "api_key", "unlimited"} {
		req := One("shop", key, "192.0.2.1")
		b.Run(key, func(b *testing.B) {
			b.ReportAllocs()
			ctx := b.Context()
			for b.Loop() {
				if d, err := l.Allow(ctx, req); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
	b.Run("policy", func(b *testing.B) {
		var c decide.Call
		req := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{{Entries: []Entry{{Key: "remote_address", Value: "192.0.2.1"}}, Cost: 1}}}
		b.ReportAllocs()
		ctx := b.Context()
		for b.Loop() {
			l.decider.Begin(&c, req)
			if _, err := c.Decide(ctx, window.MayWait); err != nil || !c.Verdict().Allowed {
				b.Fatal(err)
			}
			c.Forget()
		}
	})
	b.Run("store", func(b *testing.B) {
		many := window.Limit{Hits: 1_000_000_000, Window: time.Hour}
		checks := []window.Check{{Key: "{192.0.2.1}:shop|remote_address:192.0.2.1", Limit: many, Cost: 1, Precision: window.Precision(many)}}
		decisions := make([]window.Decision, 1)
		b.ReportAllocs()
		ctx := b.Context()
		for b.Loop() {
			if _, err := store.Take(ctx, window.MayWait, checks, decisions); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sha256", func(b *testing.B) {
		var text [32]byte
		for b.Loop() {
			sum := sha256.Sum256(text[:])
			text[0] = sum[0]
		}
	})
}

// TestAllocations: an allowed request allocates nothing but the digest of an API key. It has a call
// of its own, and counts the least of several runs, because the race detector makes pools lose what
// is put into them: of calls here, and of hashes in the package tier.
func TestAllocations(t *testing.T) {
	rules, err := ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {window: 1h, requests: 1000000}
  - key: api_key
    rate_limit: {window: 1h, requests: 1000000}
`))
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	l, err := New(store, rules)
	if err != nil {
		t.Fatal(err)
	}
	for key, most := range map[string]float64{"remote_address": 0, "api_key": 1} {
		c := new(call)
		req := One("shop", key, "192.0.2.1")
		least := math.Inf(1)
		for range 50 {
			least = min(least, testing.AllocsPerRun(1, func() {
				var d Decision
				if err := l.decide(t.Context(), c, &req, &d); err != nil || !d.Allowed || !d.Limited {
					t.Fatal(d, err)
				}
			}))
		}
		if least > most {
			t.Errorf("%s: %v allocations, want %v", key, least, most)
		}
	}
}
