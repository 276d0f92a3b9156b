package console

import (
	"context"
	"math"
	"net/http"
	"strings"

	"github.com/slidegate/slidegate/internal/operate/insight"
)

// The overview shows the state of the process at a glance.
type overview struct {
	Chart chart
	// Decisions, Denials and Degraded are per second, in the last interval.
	Decisions, Denials, Degraded float64
	// Slow is the share of the deadline that calls take (p99), from 0 to 1.
	Slow  float64
	Rules []insight.RuleRate
	// Down is the number of servers of the store that are not asked.
	Down int
	Span float64
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	s := c.opts.State()
	o := overview{
		Chart:     rateChart(s.Rates.Decisions, s.Rates.Denials, s.Rates.Degraded, s.Rates.Interval),
		Decisions: last(s.Rates.Decisions), Denials: last(s.Rates.Denials), Degraded: last(s.Rates.Degraded),
		Rules: s.Rates.Rules, Span: float64(len(s.Rates.Decisions)) * s.Rates.Interval,
	}
	if s.Latency.Deadline > 0 {
		o.Slow = math.Min(s.Latency.P99/s.Latency.Deadline, 1)
	}
	for _, server := range s.Store.Servers {
		if server.Reason != "" {
			o.Down++
		}
	}
	c.show(w, r, http.StatusOK, view{Page: "overview", Nav: "overview", Title: "Overview", Refresh: 2, State: &s, Data: o})
}

// find redirects to the page of the subject that was typed into the search box.
func (c *Console) find(w http.ResponseWriter, r *http.Request) {
	if !c.form(w, r) {
		return
	}
	typed := strings.TrimSpace(r.PostForm.Get("who"))
	if typed == "" {
		seeOther(w, "/subject")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	seeOther(w, subjectAddress(c.typed(ctx, typed)))
}

// subjectAddress returns the address of the page of a subject.
func subjectAddress(q insight.Query, fields ...string) string {
	return address("/subject", append([]string{"id", q.Subject, "address", q.Address, "digest", q.Digest}, fields...)...)
}
