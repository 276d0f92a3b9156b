package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/policy"
)

// streams counts what concerns limits of requests in flight.
type streams struct {
	ends     [len(policy.EndResults)]prometheus.Counter
	misuses  [len(policy.Misuses)]prometheus.Counter
	admitted map[bool]prometheus.Counter
}

// newStreams returns the counters. counters registers one with a label.
func newStreams(counters func(name, help, label string) *prometheus.CounterVec) (s streams) {
	ends := counters("slidegate_stream_ends_total", "Ends of streams that Envoy reported, by result.", "result")
	misuses := counters("slidegate_in_flight_misuses_total", "Calls that used in_flight rules in a way that cannot work, by problem.", "problem")
	waits := counters("slidegate_in_flight_waits_total", "Requests that waited a few milliseconds because an in_flight limit was full, by result.", "result")
	for r, name := range policy.EndResults {
		s.ends[r] = ends.WithLabelValues(name)
	}
	for i, misuse := range policy.Misuses {
		s.misuses[i] = misuses.WithLabelValues(misuse.Name)
	}
	s.admitted = map[bool]prometheus.Counter{true: waits.WithLabelValues("allowed"), false: waits.WithLabelValues("denied")}
	return s
}

// Ended implements policy.StreamMeters.
func (m *Metrics) Ended(r policy.EndResult) { m.streams.ends[r].Inc() }

// Misused implements policy.StreamMeters.
func (m *Metrics) Misused(misuse policy.Misuse) { m.streams.misuses[misuse].Inc() }

// Waited implements policy.StreamMeters.
func (m *Metrics) Waited(admitted bool) { m.streams.admitted[admitted].Inc() }
