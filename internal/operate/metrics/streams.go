package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/core/inflight"
)

// streams counts what concerns limits of requests in flight.
type streams struct {
	ends    [len(inflight.EndResults)]prometheus.Counter
	misuses prometheus.Counter
}

func newStreams(f factory) (s streams) {
	ends := f.counters("slidegate_stream_ends_total", "Ends of streams that Envoy reported, by result: released, held_nothing (denied, or no limit in flight) or failed (Envoy repeats the call).", "result")
	s.misuses = f.counter("slidegate_in_flight_misuses_total", "Calls that use in_flight rules or budgets in a way that cannot work. The log says what to change.")
	for r, name := range inflight.EndResults {
		s.ends[r] = ends.WithLabelValues(name)
	}
	return s
}

// Ended implements decide.Meters.
func (m *Metrics) Ended(r inflight.EndResult) { m.streams.ends[r].Inc() }

// Misused implements decide.Meters.
func (m *Metrics) Misused() { m.streams.misuses.Inc() }
