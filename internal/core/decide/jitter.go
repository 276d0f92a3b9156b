package decide

import (
	"cmp"

	"github.com/slidegate/slidegate/internal/core/identity"
)

// setJitter sets the fraction by which clients are asked to wait longer: that of the rule, times a
// hash of the caller and the window. The logs of the request replace an unknown caller. So every
// instance gives one caller the same wait.
func (c *Call) setJitter() {
	v := &c.verdict
	h := identity.NewHash("retry_jitter") // another hash than that of the logs that are only observed
	if who := cmp.Or(v.Subject, v.KeyDigest); who != "" {
		h = h.Add(who)
	} else {
		for i := range c.batch.checks {
			h = h.Add(c.batch.checks[i].Key)
		}
	}
	for i := range v.Limits {
		s := &v.Limits[i]
		s.Jitter = s.Rule.Answer.RetryJitter * (h ^ identity.Hash(s.Limit.Window)).Fraction()
	}
}
