package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/policy"
)

// generations keeps the active generation of rules and tiers and replaces it.
type generations struct {
	settings config.Settings
	decider  *policy.Decider
	metrics  *metrics.Metrics
	log      *zap.Logger

	mu      sync.Mutex
	active  *config.Generation
	loaded  time.Time
	refused error // of the last reload; nil if it was taken
}

// start makes g the first generation.
func (gs *generations) start(g *config.Generation) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.take(g)
	gs.log.Info("rules active", gs.fields(g)...)
}

func (gs *generations) take(g *config.Generation) {
	gs.active, gs.loaded, gs.refused = g, time.Now(), nil
	gs.metrics.Loaded(float64(gs.loaded.UnixMilli()) / 1000)
	for _, w := range g.Warnings {
		gs.log.Warn("configuration", zap.String("problem", w.String()))
	}
}

func (gs *generations) fields(g *config.Generation) []zap.Field {
	f := []zap.Field{
		zap.String("generation", g.Digest),
		zap.Strings("domains", g.Rules.Domains()),
		zap.Int("rules", len(g.Rules.All())),
	}
	if t := g.Rules.Tiers(); t != nil && gs.settings.Tiers.Source == config.TiersFile {
		f = append(f, zap.Int("subjects", t.Subjects()))
	}
	return f
}

// reload reads the files again. A broken generation changes nothing but what
// metrics, log and /rlconfig say. Reading takes time on large files, so requests
// for the pages are not held up by it; only one caller reloads, the watcher.
func (gs *generations) reload() {
	g, err := config.Load(gs.settings)
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if err != nil {
		gs.refused = err
		gs.metrics.Refused()
		gs.log.Error("configuration refused, the last good one stays active",
			zap.String("generation", gs.active.Digest), zap.String("problems", err.Error()))
		return
	}
	if g.Digest == gs.active.Digest && gs.refused == nil {
		gs.log.Info("files looked at again, nothing has changed", zap.String("generation", g.Digest))
		return
	}
	gs.decider.Swap(g.Rules)
	gs.take(g)
	gs.log.Info("rules reloaded", gs.fields(g)...)
}

// page writes the state of the configuration as text.
func (gs *generations) page(w http.ResponseWriter, _ *http.Request) {
	gs.mu.Lock()
	g, loaded, refused := gs.active, gs.loaded, gs.refused
	gs.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "# generation %s, loaded %s\n", g.Digest, loaded.UTC().Format(time.RFC3339))
	for _, f := range g.Files {
		fmt.Fprintf(w, "# from %s\n", f)
	}
	if gs.settings.Rules.ShadowMode {
		fmt.Fprintln(w, "# rules.shadow_mode: every rule is only observed")
	}
	if gs.settings.Rules.QuotaMode {
		fmt.Fprintln(w, "# rules.quota_mode: every rule is a quota rule")
	}
	fmt.Fprintf(w, "# store.on_error: %s, for rules without on_store_error\n", gs.settings.Store.OnError)
	if refused != nil {
		fmt.Fprintf(w, "# BROKEN: the files have changed since and were refused:\n#   %s\n",
			strings.ReplaceAll(refused.Error(), "\n", "\n#   "))
	}
	for _, line := range describe(g.Rules) {
		fmt.Fprintln(w, line)
	}
}

// describe writes one line a rule: its path, its name, its limits, and whatever
// else the file says of it.
func describe(rules *policy.Rules) []string {
	var lines []string
	for _, r := range rules.All() {
		parts := []string{r.String(), "name=" + r.Name}
		if text := describeTerms(&r.Terms); text != "" {
			parts = append(parts, text)
		} else if len(r.ByTier) == 0 {
			parts = append(parts, "no limit")
		}
		for _, t := range slices.Sorted(maps.Keys(r.ByTier)) {
			terms := r.ByTier[t]
			parts = append(parts, t+": "+cmp.Or(describeTerms(&terms), "no limit"))
		}
		lines = append(lines, strings.Join(append(parts, r.Traits()...), "  "))
	}
	return lines
}

// describeTerms tells the limits that somebody gets. It is empty where there are
// none.
func describeTerms(t *policy.Terms) string {
	if t.Unlimited {
		return "unlimited"
	}
	parts := make([]string, len(t.Limits))
	for i, l := range t.Limits {
		parts[i] = fmt.Sprintf("%d per %s", l.Hits, policy.FormatWindow(l.Window))
		if l.Precision > 0 {
			parts[i] += fmt.Sprintf(" (precision %v)", l.Precision)
		}
		if lease := policy.FormatLease(l.Lease); lease != "" {
			parts[i] += fmt.Sprintf(" (lease %s)", lease)
		}
	}
	text := strings.Join(parts, " and ")
	if t.Observe > 0 && text != "" {
		text += fmt.Sprintf(" (%.4g%% observed)", 100*t.Observe)
	}
	return text
}

// Describe writes one line a rule: its path, its name, its limits, and whatever
// else the file says of it.
func (r Running) Describe() []string { return describe(r.Rules) }
