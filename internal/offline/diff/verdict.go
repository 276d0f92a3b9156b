package diff

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// verdictOf compares what two sets of limits admit. No limits admit everything.
func verdictOf(before, after []explain.AccountLimit) Verdict {
	was, is := within(after, before), within(before, after)
	switch {
	case was && is:
		return Neither
	case was:
		return Stricter
	case is:
		return Looser
	default:
		return Both
	}
}

// within reports whether the limits a surely admit nothing that the limits b deny.
func within(a, b []explain.AccountLimit) bool {
	for i := range b {
		if !limits(&b[i]) {
			continue
		}
		if !slices.ContainsFunc(a, func(l explain.AccountLimit) bool {
			return limits(&l) && implies(&l.Limit, &b[i].Limit, always(&l) || always(&b[i]))
		}) {
			return false
		}
	}
	return true
}

// limits reports whether a limit can deny.
func limits(l *explain.AccountLimit) bool { return !l.Unlimited && l.Limit.Hits != window.Unlimited }

// always reports whether reports may exceed a limit.
func always(l *explain.AccountLimit) bool { return l.Rule != nil && l.Rule.Charge.Always }

// implies reports whether a surely admits nothing that b denies. excess is true if reports may exceed
// the limits. Then a must count each hit for as long as b does.
func implies(a, b *rules.Limit, excess bool) bool {
	if a.Hits == 0 {
		return true
	}
	if a.Policy == window.Sliding && b.Policy == window.Fixed {
		return bounds(a, b, excess) // it bounds every window, also those of the clock
	}
	if a.Policy != b.Policy {
		return false
	}
	switch a.Policy {
	case window.Sliding:
		return bounds(a, b, excess)
	case window.TokenBucket:
		return a.Hits <= b.Hits && slower(a.Limit, b.Limit)
	case window.Fixed:
		return a.Hits <= b.Hits && a.Window%b.Window == 0 || !excess && b.Window%a.Window == 0 && a.Hits <= b.Hits/uint64(b.Window/a.Window)
	case window.Calendar:
		return a.Hits <= b.Hits && sameCalendar(a, b)
	case window.InFlight:
		return a.Hits <= b.Hits && a.Window >= b.Window
	default:
		return a.Hits <= b.Hits && a.Window == b.Window
	}
}

// bounds reports whether a sliding window a bounds the windows of b.
func bounds(a, b *rules.Limit, excess bool) bool {
	if a.Window >= b.Window { // it counts each hit for as long, but for the rounding of times
		return a.Hits <= b.Hits
	}
	return !excess && a.Hits <= b.Hits/rules.Covering(a, b)
}

// slower reports whether no more tokens come back to a bucket a in any time.
func slower(a, b window.Limit) bool {
	unit := func(rate uint32, per time.Duration) float64 { return float64(rate) * float64(per) }
	return unit(a.Rate, b.Window) <= unit(b.Rate, a.Window)
}

func sameCalendar(a, b *rules.Limit) bool {
	return a.Window == b.Window && a.CalendarText() == b.CalendarText()
}

// textOf describes limits in one line.
func textOf(all []explain.AccountLimit) string {
	var parts []string
	for i := range all {
		l := &all[i]
		if l.Unlimited {
			return "unlimited"
		}
		text := l.Limit.Text()
		if l.Limit.Policy == window.InFlight {
			text += ", hold " + rules.FormatWindow(l.Limit.Window)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "no limit"
	}
	return strings.Join(parts, " and ")
}

// worstOf says what two sets of limits admit at worst, before and after.
func worstOf(before, after []explain.AccountLimit) string {
	was, is := worst(before), worst(after)
	if was == is {
		return was
	}
	return was + " → " + is
}

func worst(all []explain.AccountLimit) string {
	var parts []string
	for i := range all {
		l := &all[i]
		if !limits(l) {
			continue
		}
		most := rules.WorstCase(l.Limit.Limit)
		switch l.Limit.Policy {
		case window.InFlight:
			parts = append(parts, fmt.Sprintf("%d at the same time", most))
		case window.Calendar:
			parts = append(parts, fmt.Sprintf("%d around the end of a %s", most, rules.Unit(l.Limit.Window)))
		default:
			parts = append(parts, fmt.Sprintf("%d in any %s", most, rules.FormatWindow(l.Limit.Window)))
		}
	}
	if len(parts) == 0 {
		return "any number"
	}
	return strings.Join(parts, " and ")
}

// historyOf says whether the logs of limits were those of other limits before. It is empty if
// there are none before or none after.
func historyOf(before, after []explain.AccountLimit) string {
	had := make(map[window.LogID]bool)
	for i := range before {
		if limits(&before[i]) {
			had[before[i].Log] = true
		}
	}
	kept, all := 0, 0
	for i := range after {
		if limits(&after[i]) {
			all++
			if had[after[i].Log] {
				kept++
			}
		}
	}
	switch {
	case all == 0 || len(had) == 0:
		return ""
	case kept == all:
		return Kept
	case kept == 0:
		return Empty
	default:
		return Partly
	}
}
