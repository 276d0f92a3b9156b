package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/words"
	"github.com/slidegate/slidegate/pkg/window"
)

// Words describes what the rule admits in plain words, a sentence for each tier and one for each
// other option: "100 in any 1m, for each API key of tier free". No value of an API key is in
// them.
func (r *Rule) Words() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.ByTier)) {
		terms := r.ByTier[name]
		all = append(all, r.words(&terms, "tier "+name))
	}
	switch {
	case len(r.ByTier) == 0:
		all = append(all, r.words(&r.Terms, ""))
	case !r.Terms.empty(): // otherwise each tier has its own
		all = append(all, r.words(&r.Terms, "any other tier"))
	}
	return append(all, r.options()...)
}

// words describes the limits of one tier. An empty tier means all callers.
func (r *Rule) words(t *Terms, tier string) string {
	amounts := make([]string, 0, len(t.Limits))
	for i := range t.Limits {
		amounts = append(amounts, amount(&t.Limits[i]))
	}
	text := strings.Join(amounts, ", and ")
	switch {
	case t.Unlimited:
		text = "unlimited"
	case text == "":
		text = "no limit"
	}
	text += ", " + r.scope(tier)
	switch {
	case len(t.Limits) == 0:
	case t.Observe == 1:
		text += "; only observed, so nothing is denied"
	case t.Observe > 0:
		text += fmt.Sprintf("; only observed for %.4g%% of them", 100*t.Observe)
	}
	return text
}

// amount describes one limit, and what it admits at worst: 100 in any 1m.
func amount(l *Limit) string {
	per := FormatWindow(l.Window)
	switch l.Hits {
	case 0:
		return "nothing"
	case window.MaxHits:
		return "as many as wanted"
	}
	hits := words.Count(l.Hits)
	switch l.Policy {
	case window.TokenBucket:
		fill, _ := fillTime(l.Limit)
		return fmt.Sprintf("%s in each %s on average, and up to %s at once after %s without requests",
			words.Count(uint64(l.Rate)), per, hits, words.Duration(fill))
	case window.Fixed:
		return fmt.Sprintf("%s in each %s of the clock, so up to %s in any %s around its end",
			hits, per, words.Count(WorstCase(l.Limit)), per)
	case window.Calendar:
		return fmt.Sprintf("%s in each calendar %s (%s), so up to %s around its end", hits, Unit(l.Window), l.CalendarText(), words.Count(WorstCase(l.Limit)))
	case window.InFlight:
		return fmt.Sprintf("%s at the same time, each for %s at most", hits, per)
	case window.SlidingCounter:
		return fmt.Sprintf("about %s in any %s, and up to %s in the worst case", hits, per, words.Count(WorstCase(l.Limit)))
	default:
		return hits + " in any " + per
	}
}

// scope says which requests share a log: "for each API key of tier free, in requests with
// route=search".
func (r *Rule) scope(tier string) string {
	var each, with []string
	keyed := false
	for i, n := range r.Path {
		value := n.Value
		if r.hidden[i] {
			value = "***"
		}
		switch {
		case !n.Open():
			with = append(with, n.Key+"="+value)
		case r.Shares(i):
			with = append(with, fmt.Sprintf("%s that fits %s, together", n.Key, value))
		default:
			noun := r.noun(i)
			if n.Pattern {
				noun += " that fits " + value
			}
			if tier != "" && i == r.subject {
				noun += " of " + tier
				keyed = true
			}
			each = append(each, "each "+noun)
		}
	}
	text := "for " + strings.Join(each, " and ")
	switch requests := strings.Join(with, " and "); {
	case len(each) > 0 && requests != "":
		text += ", in requests with " + requests
	case len(each) > 0:
	case requests != "":
		text = "for all requests with " + requests
	default:
		text = "for all requests"
	}
	if tier != "" && !keyed {
		text += ", if the caller is of " + tier
	}
	return text
}

// noun names what a level of the path has a log for.
func (r *Rule) noun(level int) string {
	for _, part := range r.identity {
		if part.entry == level && part.secret {
			return "API key"
		}
	}
	switch key := r.Path[level].Key; key {
	case keyAddress:
		return "client address"
	case keyMaskedAddress:
		return "client network"
	default:
		return "value of " + key
	}
}

// options describes what else the rule says, a sentence each.
func (r *Rule) options() []string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(r.Factor > 1, "each request costs %s times as much", words.Count(r.Factor))
	add(r.in != window.Region, "counted in the scope %s, with all who share its store", r.Scope)
	add(r.Priority < window.PriorityNormal, "decided after the other requests that wait for the store")
	add(r.Priority > window.PriorityNormal, "decided before the other requests that wait for the store")
	add(r.Quota, "one of several quota rules: a request passes if one of them has room")
	add(r.Always, "costs count even if they do not fit, and if the request is denied")
	add(r.AllowedOnly, "only requests that pass are charged")
	add(r.Once.Entry != "", "requests with the same %s are charged once in %s, and up to %d retries of each are free", r.Once.Entry, FormatWindow(r.Once.For), r.Once.Retries)
	add(len(r.Replaces) > 0, "a request that it matches is not limited by %s", strings.Join(r.Replaces, ", "))
	leased := r.Terms.leased()
	for name := range r.ByTier {
		terms := r.ByTier[name]
		leased = leased || terms.leased()
	}
	add(leased, "each instance may reserve hits ahead for busy keys")
	add(r.RetryJitter > 0, "clients are told to wait up to %.4g%% longer than they have to, each subject another share", 100*r.RetryJitter)
	switch r.OnStoreError {
	case StoreErrorUnset:
	case StoreErrorAllow:
		add(true, "while the store is away, requests pass")
	case StoreErrorDeny:
		add(true, "while the store is away, requests are denied")
	case StoreErrorLocal:
		add(true, "while the store is away, each instance admits its share")
	case StoreErrorReported:
		add(true, "while the store is away, Envoy gets an error and decides")
	}
	return all
}
