package rules

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// This file reads the policy of limits, and the limits of policies that do not count hits in
// a window.

// A policyLanguage is what a limit with a policy has in rules files.
type policyLanguage struct {
	policy window.Policy
	keys   []string // that a limit may have, besides policy
	needs  string   // in messages: what a limit must have
}

// policyLanguages are those of all policies, in the order of the documentation.
var policyLanguages = []policyLanguage{
	{window.Sliding, append(slices.Clip(windowKeys), "precision", "lease"), needsWindow},
	{window.TokenBucket, append(slices.Clip(spendingKeys), "rate", "burst"), "rate and burst"},
	{window.Fixed, windowKeys, needsWindow},
	{window.Calendar, append(slices.Clip(spendingKeys), "unit", "requests_per_unit", "time_zone", "starts", "starts_label"), "unit and requests_per_unit"},
	{window.SlidingCounter, windowKeys, needsWindow},
	{window.InFlight, []string{"max", "hold"}, "max and hold"},
}

// spendingKeys are the keys of limits with every policy but in_flight, and windowKeys those of hits in a
// window.
var (
	spendingKeys = []string{"budget", "currency"}
	windowKeys   = append(slices.Clip(spendingKeys), "unit", "requests_per_unit", "window", "requests")
)

const needsWindow = "unit and requests_per_unit, or window and requests"

// inheritable are the keys of a limit that may be next to limits and by_tier, for all below
// that do not set them.
var inheritable = []string{"policy", "precision", "lease", "time_zone", "starts", "starts_label", "hold", "budget", "currency"}

func languageOf(p window.Policy) *policyLanguage {
	i := slices.IndexFunc(policyLanguages, func(l policyLanguage) bool { return l.policy == p })
	return &policyLanguages[i]
}

// policyNames returns the names of all policies, or of those that a document or the settings
// may choose for all limits: they have the keys of envoyproxy/ratelimit.
func policyNames(ofAll bool) (names []string) {
	for _, l := range policyLanguages {
		if !ofAll || l.needs == needsWindow {
			names = append(names, l.policy.String())
		}
	}
	return names
}

func policyByName(name string) (p window.Policy, ok bool) {
	for _, l := range policyLanguages {
		if l.policy.String() == name {
			return l.policy, true
		}
	}
	return 0, false
}

// A policyChoice is the policy of limits, and which key or setting chose it.
type policyChoice struct {
	window.Policy
	by     string // in messages; empty: a key policy of the rule
	wrong  bool   // the key has a problem, which is reported already
	byKeys bool   // the keys of each limit say the policy: an override
}

// documentPolicy reads the policy of all limits of a document that name none.
func (r *rulesReader) documentPolicy(f *strict.Field[string]) policyChoice {
	byDefault := policyChoice{by: " by default"}
	if p, ok := policyByName(r.Settings.Policy); ok && p != window.Sliding {
		byDefault = policyChoice{Policy: p, by: ", from the setting rules.policy"}
	}
	switch {
	case f.Bad:
		return policyChoice{wrong: true}
	case !f.Set:
		return byDefault
	}
	p, ok := policyByName(f.Value)
	switch all := policyNames(true); {
	case ok && slices.Contains(all, f.Value):
		return policyChoice{Policy: p, by: fmt.Sprintf(", from line %d", f.Line)}
	case ok:
		r.decoder.Problem(f.Position, "%s needs its own keys, so it cannot be the policy of a whole document: write it in each limit", f.Value)
	default:
		r.decoder.Problem(f.Position, "%s", strict.NotOneOf(f.Value, all))
	}
	return policyChoice{wrong: true}
}

// policyOf reads the key policy of a limit or of terms, which inherit above.
func (r *rulesReader) policyOf(f *strict.Field[string], above policyChoice) policyChoice {
	switch {
	case f.Bad:
		return policyChoice{wrong: true}
	case !f.Set:
		return above
	}
	p, ok := policyByName(f.Value)
	if !ok {
		r.decoder.Problem(f.Position, "%s", strict.NotOneOf(f.Value, policyNames(false)))
	}
	return policyChoice{Policy: p, wrong: !ok}
}

// offers are the inheritable keys next to limits or by_tier of one rule.
type offers struct {
	keys     []setKey
	policies []window.Policy // of the limits that were read
}

// offer keeps the inheritable keys of terms.
func (o *offers) offer(keys []setKey) {
	for _, k := range keys {
		if k.name != "policy" && slices.Contains(inheritable, k.name) {
			o.keys = append(o.keys, k)
		}
	}
}

// untaken reports the keys that no limit has.
func (r *rulesReader) untaken(o *offers) {
	for _, k := range o.keys {
		has := func(p window.Policy) bool { return slices.Contains(languageOf(p).keys, k.name) }
		if len(o.policies) > 0 && !slices.ContainsFunc(o.policies, has) {
			r.decoder.Problem(k.Position, "no limit here has the policy %s, to which %s belongs: remove it", strings.Join(owners(k.name), " or "), k.name)
		}
	}
}

func owners(key string) (names []string) {
	for _, l := range policyLanguages {
		if slices.Contains(l.keys, key) {
			names = append(names, l.policy.String())
		}
	}
	return names
}

// misfits reports the keys of a limit that its policy does not have.
func (r *rulesReader) misfits(keys []setKey, p policyChoice) (found bool) {
	has := languageOf(p.Policy)
	for _, k := range keys {
		if k.name == "policy" || slices.Contains(has.keys, k.name) {
			continue
		}
		found = true
		if p.by == "" {
			r.decoder.Problem(k.Position, "%s has no meaning with the policy %s, which has %s: remove it", k.name, p, has.needs)
			continue
		}
		owner := owners(k.name)[0]
		r.decoder.Problem(k.Position, "%s belongs to the policy %s, but this limit has %s%s: add policy: %s, or remove %s", k.name, owner, p, p.by, owner, k.name)
	}
	return found
}

// policyByKeys returns the policy that the keys of an override mean. Sliding stands for every
// policy with hits in a window: the rule says which.
func policyByKeys(l *limit) window.Policy {
	switch {
	case l.Rate.Set || l.Burst.Set:
		return window.TokenBucket
	case l.Max.Set:
		return window.InFlight
	default:
		return window.Sliding
	}
}

func (r *rulesReader) tokenBucket(l *limit, bad bool) (window.Limit, bool) {
	rate, rateOK := window.Limit{}, false
	if strict.Given(&l.Rate) {
		rate, rateOK = r.rate(&l.Rate)
	}
	switch {
	case l.Rate.Bad, l.Burst.Bad:
		return rate, false
	case !l.Rate.Set:
		if !bad {
			r.decoder.Problem(l.Burst.Position, "burst without rate: add how fast the bucket fills, such as rate: 10/s")
		}
		return rate, false
	case !l.Burst.Set:
		if !bad {
			r.decoder.Problem(l.Rate.Position, "rate without burst: add the most requests at once, such as burst: 50")
		}
		return rate, false
	}
	rate.Hits = l.Burst.Value
	if !r.countable(l.Burst.Value, l.Burst.Position) || !rateOK {
		return rate, false
	}
	if rate.Valid() != nil {
		r.decoder.Problem(l.Burst.Position, "an empty bucket takes longer than %s to fill: lower burst, or raise rate", rules.FormatWindow(window.MaxWindow))
		return rate, false
	}
	return rate, true
}

// rate reads a rate such as 10/s. The limit that it returns has no hits.
func (r *rulesReader) rate(f *strict.Field[string]) (window.Limit, bool) {
	hits, per, err := parseRate(f.Value)
	if err != nil {
		if r.decoder.HideValues { // the error quotes the value
			err = errNoRate
		}
		r.decoder.Problem(f.Position, "%s", err)
		return window.Limit{}, false
	}
	return window.Limit{Policy: window.TokenBucket, Rate: hits, Window: per}, true
}

var errNoRate = errors.New("not a rate: write hits and a time, such as 10/s, 600/m, 5/100ms or 1000/day")

// parseRate reads hits and a time. Errors quote text.
func parseRate(text string) (hits uint32, per time.Duration, err error) {
	number, unit, ok := strings.Cut(text, "/")
	number, unit = strings.TrimSpace(number), strings.TrimSpace(unit)
	if !ok || number == "" || unit == "" {
		return 0, 0, fmt.Errorf("%s is %w", strict.Quote(text), errNoRate)
	}
	n, err := strconv.ParseUint(number, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > math.MaxUint32:
		return 0, 0, fmt.Errorf("%s is above %d hits, the largest rate", strict.Quote(text), uint32(math.MaxUint32))
	case err != nil:
		return 0, 0, fmt.Errorf("%s: %s is not a whole number of hits in digits: write 1/10s for 0.1/s, and 1000/s for 1e3/s", strict.Quote(text), strict.Quote(number))
	case n == 0:
		return 0, 0, fmt.Errorf("%s never fills the bucket: write at least 1 hit, if need be for a longer time such as 1/h", strict.Quote(text))
	}
	per, known := unitNamed(unit)
	if !known {
		if unit[0] < '0' || unit[0] > '9' {
			unit = "1" + unit
		}
		if per, err = strict.ParseDuration(unit); err != nil {
			return 0, 0, fmt.Errorf("%s is %w", strict.Quote(text), errNoRate)
		}
	}
	switch {
	case per < window.MinWindow:
		return 0, 0, fmt.Errorf("%s has a time shorter than %v: write the hits of a longer time, such as 1000/s for 1/ms", strict.Quote(text), window.MinWindow)
	case per > window.MaxWindow:
		return 0, 0, fmt.Errorf("%s has a time longer than %s", strict.Quote(text), rules.FormatWindow(window.MaxWindow))
	case per%time.Microsecond != 0:
		return 0, 0, fmt.Errorf("%s has a time that is not a whole number of microseconds", strict.Quote(text))
	}
	return uint32(n), per, nil
}

func (r *rulesReader) inFlight(l *limit, hold *strict.Field[string], override, bad bool) (window.Limit, bool) {
	out := window.Limit{Policy: window.InFlight, Hits: l.Max.Value, Window: window.MinHold}
	ok := override // the rule says how long a hold lasts
	if strict.Given(hold) {
		out.Window, ok = r.duration(hold, window.MinHold, window.MaxWindow, time.Millisecond)
	}
	switch {
	case l.Max.Bad, hold.Bad:
		return out, false
	case !l.Max.Set:
		if !bad {
			r.decoder.Problem(l.Hold.Position, "hold without max: add the most requests at the same time, such as max: 20")
		}
		return out, false
	case l.Max.Value > window.MaxInFlight:
		r.decoder.Problem(l.Max.Position, "%s is above %d, because the store reads all holds of a log with each request: split the limit over several values of an entry",
			r.decoder.Quote(strconv.FormatUint(l.Max.Value, 10)), window.MaxInFlight)
		return out, false
	case !hold.Set && !override:
		if !bad {
			r.decoder.Problem(l.Max.Position, "max without hold: add when a request counts as ended whose end is never reported: longer than any request takes, such as hold: 5m")
		}
		return out, false
	}
	return out, ok
}

func (r *rulesReader) duration(f *strict.Field[string], least, most, step time.Duration) (time.Duration, bool) {
	length, err := strict.ParseDuration(f.Value)
	switch {
	case err != nil:
		r.decoder.Problem(f.Position, "%s", err)
	case length < least || length > most || length%step != 0:
		r.decoder.Problem(f.Position, "%s is not between %s and %s in whole steps of %v", strict.Quote(f.Value), rules.FormatWindow(least), rules.FormatWindow(most), step)
	default:
		return length, true
	}
	return least, false
}
