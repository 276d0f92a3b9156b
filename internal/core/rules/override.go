package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// OverrideLimits appends to out the limits of a subject's override as they count under a rule with
// the given limits. An override changes the numbers of limits, and the rule's policies stay:
//
//   - Hits in a window have the policy of the rule's limit with that window, else the policy
//     that the rule's limits with a window have. If those differ, it is sliding. A calendar
//     holds only for an override with its own unit.
//   - If the rule has only a token bucket and limits in flight, hits in a window are its rate and its burst.
//   - A rate and a burst are for a rule with a token bucket, and a maximum in flight is for a
//     rule with one. A hold lasts as long as the rule says.
//   - A budget and a currency stay: those of the rule's limit with that window, else of its first
//     limit with a budget.
//   - If the rule has no limits, an override counts with the policy that its keys mean.
//   - A maximum in flight replaces only limits in flight, and any other limit only others. So
//     an override of one kind keeps the rule's limits of the other kind.
//
// It returns false if a limit of the override has no meaning under the rule, or is too large for its policy. The override does
// not apply then.
func OverrideLimits(out, rule []Limit, override []window.Limit) (applied []Limit, ok bool) {
	for _, l := range override {
		one, ok := overrideLimit(rule, l)
		one.Precision = PrecisionOf(one.Limit)
		if !ok || one.Hits > window.Unlimited && one.Valid() != nil || slices.ContainsFunc(out, func(other Limit) bool { return other.log() == one.log() }) {
			return out, false
		}
		out = append(out, one)
	}
	for i := range rule {
		same := func(l window.Limit) bool {
			return (l.Policy == window.InFlight) == (rule[i].Policy == window.InFlight)
		}
		if len(override) > 0 && !slices.ContainsFunc(override, same) {
			out = append(out, rule[i])
		}
	}
	return out, true
}

// overrideLimit returns one limit of an override as it counts under a rule with limits.
func overrideLimit(rule []Limit, l window.Limit) (applied Limit, ok bool) {
	applied.Limit = l
	if len(rule) == 0 {
		return applied, l.Policy != window.InFlight // there is no hold
	}
	var pattern *Limit
	switch l.Policy {
	case window.TokenBucket, window.InFlight:
		pattern = limitWith(rule, l.Policy)
	default:
		pattern = windowedLike(rule, l)
	}
	if pattern == nil {
		return applied, false
	}
	if applied.Budget, applied.Currency = pattern.Budget, pattern.Currency; pattern == &slidingLike {
		if i := slices.IndexFunc(rule, func(l Limit) bool { return l.Budget != nil }); i >= 0 {
			applied.Budget, applied.Currency = rule[i].Budget, rule[i].Currency
		}
	}
	switch applied.Policy = pattern.Policy; applied.Policy {
	case window.InFlight:
		applied.Window = pattern.Window
	case window.TokenBucket:
		if l.Policy == window.TokenBucket {
			break
		}
		// A limit of 0 denies everything. A rate of 0 does not exist.
		applied.Rate = uint32(min(max(l.Hits, 1), math.MaxUint32))
	case window.Calendar:
		applied.Calendar, applied.StartsLabel = pattern.Calendar, pattern.StartsLabel
	}
	return applied, true
}

// PrecisionOf returns the default precision of a limit.
func PrecisionOf(l window.Limit) time.Duration {
	if l.Policy != window.Sliding {
		return 0
	}
	return window.Precision(l)
}

// limitWith returns the first of limits that has a policy, or nil.
func limitWith(limits []Limit, p window.Policy) *Limit {
	i := slices.IndexFunc(limits, func(l Limit) bool { return l.Policy == p })
	if i < 0 {
		return nil
	}
	return &limits[i]
}

// windowedLike returns the rule's limit whose policy applies to an override with hits in a window, or
// nil.
func windowedLike(rule []Limit, l window.Limit) (like *Limit) {
	for i := range rule {
		switch r := &rule[i]; {
		case r.Policy == window.TokenBucket || r.Policy == window.InFlight:
		case r.Window == l.Window:
			return r
		case r.Policy == window.Calendar:
		case like == nil:
			like = r
		case like.Policy != r.Policy:
			like = &slidingLike
		}
	}
	if like == nil && limitWith(rule, window.Calendar) == nil {
		return limitWith(rule, window.TokenBucket)
	}
	return like
}

// MayOverride reports whether an override can replace the limits of a rule. A
// quota rule has one limit: of several, one could have room and another not.
func (rs *Rules) MayOverride(rule *Rule, o *tier.Override) bool {
	return len(o.Limits) <= 1 || !rule.Quota && !rs.all.quota
}

// OverrideNote says what may surprise the author of a subject's override under a rule, for a
// subject of a tier. It returns an empty text if the override counts as it is written.
func (rs *Rules) OverrideNote(r *Rule, tierName string, o *tier.Override) string {
	if !rs.MayOverride(r, o) {
		return "a quota rule has one limit: rls ignores this override"
	}
	observe := rs.observeNote(r, r.TermsOf(tierName), o)
	if !o.Limited() {
		return observe
	}
	rule := r.TermsOf(tierName).Limits
	applied, ok := OverrideLimits(nil, rule, o.Limits)
	if !ok && slices.ContainsFunc(o.Limits, func(l window.Limit) bool { return l.Hits > window.Unlimited }) {
		return fmt.Sprintf("a limit above %d is too large for the policy of the rule: rls ignores this override", uint64(window.MaxSliding))
	}
	if !ok {
		return "these keys have no meaning under " + policiesOf(rule) + ": rls ignores this override"
	}
	if observe != "" {
		return observe
	}
	var lost []string
	for i, l := range o.Limits {
		if applied[i].Policy == window.TokenBucket && l.Policy != window.TokenBucket {
			return fmt.Sprintf("the rule is a token bucket, so these hits count as %s: write rate and burst", FormatLimit(applied[i].Limit))
		}
	}
	for i := range rule {
		// A subject without limits is meant to be unlimited.
		if len(applied) > 0 && limitWith(applied, rule[i].Policy) == nil {
			lost = append(lost, FormatLimit(rule[i].Limit))
		}
	}
	do := "does"
	if len(lost) > 1 {
		do = "do"
	}
	if len(lost) > 0 {
		return fmt.Sprintf("it replaces all limits of the rule, so %s %s not apply to the subject: write under limits what shall stay", strings.Join(lost, " and "), do)
	}
	return ""
}

// observeNote says why the choice of an override to observe has no effect under a rule with these
// terms. It returns an empty text if the choice has an effect.
func (rs *Rules) observeNote(r *Rule, terms *Terms, o *tier.Override) string {
	switch {
	case o.Observe == tier.ObserveByRule:
		return ""
	case r.Charge.Always:
		return "a rule with charge always cannot be observed only: rls ignores observe"
	case !o.Limited() && len(terms.Limits) == 0:
		return "the rule does not limit this tier: observe has no effect"
	case rs.all.observed && o.Observe == tier.ObserveNot:
		return "rules.shadow_mode observes every rule for all: observe false has no effect"
	}
	return ""
}

// policiesOf names the policies of limits: the policy sliding.
func policiesOf(limits []Limit) string {
	var names []string
	for i := range limits {
		names = append(names, limits[i].Policy.String())
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return "the policy " + names[0]
	}
	return "the policies " + strings.Join(names, " and ")
}

// slidingLike is a limit with the policy sliding.
var slidingLike Limit
