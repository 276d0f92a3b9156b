package explain

import (
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// counting has the policies of the tiers of one rule, for notes about them.
type counting struct {
	ways      []string // the policies of each tier that has a log, and the times of rates
	inFlight  bool
	reserves  bool // a limit has a budget
	shortened bool // a calendar starts on a day that some months do not have
}

// add adds the terms of a tier.
func (c *counting) add(t *rules.Terms) {
	var way []string
	for i := range t.Limits {
		l := &t.Limits[i]
		name := l.Policy.String()
		if l.Policy == window.TokenBucket {
			name = rules.FormatLog(l.Policy, l.Window)
		}
		way = append(way, name)
		c.inFlight = c.inFlight || l.Policy == window.InFlight
		c.reserves = c.reserves || l.Budget != nil
		c.shortened = c.shortened || l.Calendar != nil && l.Calendar.Shortened()
	}
	slices.Sort(way)
	if len(way) > 0 {
		c.ways = append(c.ways, strings.Join(slices.Compact(way), " and "))
	}
}

// notes returns what may surprise the author of the rule.
func (c *counting) notes() (notes []string) {
	slices.Sort(c.ways)
	if ways := slices.Compact(c.ways); len(ways) > 1 {
		notes = append(notes, "tiers count with "+strings.Join(ways, ", or with ")+": a subject that changes between such tiers starts with nothing used")
	}
	if c.shortened {
		notes = append(notes, "in a month without that day the period starts on the last day")
	}
	if c.inFlight {
		notes = append(notes, "requests in flight need the filters of envoy/in-flight.yaml: without its ids a slot is kept for 1 second, and without its ends until hold has passed")
	}
	if c.reserves {
		notes = append(notes, "budgets need the filters of envoy/budgets.yaml: without its ids, or without its ends, each request costs its estimate")
	}
	return notes
}
