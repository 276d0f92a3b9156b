package verdict

import "github.com/slidegate/slidegate/pkg/window"

// SettleModes gives all checks of one log the strictest of their modes, because a store
// refuses several modes. Only a rule whose tiers share a log and are not all observed
// makes such checks.
func (v *Verdict) SettleModes(checks []window.Check) {
	same := true
	for i := range checks {
		same = same && checks[i].Mode == checks[0].Mode
	}
	if same {
		return
	}
	for i := range checks {
		check := &checks[i]
		for j := range checks {
			o := &checks[j]
			// Modes are in the order of their strictness.
			if o.Mode < check.Mode && !check.Mode.Unconditional() && !o.Mode.Unconditional() && o.Log() == check.Log() {
				check.Mode = o.Mode
				s := &v.Limits[i]
				s.Mode, s.Quota = o.Mode, o.Mode == window.Any
				if s.Enforcement == ObservedForSubject {
					s.Enforcement = EnforcedForSubject
				} else if s.Observed() {
					s.Enforcement = Enforced
				}
			}
		}
	}
}

// SettleQuota makes all quota limits observed if one alternative passes in any case, so that none of
// them can deny. Such an alternative is an observed quota rule and, if every rule is a quota rule (all), a
// descriptor without a rule. An unlimited descriptor has no quota, so it is no alternative. checks are those of the limits.
func (v *Verdict) SettleQuota(checks []window.Check, all bool) {
	passes := false
	for i := range v.Limits {
		s := &v.Limits[i]
		passes = passes || s.Quota && s.Mode == window.Observe
	}
	for i := range v.Matches {
		passes = passes || all && !v.Matches[i].Unlimited && !v.HasLimit(i)
	}
	if !passes {
		return
	}
	for i := range v.Limits {
		if v.Limits[i].Mode == window.Any {
			v.Limits[i].Mode, checks[i].Mode = window.Observe, window.Observe
		}
	}
}
