package policy

import (
	"fmt"
	"hash/fnv"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// match finds the rule of every descriptor, and which of them are replaced.
func (rs *Rules) match(dom *domain, req *Request, v *Verdict) {
	for i := range req.Descriptors {
		v.Matches[i].Rule, _ = dom.tree.Match(req.Descriptors[i].Entries)
	}
	if !dom.replaces {
		return
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
}

// addChecks adds the checks that the rule of descriptor i asks for.
func (rs *Rules) addChecks(dom *domain, req *Request, i int, v *Verdict) {
	desc, m := &req.Descriptors[i], &v.Matches[i]
	status := LimitStatus{Rule: m.Rule, Descriptor: i}
	if desc.Override != nil {
		// It takes the place of the rule's limit. What the rule says of costs holds on;
		// that it is observed or a quota rule does not, as in envoyproxy/ratelimit.
		m.Overridden = true
		if status.Rule == nil {
			status.Rule = dom.override
		}
		status.Limit = Limit{
			Limit:     *desc.Override,
			Precision: window.Precision(*desc.Override),
			Policy:    status.Rule.Name,
		}
		status.Cost = status.Rule.cost(desc.Cost)
		status.Quota, status.Observed = rs.quota, rs.shadow
		if status.Rule.Always {
			status.Mode = window.Always
		}
		key := rs.overrideKey(dom, req, desc.Entries, v)
		rs.addCheck(v, status, key, desc.Refund)
		return
	}
	if m.Rule == nil || m.ReplacedBy != nil {
		return
	}
	rule := m.Rule
	terms := &rule.Terms
	var subject subject
	if rule.hasSubject {
		subject = rs.subjectOf(rule, req, desc.Entries, &v.callers)
		status.Subject = subject.id()
		status.Unresolved = subject.unresolved
		v.Unresolved = v.Unresolved || subject.unresolved
		if rs.tiers != nil {
			if req.Tier != "" {
				subject.tier = req.Tier
			}
			status.Tier = subject.tier
			terms = rule.terms(subject.tier)
		}
	}
	var own Terms
	if subject.known != nil && req.Tier == "" {
		if o, ok := subject.known.Override(rule.Name); ok && rs.mayOverride(rule, &o) {
			own = v.terms(rule, &o, terms.Observe)
			terms, status.Own = &own, true
		}
	}
	if terms.Unlimited {
		m.Unlimited = true
		return
	}
	if len(terms.Limits) == 0 {
		return
	}
	key := rs.ruleKey(rule, req, desc.Entries, subject, v)
	status.Cost = rule.cost(desc.Cost)
	status.Quota = rule.Quota || rs.quota
	status.Observed = rs.shadow || observed(terms.Observe, key)
	if rule.Always {
		status.Mode = window.Always
	}
	for j := range terms.Limits {
		status.Limit = terms.Limits[j]
		rs.addCheck(v, status, key, desc.Refund)
	}
}

// mayOverride reports whether a rule can have the limits that a subject has of its
// own. A quota rule has one limit: of several, one could have room and another not.
func (rs *Rules) mayOverride(rule *Rule, o *tier.Override) bool {
	return len(o.Limits) <= 1 || !rule.Quota && !rs.quota
}

// terms returns a subject's own limits under a rule. They are good until the next
// call.
func (v *Verdict) terms(rule *Rule, o *tier.Override, observe float64) Terms {
	v.own = emptied(v.own)
	for _, l := range o.Limits {
		v.own = append(v.own, Limit{Limit: l, Precision: window.Precision(l)})
	}
	return Terms{Limits: name(rule.Name, v.own), Unlimited: o.Unlimited, Observe: observe}
}

func (rs *Rules) addCheck(v *Verdict, s LimitStatus, key string, refund bool) {
	switch {
	case refund:
		s.Mode, s.Quota = window.Refund, false
	case s.Mode == window.Always:
		// It is recorded whatever anybody thinks of it.
	case s.Observed:
		s.Mode = window.Observe
	case s.Quota:
		s.Mode = window.Any
	}
	v.Limits = append(v.Limits, s)
	v.checks = append(v.checks, window.Check{
		Key: key, Limit: s.Limit.Limit, Cost: s.Cost, Mode: s.Mode, Precision: s.Limit.Precision, Lease: s.Limit.Lease,
	})
}

// A TooManyLimitsError says that the descriptors of a request meet more limits than one
// request may: [window.MaxChecks]. The rules and Envoy's routes decide that number.
type TooManyLimitsError struct{ Limits int }

func (e *TooManyLimitsError) Error() string {
	return fmt.Sprintf("the descriptors of the request meet %d limits, more than %d: send fewer descriptors in one request, or give their rules fewer limits", e.Limits, window.MaxChecks)
}

// bounded returns a TooManyLimitsError if v has more checks than one request may have.
func (v *Verdict) bounded() error {
	if n := len(v.checks); n > window.MaxChecks {
		return &TooManyLimitsError{n}
	}
	return nil
}

// observed reports whether a log belongs to the share of those that are only
// observed.
func observed(share float64, key string) bool {
	if share <= 0 || share >= 1 {
		return share >= 1
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	x := h.Sum64()
	// FNV leaves the high bits of short texts alike; this mixes them (the last
	// step of MurmurHash3).
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11)/(1<<53) < share
}

// settleQuota looks whether one of the alternatives of the request passes anyway:
// a quota rule that is only observed or unlimited, or, where every rule is a
// quota rule, a descriptor that nothing limits. The others cannot deny then.
func (rs *Rules) settleQuota(v *Verdict) {
	quota, passes := false, false
	for i := range v.Limits {
		s := &v.Limits[i]
		quota = quota || s.Mode == window.Any
		passes = passes || s.Quota && s.Mode == window.Observe
	}
	if !quota {
		return
	}
	for i := range v.Matches {
		m := &v.Matches[i]
		switch {
		case m.Unlimited && (rs.quota || m.Rule.Quota):
			passes = true
		case rs.quota && !rs.limits(v, i):
			passes = true
		}
	}
	if !passes {
		return
	}
	for i := range v.Limits {
		if v.Limits[i].Mode == window.Any {
			v.Limits[i].Mode, v.checks[i].Mode = window.Observe, window.Observe
		}
	}
}

// settleModes gives all checks of one log the strictest of their modes: a store
// refuses several. Only a rule whose tiers share a log and are not all observed
// makes such checks.
func settleModes(v *Verdict) {
	same := true
	for i := range v.checks {
		same = same && v.checks[i].Mode == v.checks[0].Mode
	}
	if same {
		return
	}
	for i := range v.checks {
		c := &v.checks[i]
		for j := range v.checks {
			o := &v.checks[j]
			// Modes are in the order of their strictness.
			if o.Mode < c.Mode && !c.Mode.Unconditional() && !o.Mode.Unconditional() && o.Log() == c.Log() {
				c.Mode = o.Mode
				s := &v.Limits[i]
				s.Mode, s.Observed, s.Quota = o.Mode, false, o.Mode == window.Any
			}
		}
	}
}

// limits reports whether descriptor i has a limit.
func (*Rules) limits(v *Verdict, i int) bool {
	for j := range v.Limits {
		if v.Limits[j].Descriptor == i {
			return true
		}
	}
	return false
}
