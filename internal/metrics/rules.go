package metrics

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/policy"
)

const (
	// maxValues bounds the label of one series: a value of megabytes must not
	// become one.
	maxValues = 256
	// other is the label of all values that have no series of their own.
	other = "other"
)

// rules holds the series of rules.
type rules struct {
	decisions *prometheus.CounterVec
	shadow    *prometheus.CounterVec
	detail    *prometheus.CounterVec
	overflow  prometheus.Counter

	// free is how many series of values there may still be. It is written under mu,
	// and read without: where nothing is free, nobody waits to hear it.
	free atomic.Int64

	// mu guards what is below, and the making and forgetting of series.
	mu sync.Mutex
	// generation counts up with every forget.
	generation uint64
	meters     map[meterName]*meter
}

type meterName struct{ domain, rule string }

func newRules(maxDetailSeries int) *rules {
	rs := &rules{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_decisions_total",
			Help: "Descriptors decided, by domain, rule and outcome. Rule is empty for descriptors that no rule limits.",
		}, []string{"domain", "rule", "outcome"}),
		shadow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_shadow_decisions_total",
			Help: "Descriptors decided under rules that are only observed, by what would have become of them.",
		}, []string{"domain", "rule", "outcome"}),
		detail: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slidegate_detail_decisions_total",
			Help: "Descriptors decided, by the values that the rule asks for (detailed_metric, value_to_metric).",
		}, []string{"domain", "rule", "values", "outcome"}),
		overflow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slidegate_detail_overflow_total",
			Help: "Decisions counted under other values, because theirs are too long or the series too many.",
		}),
		meters: make(map[meterName]*meter),
	}
	rs.free.Store(int64(maxDetailSeries))
	return rs
}

// meter returns the meter of a rule, and marks it as one of the next generation.
func (rs *rules) meter(domain, rule string) *meter {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	name := meterName{domain, rule}
	m, ok := rs.meters[name]
	if !ok {
		m = &meter{rules: rs, name: name}
		rs.meters[name] = m
	}
	m.generation = rs.generation
	return m
}

// forget ends the series of rules that were given no meter since the last forget.
// Requests that still count for them count in vain.
func (rs *rules) forget() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for name, m := range rs.meters {
		if m.generation != rs.generation {
			delete(rs.meters, name)
			m.end()
		}
	}
	rs.generation++
}

// series are the counters of the outcomes of one thing, each made when it is first
// needed.
type series [len(policy.Outcomes)]atomic.Pointer[prometheus.Counter]

// meter is the series of one rule. It implements policy.Meter.
type meter struct {
	rules      *rules
	name       meterName
	generation uint64 // guarded by rules.mu
	ended      bool   // guarded by rules.mu

	outcomes series
	// details has the series of values. Writers hold both locks.
	mu      sync.RWMutex
	details map[string]*series
	others  series
}

// Count implements policy.Meter.
func (m *meter) Count(o policy.Outcome) {
	c := m.outcomes[o].Load()
	if c == nil {
		if c = m.begin(o); c == nil {
			return
		}
	}
	(*c).Inc()
}

// begin makes the series of an outcome. It returns nil for a rule that is gone.
func (m *meter) begin(o policy.Outcome) *prometheus.Counter {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	if m.ended {
		return nil
	}
	vec, label := m.rules.home(o)
	c := vec.WithLabelValues(m.name.domain, m.name.rule, label)
	m.outcomes[o].Store(&c)
	return &c
}

// home returns the metric that counts an outcome of a rule, and its label there.
func (rs *rules) home(o policy.Outcome) (*prometheus.CounterVec, string) {
	switch o {
	case policy.OutcomeShadowAllowed:
		return rs.shadow, policy.OutcomeAllowed.String()
	case policy.OutcomeShadowDenied:
		return rs.shadow, policy.OutcomeDenied.String()
	default:
		return rs.decisions, o.String()
	}
}

// Detail implements policy.Meter.
func (m *meter) Detail(values []byte, o policy.Outcome) {
	if len(values) <= maxValues {
		m.mu.RLock()
		known := m.details[string(values)]
		m.mu.RUnlock()
		if known != nil {
			if c := known[o].Load(); c != nil {
				(*c).Inc()
				return
			}
		}
		if m.rules.free.Load() > 0 {
			if c := m.beginDetail(string(values), o); c != nil {
				(*c).Inc()
				return
			}
		}
	}
	c := m.others[o].Load()
	if c == nil {
		if c = m.beginOther(o); c == nil {
			return
		}
	}
	(*c).Inc()
	m.rules.overflow.Inc()
}

// beginDetail makes the series of an outcome for values. It returns nil if there
// are too many already, and for a rule that is gone.
func (m *meter) beginDetail(values string, o policy.Outcome) *prometheus.Counter {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	if m.ended {
		return nil
	}
	s := m.details[values] // nobody writes it without the lock that is held
	if s != nil {
		if c := s[o].Load(); c != nil {
			return c // another request was first
		}
	}
	if m.rules.free.Load() <= 0 {
		return nil
	}
	m.rules.free.Add(-1)
	if s == nil {
		s = new(series)
		m.mu.Lock()
		if m.details == nil {
			m.details = make(map[string]*series)
		}
		m.details[values] = s
		m.mu.Unlock()
	}
	c := m.rules.detail.WithLabelValues(m.name.domain, m.name.rule, mended(values), o.String())
	s[o].Store(&c)
	return &c
}

// beginOther makes the series of an outcome for all values without one. It returns
// nil for a rule that is gone.
func (m *meter) beginOther(o policy.Outcome) *prometheus.Counter {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	if m.ended {
		return nil
	}
	c := m.rules.detail.WithLabelValues(m.name.domain, m.name.rule, other, o.String())
	m.others[o].Store(&c)
	return &c
}

// end removes every series of the meter. The caller holds rules.mu.
func (m *meter) end() {
	m.ended = true
	for o := range m.outcomes {
		if m.outcomes[o].Swap(nil) != nil {
			vec, label := m.rules.home(policy.Outcome(o))
			vec.DeleteLabelValues(m.name.domain, m.name.rule, label)
		}
	}
	for values, s := range m.details {
		m.rules.free.Add(int64(m.endDetail(mended(values), s)))
	}
	m.endDetail(other, &m.others)
}

// endDetail removes the series of some values, and returns how many they were.
func (m *meter) endDetail(values string, s *series) (count int) {
	for o := range s {
		if s[o].Swap(nil) != nil {
			m.rules.detail.DeleteLabelValues(m.name.domain, m.name.rule, values, policy.Outcome(o).String())
			count++
		}
	}
	return count
}

// mended returns a label with U+FFFD for what is not UTF-8, which would spoil the whole
// page of metrics, and for control characters, which a terminal would obey.
func mended(values string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(values, "\uFFFD"))
}
