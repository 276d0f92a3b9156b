package rules

import (
	"slices"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// maxLimits bounds the limits of a rule, or of a tier in it.
const maxLimits = 48

// someLimits reads one limit or a list of them; see someTerms.
func (r *rulesReader) someLimits(t *terms, how manner, at strict.Position, bad, arms bool) (limits []rules.Limit, given bool) {
	keys := setKeys(&t.limit)
	one := slices.ContainsFunc(keys, setKey.ofLimit)
	if one && t.Limits.Set {
		r.decoder.Problem(t.Limits.Position, "a limit beside limits: put it into the list")
		return nil, true
	}
	if arms || t.Limits.Set {
		r.offers.offer(keys)
		keys = slices.DeleteFunc(keys, func(k setKey) bool { return !k.ofLimit() })
	}
	if one {
		if l, ok := r.limit(&t.limit, keys, how, at, bad); ok {
			limits = append(limits, l)
		}
		return limits, true
	}
	if !t.Limits.Set {
		return nil, false
	}
	if len(t.Limits.Value) == 0 && !t.Limits.Bad {
		r.decoder.Problem(t.Limits.Position, "the list is empty")
	}
	if n := len(t.Limits.Value); n > maxLimits {
		r.decoder.Problem(t.Limits.Position, "%d limits, but a rule may have at most %d: give the rule fewer", n, maxLimits)
		return nil, true
	}
	before := make(map[window.LogID]Location)
	for i := range t.Limits.Value {
		f := &t.Limits.Value[i]
		l, ok := r.limit(&f.Value, setKeys(&f.Value), r.itemManner(how, &f.Value), f.Position, f.Bad)
		if !ok {
			continue
		}
		log := window.Check{Limit: l.Limit}.Log()
		if first, again := before[log]; again {
			r.decoder.Problem(f.Position, "a second limit for the same %s, the first is %s", same(l.Limit), first.from(r.decoder.File))
			continue
		}
		before[log] = Location{r.decoder.File, f.Line}
		limits = append(limits, l)
	}
	return limits, true
}

// same names what two limits with one log have in common.
func same(l window.Limit) string {
	switch l.Policy {
	case window.TokenBucket:
		return "time of a rate"
	case window.InFlight:
		return "requests in flight"
	case window.Calendar:
		return "unit of a calendar"
	default:
		return "window"
	}
}

// manner is how a limit counts.
type manner struct {
	policy  policyChoice
	observe float64
	limit   // its inheritable keys, but for the policy
}

// set takes what l sets.
func (how *manner) set(l *limit) {
	for _, f := range []struct{ to, from *strict.Field[string] }{
		{&how.Precision, &l.Precision}, {&how.Lease, &l.Lease}, {&how.Hold, &l.Hold}, {&how.TimeZone, &l.TimeZone}, {&how.StartsLabel, &l.StartsLabel},
	} {
		if f.from.Set {
			*f.to = *f.from
		}
	}
	if l.Starts.Set {
		how.Starts = l.Starts
	}
}

// itemManner returns how with what a limit sets by itself, and reports what is wrong with that.
func (r *rulesReader) itemManner(how manner, l *limit) manner {
	how.policy = r.policyOf(&l.Policy, how.policy)
	read(r.decoder, &l.Precision, parsePrecision)
	read(r.decoder, &l.Lease, parseLease)
	how.set(l)
	return how
}

// limit reads one limit with the given keys. With bad, it does not report that half of a pair
// is missing.
func (r *rulesReader) limit(l *limit, keys []setKey, how manner, at strict.Position, bad bool) (out rules.Limit, ok bool) {
	if how.policy.byKeys {
		how.policy.Policy = policyByKeys(l)
	}
	if how.policy.wrong || r.misfits(keys, how.policy) {
		return out, false
	}
	switch how.policy.Policy {
	case window.TokenBucket:
		out.Limit, ok = r.tokenBucket(l, bad)
	case window.InFlight:
		out.Limit, ok = r.inFlight(l, &how.Hold, how.policy.byKeys, bad)
	case window.Calendar:
		out, ok = r.calendar(l, how, at, bad)
	default:
		if out.Limit, ok = r.windowed(l, how.policy.byKeys, at, bad); ok {
			out.Policy = how.policy.Policy
		}
	}
	if !ok {
		return out, false
	}
	r.offers.policies = append(r.offers.policies, out.Policy)
	if out.Policy == window.Sliding {
		out.Precision = r.precisionOf(out.Limit, l, &how.Precision, at)
		out.Lease = r.leaseOf(out.Limit, l, &how.Lease, at)
	}
	return out, true
}
