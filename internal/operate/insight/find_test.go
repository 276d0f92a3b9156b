package insight

import (
	"context"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// askedTiers are a directory that counts what it is asked.
type askedTiers struct {
	*tier.Directory
	resolved, looked int
}

// Resolve implements tier.Resolver.
func (d *askedTiers) Resolve(ctx context.Context, k tier.Key, wait time.Duration) (tier.Answer, bool) {
	d.resolved++
	return d.Directory.Resolve(ctx, k, wait)
}

// Look implements Tiers.
func (d *askedTiers) Look(tier.Key) tier.Inspection { return tier.Inspection{} }

// Lookup implements Tiers.
func (d *askedTiers) Lookup(ctx context.Context, k tier.Key) (tier.Inspection, error) {
	d.looked++
	a, _ := d.Directory.Resolve(ctx, k, 0)
	return tier.Inspection{Subject: a.Subject}, nil
}

// TestFind: a reset resolves the subject that was found, and asks whether it is an API key, once.
func TestFind(t *testing.T) {
	tiers := new(askedTiers)
	a := newCounted(t, func(o *Options) {
		tiers.Directory = o.Rules().Tiers()
		o.Subjects, o.Tiers, o.Secrets = tiers, tiers, tier.NewSecrets([]string{"api_key"}, nil)
	})
	a.ask(1, "api_key="+plantedKey)
	for text, want := range map[string]bool{"own": true, plantedKey: false, "nobody": false, "": false} {
		if _, ok := a.Find(t.Context(), Query{Subject: text}, text); ok != want {
			t.Errorf("Find(%q) = %v, want %v", text, ok, want)
		}
	}
	tiers.resolved, tiers.looked = 0, 0
	q, ok := a.Find(t.Context(), Query{Subject: "acme"}, "acme")
	r, err := a.Reset(t.Context(), q.Reset("per-key", "ticket 4711", "me"))
	if !ok || err != nil || r.Logs != 2 || r.Query.Rule != "per-key" || r.Query.Subject != "acme" {
		t.Errorf("got %v, %+v and %v, want 2 removed logs of acme", ok, r, err)
	}
	if tiers.resolved != 1 || tiers.looked != 1 {
		t.Errorf("the tiers were asked %d times for the subject and %d times for the key, want once each", tiers.resolved, tiers.looked)
	}
	if _, err := a.Reset(t.Context(), q.Reset("no-such-rule", "ticket 4711", "me")); err == nil {
		t.Error("a rule that does not exist is reset")
	}
}
