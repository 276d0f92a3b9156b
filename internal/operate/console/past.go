package console

import (
	"context"
	"fmt"
	"html/template"
	"time"

	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/text/words"
)

// pastTimeout bounds the question for a chart, without which a page is whole.
const pastTimeout = 500 * time.Millisecond

// A past is the denials of a rule or of a customer by the day.
type past struct {
	SVG template.HTML
	// Total and Most are denials: of all days, and of the day with most of them, which is Day.
	Total, Most uint64
	Day         string
	// Service is true if all instances are counted.
	Service bool
}

// past returns the denials of the last 30 days. It is nil if they are not known.
func (c *Console) past(ctx context.Context, q history.Query) *past {
	if c.opts.History == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pastTimeout)
	defer cancel()
	q.To = c.opts.Now().UTC()
	q.From = q.To.Truncate(24*time.Hour).AddDate(0, 0, 1-history.Days)
	all, err := c.opts.History(ctx, q)
	if err != nil {
		return nil
	}
	var decisions, denials [history.Days]uint64
	day := func(at time.Time) int { return min(max(int(at.Sub(q.From)/(24*time.Hour)), 0), history.Days-1) }
	for _, r := range all.Rules {
		for _, h := range r.Hours {
			decisions[day(h.Hour)] += h.Decisions
			denials[day(h.Hour)] += h.Denials
		}
	}
	for _, d := range all.Days {
		at, err := time.Parse(time.DateOnly, d.Day)
		for _, s := range d.Subjects {
			if err == nil {
				denials[day(at)] += s.Count
			}
		}
	}
	p := &past{Service: all.Of == history.OfService}
	name := func(i int) string { return q.From.AddDate(0, 0, i).Format("2 January") }
	for i, n := range denials {
		if p.Total += n; n > p.Most {
			p.Most, p.Day = n, name(i)
		}
	}
	p.SVG = columns(denials[:], func(i int) string {
		text := name(i) + ": " + words.Count(denials[i]) + " denied"
		if decisions[i] > 0 {
			text += fmt.Sprintf(" of %s decisions", words.Count(decisions[i]))
		}
		return text
	})
	return p
}
