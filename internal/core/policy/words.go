package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/window"
)

// Words describes what the rule admits in plain words, a sentence for each tier: "100 in any 1m, for
// each API key of tier free". No value of an API key is in them. [Rule.Traits] has the other options.
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
	return all
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
		return fmt.Sprintf("%s in each %s on average, up to %s at once after %s without requests, and so up to %s in any %s",
			words.Count(uint64(l.Rate)), per, hits, words.Duration(fill), words.Count(WorstCase(l.Limit)), per)
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
