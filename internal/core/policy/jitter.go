package policy

import "cmp"

// setJitter sets by how much clients are asked to wait longer than they must: by the rule's share
// of the wait, times a hash of the caller and the window. Without a known caller it is that of all
// logs of the request. So one caller always gets the same wait, from every instance.
func (c *Call) setJitter() {
	v := &c.verdict
	h := hashOf(fnvOffset, "retry_jitter") // another hash than that of observed
	if who := cmp.Or(v.Subject, v.KeyDigest); who != "" {
		h = hashOf(h, who)
	} else {
		for i := range c.checks {
			h = hashOf(h, c.checks[i].Key)
		}
	}
	for i := range v.Limits {
		s := &v.Limits[i]
		s.jitter = s.Rule.RetryJitter * fraction(h^uint64(s.Limit.Window))
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
