package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// observeAtLeast makes all terms of a rule observed for at least this fraction of subjects.
func observeAtLeast(rule *rules.Rule, fraction float64) {
	rule.Terms.Observe = max(rule.Terms.Observe, fraction)
	for name, arm := range rule.ByTier {
		arm.Observe = max(arm.Observe, fraction)
		rule.ByTier[name] = arm
	}
}

func (r *rulesReader) modes(rule *rules.Rule, e *descriptorEntry) {
	v := e.RateLimit.Value
	if e.ShadowMode.Value {
		for _, t := range v.all() {
			if t.Observe.Set {
				r.decoder.Problem(t.Observe.Position, "shadow_mode%s already observes all subjects: give one of the two", onLine(e.ShadowMode.Line))
			}
		}
		observeAtLeast(rule, 1)
	}
	if rule.Charge.Always && bool(e.ShadowMode.Value) {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with shadow_mode%s", onLine(e.ShadowMode.Line))
	}
	for _, t := range v.all() {
		if rule.Charge.Always && read(nil, &t.Observe, parseObserved) > 0 {
			r.decoder.Problem(t.Observe.Position, "charge always%s cannot be combined with observe", onLine(v.Charge.Line))
		}
	}
	v.each(func(l *limit) {
		switch f := &l.Lease; {
		case !strict.Given(f) || f.Value == noLease:
		case rule.Charge.Always:
			r.decoder.Problem(f.Position, "charge always%s cannot be combined with a lease", onLine(v.Charge.Line))
		case bool(e.QuotaMode.Value):
			r.decoder.Problem(f.Position, "quota_mode%s cannot be combined with a lease", onLine(e.QuotaMode.Line))
		}
	})
	switch {
	case !rule.Charge.Always:
	case limitsInFlight(rule):
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with the policy in_flight: a hold is of a request that runs, and ends with it")
	case hasLimit(rule, reserves):
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with a budget, which records what each request has cost, also above the limit: remove charge")
	}
	quota, where := bool(e.QuotaMode.Value), "quota_mode"+onLine(e.QuotaMode.Line)
	if !quota && r.QuotaMode {
		quota, where = true, "QUOTA_MODE of envoyproxy/ratelimit"
	}
	if !quota {
		return
	}
	if rule.Charge.Always {
		r.decoder.Problem(v.Charge.Position, "charge always cannot be combined with %s", where)
	}
	for _, t := range v.all() {
		if len(t.Limits.Value) > 1 {
			r.decoder.Problem(t.Limits.Position, "a quota rule can have only one limit: see %s", where)
		}
	}
	v.each(func(l *limit) {
		if l.Budget.Value != nil {
			r.decoder.Problem(l.Budget.Position, "a budget cannot be combined with %s: the end of a request charges each budget that it names", where)
		}
	})
}

func reserves(l rules.Limit) bool { return l.Budget != nil }

func limitsInFlight(rule *rules.Rule) bool {
	return hasLimit(rule, func(l rules.Limit) bool { return l.Policy == window.InFlight })
}

func hasLimit(rule *rules.Rule, is func(rules.Limit) bool) bool {
	for _, arm := range rule.ByTier {
		if slices.ContainsFunc(arm.Limits, is) {
			return true
		}
	}
	return slices.ContainsFunc(rule.Terms.Limits, is)
}

func (v *rateLimit) each(visit func(*limit)) {
	for _, t := range v.all() {
		visit(&t.limit)
		for i := range t.Limits.Value {
			visit(&t.Limits.Value[i].Value)
		}
	}
}

func (v *rateLimit) all() []*terms {
	all := []*terms{&v.terms}
	for i := range v.ByTier.Value {
		all = append(all, &v.ByTier.Value[i].Value.Value)
	}
	return all
}

func (r *rulesReader) chargeOnce(rule *rules.Rule, f *strict.Field[*chargeOnce]) {
	v := f.Value
	once := rules.ChargeOnce{Entry: v.Entry.Value, For: rules.DefaultOnceFor, Retries: rules.DefaultOnceRetries}
	if strict.Given(&v.Entry) && once.Entry == "" {
		r.decoder.Problem(v.Entry.Position, "the key of an entry cannot be empty")
	}
	if strict.Given(&v.For) {
		once.For, _ = r.duration(&v.For, window.MinOnce, window.MaxOnce, time.Microsecond)
	}
	if strict.Given(&v.Retries) {
		if n := v.Retries.Value; n < 1 || n > window.MaxRepeats {
			r.decoder.Problem(v.Retries.Position, "%d is not between 1 and %d; without retries that are free, remove charge_once", n, window.MaxRepeats)
		} else {
			once.Retries = uint8(n)
		}
	}
	rule.Charge.Once = once
	err := r.rules.CheckOnce(rule)
	switch d := r.domain; {
	case err != nil:
		r.decoder.Problem(v.Entry.Position, "%s", err)
	case once.Entry == "":
	case d.attempt == "":
		d.attempt, d.once = once.Entry, Location{r.decoder.File, f.Line}
	case d.attempt != once.Entry:
		r.decoder.Problem(v.Entry.Position, "charge_once %s has the entry %s: use one entry in all rules of a domain, and send the idempotency key in it", d.once.From(r.decoder.File), strict.Quoteless(d.attempt))
	}
	switch {
	case rule.Charge.Always:
		r.decoder.Problem(f.Position, "charge_once cannot be combined with charge always: what is reported has happened each time")
	case limitsInFlight(rule):
		r.decoder.Problem(f.Position, "charge_once cannot be combined with the policy in_flight: its stream already takes one slot")
	case hasLimit(rule, reserves):
		r.decoder.Problem(f.Position, "charge_once cannot be combined with a budget: each try is a stream with a cost of its own")
	}
}

// together refuses what needs the logs of a request on one server, in a domain whose rules have
// them on several: charge_once, because a retry that two of them match has no idempotency record, and
// what streams hold on a Redis Cluster, if another scope counts too.
func (r *rulesReader) together(d *domainReader) {
	once := d.attempt != ""
	if d.void || !once && len(r.Scopes) < 2 {
		return
	}
	limiting, cluster := 0, ""
	scopes := make(map[string]bool)
	holds, what, onCluster := Location{}, "", "" // of a rule with in_flight or a budget
	for i, rule := range r.rules.All() {
		if rule.Domain != d.name || len(rule.Terms.Limits) == 0 && len(rule.ByTier) == 0 {
			continue
		}
		limiting++
		scopes[rule.Storage.Scope] = true
		for _, s := range r.Scopes {
			if s.Cluster && s.Name == cmp.Or(rule.Storage.Scope, settings.ScopeRegion) {
				cluster = s.Section + ".url"
				switch budget := hasLimit(rule, reserves); {
				case onCluster != "":
				case budget:
					holds, what, onCluster = r.locations[i], "budget", cluster
				case limitsInFlight(rule):
					holds, what, onCluster = r.locations[i], "in_flight", cluster
				}
			}
		}
	}
	const instead = "put the rule into a separate domain, and give Envoy a rate limit filter for that domain"
	if onCluster != "" && len(scopes) > 1 {
		r.Report.Addf(holds.File, holds.Line, what, "the rules of the domain count in several scopes, and %s is a Redis Cluster: %s, or use one Redis", onCluster, instead)
	}
	switch {
	case !once || limiting < 2:
	case len(scopes) > 1:
		r.Report.Addf(d.once.File, d.once.Line, "charge_once", "the rules of the domain count in several scopes, and a retry could meet two of them: %s, or remove scope", instead)
	case cluster != "":
		r.Report.Addf(d.once.File, d.once.Line, "charge_once", "the domain has other rules, and %s is a Redis Cluster, on which a retry could meet two slots: %s, or use one Redis", cluster, instead)
	}
}
