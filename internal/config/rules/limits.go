package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// defaultArm is the arm of by_tier for every tier that is not named.
const defaultArm = "default"

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
				r.decoder.Problem(e.Position, "the rule has a limit%s, which applies to every tier not named here: give one of the two", onLine(line))
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

// unlimited refuses limits with unlimited. With arms, what says only how limits count is for
// the arms of by_tier.
func (r *rulesReader) unlimited(t *terms, arms bool) {
	for _, k := range setKeys(t) {
		switch {
		case k.name == "unlimited", arms && !k.ofLimit():
		case k.name == "requests_per_unit":
			r.decoder.Warning(k.Position, "ignored with unlimited, as envoyproxy/ratelimit does")
		default:
			r.decoder.Problem(k.Position, "%s with unlimited%s: give one of the two", k.name, onLine(t.Unlimited.Line))
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

const maxLimits = 48

// someLimits reads one limit or a list of them; see someTerms.
func (r *rulesReader) someLimits(t *terms, how manner, at strict.Position, bad, arms bool) (limits []rules.Limit, given bool) {
	keys := setKeys(&t.limit)
	one := slices.ContainsFunc(keys, setKey.ofLimit)
	if one && t.Limits.Set {
		r.decoder.Problem(t.Limits.Position, "a limit with limits: put it into the list")
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
			r.decoder.Problem(f.Position, "a second limit for the same %s, the first is %s", same(l.Limit), first.From(r.decoder.File))
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

type manner struct {
	policy  policyChoice
	observe float64
	limit   // its inheritable keys, but for the policy
}

func (how *manner) set(l *limit) {
	for _, f := range []struct{ to, from *strict.Field[string] }{
		{&how.Precision, &l.Precision}, {&how.Lease, &l.Lease}, {&how.Hold, &l.Hold}, {&how.TimeZone, &l.TimeZone}, {&how.StartsLabel, &l.StartsLabel}, {&how.Currency, &l.Currency},
	} {
		if f.from.Set {
			*f.to = *f.from
		}
	}
	if l.Starts.Set {
		how.Starts = l.Starts
	}
	if l.Budget.Set {
		how.Budget = l.Budget
	}
}

// itemManner returns how with what a limit sets by itself, and reports what is wrong with that.
func (r *rulesReader) itemManner(how manner, l *limit) manner {
	how.policy = r.policyOf(&l.Policy, how.policy)
	read(r.decoder, &l.Precision, parsePrecision)
	read(r.decoder, &l.Lease, parseLease)
	read(r.decoder, &l.Currency, parseCurrency)
	r.budget(&l.Budget)
	how.set(l)
	return how
}

// limit reads one limit with the given keys. With bad, it does not report that half of a pair
// is missing.
func (r *rulesReader) limit(l *limit, keys []setKey, how manner, at strict.Position, bad bool) (out rules.Limit, ok bool) {
	if how.policy.byKeys {
		how.policy.Policy = policyByKeys(l)
	}
	if how.policy.wrong {
		if l.Unit.Set && !l.Unit.Bad {
			r.anyUnit(l)
		}
		return out, false
	}
	if r.misfits(keys, how.policy) {
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
			ok = out.Policy != window.Sliding || how.policy.byKeys || r.slides(out.Hits, l)
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
	if out.Policy != window.InFlight {
		r.reserves(&out, &how, at)
	}
	return out, true
}

// read parses the text of a field. It reports an error to d unless d is nil. Without a text it
// returns the zero value.
func read[T any](d *strict.Decoder, f *strict.Field[string], parse func(*strict.Field[string]) (T, error)) (value T) {
	if !strict.Given(f) {
		return value
	}
	value, err := parse(f)
	if err != nil && d != nil {
		d.Problem(f.Position, "%s", err)
	}
	return value
}

// parseObserved reads true, false or a percentage as a number from 0 to 1.
func parseObserved(f *strict.Field[string]) (float64, error) {
	text := f.Value
	if b, ok := strict.ParseTruth(text); ok {
		if b {
			return 1, nil
		}
		return 0, nil
	}
	percent, err := parsePercentage(text, "true, false or ")
	return percent / 100, err
}

func parseJitter(f *strict.Field[string]) (float64, error) {
	percent, err := parsePercentage(f.Value, "")
	return percent / 100, err
}

// parsePercentage reads a percentage from 0 to 100. others is what else the text
// may be, for a message.
func parsePercentage(text, others string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || strings.ContainsAny(number, "xXpPnN_"):
		return 0, fmt.Errorf("%s is not %sa percentage such as 25%%", strict.Quote(text), others)
	case !percent:
		return 0, fmt.Errorf("%s has no unit: write a percentage such as 25%%", strict.Quote(text))
	case value < 0 || value > 100:
		return 0, fmt.Errorf("%s is not between 0%% and 100%%", strict.Quote(text))
	}
	return value, nil
}

// units are the units of envoyproxy/ratelimit, with their lengths.
var units = []struct {
	name   string
	length time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", strict.Day},
	{"week", strict.Week},
	{"month", 30 * strict.Day},
	{"year", 365 * strict.Day},
}

// Units returns the names of the units of envoyproxy/ratelimit.
func Units() []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return names
}

// windowed reads hits in a window. With bad, it does not report that half of a pair is missing.
// override: the unit may be one of a calendar.
func (r *rulesReader) windowed(l *limit, override bool, at strict.Position, bad bool) (window.Limit, bool) {
	d := r.decoder
	unit, inUnit := l.Unit.Set, l.RequestsPerUnit.Set
	win, requests := l.Window.Set, l.Requests.Set
	if l.Unit.Bad || l.Window.Bad {
		return window.Limit{}, false
	}
	half := bad && (unit != inUnit || win != requests || !unit && !win)
	if l.RequestsPerUnit.Bad || l.Requests.Bad || half {
		// Check the length even if the number is bad, or its key may be mistyped.
		switch {
		case unit && !win && !requests:
			r.perUnit(l, override)
		case win && !unit && !inUnit:
			r.perWindow(l)
		}
		return window.Limit{}, false
	}
	switch {
	case !unit && !inUnit && !win && !requests:
		d.Problem(at, "no limit: give unit and requests_per_unit, or window and requests")
	case (unit || inUnit) && (win || requests):
		d.Problem(at, "unit and requests_per_unit belong together, and so do window and requests: give one of the two pairs")
	case unit && !inUnit:
		d.Problem(l.Unit.Position, "unit without requests_per_unit")
	case !unit && inUnit:
		d.Problem(l.RequestsPerUnit.Position, "requests_per_unit without unit")
	case win && !requests:
		d.Problem(l.Window.Position, "window without requests")
	case !win && requests:
		d.Problem(l.Requests.Position, "requests without window")
	case unit:
		return r.perUnit(l, override)
	default:
		return r.perWindow(l)
	}
	return window.Limit{}, false
}

// perUnit reads a unit of envoyproxy/ratelimit, or of a calendar in an override.
func (r *rulesReader) perUnit(l *limit, override bool) (window.Limit, bool) {
	length, ok := unitNamed(l.Unit.Value)
	if unit, is := calendar.ParseUnit(l.Unit.Value); is && override {
		length, ok = unit.Nominal(), true
	}
	if ok {
		return r.bounded(window.Limit{Hits: l.RequestsPerUnit.Value, Window: length}, l, l.RequestsPerUnit.Position, l.Unit.Position)
	}
	if unit, is := r.anyUnit(l); is {
		r.decoder.Problem(l.Unit.Position, "only the policy calendar has the unit %v: add policy: calendar, or write a window", unit)
	}
	return window.Limit{}, false
}

func (r *rulesReader) anyUnit(l *limit) (unit calendar.Unit, ofCalendar bool) {
	if unit, is := calendar.ParseUnit(l.Unit.Value); is {
		return unit, true
	}
	if _, ok := unitNamed(l.Unit.Value); ok {
		return unit, false
	}
	name, names := strings.ToLower(l.Unit.Value), Units()
	r.decoder.Problem(l.Unit.Position, "unknown unit %s, expected one of %s%s", r.decoder.Quote(l.Unit.Value), strings.Join(names, ", "), strict.DidYouMean(name, names))
	return unit, false
}

func (r *rulesReader) perWindow(l *limit) (window.Limit, bool) {
	length, err := strict.ParseDuration(l.Window.Value)
	if err != nil {
		if r.decoder.HideValues { // the error quotes the value
			err = strict.ErrNoTime
		}
		r.decoder.Problem(l.Window.Position, "%s", err)
		return window.Limit{}, false
	}
	return r.bounded(window.Limit{Hits: l.Requests.Value, Window: length}, l, l.Requests.Position, l.Window.Position)
}

func (r *rulesReader) bounded(l window.Limit, written *limit, hits, length strict.Position) (window.Limit, bool) {
	ok := r.countable(l.Hits, hits)
	if !ok {
		l.Hits = 0
	}
	if (window.Limit{Window: l.Window}).Valid() != nil {
		problem := "not a whole number of microseconds"
		if l.Window < window.MinWindow {
			problem = "shorter than " + rules.FormatWindow(window.MinWindow)
		} else if l.Window > window.MaxWindow {
			problem = "longer than " + rules.FormatWindow(window.MaxWindow)
		}
		r.decoder.Problem(length, "window %s is %s", written.length(l.Window), problem)
		ok = false
	}
	return l, ok
}

// length returns a window as the file has it.
func (l *limit) length(length time.Duration) string {
	if l.Window.Set {
		return strict.Quoteless(l.Window.Value)
	}
	return rules.FormatWindow(length)
}

// unitNamed returns the length of a unit of envoyproxy/ratelimit, in any case.
func unitNamed(name string) (time.Duration, bool) {
	for _, u := range units {
		if u.name == strings.ToLower(name) {
			return u.length, true
		}
	}
	return 0, false
}

func (r *rulesReader) countable(hits uint64, at strict.Position) bool {
	if hits > window.MaxHits {
		r.decoder.Problem(at, "%s is above %d, the largest limit", r.decoder.Quote(strconv.FormatUint(hits, 10)), uint64(window.MaxHits))
		return false
	}
	return true
}
