package policy

import "time"

// Told returns what clients are told of a wait of the limit: the wait itself, or with
// [Rule.RetryJitter] a longer one, in whole seconds, for a client that has to wait. Then it is at
// least wait, and at most wait and that share of it, both rounded up to seconds. Operators, and
// Envoy in duration_until_reset, are told wait itself.
//
// It never shortens a wait, so what is told stays true: what has room after a wait has room after
// a longer one. No wait is told for a cost that never has room.
func (s *LimitStatus) Told(wait time.Duration) time.Duration {
	d := &s.Decision
	if s.Rule.RetryJitter == 0 || wait <= 0 || d.Never || d.Allowed && d.Remaining > 0 {
		return wait
	}
	first := seconds(wait)
	last := seconds(wait + time.Duration(s.Rule.RetryJitter*float64(wait)))
	// Clients read whole seconds. So each of them between the two is told equally often.
	return time.Duration(first+int64(s.place*float64(last-first+1))) * time.Second
}

// seconds rounds a positive time up to whole seconds.
func seconds(d time.Duration) int64 { return int64((d-1)/time.Second) + 1 }

// spread sets the place of the request's limits between the shortest and the longest wait that
// their rules allow to tell. It is that of the subject, so that one subject is always told the
// same, whatever it asks. Without a subject it is that of all logs of the request: clients who
// share the log that denies, but no other, are told different waits too.
func (c *Call) spread() {
	v := &c.verdict
	subject := ""
	if k := c.req.Caller; k != nil && k.Answer.Subject != nil {
		subject = k.Answer.Subject.ID
	}
	for i := 0; i < len(v.Limits) && subject == ""; i++ {
		subject = v.Limits[i].Subject
	}
	h := hashOf(fnvOffset, "retry_jitter") // another hash than that of observed
	if subject != "" {
		h = hashOf(h, subject)
	}
	for i := range c.checks {
		if subject == "" {
			h = hashOf(h, c.checks[i].Key)
		}
	}
	place := fraction(h)
	for i := range v.Limits {
		v.Limits[i].place = place
	}
}

// The parameters of the 64-bit hash FNV-1a.
const (
	fnvOffset uint64 = 0xcbf29ce484222325
	fnvPrime  uint64 = 0x100000001b3
)

// hashOf adds a text to an FNV-1a hash, which begins with fnvOffset.
func hashOf(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// fraction turns an FNV-1a hash into a number from 0 to below 1. FNV leaves the high bits of
// short texts alike, so that it mixes them first (the last step of MurmurHash3).
func fraction(h uint64) float64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return float64(h>>11) / (1 << 53)
}
