package decide

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// addChecks adds the checks of descriptor i, unless it sets mustWait.
func (c *Call) addChecks(i int) {
	rs, v := c.gen.rules, &c.verdict
	desc, m := &c.req.Descriptors[i], &v.Matches[i]
	if desc.Override != nil {
		c.addOverride(i)
		return
	}
	if m.Rule == nil || m.ReplacedBy != nil {
		return
	}
	rule := m.Rule
	source, terms := verdict.SourceRule, &rule.Terms
	var who identity.Subject
	if rule.HasSubject() {
		if c.who.FindSubject(&who, rule, desc.Entries); c.who.MustWait() {
			return
		}
		if rs.Tiers() != nil {
			if c.req.Tier != "" {
				who.Tier = c.req.Tier
			}
			if terms = rule.TermsOf(who.Tier); terms != &rule.Terms {
				source = verdict.SourceTier
			}
		}
		if who.Unresolved {
			v.Unresolved, source = true, verdict.SourceUnresolved
		}
		v.AddCaller(&who)
	}
	var override rules.Terms
	observe := tier.ObserveByRule
	if who.Known != nil && who.Known.Extra != nil && c.req.Tier == "" {
		ok := false
		if override, observe, ok = c.overrideOf(rule, terms, &who, &source); ok {
			terms = &override
		}
	}
	if terms.Unlimited {
		m.Unlimited, m.UnlimitedTier = true, who.Tier
		if terms == &override {
			m.UnlimitedSubject = who.ID()
		}
		return
	}
	if len(terms.Limits) == 0 {
		return
	}
	key := c.who.LogOf(rule, desc.Entries, &who)
	if c.who.MustWait() {
		return
	}
	enforcement := c.enforcementOf(rule, terms, observe, &who, key)
	c.noteAsked(rule, desc)
	records := c.recordsDenied(rule, desc)
	var granted *grant.Grant
	if grants := c.decider.opts.Grants.Load(); grants != nil {
		granted = grants.Find(rule, &who, desc.Entries, c.now)
	}
	for j := range terms.Limits {
		s := v.AddLimit(rule, i)
		s.Limit, s.Cost = terms.Limits[j], rule.Charge.Cost(desc.Cost)
		s.Subject, s.Tier, s.Source, s.Enforcement = who.ID(), who.Tier, source, enforcement
		s.Quota, s.Update.Records = rule.Quota || rs.AllQuota(), records
		if granted != nil && granted.Raise(&s.Limit) {
			s.Source, m.Grant = verdict.SourceGrant, granted
		}
		c.addCheck(s, key, desc.Refund, who.Known)
	}
}

// overrideOf returns the terms of a subject's override under a rule, and what it says of observing. It
// returns false if none applies, or if it has ended.
func (c *Call) overrideOf(rule *rules.Rule, terms *rules.Terms, who *identity.Subject, source *verdict.Source) (t rules.Terms, observe tier.Observe, ok bool) {
	o, ok := who.Known.Override(rule.Name)
	if !ok || !o.Until.IsZero() && c.now() >= time.Duration(o.Until.UnixNano()) {
		return t, observe, false
	}
	if ok = c.gen.rules.MayOverride(rule, &o); ok {
		t, ok = c.overrideTerms(rule, terms, &o)
	}
	switch {
	case !ok:
		c.warnOverride(rule, who, &o)
	case o.Limited():
		*source = verdict.SourceOverride
	}
	return t, o.Observe, ok
}

// enforcementOf returns whether the limits of a log deny. observe, from the subject's override, goes
// first, then the percentage of terms. If all rules are only observed, no limit denies.
func (c *Call) enforcementOf(rule *rules.Rule, terms *rules.Terms, observe tier.Observe, who *identity.Subject, log string) verdict.Enforcement {
	if rule.Charge.Always {
		observe = tier.ObserveByRule
	}
	observed := observe == tier.ObserveOnly
	if observe == tier.ObserveByRule {
		observed = terms.Observe > 0 && c.who.Observes(rule, terms.Observe, who, log)
	}
	switch all := c.gen.rules.ObservesAll(); {
	case all && !observed:
		return verdict.ObservedForAll
	case observed && (all || observe == tier.ObserveByRule):
		return verdict.Observed
	case observed:
		return verdict.ObservedForSubject
	case observe == tier.ObserveNot:
		return verdict.EnforcedForSubject
	default:
		return verdict.Enforced
	}
}

// addOverride adds the check for the limit that came with descriptor i, unless it sets mustWait. The
// limit replaces that of the rule; the rule's factor and charging remain. As in envoyproxy/ratelimit,
// it is no quota limit and not observed, whatever the rule is.
func (c *Call) addOverride(i int) {
	desc, m := &c.req.Descriptors[i], &c.verdict.Matches[i]
	m.Overridden = true
	if seen := &c.state().overridden; !seen.Load() {
		seen.Store(true)
	}
	rule := m.Rule
	if rule == nil {
		rule = c.domain.Override
	}
	limit := *desc.Override
	entries := m.Limited(desc.Entries)
	if key := c.who.OverrideLogOf(c.domain.Override, entries); !c.who.MustWait() {
		for _, e := range entries {
			if c.gen.rules.Secrets().Is(e.Key) {
				who := c.who.Identify(e)
				who.Tier = "" // it does not count
				c.verdict.AddCaller(&who)
			}
		}
		s := c.verdict.AddLimit(rule, i)
		s.Limit, s.Cost = rules.Limit{Limit: limit, Precision: rules.PrecisionOf(limit), Name: rule.Name}, rule.Charge.Cost(desc.Cost)
		s.Quota, s.Source, s.Update.Records = c.gen.rules.AllQuota(), verdict.SourceRequest, c.recordsDenied(rule, desc)
		if c.gen.rules.ObservesAll() {
			s.Enforcement = verdict.ObservedForAll
		}
		c.addCheck(s, key, desc.Refund, nil)
	}
}

// overrideTerms returns the terms by which an override replaces those of a rule. They are valid until
// the next call. It returns false if the override has no meaning under the rule.
func (c *Call) overrideTerms(rule *rules.Rule, terms *rules.Terms, o *tier.Override) (override rules.Terms, ok bool) {
	if !o.Limited() {
		return *terms, true
	}
	c.override, ok = rules.OverrideLimits(reuse.Slice(c.override), terms.Limits, o.Limits)
	return rules.Terms{Limits: rules.NameLimits(rule.Name, c.override), Unlimited: o.Unlimited, Observe: terms.Observe}, ok
}

// addCheck adds the check of the last limit of the verdict, or removes the limit. of is the subject,
// nil if it is unknown.
func (c *Call) addCheck(s *LimitStatus, key string, refund bool, of *tier.Subject) {
	c.batch.checks = reuse.Grow(c.batch.checks)
	at := len(c.batch.checks) - 1
	check := &c.batch.checks[at]
	switch {
	case refund:
		s.Mode, s.Quota = window.Refund, false
	case c.req.Ending != "":
		// The stream has ended, so the cost has been spent.
		s.Mode, s.Quota = window.Always, false
	case s.Rule.Charge.Always:
		s.Mode = window.Always // even where it is observed or one of several alternatives
	case s.Observed():
		s.Mode = window.Observe
	case s.Quota:
		s.Mode, c.batch.quota = window.Any, true
	}
	check.Key, check.Limit, check.Cost = key, s.Limit.Limit, s.Cost
	check.Mode, check.Scope, check.Priority = s.Mode, s.Rule.Store(), s.Rule.Storage.Priority
	check.Precision, check.Lease = s.Limit.Precision, s.Limit.Lease
	holds := true
	switch {
	case s.Limit.Policy == window.InFlight:
		s.Update.Records = false // a request that is active holds its cost, and spends nothing
		holds = c.stream.Hold(&c.req, check, refund)
	case s.Limit.Budget != nil:
		s.Update.Records = false
		var cost uint64
		cost, holds = c.stream.Reserve(&c.req, &c.req.Descriptors[s.Descriptor], s.Limit.Budget, check)
		s.Cost = min(s.Rule.Charge.Cost(cost), rules.MaxCost)
		check.Cost = s.Cost
		if c.ending() && s.Observed() { // without a reservation it would have been denied
			holds = holds && check.Mode == window.Always
			check.Mode = window.Observe
		}
	}
	if !holds {
		*s, *check = LimitStatus{}, window.Check{}
		c.verdict.Limits, c.batch.checks = c.verdict.Limits[:at], c.batch.checks[:at]
		return
	}
	if s.Limit.Policy == window.Calendar {
		check.Period = c.period(s, of)
	}
	if s.Rule.Charge.Once.Entry != "" {
		c.once(s, check)
	}
	s.Update.Records = s.Update.Records && !s.Mode.Unconditional()
	c.batch.records = c.batch.records || s.Update.Records
	s.Period.Period = check.Period
}

// warnOverride warns that a rule ignores an override in a record of a customer source. For the tiers
// file, the configuration has warned already.
func (c *Call) warnOverride(r *rules.Rule, who *identity.Subject, o *tier.Override) {
	if !c.gen.rules.Elsewhere() {
		return
	}
	if write := c.decider.line("a subject's override does not apply to a rule; correct it in the customer source"); write != nil {
		write(slog.Any("rule", r), slog.String("subject", who.ID()), slog.String("problem", c.gen.rules.OverrideNote(r, who.Tier, o)))
	}
}

// once makes a check charge once if its descriptor has an idempotency key.
func (c *Call) once(s *LimitStatus, check *window.Check) {
	o := &s.Rule.Charge.Once
	attempt := c.verdict.Matches[s.Descriptor].Attempt(c.req.Descriptors[s.Descriptor].Entries)
	switch {
	case attempt == "":
	case s.Mode == window.Refund:
		// The retry is free instead.
		s.Cost, check.Cost = 0, 0
	case s.Mode == window.Always:
		// The end of a stream: what it reports has been spent.
	default:
		// The name of a log has no zero byte, so two attempts never share this text.
		c.text = append(append(append(reuse.Slice(c.text), check.Key...), 0), attempt...)
		digest := sha256.Sum256(c.text)
		check.Once = window.Once{ID: max(1, binary.BigEndian.Uint64(digest[:])), For: o.For, Repeats: o.Retries}
	}
}
