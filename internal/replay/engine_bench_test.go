package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

func BenchmarkTimeline(b *testing.B) {
	rules := policy.NewRules(policy.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	_ = rules.AddDomain("edge")
	if err := rules.Add(policy.Rule{
		Domain: "edge", Name: "per-tenant", Path: []descriptors.Node{{Key: "tenant", AnyValue: true}},
		Terms: policy.Terms{Limits: []policy.Limit{{Limit: window.Limit{Hits: 100, Window: time.Minute}}}},
	}); err != nil {
		b.Fatal(err)
	}
	t := NewTimeline(rules, Options{})
	defer t.Close()
	names := make([]string, 10000)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%05d", i)
	}
	ds := []policy.Descriptor{{Entries: descriptors.Descriptor{{Key: "tenant"}}, Cost: 1}}
	b.ReportAllocs()
	x := uint32(1)
	i := 0
	for b.Loop() {
		i++
		x = x*1664525 + 1013904223
		ds[0].Entries[0].Value = names[x%10000]
		if _, err := t.Decide(b.Context(), 1e18+time.Duration(i)*time.Millisecond, policy.Request{Domain: "edge", Descriptors: ds}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
