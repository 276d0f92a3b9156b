package explain

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestSampleIsWhatARequestGets: a sample has the limits and the logs of a request of the subject
// with the same values.
func TestSampleIsWhatARequestGets(t *testing.T) {
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	d, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	own := tier.Override{Limits: []window.Limit{{Hits: 7, Window: time.Minute}}}
	for _, s := range []tier.Subject{{ID: "acme", Tier: "pro"}, {ID: "own", Extra: &tier.Extra{Overrides: map[string]tier.Override{"per-key": own}}}, {ID: "hobby"}} {
		if err := d.Add(s, secrets.Digest("key-"+s.ID)); err != nil {
			t.Fatal(err)
		}
	}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: d})
	limits := func(hits uint64) rules.Terms {
		return rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: time.Minute}}, {Limit: window.Limit{Hits: 2 * hits, Window: time.Hour}}}}
	}
	key, route := descriptors.Node{Key: "api_key", AnyValue: true}, descriptors.Node{Key: "route", Value: "a*b", Pattern: true}
	for _, r := range []rules.Rule{
		{Name: "per-key", Path: []descriptors.Node{key}, ByTier: map[string]rules.Terms{"free": limits(3), "pro": limits(5)}},
		{Name: "pattern", Path: []descriptors.Node{route, key}, Terms: limits(4)},
		{Name: "shared", Path: []descriptors.Node{key, route}, Share: []bool{false, true}, Terms: limits(4)},
		{Name: "fixed", Path: []descriptors.Node{{Key: "g", AnyValue: true}, {Key: "api_key", Value: "key-acme"}, route}, Terms: rules.Terms{Limits: limits(4).Limits, Observe: 1}},
		{Name: "customer", Subject: "customer", Path: []descriptors.Node{{Key: "customer", AnyValue: true}, {Key: "k", AnyValue: true}}, Terms: limits(4)},
		{Name: "shared-key", Path: []descriptors.Node{{Key: "h", AnyValue: true}, {Key: "api_key", Value: "*", Pattern: true}}, Share: []bool{false, true}, ByTier: map[string]rules.Terms{"free": limits(3), "pro": limits(5)}},
		{Name: "unlimited", Path: []descriptors.Node{{Key: "free", AnyValue: true}}, Terms: rules.Terms{Unlimited: true}},
	} {
		r.Domain = "d"
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rs.All() {
		for s := range d.All() {
			var entries descriptors.Descriptor
			for _, n := range r.Path {
				e := descriptors.Entry{Key: n.Key, Value: sampleValue}
				switch {
				case n.Key == "api_key" && !n.Open() && s.ID != "acme":
					continue
				case n.Key == "api_key":
					e.Value = "key-" + s.ID
				case n.Key == "customer":
					e.Value = s.ID
				case n.Pattern:
					e.Value = "a" + sampleValue + "b"
				}
				entries = append(entries, e)
			}
			if len(entries) != len(r.Path) {
				continue // the rule is for the key of another subject
			}
			want, _ := AccountOf(t.Context(), rs, AccountQuery{Domain: "d", Entries: entries}).Rule(0)
			got := Sample(rs, r, s)
			if len(got) != len(want) || len(got) == 0 {
				t.Fatalf("%s of %s: %+v, want %+v", r.Name, s.ID, got, want)
			}
			for i := range got {
				g, w := &got[i], &want[i]
				if g.Log != w.Log || g.Limit.Limit != w.Limit.Limit || g.Tier != w.Tier || g.Override != w.Override || g.Observed != w.Observed || g.Unlimited != w.Unlimited || g.Rule != w.Rule {
					t.Errorf("%s of %s: %+v, want %+v", r.Name, s.ID, *g, *w)
				}
				if g.Unlimited || r.Name == "shared-key" {
					continue // a log that all share does not say whose limit it has
				}
				l, ok := Log(t.Context(), rs, nil, w.Log)
				if !ok || l.Limit.Limit != w.Limit.Limit || l.Override != w.Override || l.Observed != w.Observed || l.Subject != s.ID {
					t.Errorf("the log %v is %+v, want %+v of %s", w.Log, l, *w, s.ID)
				}
			}
		}
	}
	for _, id := range []window.LogID{{Key: "nonsense"}, {Key: "{a}:d|gone:a", Window: time.Minute}, {Key: "{id.acme}:d|api_key:id.acme", Window: time.Second}} {
		if l, ok := Log(t.Context(), rs, nil, id); ok {
			t.Errorf("%v is a log of %+v", id, l)
		}
	}
}
