package stats

import (
	"math/rand/v2"
	"sync"

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
	series func() *observed // for Prometheus, which sees it after the first call; nil: off
	times  *times           // for statsd; nil: off
}

// Method returns the counters of a method, or nil if they are not counted. s may be nil.
func (s *Stats) Method(name string) *Method {
	if s == nil {
		return nil
	}
	return s.methods[name]
}

func (s *Stats) newMethod(name string) *Method {
	m := &Method{name: prefixServer + name + ".response_time", stats: s, total: s.counter(prefixServer + name + ".total_requests")}
	if s.options.Mapping != nil {
		m.series = sync.OnceValue(func() *observed { return s.options.Mapping.observed(m.name) })
	}
	if s.options.Times {
		m.times = new(times)
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
		if o := m.series(); o != nil {
			o.Observe(ms * o.scale)
		}
	}
	if m.times != nil {
		m.times.add(ms)
	}
}

// Invalid counts a call that envoyproxy/ratelimit refuses as wrong.
func (m *Method) Invalid() {
	if m != nil {
		m.stats.service.serviceErrors.value.Add(1)
	}
}

// maxTimes bounds the times that are kept of one method and interval.
const maxTimes = 1000

// times keeps a sample of the times of calls, in milliseconds, each with the same chance. It is safe
// for concurrent use.
type times struct {
	mu     sync.Mutex
	count  uint64
	values []float64
}

// add adds a time. Once the sample is full, the time replaces another with the chance that every
// time has the same chance to stay.
func (t *times) add(ms float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if len(t.values) < maxTimes {
		t.values = append(t.values, ms)
	} else if at := rand.Uint64N(t.count); at < maxTimes { //nolint:gosec // a sample of times is no secret
		t.values[at] = ms
	}
}

// take returns the times since the last take, and how many calls there were.
func (t *times) take() (values []float64, count uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	values, count = t.values, t.count
	t.values, t.count = make([]float64, 0, maxTimes), 0
	return values, count
}

type observed struct {
	prometheus.Observer
	scale float64
}
