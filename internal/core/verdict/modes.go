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
