package verdict

import "github.com/slidegate/slidegate/pkg/window"

// Hits is what one request did to one limit, counted in hits as envoyproxy/ratelimit counts
// them. The zero value counts nothing.
type Hits struct {
	// Total is the cost of the request.
	Total uint64
	// Within is the cost if it had room, and Over the cost if it had none. If usage was
	// recorded that did not fit, Over is the part beyond the limit.
	Within, Over uint64
	// Near is the part up to the limit that is above a fraction of it.
	Near uint64
	// Shadowed is the part of Over that passed because the rule itself is only observed.
	Shadowed uint64
	// Remembered is true if the process repeated a denial without asking the store.
	Remembered bool
	// Decided is true if the store has decided the limit.
	Decided bool
}

// Hits returns what the request did to the limit. allowed reports whether the request passes. near
// is the fraction of a limit above which hits are near it.
//
// The use before the request follows from what remains. The decision reports what remains after the
// charge, if there was one.
func (s *LimitStatus) Hits(allowed bool, near float32) Hits {
	d, limit := &s.Decision, s.Limit.Hits
	h := Hits{Total: s.Cost, Remembered: d.Remembered}
	if s.Mode == window.Refund || s.Cost == 0 {
		return Hits{Remembered: d.Remembered}
	}
	// envoyproxy/ratelimit multiplies as float32 too, so both have the same threshold.
	threshold := uint64(float32(limit) * near)
	if !d.Allowed {
		h.Over = s.Cost
		if s.Update.Recorded {
			// The part that fitted has used up the limit.
			h.Over -= min(s.Update.Room, s.Cost)
			h.Near = min(s.Update.Room, limit-min(threshold, limit))
		}
		if s.Observed() && s.Enforcement != ObservedForAll {
			h.Shadowed = h.Over
		}
		return h
	}
	h.Within = s.Cost
	if d.Repeated {
		return h // it has used nothing up
	}
	after := limit - min(d.Remaining, limit)
	if !s.Update.Recorded && !s.Mode.Charged(allowed, true) {
		after = window.AddSaturating(after, s.Cost)
	}
	if after > threshold {
		h.Near = min(s.Cost, after-threshold)
	}
	return h
}
