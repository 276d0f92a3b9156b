package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxValues is the longest label of values, in bytes.
	maxValues = 256
	// other is the label of all values without a series of their own.
	other = "other"
)

// rules holds the series of rules.
type ruleMetrics struct {
	decisions *prometheus.CounterVec
	shadow    *prometheus.CounterVec
	detail    *prometheus.CounterVec
	near      *prometheus.CounterVec
	denials   *prometheus.CounterVec
	budgets   budgets

	// free is how many more series of values may begin. It is written under mu and read
	// without it, so a request does not wait for mu if none may begin.
	free atomic.Int64

	// mu guards the fields below, and the beginning and ending of series.
	mu sync.Mutex
	// generation increases with every forget.
	generation  uint64
	meters      map[meterName]*meter
	comparisons *Comparisons // nil: nothing is compared
}

type meterName struct{ domain, rule string }

func newRules(f factory, maxDetailSeries int) *ruleMetrics {
	rs := &ruleMetrics{
		decisions: f.counters("slidegate_decisions_total", "Evaluated descriptors, by outcome.", "domain", "rule", "outcome"),
		shadow:    f.counters("slidegate_shadow_decisions_total", "Evaluated descriptors of rules in shadow mode: allowed, or denied if the rule would have denied.", "domain", "rule", "outcome"),
		detail: f.counters("slidegate_detail_decisions_total", "Evaluated descriptors of rules with detailed_metric or value_to_metric, by their values. Values beyond metrics.max_detail_series, or above 256 bytes, count as other. API keys are never shown.",
			"domain", "rule", "values", "outcome"),
		near:    f.counters("slidegate_near_limit_total", "Hits admitted above 80 % of their limit: the rule will soon deny.", "domain", "rule"),
		denials: f.counters("slidegate_limit_denials_total", "Denied descriptors, by the limit that denied. The window is override for a limit of one subject or from Envoy.", "domain", "rule", "tier", "window"),
		budgets: newBudgets(f),
		meters:  make(map[meterName]*meter),
	}
	rs.free.Store(int64(maxDetailSeries))
	return rs
}

// meter returns the meter of a rule, and marks the rule as one of the next generation.
func (rs *ruleMetrics) meter(domain, rule string) *meter {
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

// forget ends the series of rules without a call of meter since the last forget. Requests
// that still run under such a rule are no longer counted.
func (rs *ruleMetrics) forget() {
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

// series has one counter for each outcome. A counter is nil before its first outcome.
type series [len(decide.Outcomes)]atomic.Pointer[prometheus.Counter]

// meter has the series of one rule. It implements decide.Meter.
type meter struct {
	rules      *ruleMetrics
	name       meterName
	generation uint64 // guarded by rules.mu
	ended      bool   // guarded by rules.mu

	outcomes series
	near     atomic.Pointer[prometheus.Counter] // nil before the first hit near a limit
	denials  atomic.Pointer[denials]            // nil before the first denial
	last     atomic.Pointer[limitCounter]       // of the limit that denied last, which often denies next
	mu       sync.RWMutex                       // a writer of details holds rules.mu too
	details  map[string]*series                 // by values
	others   series                             // of all other values
	budgets  [len(inflight.BudgetOutcomes)]budget
}

// Count implements decide.Meter.
func (m *meter) Count(o decide.Outcome) {
	c := m.outcomes[o].Load()
	if c == nil {
		vec, label := m.rules.home(o)
		if c = m.begin(&m.outcomes[o], vec, label); c == nil {
			return
		}
	}
	(*c).Inc()
}

// begin begins a series of the rule. It returns nil if the rule has ended.
func (m *meter) begin(to *atomic.Pointer[prometheus.Counter], vec *prometheus.CounterVec, labels ...string) *prometheus.Counter {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	if m.ended {
		return nil
	}
	c := vec.WithLabelValues(append([]string{m.name.domain, m.name.rule}, labels...)...)
	to.Store(&c)
	return &c
}

// add adds to a series of the rule, which it begins if it is new.
func (m *meter) add(to *atomic.Pointer[prometheus.Counter], vec *prometheus.CounterVec, n uint64, labels ...string) {
	c := to.Load()
	if c == nil {
		if c = m.begin(to, vec, labels...); c == nil {
			return
		}
	}
	(*c).Add(float64(n))
}

// Near implements decide.Meter.
func (m *meter) Near(hits uint64) { m.add(&m.near, m.rules.near, hits) }

// denials has the counters of denials of a rule by its limits, which the configuration bounds. It is
// immutable.
type denials map[limitName]prometheus.Counter

// limitName distinguishes the limits of a rule.
type limitName struct {
	tier   string
	policy window.Policy
	win    time.Duration
}

// limitCounter counts the denials of one limit. It is immutable.
type limitCounter struct {
	limitName
	prometheus.Counter
}

// Denied implements decide.Meter.
func (m *meter) Denied(tier string, p window.Policy, win time.Duration) {
	name := limitName{tier, p, win}
	if last := m.last.Load(); last != nil && last.limitName == name {
		last.Inc()
		return
	}
	var c prometheus.Counter
	if all := m.denials.Load(); all != nil {
		c = (*all)[name]
	}
	if c == nil {
		if c = m.beginDenials(name); c == nil {
			return
		}
	}
	c.Inc()
	m.last.Store(&limitCounter{name, c})
}

// beginDenials begins the series of a limit. It returns nil if the rule has ended.
func (m *meter) beginDenials(name limitName) prometheus.Counter {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	if m.ended {
		return nil
	}
	var known denials
	if all := m.denials.Load(); all != nil {
		known = *all
	}
	if c := known[name]; c != nil { // another request was first
		return c
	}
	all := make(denials, len(known)+1)
	maps.Copy(all, known)
	c := m.rules.denials.WithLabelValues(m.name.domain, m.name.rule, name.tier, name.window())
	all[name] = c
	m.denials.Store(&all)
	return c
}

// window returns the label of the window.
func (l limitName) window() string {
	if l.win == 0 && l.policy == window.Sliding {
		return "override"
	}
	return rules.FormatLog(l.policy, l.win)
}

// home returns the metric that counts an outcome, and the label of the outcome there.
func (rs *ruleMetrics) home(o decide.Outcome) (*prometheus.CounterVec, string) {
	switch o {
	case decide.OutcomeShadowAllowed:
		return rs.shadow, decide.OutcomeAllowed.String()
	case decide.OutcomeShadowDenied:
		return rs.shadow, decide.OutcomeDenied.String()
	default:
		return rs.decisions, o.String()
	}
}

// Detail implements decide.Meter.
func (m *meter) Detail(values []byte, o decide.Outcome) {
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
		if c = m.begin(&m.others[o], m.rules.detail, other, o.String()); c == nil {
			return
		}
	}
	(*c).Inc()
}

// beginDetail begins the series of an outcome for values. It returns nil if there are too
// many series, or if the rule has ended.
func (m *meter) beginDetail(values string, o decide.Outcome) *prometheus.Counter {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	if m.ended {
		return nil
	}
	s := m.details[values] // rules.mu keeps writers out
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

// end removes every series of the meter. The caller holds rules.mu.
func (m *meter) end() {
	m.ended = true
	if m.near.Swap(nil) != nil {
		m.rules.near.DeleteLabelValues(m.name.domain, m.name.rule)
	}
	if all := m.denials.Swap(nil); all != nil {
		for name := range *all {
			m.rules.denials.DeleteLabelValues(m.name.domain, m.name.rule, name.tier, name.window())
		}
	}
	for o := range m.outcomes {
		if m.outcomes[o].Swap(nil) != nil {
			vec, label := m.rules.home(decide.Outcome(o))
			vec.DeleteLabelValues(m.name.domain, m.name.rule, label)
		}
	}
	for values, s := range m.details {
		m.rules.free.Add(int64(m.endDetail(mended(values), s)))
	}
	m.endDetail(other, &m.others)
	m.endBudgets()
	if m.rules.comparisons != nil {
		m.rules.comparisons.end(m.name)
	}
}

// endDetail removes the series of values and returns their number.
func (m *meter) endDetail(values string, s *series) (count int) {
	for o := range s {
		if s[o].Swap(nil) != nil {
			m.rules.detail.DeleteLabelValues(m.name.domain, m.name.rule, values, decide.Outcome(o).String())
			count++
		}
	}
	return count
}

// mended returns a valid label. U+FFFD replaces bytes that are not UTF-8, with which every
// scrape fails, and control characters, which a terminal executes.
func mended(values string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(values, "\uFFFD"))
}
