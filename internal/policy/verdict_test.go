package policy

import (
	"reflect"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/policy/policytest"
	"github.com/slidegate/slidegate/internal/reuse"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestForget proves that nothing of a request stays in a Call, also not in the unused
// memory of its slices, and that the next request gets the same answer.
func TestForget(t *testing.T) {
	rules := NewRules(Identity{Secrets: secrets, Tiers: directory(t)})
	for _, r := range []Rule{
		{Domain: "edge", Path: []descriptors.Node{anyOf("api_key"), anyOf("route")}, Name: "both", Terms: per(5, time.Minute), Detailed: true, OnStoreError: StoreErrorLocal},
		{Domain: "edge", Path: []descriptors.Node{anyOf("route")}, Name: "per-route", Terms: per(5, time.Minute)},
	} {
		if err := rules.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	subject := &tier.Subject{ID: "acme", Tier: "free", Extra: &tier.Extra{Overrides: map[string]tier.Override{
		"both": {Limits: []window.Limit{{Hits: 9, Window: time.Minute}}},
	}}}
	d := NewDecider(rules, Options{Store: &recordingStore{}, Local: &recordingStore{}, Meters: counts{}, Log: zap.NewNop()})
	c := new(Call)
	for range 2 {
		req := Request{Domain: "edge", Caller: &Caller{"fingerprint", tier.Answer{Subject: subject}}, Descriptors: []Descriptor{
			{Entries: descriptors.Descriptor{{Key: "api_key", Value: "fingerprint"}, {Key: "route", Value: "/private"}}, Cost: 1},
			{Entries: descriptors.Descriptor{{Key: "route", Value: "/private"}}, Cost: 1},
		}}
		d.Begin(c, req)
		if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
			t.Fatal(err)
		}
		v := c.Verdict()
		if len(v.Limits) != 2 || v.Limits[0].Limit.Hits != 9 || !v.Limits[0].Own || v.Limits[1].Limit.Hits != 5 {
			t.Fatalf("limits = %+v, want the subject's own and the rule's", v.Limits)
		}
		c.Forget()
		policytest.NothingIn(t, "call", reflect.ValueOf(c).Elem())
	}
}

func TestForgetGivesMemoryBack(t *testing.T) {
	c := new(Call)
	c.verdict.reset(reuse.MaxBytes)
	c.Forget()
	if n := cap(c.verdict.Matches); n != 0 {
		t.Errorf("memory for %d matches is kept, want none", n)
	}
}
