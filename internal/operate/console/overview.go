package console

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strings"

	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

// The overview shows the state of the process at a glance.
type overview struct {
	Chart chart
	// Decisions, Denials and Degraded are per second, in the last interval.
	Decisions, Denials, Degraded float64
	// Slow is the fraction of the deadline that calls take (p99), from 0 to 1.
	Slow  float64
	Rules []glance.RuleRate
	// Down is the number of servers of the store that are not asked.
	Down int
	Span float64
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request) {
	s := c.stateOfAll(r.Context())
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
	c.show(w, r, http.StatusOK, view{Page: "overview", Title: "Overview", Refresh: 2, State: &s, Instances: s.Instances, Data: o})
}

// stateOfAll returns the state of all instances.
func (c *Console) stateOfAll(ctx context.Context) glance.State {
	return peers.Ask(ctx, c.opts.Peers, "/v1/state", c.opts.State(), merge.States)
}

// find redirects to the page of the subject that was typed into the search box.
func (c *Console) find(w http.ResponseWriter, r *http.Request) {
	typed := strings.TrimSpace(r.PostForm.Get("who"))
	if typed == "" {
		seeOther(w, "/subject")
		return
	}
	switch found := c.opts.Insight.Search(r.Context(), typed); {
	case found.RequestID != "":
		seeOther(w, address("/denials", "request", found.RequestID))
	case found.Rule != "":
		seeOther(w, address("/rules", "rule", found.Rule))
	case found.Query == insight.Query{}:
		c.unrecognized(w, r, typed)
	default:
		seeOther(w, subjectAddress(found.Query))
	}
}

// suggest answers with the ids that the text in the search box may mean, as JSON. The text is in the
// body, because it may be an API key.
func (c *Console) suggest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(c.opts.Insight.Suggest(r.PostForm.Get("who"))) // on an error the client has gone
}

// subjectAddress returns the address of the page of a subject.
func subjectAddress(q insight.Query, fields ...string) string {
	return address("/subject", append([]string{"id", q.Subject, "address", q.Address, "digest", q.Digest}, fields...)...)
}
