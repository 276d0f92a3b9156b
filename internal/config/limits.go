package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window"
)

// units are the units of envoyproxy/ratelimit with their lengths, which are the
// same there.
var units = []struct {
	name   string
	length time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", day},
	{"week", week},
	{"month", 30 * day},
	{"year", 365 * day},
}

func unitNames() []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return names
}

// defaultArm is the arm of by_tier for every tier that is not named.
const defaultArm = "default"

// terms reads what everybody gets and what each tier gets. ok is false if that
// cannot be said, which is reported.
func (r *rulesReader) terms(rl *field[*rateLimit]) (own policy.Terms, byTier map[string]policy.Terms) {
	v := rl.value
	own, given := r.someTerms(&v.terms, nil, rl.spot, rl.bad, v.ByTier.set)
	if !given && !v.ByTier.set && !rl.bad {
		r.decoder.problem(rl.spot, "no limit: give unit and requests_per_unit, or window and requests, or limits, or unlimited, or by_tier")
	}
	switch {
	case !v.ByTier.set, v.ByTier.bad && len(v.ByTier.value) == 0:
		return own, nil
	case len(v.ByTier.value) == 0:
		r.decoder.problem(v.ByTier.spot, "holds no tier: write one line for each")
		return own, nil
	case r.tiersKnown && r.tiers == nil:
		r.decoder.problem(v.ByTier.spot, "there are no tiers: tiers.source is none")
		return own, nil
	}
	byTier = make(map[string]policy.Terms, len(v.ByTier.value))
	for i := range v.ByTier.value {
		e := &v.ByTier.value[i]
		arm, some := r.someTerms(&e.value.value, &v.terms, e.value.spot, e.value.bad, false)
		if !some && !e.value.bad {
			r.decoder.problem(e.spot, "no limit: give unit and requests_per_unit, or window and requests, or limits, or unlimited")
		}
		if e.key == defaultArm {
			if given {
				r.decoder.problem(e.spot, "the rule has a limit of its own on line %d, which holds for every tier that is not named: give one of the two", v.terms.first().line)
			}
			if slices.Contains(r.tiers, defaultArm) {
				r.decoder.warning(e.spot, "default is for every tier that is not named here, and one of the tiers is called default")
			}
			own, given = arm, true
			continue
		}
		if r.tiersKnown && !slices.Contains(r.tiers, e.key) {
			names := r.tiers
			if !slices.Contains(names, defaultArm) {
				names = append(slices.Clip(names), defaultArm)
			}
			r.decoder.problem(e.spot, "unknown tier %s, expected one of %s%s", quote(e.key), someNames(names), didYouMean(e.key, names))
		}
		byTier[e.key] = arm
	}
	if !given && !rl.bad {
		var without []string
		for _, t := range r.tiers {
			if _, ok := byTier[t]; !ok {
				without = append(without, t)
			}
		}
		if len(without) > 0 {
			r.decoder.problem(v.ByTier.spot, "no limit for %s, and neither a default nor a limit of the rule itself for other tiers", someNames(without))
		}
	}
	return own, byTier
}

// first is where the first key of a limit stands.
func (t *terms) first() spot {
	for _, s := range []struct {
		set bool
		spot
	}{
		{t.Unlimited.set, t.Unlimited.spot},
		{t.Limits.set, t.Limits.spot},
		{t.Unit.set, t.Unit.spot},
		{t.Window.set, t.Window.spot},
		{t.RequestsPerUnit.set, t.RequestsPerUnit.spot},
	} {
		if s.set {
			return s.spot
		}
	}
	return t.Requests.spot
}

// someTerms reads one limit, a list of them, or that there is none. The terms
// above, if any, say how those are meant that do not say it. given says that there
// was a limit, right or wrong; bad, that something is wrong with t, so that what
// seems to be missing may have been mistyped; arms, that others inherit from t.
func (r *rulesReader) someTerms(t, above *terms, at spot, bad, arms bool) (out policy.Terms, given bool) {
	share := r.share(&t.Observe)
	if t.Unlimited.value {
		r.unlimited(t, arms)
		return policy.Terms{Unlimited: true}, true
	}
	how := manner{precision: r.precision(&t.Precision), lease: r.lease(&t.Lease)}
	if above != nil {
		if !t.Observe.set {
			share, _ = readShare(&above.Observe)
		}
		if !t.Precision.set {
			how.precision, _ = readPrecision(&above.Precision)
			how.precision.inherited = true
		}
		if !t.Lease.set {
			how.lease, _ = readLease(&above.Lease)
			how.lease.inherited = true
		}
	}
	out.Limits, given = r.someLimits(t, how, at, bad)
	if given {
		out.Observe = share
	}
	return out, given || t.Unlimited.set && t.Unlimited.bad
}

// unlimited refuses limits beside unlimited. With arms, others inherit from t how
// theirs are meant.
func (r *rulesReader) unlimited(t *terms, arms bool) {
	for _, other := range []struct {
		set bool
		spot
		name string
	}{
		{t.Unit.set, t.Unit.spot, "unit"},
		{t.Window.set, t.Window.spot, "window"},
		{t.Requests.set, t.Requests.spot, "requests"},
		{t.Limits.set, t.Limits.spot, "limits"},
		{t.Precision.set && !arms, t.Precision.spot, "precision"},
		{t.Lease.set && !arms, t.Lease.spot, "lease"},
		{t.Observe.set && !arms, t.Observe.spot, "observe"},
	} {
		if other.set {
			r.decoder.problem(other.spot, "%s beside unlimited on line %d: give one of the two", other.name, t.Unlimited.line)
		}
	}
	if t.RequestsPerUnit.set {
		r.decoder.warning(t.RequestsPerUnit.spot, "ignored beside unlimited, as envoyproxy/ratelimit does")
	}
}

// share reads observe.
func (r *rulesReader) share(f *field[string]) float64 {
	share, err := readShare(f)
	if err != nil {
		r.decoder.problem(f.spot, "%s", err)
	}
	return share
}

func readShare(f *field[string]) (float64, error) {
	if !given(f) {
		return 0, nil
	}
	return parseShare(f.value)
}

// parseShare reads true, false or a percentage as a share from 0 to 1.
func parseShare(text string) (float64, error) {
	if b, ok := parseFlag(text); ok {
		if b {
			return 1, nil
		}
		return 0, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || strings.ContainsAny(number, "xXpPnN_"):
		return 0, fmt.Errorf("%s is not a share of subjects: write true, false or a percentage such as 25%%", quote(text))
	case !percent:
		return 0, fmt.Errorf("%s has no unit: write a percentage such as 25%%", quote(text))
	case share < 0 || share > 100:
		return 0, fmt.Errorf("%s is not between 0%% and 100%%", quote(text))
	}
	return share / 100, nil
}

// someLimits reads one limit or a list of them; see someTerms.
func (r *rulesReader) someLimits(t *terms, how manner, at spot, bad bool) (limits []policy.Limit, given bool) {
	one := t.Unit.set || t.RequestsPerUnit.set || t.Window.set || t.Requests.set
	if one && t.Limits.set {
		r.decoder.problem(t.Limits.spot, "limits stand alone: put the limit beside them into the list")
		return nil, true
	}
	if one {
		if l, ok := r.limit(&t.limit, at, bad); ok {
			limits = append(limits, r.limitOf(l, &t.limit, how, at))
		}
		return limits, true
	}
	if !t.Limits.set {
		return nil, false
	}
	if len(t.Limits.value) == 0 && !t.Limits.bad {
		r.decoder.problem(t.Limits.spot, "the list is empty")
	}
	lines := make(map[time.Duration]int)
	for i := range t.Limits.value {
		f := &t.Limits.value[i]
		own := how
		if f.value.Precision.set {
			own.precision = r.precision(&f.value.Precision)
		}
		if f.value.Lease.set {
			own.lease = r.lease(&f.value.Lease)
		}
		l, ok := r.limit(&f.value, f.spot, f.bad)
		if !ok {
			continue
		}
		if first, again := lines[l.Window]; again {
			r.decoder.problem(f.spot, "a second limit for the same window, the first is on line %d", first)
			continue
		}
		lines[l.Window] = f.line
		limits = append(limits, r.limitOf(l, &f.value, own, f.spot))
	}
	return limits, true
}

// manner is how a limit is kept.
type manner struct {
	precision precision
	lease     lease
}

func (r *rulesReader) limitOf(l window.Limit, written *limit, how manner, at spot) policy.Limit {
	return policy.Limit{
		Limit:     l,
		Precision: r.precisionOf(l, written, how.precision, at),
		Lease:     r.leaseOf(l, written, how.lease, at),
	}
}

// autoPrecision leaves the precision to the service.
const autoPrecision = "auto"

// precision is what a precision says. The zero value leaves it to the service.
type precision struct {
	spot
	text      string
	chosen    bool
	exact     time.Duration
	inherited bool // from the rule, by an arm of by_tier
}

// precision reads a precision.
func (r *rulesReader) precision(f *field[string]) precision {
	p, err := readPrecision(f)
	if err != nil {
		r.decoder.problem(f.spot, "%s", err)
	}
	return p
}

func readPrecision(f *field[string]) (precision, error) {
	if !given(f) || f.value == autoPrecision {
		return precision{}, nil
	}
	exact, err := ParseDuration(f.value)
	switch {
	case err != nil:
		return precision{}, fmt.Errorf("%w, or auto", err)
	case exact < 0:
		return precision{}, fmt.Errorf("%s is negative", quote(f.value))
	}
	return precision{spot: f.spot, text: f.value, chosen: true, exact: exact}, nil
}

// precisionOf applies a precision to a limit that stands at a spot.
func (r *rulesReader) precisionOf(l window.Limit, written *limit, p precision, at spot) time.Duration {
	switch {
	case !p.chosen:
		return window.Precision(l)
	case p.exact <= l.Window:
		r.boundLog(l, written, p, at)
		return p.exact
	case p.inherited:
		r.decoder.problem(at, "the precision %s on line %d is longer than the window of %s: give this tier its own", quote(p.text), p.line, written.length(l.Window))
	default:
		r.decoder.problem(p.spot, "%s is longer than the window of %s", quote(p.text), written.length(l.Window))
	}
	return 0
}

// slotsAMillisecond is how many slots of a log Redis moves in about a millisecond, by
// the topic "longest" of test/windowbench.
const slotsAMillisecond = 12_500

// boundLog refuses a limit whose log needs more slots than the store may keep: Redis
// does nothing else while it moves them. Only a chosen precision needs so many.
func (r *rulesReader) boundLog(l window.Limit, written *limit, p precision, at spot) {
	check := window.Check{Limit: l, Precision: p.exact}
	slots := window.LogSlots(&check)
	if r.maxLogSlots == 0 || slots <= r.maxLogSlots {
		return
	}
	if !p.inherited {
		at = p.spot
	}
	parts := time.Duration(r.maxLogSlots - 2)
	finest := ((l.Window+parts-1)/parts + time.Microsecond - 1).Truncate(time.Microsecond)
	r.decoder.problem(at, "precision %s for %d per %s needs a log of up to %d slots (%d kB), and Redis stops for about %d ms each time such a log grows: "+
		"give precision auto or at least %v, or let store.redis.max_log_slots, now %d, allow it",
		quoteless(p.text), l.Hits, written.length(l.Window), slots, window.LogBytes(&check)/1000, max(slots/slotsAMillisecond, 1), finest, r.maxLogSlots)
}

// noLease is what lease says where a rule has one that does not hold for a limit.
const noLease = "none"

// Bounds on leases. What is reserved denies others until it is spent, so it is
// little, and not for long.
const (
	minLeaseLength = time.Millisecond
	maxLeaseLength = time.Second
	maxLeaseShare  = 50 // per cent of the limit
	leasesAWindow  = 10 // at least
)

// lease is what a lease says. The zero value is none.
type lease struct {
	spot
	text      string
	length    time.Duration // zero: as long as usual
	percent   float64       // of the limit; zero: as the length has it
	inherited bool          // from the rule, by an arm of by_tier
}

// lease reads a lease.
func (r *rulesReader) lease(f *field[string]) lease {
	l, err := readLease(f)
	if err != nil {
		r.decoder.problem(f.spot, "%s", err)
	}
	return l
}

func readLease(f *field[string]) (lease, error) {
	if !given(f) || f.value == noLease {
		return lease{}, nil
	}
	l := lease{spot: f.spot, text: f.value}
	if number, percent := strings.CutSuffix(f.value, "%"); percent {
		share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		switch {
		case err != nil || strings.ContainsAny(number, "xXpPnN_+"):
			return lease{}, fmt.Errorf("%s is not a share of the limit: write a percentage such as 5%%", quote(f.value))
		case share <= 0 || share > maxLeaseShare:
			return lease{}, fmt.Errorf("%s is not above 0%% and up to %d%%", quote(f.value), maxLeaseShare)
		}
		l.percent = share
		return l, nil
	}
	length, err := ParseDuration(f.value)
	switch {
	case err != nil:
		return lease{}, fmt.Errorf("%w; or a percentage of the limit such as 5%%, or none", err)
	case length < minLeaseLength || length > maxLeaseLength:
		return lease{}, fmt.Errorf("%s is not between %v and %v", quote(f.value), minLeaseLength, maxLeaseLength)
	}
	l.length = length
	return l, nil
}

// leaseOf applies a lease to a limit that stands at a spot.
func (r *rulesReader) leaseOf(l window.Limit, written *limit, given lease, at spot) window.Lease {
	most := l.Window / leasesAWindow
	switch {
	case given.percent > 0:
		hits := uint64(float64(l.Hits) * given.percent / 100)
		if hits < window.MinLeaseHits {
			r.littleLease(given, quoteless(given.text), l.Hits)
			return window.Lease{}
		}
		return window.Lease{Length: min(policy.LeaseLength, most), Hits: hits}
	case given.length == 0:
		return window.Lease{}
	case given.length <= most:
		if l.Hits/window.LeasePart < window.MinLeaseHits {
			r.littleLease(given, "a tenth", l.Hits)
			return window.Lease{}
		}
		return window.Lease{Length: given.length}
	case given.inherited:
		r.decoder.problem(at, "the lease %s on line %d is longer than a tenth of the window of %s: give this tier its own", quote(given.text), given.line, written.length(l.Window))
	default:
		r.decoder.problem(given.spot, "%s is longer than a tenth of the window of %s", quote(given.text), written.length(l.Window))
	}
	return window.Lease{}
}

// littleLease warns of a lease that is never made. One that several tiers inherit is
// for those that it helps.
func (r *rulesReader) littleLease(given lease, part string, hits uint64) {
	if !given.inherited {
		r.decoder.warning(given.spot, "%s of %d is less than %d hits, so nothing is reserved", part, hits, uint64(window.MinLeaseHits))
	}
}

// length is a window as the file has it.
func (l *limit) length(length time.Duration) string {
	if l.Window.set {
		return quoteless(l.Window.value)
	}
	return policy.FormatWindow(length)
}

// limit reads one limit. With bad, halves of pairs are not missed.
func (r *rulesReader) limit(l *limit, at spot, bad bool) (window.Limit, bool) {
	d := r.decoder
	unit, inUnit := l.Unit.set, l.RequestsPerUnit.set
	win, requests := l.Window.set, l.Requests.set
	if l.Unit.bad || l.Window.bad {
		return window.Limit{}, false
	}
	if l.RequestsPerUnit.bad || l.Requests.bad {
		// The length beside a bad number is judged all the same.
		switch {
		case unit && !win && !requests:
			r.perUnit(l)
		case win && !unit && !inUnit:
			r.perWindow(l)
		}
		return window.Limit{}, false
	}
	switch {
	case bad && (unit != inUnit || win != requests || !unit && !win):
	case !unit && !inUnit && !win && !requests:
		d.problem(at, "no limit: give unit and requests_per_unit, or window and requests")
	case (unit || inUnit) && (win || requests):
		d.problem(at, "unit and requests_per_unit belong together, and so do window and requests: give one of the two pairs")
	case unit && !inUnit:
		d.problem(l.Unit.spot, "unit without requests_per_unit")
	case !unit && inUnit:
		d.problem(l.RequestsPerUnit.spot, "requests_per_unit without unit")
	case win && !requests:
		d.problem(l.Window.spot, "window without requests")
	case !win && requests:
		d.problem(l.Requests.spot, "requests without window")
	case unit:
		return r.perUnit(l)
	default:
		return r.perWindow(l)
	}
	return window.Limit{}, false
}

func (r *rulesReader) perUnit(l *limit) (window.Limit, bool) {
	name := strings.ToLower(l.Unit.value)
	for _, u := range units {
		if u.name == name {
			return r.bounded(window.Limit{Hits: l.RequestsPerUnit.value, Window: u.length}, l, l.RequestsPerUnit.spot, l.Unit.spot)
		}
	}
	r.decoder.problem(l.Unit.spot, "unknown unit %s, expected one of %s%s", r.decoder.quote(l.Unit.value), strings.Join(unitNames(), ", "), didYouMean(name, unitNames()))
	return window.Limit{}, false
}

func (r *rulesReader) perWindow(l *limit) (window.Limit, bool) {
	length, err := ParseDuration(l.Window.value)
	if err != nil {
		if r.decoder.hideValues { // the error quotes the value
			err = errNoTime
		}
		r.decoder.problem(l.Window.spot, "%s", err)
		return window.Limit{}, false
	}
	return r.bounded(window.Limit{Hits: l.Requests.value, Window: length}, l, l.Requests.spot, l.Window.spot)
}

// bounded checks what the stores can hold.
func (r *rulesReader) bounded(l window.Limit, written *limit, hits, length spot) (window.Limit, bool) {
	ok := true
	if l.Hits > window.MaxHits {
		r.decoder.problem(hits, "%s is above %d, the largest number that Envoy's protocol can carry", r.decoder.shown(strconv.FormatUint(l.Hits, 10)), uint64(window.MaxHits))
		l.Hits = 0
		ok = false
	}
	if l.Valid() != nil {
		problem := "not a whole number of microseconds"
		if l.Window < window.MinWindow {
			problem = "shorter than " + policy.FormatWindow(window.MinWindow)
		} else if l.Window > window.MaxWindow {
			problem = "longer than " + policy.FormatWindow(window.MaxWindow)
		}
		r.decoder.problem(length, "window %s is %s", written.length(l.Window), problem)
		ok = false
	}
	return l, ok
}
