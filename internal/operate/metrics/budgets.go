package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/operate/events"
)

// Threshold counts that a budget has reached a threshold, in percent. It counts nothing for a rule that is
// gone.
func (m *Metrics) Threshold(domain, rule string, threshold int) {
	rs := m.rules
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.meters[meterName{domain, rule}] != nil {
		rs.thresholds.WithLabelValues(domain, rule, strconv.Itoa(threshold)).Inc()
	}
}

// Webhook registers the metric of a webhook of events, and returns what counts its results.
func Webhook(registry prometheus.Registerer) (count func(events.Result)) {
	all := factory{registry}.counters("slidegate_webhook_events_total", "Events for events.webhook, by result: delivered, failed (rls tries again), refused (the receiver answered 410) or dropped (1000 events waited, or the process ended).", "result")
	var of [len(events.Results)]prometheus.Counter
	for r, name := range events.Results {
		of[r] = all.WithLabelValues(name)
	}
	return func(r events.Result) { of[r].Inc() }
}
