package insight

import (
	"context"
	"iter"
	"strings"
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

// Known implements Tiers.
func (d *askedTiers) Known() iter.Seq[*tier.Subject] { return d.All() }

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
	q.Rule = "per-key"
	r, err := a.Reset(t.Context(), ResetRequest{Query: q, Reason: "ticket 4711", By: "me"})
	if !ok || err != nil || r.Logs != 2 || r.Query.Rule != "per-key" || r.Query.Subject != "acme" {
		t.Errorf("got %v, %+v and %v, want 2 removed logs of acme", ok, r, err)
	}
	if tiers.resolved != 1 || tiers.looked != 1 {
		t.Errorf("the tiers were asked %d times for the subject and %d times for the key, want once each", tiers.resolved, tiers.looked)
	}
	q.Rule = "no-such-rule"
	if _, err := a.Reset(t.Context(), ResetRequest{Query: q, Reason: "ticket 4711", By: "me"}); err == nil {
		t.Error("a rule that does not exist is reset")
	}
}

// TestSearch: a typed text is a customer, an address, a key, a denied request or a rule, in this order.
// Search returns nothing for another text.
func TestSearch(t *testing.T) {
	a := newCounted(t, func(o *Options) {
		tiers := &askedTiers{Directory: o.Rules().Tiers()}
		o.Subjects, o.Tiers, o.Secrets, o.Record = tiers, tiers, tier.NewSecrets([]string{"api_key"}, nil), Record{Denials: 10, PerSecond: 10}
	})
	const id = "7c1f9e2a-2d51-4b52-a2aa-0c8e7d1b4f63"
	a.recorder.ring.add(&Denial{At: time.Now(), Rule: "per-key", Caller: Caller{Subject: "acne", RequestID: id}})
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	for text, want := range map[string]Found{
		" acme ": {Query: Query{Subject: "acme"}}, "192.0.2.7": {Query: Query{Address: "192.0.2.7"}}, "acne": {Query: Query{Subject: "acne"}},
		plantedKey: {Query: Query{Digest: secrets.Digest(plantedKey)}}, strings.ToUpper(id): {RequestID: id}, "per-key": {Rule: "per-key"},
		"acm": {}, "ACME": {}, strings.Replace(id, "7c", "7d", 1): {}, strangersKey: {},
	} {
		got := a.Search(t.Context(), text)
		if got.Query.found = nil; got != want {
			t.Errorf("Search(%q) = %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string]string{"acm": "acme", "ACME": "acme acne", "gon": "gone", plantedKey: ""} {
		if got := strings.Join(a.Suggest(text), " "); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", text, got, want)
		}
	}
	u, err := a.Usage(t.Context(), Query{Subject: "per-key"})
	if err != nil || !strings.HasPrefix(u.Unknown, "no such customer") || !strings.HasSuffix(u.Unknown, "a rule has this name") || u.Query.Subject != "***" {
		t.Errorf("usage of the name of a rule: %v, %+v", err, u)
	}
	if u, err = a.Usage(t.Context(), Query{Subject: "acm"}); err != nil || !strings.HasSuffix(u.Unknown, "; did you mean acme?") {
		t.Errorf("usage of acm: %v, %q", err, u.Unknown)
	}
}
