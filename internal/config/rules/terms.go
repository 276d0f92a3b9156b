package rules

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
)

// defaultArm is the arm of by_tier for every tier that is not named.
const defaultArm = "default"

// terms reads the terms of a rule and those of each tier.
func (r *rulesReader) terms(rl *strict.Field[*rateLimit]) (base rules.Terms, byTier map[string]rules.Terms) {
	v := rl.Value
	r.offers = offers{}
	before := r.Report.Count()
	defer func() {
		if r.Report.Count() == before {
			r.untaken(&r.offers)
		}
	}()
	top := r.termsManner(&v.terms, nil, r.fallback)
	base, given := r.someTerms(&v.terms, top, rl.Position, rl.Bad, v.ByTier.Set)
	if !given && !v.ByTier.Set && !rl.Bad && !top.policy.wrong {
		r.decoder.Problem(rl.Position, "no limit: give %s, or limits, or unlimited, or by_tier", languageOf(top.policy.Policy).needs)
	}
	switch {
	case !v.ByTier.Set, v.ByTier.Bad && len(v.ByTier.Value) == 0:
		return base, nil
	case len(v.ByTier.Value) == 0:
		r.decoder.Problem(v.ByTier.Position, "by_tier is empty: write one line for each tier")
		return base, nil
	case r.TiersKnown && r.Tiers == nil:
		r.decoder.Problem(v.ByTier.Position, "there are no tiers, because tiers.source is \"none\"")
		return base, nil
	}
	byTier = make(map[string]rules.Terms, len(v.ByTier.Value))
	for i := range v.ByTier.Value {
		e := &v.ByTier.Value[i]
		how := r.termsManner(&e.Value.Value, &v.terms, top.policy)
		arm, some := r.someTerms(&e.Value.Value, how, e.Value.Position, e.Value.Bad, false)
		if !some && !e.Value.Bad && !how.policy.wrong {
			r.decoder.Problem(e.Position, "no limit: give %s, or limits, or unlimited", languageOf(how.policy.Policy).needs)
		}
		if e.Key == defaultArm {
			if given {
				set := setKeys(&v.terms)
				line := set[slices.IndexFunc(set, setKey.ofLimit)].Line
				r.decoder.Problem(e.Position, "the rule has a limit of its own%s, which applies to every tier not named here: give one of the two", onLine(line))
			}
			if slices.Contains(r.Tiers, defaultArm) {
				r.decoder.Warning(e.Position, "default means every tier not named here, but one of the tiers is called default: rename it")
			}
			base, given = arm, true
			continue
		}
		if r.TiersKnown && !slices.Contains(r.Tiers, e.Key) {
			names := r.Tiers
			if !slices.Contains(names, defaultArm) {
				names = append(slices.Clip(names), defaultArm)
			}
			r.decoder.Problem(e.Position, "unknown tier %s, expected one of %s%s", strict.Quote(e.Key), strict.SomeNames(names), strict.DidYouMean(e.Key, names))
		}
		byTier[e.Key] = arm
	}
	if !given && !rl.Bad {
		var without []string
		for _, t := range r.Tiers {
			if _, ok := byTier[t]; !ok {
				without = append(without, t)
			}
		}
		if len(without) > 0 {
			r.decoder.Problem(v.ByTier.Position, "no limit for %s: add them to by_tier, or add default", strict.SomeNames(without))
		}
	}
	return base, byTier
}

// A setKey is a key of a limit or of terms that the file sets.
type setKey struct {
	strict.Position
	name string
}

// ofLimit reports whether the key gives a limit, and says not only how the limit counts.
func (k setKey) ofLimit() bool { return k.name != "observe" && !slices.Contains(inheritable, k.name) }

// setKeys returns the keys that the file sets in t, which points to a limit or to terms.
func setKeys(t any) (set []setKey) {
	v := reflect.ValueOf(t).Elem()
	for _, k := range strict.KeysOf(v.Type()) {
		f := v.FieldByIndex(k.Field.Index)
		if f.FieldByName("Set").Bool() {
			set = append(set, setKey{f.FieldByName("Position").Interface().(strict.Position), k.Name})
		}
	}
	return set
}

// termsManner reads what the limits of t have in common. t inherits from the terms above, if
// there are any; their problems are reported already.
func (r *rulesReader) termsManner(t, above *terms, from policyChoice) (how manner) {
	if how.observe = read(r.decoder, &t.Observe, parseObserved); !t.Observe.Set && above != nil {
		how.observe = read(nil, &above.Observe, parseObserved)
	}
	if t.Unlimited.Value {
		return how
	}
	if above != nil {
		how.set(&above.limit)
	}
	how.policy = from
	return r.itemManner(how, &t.limit)
}

// someTerms reads one limit, a list of limits, or unlimited. given reports whether there is a
// limit, right or wrong. bad: t has a problem, so a missing key may be a mistyped one. arms:
// the arms of by_tier inherit from t.
func (r *rulesReader) someTerms(t *terms, how manner, at strict.Position, bad, arms bool) (out rules.Terms, given bool) {
	if t.Unlimited.Value {
		r.unlimited(t, arms)
		return rules.Terms{Unlimited: true}, true
	}
	out.Limits, given = r.someLimits(t, how, at, bad, arms)
	if given {
		out.Observe = how.observe
	}
	return out, given || t.Unlimited.Set && t.Unlimited.Bad
}

// unlimited refuses limits beside unlimited. With arms, what says only how limits count is for
// the arms of by_tier.
func (r *rulesReader) unlimited(t *terms, arms bool) {
	for _, k := range setKeys(t) {
		switch {
		case k.name == "unlimited", arms && !k.ofLimit():
		case k.name == "requests_per_unit":
			r.decoder.Warning(k.Position, "ignored beside unlimited, as envoyproxy/ratelimit does")
		default:
			r.decoder.Problem(k.Position, "%s beside unlimited%s: give one of the two", k.name, onLine(t.Unlimited.Line))
		}
	}
}

// onLine returns " on line n", or nothing for what has no lines.
func onLine(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" on line %d", n)
}
