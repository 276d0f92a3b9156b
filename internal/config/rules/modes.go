package rules

import (
	"slices"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// modes applies shadow_mode, and refuses modes that contradict each other.
func (r *rulesReader) modes(rule *rules.Rule, e *descriptorEntry) {
	v := e.RateLimit.Value
	if e.ShadowMode.Value {
		for _, t := range v.all() {
			if t.Observe.Set {
				r.decoder.Problem(t.Observe.Position, "shadow_mode%s already observes all subjects: give one of the two", onLine(e.ShadowMode.Line))
			}
		}
		rule.Terms.Observe = 1
		for name, arm := range rule.ByTier {
			arm.Observe = 1
			rule.ByTier[name] = arm
		}
	}
	if rule.Always && bool(e.ShadowMode.Value) {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with shadow_mode%s", onLine(e.ShadowMode.Line))
	}
	for _, t := range v.all() {
		if rule.Always && read(nil, &t.Observe, parseObserved) > 0 {
			r.decoder.Problem(t.Observe.Position, "charge always%s cannot be combined with observe", onLine(v.Charge.Line))
		}
	}
	v.each(func(l *limit) {
		switch f := &l.Lease; {
		case !strict.Given(f) || f.Value == noLease:
		case rule.Always:
			r.decoder.Problem(f.Position, "charge always%s cannot be combined with a lease", onLine(v.Charge.Line))
		case bool(e.QuotaMode.Value):
			r.decoder.Problem(f.Position, "quota_mode%s cannot be combined with a lease", onLine(e.QuotaMode.Line))
		}
	})
	if rule.Always && limitsInFlight(rule) {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with the policy in_flight: a hold is of a request that runs, and ends with it")
	}
	quota, where := bool(e.QuotaMode.Value), "quota_mode"+onLine(e.QuotaMode.Line)
	if !quota && r.QuotaMode {
		quota, where = true, "QUOTA_MODE of envoyproxy/ratelimit"
	}
	if !quota {
		return
	}
	if rule.Always {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with %s", where)
	}
	for _, t := range v.all() {
		if len(t.Limits.Value) > 1 {
			r.decoder.Problem(t.Limits.Position, "a quota rule can have only one limit: see %s", where)
		}
	}
}

// limitsInFlight reports whether a limit of the rule has the policy in_flight.
func limitsInFlight(rule *rules.Rule) bool {
	is := func(l rules.Limit) bool { return l.Policy == window.InFlight }
	for _, arm := range rule.ByTier {
		if slices.ContainsFunc(arm.Limits, is) {
			return true
		}
	}
	return slices.ContainsFunc(rule.Terms.Limits, is)
}

// each calls back with every limit of the rule and of its tiers.
func (v *rateLimit) each(visit func(*limit)) {
	for _, t := range v.all() {
		visit(&t.limit)
		for i := range t.Limits.Value {
			visit(&t.Limits.Value[i].Value)
		}
	}
}

// all returns the terms of the rule and those of its tiers.
func (v *rateLimit) all() []*terms {
	all := []*terms{&v.terms}
	for i := range v.ByTier.Value {
		all = append(all, &v.ByTier.Value[i].Value.Value)
	}
	return all
}
