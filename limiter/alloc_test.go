package limiter

import (
	"math"
	"testing"

	"github.com/slidegate/slidegate/pkg/window/memstore"
)

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
