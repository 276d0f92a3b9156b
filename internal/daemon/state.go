package daemon

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// Bounds of what the sampler keeps: five minutes of points for the process and for 50 rules.
const (
	sampleInterval = 5 * time.Second
	samplePoints   = 60
	sampledRules   = 50
)

// A sampler turns counts into rates. It is safe for concurrent use.
type sampler struct {
	read func(*metrics.Totals)

	mu                           sync.Mutex
	at                           time.Time // of totals; zero: there was no sample yet
	totals, before               metrics.Totals
	last                         map[ruleName]metrics.RuleTotals
	decisions, denials, degraded []float64
	calls, store                 []metrics.Times // at the ends of the last points, the newest last
	rules                        map[ruleName]*ruleSeries
}

type ruleName struct{ domain, rule string }

// A ruleSeries is the last points of one rule.
type ruleSeries struct {
	insight.RuleRate
	score float64 // its decisions, the newer ones with more weight
}

func newSampler(read func(*metrics.Totals)) *sampler {
	return &sampler{read: read, last: make(map[ruleName]metrics.RuleTotals), rules: make(map[ruleName]*ruleSeries)}
}

func (s *sampler) run(ctx context.Context) error {
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

func (s *sampler) sample(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals, s.before = s.before, s.totals
	s.read(&s.totals)
	first := s.at.IsZero()
	seconds := now.Sub(s.at).Seconds()
	s.at = now
	s.calls, s.store = point(s.calls, s.totals.Calls), point(s.store, s.totals.Store)
	rates := s.ruleRates(seconds)
	if first || seconds <= 0 {
		return
	}
	decisions, denials := 0.0, 0.0
	for i := range rates {
		decisions, denials = decisions+rates[i].decisions, denials+rates[i].denials
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

// A ruleRate is the rate of one rule in the last interval.
type ruleRate struct {
	name                                      ruleName
	decisions, denials, near, shadow, sorting float64
}

// ruleRates returns the rates of all rules since the last call, and notes their counts.
func (s *sampler) ruleRates(seconds float64) []ruleRate {
	rates := make([]ruleRate, 0, len(s.totals.Rules))
	now := make(map[ruleName]metrics.RuleTotals, len(s.totals.Rules))
	for _, r := range s.totals.Rules {
		name := ruleName{r.Domain, r.Rule}
		was := s.last[name]
		since := func(now, was float64) float64 {
			if seconds <= 0 || now < was { // the rule was gone meanwhile
				return 0
			}
			return (now - was) / seconds
		}
		rates = append(rates, ruleRate{
			name: name, decisions: since(r.Decisions, was.Decisions), denials: since(r.Denials, was.Denials),
			near: since(r.Near, was.Near), shadow: since(r.Shadow, was.Shadow),
		})
		now[name] = r
	}
	s.last = now
	return rates
}

// keep adds a point to the series of the busiest rules, and drops all other series.
func (s *sampler) keep(rates []ruleRate) {
	for i := range rates {
		r := &rates[i]
		r.sorting = r.decisions
		if known := s.rules[r.name]; known != nil {
			r.sorting = max(r.decisions, 0.9*known.score)
		}
	}
	slices.SortFunc(rates, func(a, b ruleRate) int {
		return cmp.Or(cmp.Compare(b.sorting, a.sorting), cmp.Compare(a.name.domain, b.name.domain), cmp.Compare(a.name.rule, b.name.rule))
	})
	kept := make(map[ruleName]*ruleSeries, sampledRules)
	for _, r := range rates[:min(len(rates), sampledRules)] {
		if r.sorting < 1e-9 {
			break
		}
		series := s.rules[r.name]
		if series == nil {
			series = &ruleSeries{RuleRate: insight.RuleRate{Domain: r.name.domain, Rule: r.name.rule}}
		}
		series.score, series.Near, series.Shadow = r.sorting, r.near, r.shadow
		series.Decisions, series.Denials = point(series.Decisions, r.decisions), point(series.Denials, r.denials)
		kept[r.name] = series
	}
	s.rules = kept
}

// fill writes the rates and the times of calls into a state.
func (s *sampler) fill(state *insight.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state.Rates = insight.Rates{
		Interval: sampleInterval.Seconds(), Decisions: points(s.decisions), Denials: points(s.denials), Degraded: points(s.degraded),
		Rules: make([]insight.RuleRate, 0, len(s.rules)),
	}
	for _, r := range s.rules {
		one := r.RuleRate
		one.Decisions, one.Denials = points(one.Decisions), points(one.Denials)
		state.Rates.Rules = append(state.Rates.Rules, one)
	}
	slices.SortFunc(state.Rates.Rules, func(a, b insight.RuleRate) int {
		return cmp.Or(cmp.Compare(b.Decisions[len(b.Decisions)-1], a.Decisions[len(a.Decisions)-1]), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	})
	if n := len(s.calls); n > 0 {
		calls, store := s.calls[n-1].Since(s.calls[0]), s.store[n-1].Since(s.store[0])
		state.Latency.P50, state.Latency.P99 = calls.Quantile(0.5), calls.Quantile(0.99)
		state.Latency.StoreP50, state.Latency.StoreP99 = store.Quantile(0.5), store.Quantile(0.99)
	}
	state.Store.Degraded = uint64(s.totals.Degraded)
}

// points returns a copy, which is no nil.
func points(all []float64) []float64 { return append([]float64{}, all...) }

func (p *process) readTotals(t *metrics.Totals) {
	p.metrics.Totals(t, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
}

// state returns what a glance at the process shows.
func (p *process) state() insight.State {
	s := insight.State{
		Instance: p.instance, Version: p.version, Started: p.started.UTC(), At: time.Now().UTC(),
		Tiers: cmp.Or(p.subjects.text(), p.settings.Tiers.Source),
		Store: insight.Store{Type: p.settings.Store.Type},
	}
	p.sampler.fill(&s)
	s.Latency.Deadline = p.settings.Store.Timeout.Seconds()
	p.store.fill(&s)
	a := p.generations.page()
	s.Config = insight.Config{
		Generation: a.Generation, Loaded: a.Loaded, Files: a.Files, Rules: len(a.Rules), Refused: a.Refused, Notes: a.Notes,
	}
	if t := p.decider.Rules().Tiers(); t != nil && p.settings.Tiers.Source == settings.TiersFile {
		s.Config.Subjects = t.Subjects()
	}
	s.Problems = p.problems(&s)
	return s
}

// The levels of problems.
const (
	levelError   = "error"
	levelWarning = "warning"
)

// problems returns what an operator should look at, the worst first. Its help is the path of a section on the admin port.
func (p *process) problems(s *insight.State) []insight.Problem {
	all := []insight.Problem{}
	add := func(is bool, level, help, format string, args ...any) {
		if is {
			all = append(all, insight.Problem{Level: level, Text: fmt.Sprintf(format, args...), Help: docs.Path + help})
		}
	}
	away := p.probes.storeAway()
	add(away != "", levelError, "operate.md#redis-is-slow-or-unavailable", "The store does not decide: %s. Each rule's on_store_error decides.", away)
	if p.store.redis != nil {
		for _, f := range p.store.redis.states().Further {
			add(!f.Reached, levelError, "operate.md#failures", "The store of the scope %s has not been reached yet. Each rule's on_store_error decides its limits.", f.Scope)
		}
	}
	for _, n := range s.Store.Servers {
		add(n.Reason != "" && away == "", levelError, "operate.md#failures", "The server %s of the store does not decide: %s.", n.Address, n.Reason)
	}
	missing := p.decider.Rules().Missing()
	add(missing, levelError, "operate.md#rules-from-an-xds-server", "No rules are loaded, so calls fail: the management server has sent none.")
	add(!missing && s.Config.Rules == 0, levelError, "operate.md#no-client-is-denied", "The rules are empty, so nothing is limited.")
	add(s.Config.Refused != "", levelError, "operate.md#change-rules", "A newer configuration was refused, and the last good one stays active: %s", firstLine(s.Config.Refused))
	add(p.subjects != nil && p.subjects.Stats().Open, levelError, "reference/alerts.md#slidegatetierssourcefails", "The source of tiers %s fails and is not asked. Known subjects keep their tiers, and others have the default.", p.settings.Tiers.Source)
	degraded := s.Rates.Degraded
	add(len(degraded) > 0 && degraded[len(degraded)-1] > 0, levelWarning, "operate.md#fallback-answers", "%.3g requests a second are decided without the store.", last(degraded))
	for _, n := range s.Store.Servers {
		add(n.Evicts != "", levelWarning, "operate.md#set-up-redis", "The server %s has the maxmemory-policy %s: when its memory is full, it evicts logs, and their limits are reset. Set noeviction.", n.Address, n.Evicts)
	}
	add(p.settings.Rules.ShadowMode, levelWarning, "operate.md#no-client-is-denied", "rules.shadow_mode is on: every rule only observes, and no request is denied.")
	add(s.Store.Bytes > 0 && p.settings.Store.Memory.MaxBytes > 0 && float64(s.Store.Bytes) > 0.9*float64(p.settings.Store.Memory.MaxBytes),
		levelWarning, "operate.md#the-memory-store-is-full", "The memory store is nearly full. Raise store.memory.max_bytes.")
	add(p.probes.draining.Load(), levelWarning, "operate.md#stop-and-upgrade", "The process is stopping.")
	return all
}

func last(points []float64) float64 {
	if len(points) == 0 {
		return 0
	}
	return points[len(points)-1]
}

func firstLine(text string) string {
	line, rest, _ := strings.Cut(text, "\n")
	if n := strings.Count(rest, "\n"); rest != "" {
		line += fmt.Sprintf(" (and %d more)", n+1)
	}
	return line
}
