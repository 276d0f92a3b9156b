package decide

import (
	"errors"
	"log/slog"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// period returns the periods of a limit with a calendar. All limits of a request read the clock
// once.
func (c *Call) period(s *LimitStatus, of *tier.Subject) window.Period {
	c.setCalendar(s, of)
	return s.Limit.Calendar.Period(time.Unix(0, int64(c.now())))
}

// now returns the time since 1970-01-01 UTC, which is one for all checks of a request.
func (c *Call) now() time.Duration {
	if c.clock == 0 {
		c.clock = c.decider.clock()
	}
	return c.clock
}

// clock returns the time since 1970-01-01 UTC.
func (d *Decider) clock() time.Duration {
	if d.opts.Clock != nil {
		return d.opts.Clock()
	}
	return time.Duration(time.Now().UnixNano())
}

var errNoLabel = errors.New("the subject does not have the label")

// setCalendar gives a limit the calendar of a subject. If the subject's label does not say on which
// day its periods start, they start as the rule says.
//
// A label that changes does not cut a period short: the store counts in the period that it has begun
// until that period ends.
func (c *Call) setCalendar(s *LimitStatus, of *tier.Subject) {
	l := &s.Limit
	if l.StartsLabel == "" || of == nil {
		return
	}
	day, ok := of.Labels()[l.StartsLabel]
	err := errNoLabel
	if ok {
		started, bad := l.Calendar.Starting(day)
		if bad == nil {
			l.Calendar, s.Period.SubjectDay = started, true
			return
		}
		err = bad
	}
	// A sampled message costs nothing if it is dropped.
	if write := c.decider.line("a subject's label does not say on which day its periods start: they start as the rule says; correct the label in the customer source"); write != nil {
		write(slog.Any("rule", s.Rule), slog.String("label", l.StartsLabel), slog.String("subject", of.ID), slog.Any("error", err))
	}
}
