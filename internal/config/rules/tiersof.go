package rules

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// tiersOfDoc is the file rules.tiers_of.
type tiersOfDoc struct {
	Rules strict.Field[[]strict.Field[tiersOfRule]] `yaml:"rules,required"`
}

// tiersOfRule says which limits each tier has in the rules of some paths.
type tiersOfRule struct {
	Domain  strict.Field[string]                              `yaml:"domain,required"`
	Path    strict.Field[string]                              `yaml:"path,required"`
	Subject strict.Field[string]                              `yaml:"subject"`
	ByTier  strict.Field[strict.Ordered[strict.Field[terms]]] `yaml:"by_tier,required"`
}

// givenTiers are the limits of tiers for the rules of some paths.
type givenTiers struct {
	at                    strict.Problem // without a message
	domain, path, subject string
	base                  rules.Terms
	byTier                map[string]rules.Terms
	used                  bool
}

// maxTiersOf bounds the items, each of which is compared with each rule.
const maxTiersOf = 1000

// readTiersOf reads the file rules.tiers_of. It does nothing without one.
func (r *rulesReader) readTiersOf() {
	if r.TiersOf == nil {
		return
	}
	src := r.TiersOf
	r.decoder = &strict.Decoder{File: src.Name, Report: r.Report, Warn: r.Warn}
	root := strict.Document(src.Name, src.Data, r.Report, "a file of rules.tiers_of", "rules")
	if root == nil {
		return
	}
	var doc tiersOfDoc
	r.decoder.Decode(root, reflect.ValueOf(&doc).Elem(), nil)
	switch n := len(doc.Rules.Value); {
	case n == 0 && strict.Given(&doc.Rules):
		r.decoder.Problem(doc.Rules.Position, "the list is empty: write an item, or unset rules.tiers_of")
	case n > maxTiersOf:
		r.decoder.Problem(doc.Rules.Position, "%d items, at most %d are allowed: let one with a * stand for many rules", n, maxTiersOf)
		return
	}
	r.scope, r.fallback = r.Scopes[0], r.documentPolicy(new(strict.Field[string]))
	for i := range doc.Rules.Value {
		f := &doc.Rules.Value[i]
		v := &f.Value
		t := givenTiers{
			at:     strict.Problem{File: src.Name, Line: f.Line, Path: r.decoder.Render(f.Path)},
			domain: v.Domain.Value, path: v.Path.Value, subject: v.Subject.Value,
		}
		if strict.Given(&v.Subject) && t.subject == "" {
			r.decoder.Problem(v.Subject.Position, "a subject is the key of a descriptor entry, it cannot be empty")
		}
		if v.ByTier.Set {
			rl := strict.Field[*rateLimit]{Position: v.ByTier.Position, Set: true, Bad: v.ByTier.Bad, Value: &rateLimit{ByTier: v.ByTier}}
			t.base, t.byTier = r.terms(&rl)
		}
		r.givenTiers = append(r.givenTiers, t)
	}
}

// takeTiers gives a rule the limits that rules.tiers_of has for its path. quota: it is a quota rule.
func (r *rulesReader) takeTiers(rule *rules.Rule, v *rateLimit, quota bool, at strict.Position) {
	if len(r.givenTiers) == 0 {
		return
	}
	nodes := make([]string, len(rule.Path))
	for i, n := range rule.Path {
		nodes[i] = n.Key
		if !n.AnyValue {
			nodes[i] += "=" + n.Value
		}
	}
	path := strings.Join(nodes, "/")
	for i := range r.givenTiers {
		t := &r.givenTiers[i]
		if !descriptors.Fits(t.domain, rule.Domain) || !descriptors.Fits(t.path, path) {
			continue
		}
		t.used = true
		if v.ByTier.Set {
			r.decoder.Problem(at, "the rule has by_tier, and rules.tiers_of has its limits too, in %s: remove one of the two", Location{t.at.File, t.at.Line})
			return
		}
		observe := rule.Terms.Observe // of the rule, which may only be tried out
		rule.Terms, rule.ByTier, rule.Subject = t.base, maps.Clone(t.byTier), t.subject
		if t.subject == "" {
			rule.Subject = rule.Path[len(rule.Path)-1].Key
		}
		observeAtLeast(rule, observe)
		r.checkTaken(rule, quota, at, Location{t.at.File, t.at.Line})
		return
	}
}

// checkTaken refuses limits of rules.tiers_of that the rule could not have itself; see modes.
func (r *rulesReader) checkTaken(rule *rules.Rule, quota bool, at strict.Position, from Location) {
	for _, t := range append(slices.Collect(maps.Values(rule.ByTier)), rule.Terms) {
		leased := slices.ContainsFunc(t.Limits, func(l rules.Limit) bool { return l.Lease.Length > 0 })
		switch {
		case (rule.Charge.Always || rule.Charge.Once.Entry != "") && slices.ContainsFunc(t.Limits, reserves):
			r.decoder.Problem(at, "charge always and charge_once cannot be combined with a budget, which rules.tiers_of gives this rule in %s", from)
			return
		case rule.Charge.Always && (leased || t.Observe > 0):
			r.decoder.Problem(at, "charge always cannot be combined with a lease or observe, which rules.tiers_of gives this rule in %s", from)
			return
		case quota && (leased || len(t.Limits) > 1):
			r.decoder.Problem(at, "a quota rule can have only one limit and no lease, and rules.tiers_of gives it others in %s", from)
			return
		case quota && slices.ContainsFunc(t.Limits, reserves):
			r.decoder.Problem(at, "a quota rule cannot have a budget, which rules.tiers_of gives it in %s", from)
			return
		}
	}
}

// unusedTiers warns of the paths in rules.tiers_of that no rule has.
func (r *rulesReader) unusedTiers() {
	for i := range r.givenTiers {
		if t := &r.givenTiers[i]; !t.used && len(r.order) > 0 {
			t.at.Message = "no rule with a rate_limit has this domain and path, or an item before this one has them all"
			r.Warn.Add(t.at)
		}
	}
}
