package policy

import (
	"slices"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// The bounds on the steps of matching, for all descriptors of a request together; see
// [descriptors.Tree.MatchWithin].
const (
	// fewSteps is for the goroutine that reads a connection, so that one match does not delay the
	// other calls: less than 0.1 ms.
	fewSteps = 1 << 16
	// mostSteps is for a separate goroutine: about 4 ms, such as 1,000 wildcards that are
	// searched in a value of 4 KiB.
	mostSteps = 1 << 22
)

// match finds the rule of each descriptor, and the rules that others replace. It reports false if
// that takes more than fewSteps and wait is false. More than mostSteps exceed a bound: a request
// whose rules are not known never passes as one without a rule.
func (c *Call) match(wait bool) (ok bool) {
	req, v := &c.req, &c.verdict
	steps := fewSteps
	if wait {
		steps = mostSteps
	}
	for i := range req.Descriptors {
		// Without an ending, a client may have sent the value that ends streams in a header.
		if desc, m := &req.Descriptors[i], &v.Matches[i]; !desc.Ends || req.Ending == "" {
			m.attempts = c.domain.countAttempts(desc.Entries)
			if m.Rule, _, steps = c.domain.tree.MatchWithin(m.Limited(desc.Entries), steps); steps < 0 {
				break
			}
		}
	}
	if steps < 0 {
		if !wait {
			return false
		}
		c.exceed("its values are too long for so many wildcards: rls validate says what they cost")
	}
	if !c.domain.replaces {
		return true
	}
	for i := range v.Matches {
		// A limit that came with the request has no name and replaces nothing.
		if v.Matches[i].Rule == nil || req.Descriptors[i].Override != nil {
			continue
		}
		for _, name := range v.Matches[i].Rule.Replaces {
			for j := range v.Matches {
				if r := v.Matches[j].Rule; r != nil && r.given == name && req.Descriptors[j].Override == nil {
					v.Matches[j].ReplacedBy = v.Matches[i].Rule
				}
			}
		}
	}
	return true
}

// addChecks adds the checks of descriptor i, unless it sets mustWait.
func (c *Call) addChecks(i int) {
	rs, v := c.rules, &c.verdict
	desc, m := &c.req.Descriptors[i], &v.Matches[i]
	if desc.Override != nil {
		c.addOverride(i)
		return
	}
	if m.Rule == nil || m.ReplacedBy != nil {
		return
	}
	rule := m.Rule
	terms := &rule.Terms
	var who subject
	if rule.hasSubject {
		if who = c.subjectOf(rule, desc.Entries); c.mustWait {
			return
		}
		v.Unresolved = v.Unresolved || who.unresolved
		if rs.tiers != nil {
			if c.req.Tier != "" {
				who.tier = c.req.Tier
			}
			terms = rule.TermsOf(who.tier)
		}
		v.meet(&who)
	}
	own, isOwn, observe := Terms{}, false, tier.ObserveByRule
	if who.known != nil && c.req.Tier == "" {
		if o, ok := who.known.Override(rule.Name); ok {
			if ok = rs.mayOverride(rule, &o); ok {
				own, ok = c.ownTerms(rule, terms, &o)
			}
			if ok {
				terms, observe, isOwn = &own, o.Observe, o.Limited()
			} else {
				c.tellOverride(rule, &who, &o)
			}
		}
	}
	if terms.Unlimited {
		m.Unlimited, m.UnlimitedTier = true, who.tier
		if terms == &own {
			m.UnlimitedSubject = who.id()
		}
		return
	}
	if len(terms.Limits) == 0 {
		return
	}
	key := c.ruleKey(rule, desc.Entries, &who)
	if c.mustWait {
		return
	}
	observed, ownObserve := terms.Observe > 0 && c.observes(rule, terms.Observe, &who, key), false
	if observe != tier.ObserveByRule && !rule.Always {
		observed, ownObserve = observe == tier.ObserveOnly, !rs.shadow
	}
	c.noteAsked(rule, desc)
	records := c.recordsDenied(rule, desc)
	for j := range terms.Limits {
		s := v.addLimit(rule, i)
		s.Limit, s.Cost = terms.Limits[j], rule.cost(desc.Cost)
		s.Subject, s.Tier, s.Unresolved = who.id(), who.tier, who.unresolved
		s.Quota, s.Own, s.records = rule.Quota || rs.quota, isOwn, records
		s.Observed, s.ShadowAll, s.OwnObserve = observed || rs.shadow, rs.shadow && !observed, ownObserve
		c.addCheck(s, key, desc.Refund, who.known)
	}
}

// addOverride adds the check for the limit that came with descriptor i, unless it sets
// mustWait. The limit replaces that of the rule, and the rule's factor and its charging remain. It is neither a quota limit nor observed because the rule is, as in
// envoyproxy/ratelimit.
func (c *Call) addOverride(i int) {
	desc, m := &c.req.Descriptors[i], &c.verdict.Matches[i]
	m.Overridden = true
	if !c.domain.overridden.Load() {
		c.domain.overridden.Store(true)
	}
	rule := m.Rule
	if rule == nil {
		rule = c.domain.override
	}
	limit := *desc.Override
	if key := c.overrideKey(m.Limited(desc.Entries)); !c.mustWait {
		s := c.verdict.addLimit(rule, i)
		s.Limit, s.Cost = Limit{Limit: limit, Precision: precisionOf(limit), Name: rule.Name}, rule.cost(desc.Cost)
		s.Quota, s.Observed, s.ShadowAll, s.records = c.rules.quota, c.rules.shadow, c.rules.shadow, c.recordsDenied(rule, desc)
		c.addCheck(s, key, desc.Refund, nil)
	}
}

// mayOverride reports whether a subject's own limits can replace those of a rule. A
// quota rule has one limit: of several, one could have room and another not.
func (rs *Rules) mayOverride(rule *Rule, o *tier.Override) bool {
	return len(o.Limits) <= 1 || !rule.Quota && !rs.quota
}

// ownTerms returns a subject's own limits under a rule, instead of the terms of its tier. They
// are valid until the next call. It returns false if they have no meaning there.
func (c *Call) ownTerms(rule *Rule, terms *Terms, o *tier.Override) (own Terms, ok bool) {
	if !o.Limited() {
		return *terms, true
	}
	c.own, ok = ownLimits(reuse.Slice(c.own), terms.Limits, o.Limits)
	return Terms{Limits: setNames(rule.Name, c.own), Unlimited: o.Unlimited, Observe: terms.Observe}, ok
}

// addLimit adds a limit of a descriptor. It is made where it stays: a copy of it is slow so soon
// after it is written.
func (v *Verdict) addLimit(rule *Rule, descriptor int) *LimitStatus {
	v.Limits = reuse.Grow(v.Limits)
	s := &v.Limits[len(v.Limits)-1]
	s.Rule, s.Descriptor = rule, descriptor
	return s
}

// addCheck adds the check of the last limit of the verdict, or removes the limit. of is the subject,
// nil if it is not known.
func (c *Call) addCheck(s *LimitStatus, key string, refund bool, of *tier.Subject) {
	c.checks = reuse.Grow(c.checks)
	at := len(c.checks) - 1
	check := &c.checks[at]
	switch {
	case refund:
		s.Mode, s.Quota = window.Refund, false
	case c.req.Ending != "":
		// The stream has ended, so the cost has been spent.
		s.Mode, s.Quota = window.Always, false
	case s.Rule.Always:
		s.Mode = window.Always // even where it is observed or one of several alternatives
	case s.Observed:
		s.Mode = window.Observe
	case s.Quota:
		s.Mode, c.quota = window.Any, true
	}
	check.Key, check.Limit, check.Cost = key, s.Limit.Limit, s.Cost
	check.Mode, check.Scope, check.Priority = s.Mode, s.Rule.in, s.Rule.Priority
	check.Precision, check.Lease = s.Limit.Precision, s.Limit.Lease
	switch s.Limit.Policy {
	case window.InFlight:
		s.records = false // a request that is active holds its cost, and spends nothing
		if !c.hold(s.Rule, check, refund) {
			*s, *check = LimitStatus{}, window.Check{}
			c.verdict.Limits, c.checks = c.verdict.Limits[:at], c.checks[:len(c.checks)-1]
			return
		}
	case window.Calendar:
		check.Period = c.period(s, of)
	default:
	}
	if s.Rule.Once.Entry != "" {
		c.once(s, check)
	}
	s.records = s.records && !s.Mode.Unconditional()
	c.records = c.records || s.records
	s.Period = check.Period
}

// manyLogs reports whether a subject can have several logs under the rule.
func (r *Rule) manyLogs() bool {
	return r.hasSubject && (len(r.identity) > 1 || len(r.identity) == 1 && r.subject < 0)
}

// observes reports whether a rule only observes a share of its subjects, and a log belongs to that
// share. All logs of a subject under a rule do, or none.
func (c *Call) observes(rule *Rule, share float64, who *subject, key string) bool {
	if share > 0 && share < 1 && rule.manyLogs() {
		c.key = descriptors.AppendKey(reuse.Slice(c.key), &who.log, rule.id, who.log)
		key = string(c.key)
	}
	return observed(share, key)
}

// observed reports whether a log belongs to the share of those that are only observed. A log that
// belongs to a share belongs to every larger one.
func observed(share float64, key string) bool {
	if share <= 0 || share >= 1 {
		return share >= 1
	}
	return fraction(hashOf(fnvOffset, key)) < share
}

// settleQuota makes all quota limits observed if one alternative of the request passes
// anyway, so that none of them can deny. Such an alternative is a quota rule that is
// observed. If every rule is a quota rule, a descriptor without a rule is one too. An
// unlimited descriptor has no quota, so it is no alternative.
func (c *Call) settleQuota() {
	v := &c.verdict
	all, passes := c.rules.quota, false
	for i := range v.Limits {
		s := &v.Limits[i]
		passes = passes || s.Quota && s.Mode == window.Observe
	}
	for i := range v.Matches {
		passes = passes || all && !v.Matches[i].Unlimited && !v.limits(i)
	}
	if !passes {
		return
	}
	for i := range v.Limits {
		if v.Limits[i].Mode == window.Any {
			v.Limits[i].Mode, c.checks[i].Mode = window.Observe, window.Observe
		}
	}
}

func (v *Verdict) limits(i int) bool {
	return slices.ContainsFunc(v.Limits, func(s LimitStatus) bool { return s.Descriptor == i })
}

// settleModes gives all checks of one log the strictest of their modes, because a store
// refuses several modes. Only a rule whose tiers share a log and are not all observed
// makes such checks.
func (c *Call) settleModes() {
	same := true
	for i := range c.checks {
		same = same && c.checks[i].Mode == c.checks[0].Mode
	}
	if same {
		return
	}
	for i := range c.checks {
		check := &c.checks[i]
		for j := range c.checks {
			o := &c.checks[j]
			// Modes are in the order of their strictness.
			if o.Mode < check.Mode && !check.Mode.Unconditional() && !o.Mode.Unconditional() && o.Log() == check.Log() {
				check.Mode = o.Mode
				s := &c.verdict.Limits[i]
				s.Mode, s.Observed, s.Quota = o.Mode, false, o.Mode == window.Any
			}
		}
	}
}
