// Package coretest has the rules, subjects and requests of the tests of the core.
package coretest

import (
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// Secrets takes the values of api_key for API keys.
var Secrets = tier.NewSecrets([]string{"api_key"}, nil)

// Any is a node with any value.
func Any(key string) descriptors.Node { return descriptors.Node{Key: key, AnyValue: true} }

// One is a node with one value.
func One(key, value string) descriptors.Node { return descriptors.Node{Key: key, Value: value} }

// Per are terms with one limit.
func Per(hits uint64, w time.Duration) rules.Terms {
	return rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: w}}}}
}

// Fits is a node with a pattern.
func Fits(key, value string) descriptors.Node {
	return descriptors.Node{Key: key, Value: value, Pattern: true}
}

// Rule returns a rule without a domain.
func Rule(name string, terms rules.Terms, path ...descriptors.Node) rules.Rule {
	return rules.Rule{Name: name, Terms: terms, Path: path}
}

// With returns a copy of a rule after change.
func With(r rules.Rule, change func(*rules.Rule)) rules.Rule {
	change(&r)
	return r
}

const day = 24 * time.Hour

// A limit of each policy.
var (
	SlidingLimit  = rules.Limit{Limit: window.Limit{Hits: 100, Window: time.Minute}}
	BucketLimit   = rules.Limit{Limit: window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}}
	FixedLimit    = rules.Limit{Limit: window.Limit{Hits: 1000, Window: time.Hour, Policy: window.Fixed}}
	CounterLimit  = rules.Limit{Limit: window.Limit{Hits: 1_000_000, Window: day, Policy: window.SlidingCounter}}
	InFlightLimit = rules.Limit{Limit: window.Limit{Hits: 20, Window: 5 * time.Minute, Policy: window.InFlight}}
)

// MonthLimit is a limit of a month in Berlin that begins on day 15.
func MonthLimit(t T) rules.Limit {
	t.Helper()
	fifteenth := 15
	c, err := calendar.New(calendar.Spec{Unit: "month", TimeZone: "Europe/Berlin", Starts: calendar.Starts{Day: &fifteenth}})
	if err != nil {
		t.Fatal(err)
	}
	return rules.Limit{Limit: window.Limit{Hits: 10_000, Window: 30 * day, Policy: window.Calendar}, Calendar: c}
}

// T is a testing.T or a rapid.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// Directory has the subjects acme (starter, two keys), hobby (free) and gone (disabled).
func Directory(t T) *tier.Directory {
	t.Helper()
	d, err := tier.NewDirectory([]string{"free", "starter"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		s    tier.Subject
		keys []string
	}{
		{tier.Subject{ID: "acme", Tier: "starter"}, []string{"acme-key", "acme-new-key"}},
		{tier.Subject{ID: "hobby"}, []string{"hobby-key"}},
		{tier.Subject{ID: "gone", Tier: "starter", Disabled: true}, []string{"gone-key"}},
	} {
		var digests []string
		for _, k := range s.keys {
			digests = append(digests, Secrets.Digest(k))
		}
		if err := d.Add(s.s, digests...); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// Rules returns rules with and without subjects, in the domain edge.
func Rules(t T, who rules.Identity) *rules.Rules {
	t.Helper()
	rs := rules.NewRules(who)
	for _, r := range []rules.Rule{
		{Domain: "edge", Path: []descriptors.Node{Any("remote_address")}, Name: "per-address", Terms: Per(50, time.Minute)},
		{Domain: "edge", Path: []descriptors.Node{Any("api_key")}, Name: "per-key", ByTier: map[string]rules.Terms{
			"free": Per(100, time.Minute),
			"starter": {Limits: []rules.Limit{
				{Limit: window.Limit{Hits: 500, Window: time.Second}},
				{Limit: window.Limit{Hits: 3000, Window: time.Minute}},
			}},
		}, Terms: Per(7, time.Minute)},
		{Domain: "edge", Path: []descriptors.Node{One("route", "search"), Any("api_key")}, Name: "search", Terms: Per(20, time.Hour)},
		{Domain: "edge", Path: []descriptors.Node{One("route", "global")}, Name: "global", Terms: Per(9, time.Hour)},
		{Domain: "edge", Path: []descriptors.Node{One("route", "mine")}, Name: "mine", Subject: "api_key", Terms: Per(8, time.Hour)},
		{Domain: "edge", Path: []descriptors.Node{One("api_key", "vip-key")}, Name: "vip", Terms: Per(6, time.Hour)},
		{Domain: "edge", Path: []descriptors.Node{Any("consumer")}, Name: "per-consumer", ByTier: map[string]rules.Terms{
			"free": Per(1, time.Minute), "starter": Per(2, time.Minute),
		}},
		{Domain: "edge", Path: []descriptors.Node{Any("open")}, Name: "open"},
	} {
		if who.Tiers == nil {
			if len(r.ByTier) > 0 && r.Terms.Empty() {
				continue
			}
			r.ByTier = nil
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(r.Name, err)
		}
	}
	return rs
}

// Descriptor parses "route=search api_key=k" into a descriptor of cost 1, with digests as from an
// adapter.
func Descriptor(text string) identity.Descriptor {
	var out identity.Descriptor
	out.Cost = 1
	for _, e := range strings.Fields(text) {
		k, v, _ := strings.Cut(e, "=")
		out.Entries = append(out.Entries, descriptors.Entry{Key: k, Value: Secrets.Value(k, v)})
	}
	return out
}

// Request returns a request of the domain edge with a descriptor for each text.
func Request(ds ...string) *identity.Request {
	r := &identity.Request{Domain: "edge"}
	for _, text := range ds {
		r.Descriptors = append(r.Descriptors, Descriptor(text))
	}
	return r
}

// Build returns rules of the domain edge, for the subjects of Directory.
func Build(t T, all ...rules.Rule) *rules.Rules {
	t.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: Secrets, Tiers: Directory(t)})
	for _, r := range all {
		if r.Domain == "" {
			r.Domain = "edge"
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(r.Name, err)
		}
	}
	return rs
}
