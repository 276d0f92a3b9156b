package rules

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
	case !r.Terms.Empty(): // otherwise each tier has its own
		all = append(all, r.words(&r.Terms, "any other tier"))
	}
	return all
}

// words describes the limits of one tier. An empty tier means all callers.
func (r *Rule) words(t *Terms, tier string) string {
	amounts := make([]string, 0, len(t.Limits))
	for i := range t.Limits {
		amounts = append(amounts, t.Limits[i].Words())
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

// Words describes the limit, and what it admits at worst: 100 in any 1m.
func (l *Limit) Words() string {
	text := l.words()
	if l.Budget != nil {
		text += fmt.Sprintf("; a request reserves what it may cost, %s if it does not say it, and pays at its end", Amount(l.Budget.Reserve, l.Currency))
	}
	return text
}

func (l *Limit) words() string {
	per := FormatWindow(l.Window)
	switch l.Hits {
	case 0:
		return "nothing"
	case window.Unlimited:
		return "as many as wanted"
	}
	count := words.Count
	if l.Currency != "" {
		count = func(n uint64) string { return Amount(n, l.Currency) }
	}
	hits := count(l.Hits)
	switch l.Policy {
	case window.TokenBucket:
		fill, _ := FillTime(l.Limit)
		return fmt.Sprintf("%s in each %s on average, up to %s at once after %s without requests, and so up to %s in any %s",
			count(uint64(l.Rate)), per, hits, words.Duration(fill), count(WorstCase(l.Limit)), per)
	case window.Fixed:
		return fmt.Sprintf("%s in each %s of the clock, so up to %s in any %s around its end",
			hits, per, count(WorstCase(l.Limit)), per)
	case window.Calendar:
		return fmt.Sprintf("%s in each calendar %s (%s), so up to %s around its end", hits, Unit(l.Window), l.CalendarText(), count(WorstCase(l.Limit)))
	case window.InFlight:
		return fmt.Sprintf("%s at the same time, each for %s at most", hits, per)
	case window.SlidingCounter:
		return fmt.Sprintf("about %s in any %s, and up to %s in the worst case", hits, per, count(WorstCase(l.Limit)))
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
		if r.is.hidden[i] {
			value = "***"
		}
		switch {
		case !n.Open():
			with = append(with, n.Key+"="+value)
		case r.HasOneLog(i):
			with = append(with, fmt.Sprintf("%s that fits %s, together", n.Key, value))
		default:
			noun := r.noun(i)
			if n.Pattern {
				noun += " that fits " + value
			}
			if tier != "" && i == r.is.subject {
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

// noun returns a noun for the values of a level of the path: API key.
func (r *Rule) noun(level int) string {
	for _, part := range r.is.parts {
		if part.Level == level && part.Secret {
			return "API key"
		}
	}
	switch key := r.Path[level].Key; key {
	case KeyAddress:
		return "client address"
	case KeyMaskedAddress:
		return "client network"
	default:
		return "value of " + key
	}
}

// CalendarText says when the periods of a calendar start, or returns an empty text.
func (l *Limit) CalendarText() string {
	switch {
	case l.Calendar == nil:
		return ""
	case l.StartsLabel != "":
		unit, start, _ := strings.Cut(l.Calendar.String(), " from ")
		return fmt.Sprintf("%s from the day in the label %s, otherwise from %s", unit, l.StartsLabel, start)
	default:
		return l.Calendar.String()
	}
}

// Traits lists the options of a rule other than its limits. Of a denial's body and of
// metadata, which may be long, it says only that the rule has them.
func (r *Rule) Traits() []string {
	var parts []string
	add := func(is bool, text string) {
		if is {
			parts = append(parts, text)
		}
	}
	add(r.Storage.Scope != "", "scope="+r.Storage.Scope)
	add(r.Storage.Priority != window.PriorityNormal, "priority="+r.Storage.Priority.String())
	add(r.Quota, "quota")
	add(slices.Contains(r.OneLog, true), "share_threshold")
	add(r.Charge.Always, "charge=always")
	add(r.Charge.AllowedOnly, "charge=allowed")
	add(r.Charge.Factor > 1, fmt.Sprintf("cost=%d", r.Charge.Factor))
	add(r.Charge.Once.Entry != "", fmt.Sprintf("charge_once=%q", r.Charge.Once))
	add(len(r.Replaces) > 0, fmt.Sprintf("replaces=%q", r.Replaces))
	add(r.Storage.OnError != StoreErrorUnset, "on_store_error="+r.Storage.OnError.String())
	add(r.Answer.RetryJitter > 0, fmt.Sprintf("retry_jitter=%.4g%%", 100*r.Answer.RetryJitter))
	add(r.Answer.NeverRetry, "client_retry=never")
	add(r.Metric.Detailed, "detailed_metric")
	add(slices.Contains(r.Metric.Values, true), "value_to_metric")
	add(r.Answer.Denial.Form != FormUnset, "body="+r.Answer.Denial.Form.String())
	add(r.Answer.Denial.Body != "", "own denial")
	add(len(r.Answer.Metadata) > 0, "metadata")
	return parts
}
