package daemon

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

func (p *process) readTotals(t *metrics.Totals) {
	p.measures.metrics.Totals(t, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
}

func (p *process) state() glance.State {
	s := glance.State{
		Instance: p.operators.instance, Version: p.operators.version, Started: p.operators.started.UTC(), At: time.Now().UTC(),
		Tiers: cmp.Or(p.subjects.text(), p.settings.Tiers.Source),
		Store: glance.Store{Type: p.settings.Store.Type},
	}
	p.operators.sampler.Fill(&s)
	s.Latency.Deadline = p.settings.Store.Timeout.Seconds()
	p.store.fill(&s)
	a := p.generations.page()
	s.Config = glance.Config{
		Generation: a.Generation, Loaded: a.Loaded, Files: a.Files, Rules: len(a.Rules), Refused: a.Refused, Notes: a.Notes,
	}
	if t := p.decider.Rules().Tiers(); t != nil && p.settings.Tiers.Source == settings.TiersFile {
		s.Config.Subjects, s.Config.Carried = t.Subjects(), t.Carried()
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
func (p *process) problems(s *glance.State) []glance.Problem {
	all := []glance.Problem{}
	add := func(is bool, level, help, format string, args ...any) {
		if is {
			all = append(all, glance.Problem{Level: level, Text: fmt.Sprintf(format, args...), Help: docs.Path + help})
		}
	}
	unavailable := p.probes.storeUnavailable()
	add(unavailable != "", levelError, "operate.md#redis-is-slow-or-unavailable", "The store does not decide: %s. Each rule's on_store_error decides.", unavailable)
	if p.store.redis != nil {
		for _, f := range p.store.redis.states().Further {
			add(!f.Reached, levelError, "operate.md#failures", "The store of the scope %s has not been reached yet. Each rule's on_store_error decides its limits.", f.Scope)
		}
	}
	for _, n := range s.Store.Servers {
		add(n.Reason != "" && unavailable == "", levelError, "operate.md#failures", "The server %s of the store does not decide: %s.", n.Address, n.Reason)
	}
	missing := p.decider.Rules().Missing()
	add(missing, levelError, "operate.md#rules-from-an-xds-server", "No rules are loaded, so calls fail: the xDS server has sent none.")
	add(!missing && s.Config.Rules == 0, levelError, "operate.md#no-client-is-denied", "The rules are empty, so nothing is limited.")
	add(s.Config.Refused != "", levelError, "operate.md#change-rules", "A newer configuration was refused, and the last good one stays active: %s", firstLine(s.Config.Refused))
	add(p.subjects != nil && p.subjects.Stats().Open, levelError, "reference/alerts.md#slidegatetierssourcefails", "The customer source %s fails and is not asked. Known subjects keep their tiers, and others have the default.", p.settings.Tiers.Source)
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
