package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/words"
	"github.com/slidegate/slidegate/pkg/window"
)

// worst says in plain words what a limit admits at worst. It returns an empty text if that is
// the limit.
func worst(l window.Limit) string {
	most, per := words.Count(WorstCase(l)), FormatWindow(l.Window)
	switch {
	case l.Hits == 0 || l.Hits == window.MaxHits:
		return ""
	case l.Policy == window.TokenBucket:
		return fmt.Sprintf("at worst %s in any %s: a full bucket, and what comes back meanwhile", most, per)
	case l.Policy == window.Fixed:
		return fmt.Sprintf("at worst %s in any %s: around the end of a window of the clock", most, per)
	case l.Policy == window.Calendar:
		return fmt.Sprintf("at worst %s in a short time: around the end of any %s", most, Unit(l.Window))
	case l.Policy == window.SlidingCounter:
		return fmt.Sprintf("at worst %s in any %s: all of one window at its end, and the next one full", most, per)
	case l.Policy == window.InFlight:
		return fmt.Sprintf("a request whose end is never reported counts for %s", per)
	default:
		return ""
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

// counting is how the tiers of one rule count, for notes about them.
type counting struct {
	tiers     []tierCounting
	inFlight  bool
	shortened bool // a calendar starts on a day that some months do not have
}

// tierCounting is how one tier counts.
type tierCounting struct {
	tier     string
	policies string // joined, without those that are there twice
	rates    string // the times of the rates of token buckets, joined
}

// add adds the terms of a tier; the empty tier is all others.
func (c *counting) add(tier string, t *Terms) {
	var policies, rates []string
	for i := range t.Limits {
		l := &t.Limits[i]
		policies = append(policies, l.Policy.String())
		if l.Policy == window.TokenBucket {
			rates = append(rates, FormatWindow(l.Window))
		}
		c.inFlight = c.inFlight || l.Policy == window.InFlight
		c.shortened = c.shortened || l.Calendar != nil && l.Calendar.Shortened()
	}
	if len(policies) == 0 {
		return // it has no log
	}
	joined := func(texts []string) string {
		slices.Sort(texts)
		return strings.Join(slices.Compact(texts), " and ")
	}
	c.tiers = append(c.tiers, tierCounting{cmp.Or(tier, "others"), joined(policies), joined(rates)})
}

// notes returns what may surprise the author of the rule.
func (c *counting) notes() (notes []string) {
	if groups := c.groups(func(t tierCounting) string { return t.policies }); len(groups) > 1 {
		notes = append(notes, strings.Join(groups, "; ")+": a subject that changes between these tiers starts with nothing used")
	} else if groups := c.groups(func(t tierCounting) string { return t.rates }); len(groups) > 1 {
		notes = append(notes, "rates of token buckets for different times ("+strings.Join(groups, "; ")+
			"): a subject that changes between these tiers starts with a full bucket; write the rates for the same time")
	}
	if c.shortened {
		notes = append(notes, "in a month without that day the period starts on the last day")
	}
	if c.inFlight {
		notes = append(notes, "requests in flight need the filters of envoy/in-flight.yaml: without its ids a place is kept for 1 second, and without its ends until hold has passed")
	}
	return notes
}

// groups returns "value for tier, tier" for each value that tiers have.
func (c *counting) groups(value func(tierCounting) string) (groups []string) {
	var values []string
	tiers := make(map[string][]string)
	for _, t := range c.tiers {
		v := value(t)
		if tiers[v] == nil {
			values = append(values, v)
		}
		tiers[v] = append(tiers[v], t.tier)
	}
	for _, v := range values {
		groups = append(groups, v+" for "+strings.Join(tiers[v], ", "))
	}
	return groups
}
