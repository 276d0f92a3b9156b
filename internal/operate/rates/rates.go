// Package rates turns the counts of the metrics into the rates that a glance at a process shows: a
// [Sampler] takes them at intervals, for all calls and for each rule, with the quantiles of times.
package rates

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// Bounds of what a Sampler keeps: five minutes of points for the process and for 50 rules.
const (
	sampleInterval = 5 * time.Second
	samplePoints   = 60
	sampledRules   = 50
)

// A Sampler turns counts into rates. Create it with [New]. It is safe for concurrent use.
type Sampler struct {
	read func(*metrics.Totals)

	mu                           sync.Mutex
	at                           time.Time // of totals; zero: there was no sample yet
	totals, before               metrics.Totals
	counted                      metrics.Differ
	decisions, denials, degraded []float64
	calls, store                 []metrics.Times // at the ends of the last points, the newest last
	rules                        map[ruleName]*ruleSeries
}

type ruleName struct{ domain, rule string }

// A ruleSeries is the last points of one rule.
type ruleSeries struct {
	glance.RuleRate
	score float64 // its decisions, the newer ones with more weight
}

// New returns a Sampler of the counts that read reads.
func New(read func(*metrics.Totals)) *Sampler {
	return &Sampler{read: read, rules: make(map[ruleName]*ruleSeries)}
}

// Run takes samples until ctx ends, and returns nil.
func (s *Sampler) Run(ctx context.Context) error {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	s.sample(time.Now())
	for {
		select {
		case now := <-tick.C:
			s.sample(now)
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Sampler) sample(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals, s.before = s.before, s.totals
	s.read(&s.totals)
	first := s.at.IsZero()
	seconds := now.Sub(s.at).Seconds()
	s.at = now
	s.calls, s.store = point(s.calls, s.totals.Calls), point(s.store, s.totals.Store)
	since := s.counted.Since(s.totals.Rules)
	if first || seconds <= 0 {
		return
	}
	decisions, denials := 0.0, 0.0
	rates := make([]ruleRate, len(since))
	for i, r := range since {
		rates[i].RuleTotals = metrics.RuleTotals{Domain: r.Domain, Rule: r.Rule, Decisions: r.Decisions / seconds, Denials: r.Denials / seconds, Near: r.Near / seconds, Shadow: r.Shadow / seconds}
		decisions, denials = decisions+rates[i].Decisions, denials+rates[i].Denials
	}
	s.decisions, s.denials = point(s.decisions, decisions), point(s.denials, denials)
	s.degraded = point(s.degraded, math.Max(s.totals.Degraded-s.before.Degraded, 0)/seconds)
	s.keep(rates)
}

// point appends a point, and drops the oldest one above the bound.
func point[T any](points []T, p T) []T {
	if len(points) >= samplePoints {
		points = append(points[:0], points[1:]...)
	}
	return append(points, p)
}

// A ruleRate is what one rule counted in a second of the last interval.
type ruleRate struct {
	metrics.RuleTotals
	sorting float64
}

// keep adds a point to the series of the busiest rules, and drops all other series.
func (s *Sampler) keep(rates []ruleRate) {
	for i := range rates {
		r := &rates[i]
		r.sorting = r.Decisions
		if known := s.rules[ruleName{r.Domain, r.Rule}]; known != nil {
			r.sorting = max(r.Decisions, 0.9*known.score)
		}
	}
	slices.SortFunc(rates, func(a, b ruleRate) int {
		return cmp.Or(cmp.Compare(b.sorting, a.sorting), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	})
	kept := make(map[ruleName]*ruleSeries, sampledRules)
	for _, r := range rates[:min(len(rates), sampledRules)] {
		if r.sorting < 1e-9 {
			break
		}
		name := ruleName{r.Domain, r.Rule}
		series := s.rules[name]
		if series == nil {
			series = &ruleSeries{RuleRate: glance.RuleRate{Domain: r.Domain, Rule: r.Rule}}
		}
		series.score, series.Near, series.Shadow = r.sorting, r.Near, r.Shadow
		series.Decisions, series.Denials = point(series.Decisions, r.Decisions), point(series.Denials, r.Denials)
		kept[name] = series
	}
	s.rules = kept
}

// Fill writes the rates and the times of calls into a state.
func (s *Sampler) Fill(to *glance.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.Rates = glance.Rates{
		Interval: sampleInterval.Seconds(), Decisions: points(s.decisions), Denials: points(s.denials), Degraded: points(s.degraded),
		Rules: make([]glance.RuleRate, 0, len(s.rules)),
	}
	for _, r := range s.rules {
		one := r.RuleRate
		one.Decisions, one.Denials = points(one.Decisions), points(one.Denials)
		to.Rates.Rules = append(to.Rates.Rules, one)
	}
	slices.SortFunc(to.Rates.Rules, func(a, b glance.RuleRate) int {
		return cmp.Or(cmp.Compare(b.Decisions[len(b.Decisions)-1], a.Decisions[len(a.Decisions)-1]), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	})
	if n := len(s.calls); n > 0 {
		calls, store := s.calls[n-1].Since(s.calls[0]), s.store[n-1].Since(s.store[0])
		to.Latency.P50, to.Latency.P99 = calls.Quantile(0.5), calls.Quantile(0.99)
		to.Latency.StoreP50, to.Latency.StoreP99 = store.Quantile(0.5), store.Quantile(0.99)
	}
	to.Store.Degraded = uint64(s.totals.Degraded)
}

// points returns a copy, which is no nil.
func points(all []float64) []float64 { return append([]float64{}, all...) }
