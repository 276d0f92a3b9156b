package decide

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// benchRequest is a request of benchmarks and of tests of allocations.
type benchRequest struct {
	name string
	req  *Request
}

// benchRequests returns requests and a decider for them on the embedded store.
func benchRequests(tb testing.TB) ([]benchRequest, *Decider) {
	dir, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		tb.Fatal(err)
	}
	if err := dir.Add(tier.Subject{ID: "hobby", Tier: "pro"}, secrets.Digest("hobby-key")); err != nil {
		tb.Fatal(err)
	}
	many := window.Limit{Hits: 1_000_000_000, Window: time.Hour}
	plenty := rules.Terms{Limits: []rules.Limit{{Limit: many, Precision: window.Precision(many)}}}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	for _, r := range []rules.Rule{
		{Domain: "edge", Path: []descriptors.Node{anyOf("remote_address")}, Terms: plenty},
		{Domain: "edge", Path: []descriptors.Node{anyOf("api_key")}, ByTier: map[string]rules.Terms{"free": per(1, time.Minute), "pro": plenty}},
		{Domain: "edge", Path: []descriptors.Node{one("route", "search"), anyOf("api_key")}, Terms: plenty},
		{Domain: "edge", Path: []descriptors.Node{anyOf("full")}, Terms: per(1, 24*time.Hour)},
	} {
		if err := rs.Add(r); err != nil {
			tb.Fatal(err)
		}
	}
	store := memstore.New(memstore.Options{})
	tb.Cleanup(func() { store.Close() })
	d := NewDecider(rs, Options{Store: store, Log: dropAll})
	return []benchRequest{
		{"one", request("remote_address=192.0.2.1")},
		{"one-denied", request("full=x")},
		{"key", request("api_key=hobby-key")},
		{"three", request("remote_address=192.0.2.1", "api_key=hobby-key", "route=search api_key=hobby-key")},
		{"three-denied", request("remote_address=192.0.2.1", "api_key=hobby-key", "full=x")},
	}, d
}
