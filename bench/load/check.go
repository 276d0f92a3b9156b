package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/bench/internal/traffic"
)

// This file is the oracle. It knows when calls were sent and answered, what was answered, and the
// limits of each tier. It knows nothing of how the service counts.

// allowed returns the times of the calls that were allowed.
func (c *customer) allowed() (spans []traffic.Span) {
	for _, a := range c.calls {
		if a.allowed {
			spans = append(spans, traffic.Span{From: a.sent, To: a.answered})
		}
	}
	return spans
}

// above returns the limits of which a customer got more than it may have in some interval of the
// window's length, whenever the charges were made within the bounds that are known.
func above(c *customer) (found []string) {
	for _, l := range c.tier.limits {
		if most := traffic.MostInWindow(c.allowed(), l.window-clockSlack); most > l.hits {
			found = append(found, fmt.Sprintf("%s got %d in %v, and its limit is %d", c.name(), most, l.window, l.hits))
		}
	}
	return found
}

// wrongly returns the denials of requests that had room under all limits, whenever the charges
// were made within the bounds that are known.
func wrongly(c *customer) (found []call) {
	var allowed []call
	for _, a := range c.calls {
		if a.allowed {
			allowed = append(allowed, a)
		}
	}
	for _, d := range c.calls {
		if !d.allowed && !slices.ContainsFunc(c.tier.limits, func(l limit) bool { return usedAtMost(allowed, d, l.window) >= l.hits }) {
			found = append(found, d)
		}
	}
	return found
}

// usedAtMost returns how many of the allowed calls, in the order of their answers, may be in the
// window in which a call was decided.
func usedAtMost(allowed []call, decided call, window time.Duration) (n int) {
	for i := len(allowed) - 1; i >= 0; i-- {
		a := allowed[i]
		if a.answered <= decided.sent-window-clockSlack {
			break
		}
		if a.sent < decided.answered+clockSlack {
			n++
		}
	}
	return n
}
