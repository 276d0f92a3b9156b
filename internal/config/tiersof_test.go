package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
)

// TestTiersOf gives rules of files, and the same rules of an xDS server, limits by tier by their paths.
func TestTiersOf(t *testing.T) {
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", "{tiers: [free, pro], default: free}")
	s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: shop/app
descriptors:
- key: route/a
  value: route/a
  descriptors:
  - {key: rule-0, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: rule-1, value: x, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: other, rate_limit: {by_tier: {default: {unit: minute, requests_per_unit: 3}}}}
`)
	s.Rules.TiersOf = configtest.Write(t, "tiers-of.yaml", `rules:
- {domain: "shop/*", path: "*/rule-0", by_tier: {default: {unit: minute, requests_per_unit: 1}, pro: {unit: hour, requests_per_unit: 2}}}
- {domain: "*", path: route/a=route/a/rule-1=x, subject: route/a, by_tier: {default: {unlimited: true}}}
- {domain: "*", path: rule-0, by_tier: {default: {unlimited: true}}}
- {domain: "*", path: "*/rule-0", by_tier: {default: {unlimited: true}}}
`)
	files := mustLoad(t, s)
	const unused = "no rule with a rate_limit has this domain and path, or an item before this one has them all"
	warnings := []string{":4: rules[2]: " + unused, ":5: rules[3]: " + unused}
	configtest.Diff(t, warnings, configtest.Texts(files.Warnings, s.Rules.TiersOf), "warnings")

	domain := rules.Domain{Source: "xds", Name: "shop/app", Descriptors: []rules.Descriptor{{Key: "route/a", Value: "route/a", Descriptors: []rules.Descriptor{
		{Key: "rule-0", Limit: &rules.Limit{Unit: "MINUTE", RequestsPerUnit: 3}},
		{Key: "rule-1", Value: "x", Limit: &rules.Limit{Unit: "MINUTE", RequestsPerUnit: 3}},
	}}}}
	served := s
	served.Rules.Source, served.Rules.Path = settings.RulesXDS, ""
	none, err := LoadSent(served, nil, nil)
	if err != nil || none.Warnings != nil {
		t.Fatalf("without rules: %v, %v; want no warning", err, none.Warnings)
	}
	sent, err := LoadSent(served, &Sent{Domains: []rules.Domain{domain}}, none)
	if err != nil {
		t.Fatal(err)
	}
	configtest.Diff(t, warnings, configtest.Texts(sent.Warnings, s.Rules.TiersOf), "warnings with xDS")
	if !slices.Contains(sent.Files, s.Rules.TiersOf) {
		t.Errorf("files: got %q, want the file among them", sent.Files)
	}
	for name, g := range map[string]*Generation{"files": files, "xDS": sent} {
		byTier, by := g.Rules.All()[0], g.Rules.All()[1]
		if byTier.Subject != "rule-0" || byTier.TermsOf("free").Limits[0].Hits != 1 || byTier.TermsOf("pro").Limits[0].Hits != 2 {
			t.Errorf("%s: got the subject %q and %v, %v", name, byTier.Subject, byTier.TermsOf("free"), byTier.TermsOf("pro"))
		}
		if by.Subject != "route/a" || !by.TermsOf("pro").Unlimited {
			t.Errorf("%s: got the subject %q and %v, want route/a without a limit", name, by.Subject, by.TermsOf("pro"))
		}
	}

	// A change of the file is another generation.
	text := "rules: [{domain: \"*\", path: \"*/rule-0\", by_tier: {default: {unit: minute, requests_per_unit: 7}}}]\n"
	tree.Write(t, s.Rules.TiersOf, text)
	again, err := LoadSent(served, sent.Sent, nil)
	if err != nil || again.Digest == sent.Digest || again.Rules.All()[0].TermsOf("pro").Limits[0].Hits != 7 {
		t.Errorf("after the change: %v, want another generation with 7 for all", err)
	}
}

// TestTiersOfAndShadowMode: a rule in shadow mode stays in it, and the other rules of its item do not
// enter it.
func TestTiersOfAndShadowMode(t *testing.T) {
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", "{tiers: [free, pro], default: free}")
	s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: d
descriptors:
- {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: observed, rate_limit: {unit: minute, requests_per_unit: 3, observe: 90%}}
- {key: denies, rate_limit: {unit: minute, requests_per_unit: 3}}
`)
	s.Rules.TiersOf = configtest.Write(t, "tiers-of.yaml", `rules:
- {domain: d, path: "*", by_tier: {default: {unit: minute, requests_per_unit: 1}, pro: {unit: minute, requests_per_unit: 2}}}
`)
	for i, want := range []float64{1, 0.9, 0} {
		rule := mustLoad(t, s).Rules.All()[i]
		for _, tier := range []string{"free", "pro"} {
			if got := rule.TermsOf(tier).Observe; got != want {
				t.Errorf("rule %s, tier %s: observed for %v, want %v", rule.Name, tier, got, want)
			}
		}
	}
}

// TestTiersOfFitsTheRule: a rule gets no limits that it could not have itself.
func TestTiersOfFitsTheRule(t *testing.T) {
	const quota, always = "quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}", "rate_limit: {unit: minute, requests_per_unit: 3, charge: always}"
	for _, tt := range []struct{ rule, terms, want string }{
		{quota, "{limits: [{unit: minute, requests_per_unit: 3}, {unit: day, requests_per_unit: 9}] }", ":2: descriptors[k]: a quota rule can have only one limit and no lease"},
		{quota, "{unit: minute, requests_per_unit: 3000, lease: 50ms}", ":2: descriptors[k]: a quota rule can have only one limit and no lease"},
		{quota, "{unit: minute, requests_per_unit: 3, budget: {reserve: 1, hold: 1m}}", ":2: descriptors[k]: a quota rule cannot have a budget"},
		{always, "{unit: minute, requests_per_unit: 3000, lease: 50ms}", ":2: descriptors[k]: charge always cannot be combined with a lease or observe"},
		{always, "{unit: minute, requests_per_unit: 3, observe: 10%}", ":2: descriptors[k]: charge always cannot be combined with a lease or observe"},
		{always, "{unit: minute, requests_per_unit: 3}", ""},
		{quota, "{unlimited: true}", ""},
	} {
		s := settings.Default()
		s.Tiers.Path = configtest.Write(t, "tiers.yaml", "{tiers: [free, pro], default: free}")
		s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\ndescriptors: [{key: k, "+tt.rule+"}]\n")
		s.Rules.TiersOf = configtest.Write(t, "tiers-of.yaml", "rules: [{domain: d, path: k, by_tier: {default: {unlimited: true}, pro: {"+strings.TrimSuffix(tt.terms[1:], "}")+"}}}]")
		_, err := Load(s)
		if ok := err == nil && tt.want == "" || err != nil && tt.want != "" && strings.Contains(err.Error(), tt.want) && strings.Contains(err.Error(), s.Rules.TiersOf+":1"); !ok {
			t.Errorf("%s with %s: got %v, want %q and the file", tt.rule, tt.terms, err, tt.want)
		}
	}
}

// TestTiersOfRefuses: what is wrong names the file and the place.
func TestTiersOfRefuses(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "the file is empty: it needs rules"},
		{"rules: [", "not YAML"},
		{"# no items yet\nrules:\n", "2: rules: the list is empty: write an item, or unset rules.tiers_of"},
		{"rules: []", "1: rules: the list is empty"},
		{`rules: [{path: "a", by_tier: {default: {unlimited: true}}}]`, `1: rules[0]: "domain" is missing`},
		{"rules: [" + strings.Repeat("{domain: a, path: a, by_tier: {default: {unlimited: true}}}, ", 1001) + "]", "1: rules: 1001 items, at most 1000 are allowed"},
		{`rules: [{domain: "*", path: a, by_tier: {}}]`, "1: rules[0].by_tier: by_tier is empty"},
		{`rules: [{domain: "*", path: a, by_tier: {gold: {unlimited: true}}}]`, `unknown tier "gold"`},
		{`rules: [{domain: "*", path: a, by_tier: {default: {unit: minute}}}]`, "1: rules[0].by_tier.default"},
		{`rules: [{domain: "*", path: a, subject: "", by_tier: {default: {unlimited: true}}}]`, "rules[0].subject: a subject is the key"},
		{`rules: [{domain: "*", path: "other", by_tier: {default: {unlimited: true}}}]`, "the rule has by_tier, and rules.tiers_of has its limits too, in "},
	} {
		s := settings.Default()
		s.Tiers.Path = configtest.Write(t, "tiers.yaml", "{tiers: [free, pro], default: free}")
		s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\ndescriptors: [{key: other, rate_limit: {by_tier: {default: {unit: minute, requests_per_unit: 3}}}}]\n")
		s.Rules.TiersOf = configtest.Write(t, "tiers-of.yaml", tt.text)
		if _, err := Load(s); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), s.Rules.TiersOf) {
			t.Errorf("%q: got %v, want %q and the file", tt.text, err, tt.want)
		}
	}
}
