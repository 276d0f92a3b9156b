package verdict

import (
	"cmp"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/pkg/window"
)

// SetJitter sets by how much clients are asked to wait longer than they must: by the rule's fraction
// of the wait, times a hash of the caller and the window. Without a known caller it is that of all
// logs of the request. So one caller always gets the same wait, from every
// instance. checks are those of the limits.
func (v *Verdict) SetJitter(checks []window.Check) {
	h := identity.NewHash("retry_jitter") // another hash than that of the logs that are only observed
	if who := cmp.Or(v.Subject, v.KeyDigest); who != "" {
		h = h.Add(who)
	} else {
		for i := range checks {
			h = h.Add(checks[i].Key)
		}
	}
	for i := range v.Limits {
		s := &v.Limits[i]
		s.Jitter = s.Rule.Answer.RetryJitter * (h ^ identity.Hash(s.Limit.Window)).Fraction()
	}
}
