package stats

import (
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The methods of gRPC that are counted, as envoyproxy/ratelimit names them.
const (
	ShouldRateLimit = "ShouldRateLimit"
	HealthCheck     = "Check"
)

// A Method counts the calls of one method of gRPC. Its methods are safe for concurrent use, and do
// nothing if it is nil.
type Method struct {
	name   string
	stats  *Stats
	total  *counter
	series *observed // for Prometheus; nil: off
	times  *times    // for statsd; nil: off
}

// Method returns the counters of a method, or nil if they are not counted. s may be nil.
func (s *Stats) Method(name string) *Method {
	if s == nil {
		return nil
	}
	return s.methods[name]
}

// newMethod returns the counters of a method.
func (s *Stats) newMethod(name string) *Method {
	m := &Method{name: prefixServer + name + ".response_time", stats: s, total: s.counter(prefixServer + name + ".total_requests")}
	if s.options.Mapping != nil {
		m.series = s.options.Mapping.observed(m.name)
	}
	if s.options.Times {
		m.times = newTimes()
	}
	return m
}

// Observe counts a call that took some seconds.
func (m *Method) Observe(seconds float64) {
	if m == nil {
		return
	}
	m.total.value.Add(1)
	ms := 1000 * seconds // the unit of the name, before a mapping scales it
	if m.series != nil {
		m.series.observe(ms)
	}
	if m.times != nil {
		m.times.add(ms)
	}
}

// Invalid counts a call that envoyproxy/ratelimit refuses as wrong.
func (m *Method) Invalid() {
	if m != nil {
		m.stats.serviceErrors.value.Add(1)
	}
}

// maxTimes bounds the times that are kept of one method and interval.
const maxTimes = 1000

// times keeps a sample of the times of calls, in milliseconds. It is safe for concurrent use.
type times struct {
	now  atomic.Pointer[sample]
	idle *sample // the other one; only take uses it
}

// sample is a random sample of some times, each with the same chance.
type sample struct {
	count  atomic.Uint64
	values [maxTimes]atomic.Uint64 // the bits of floats; missing has none
}

// missing are the bits of a value that no call has written yet.
var missing = math.Float64bits(math.NaN())

func newSample() *sample {
	s := new(sample)
	s.clear()
	return s
}

func (s *sample) clear() {
	for i := range s.values {
		s.values[i].Store(missing)
	}
	s.count.Store(0)
}

func newTimes() *times {
	t := &times{idle: newSample()}
	t.now.Store(newSample())
	return t
}

// add adds a time. Once the sample is full, the time replaces another with the chance that every
// time has the same chance to stay.
func (t *times) add(ms float64) {
	s := t.now.Load()
	at := s.count.Add(1) - 1
	if at >= maxTimes {
		if at = rand.Uint64N(at + 1); at >= maxTimes { //nolint:gosec // a sample of times is no secret
			return
		}
	}
	s.values[at].Store(math.Float64bits(ms))
}

// take returns the times since the last take, and how many calls there were. A call under way may
// be missing.
func (t *times) take() (values []float64, count uint64) {
	s := t.now.Swap(t.idle)
	count = s.count.Load()
	for i := range min(count, maxTimes) {
		if bits := s.values[i].Load(); bits != missing {
			values = append(values, math.Float64frombits(bits))
		}
	}
	s.clear()
	t.idle = s
	return values, count
}

// observed is a histogram or summary for Prometheus.
type observed struct {
	prometheus.Collector
	observer prometheus.Observer
	scale    float64
}

func (o *observed) observe(ms float64) { o.observer.Observe(ms * o.scale) }
