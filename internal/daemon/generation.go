package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/migrate/compat/stats"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// generations keeps the active generation of rules and tiers and replaces it. Call start to report the
// first one.
type generations struct {
	settings settings.Settings
	remote   *remote // nil: the rules are from files
	decider  *decide.Decider
	metrics  *metrics.Metrics
	stats    *stats.Stats // nil: off
	log      *zap.Logger
	// redis gets the scopes in which rules count requests in flight, before the rules are active.
	redis *redisStore

	loading sync.Mutex // locked while a generation is made, and before mu

	mu      sync.Mutex
	active  *config.Generation
	loaded  time.Time
	refused [2]error // the last of each origin; nil if it succeeded
	// described are the rules of active as pages show them. Nil: no page has asked yet. It is never
	// changed, because several pages have it.
	described []admin.Rule
}

type origin int

const (
	fromFiles  origin = iota // of rules, or only of tiers
	fromServer               // the xDS server
)

func (gs *generations) start() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.redis.countsInFlight(gs.active.Rules.HoldScopes())
	gs.take(gs.active)
	if gs.active.Rules.Missing() {
		gs.log.Warn("no rules yet: calls fail until the xDS server sends some; check the server and rules.xds.node_id", zap.String("address", string(gs.settings.Rules.XDS.Address)))
		return
	}
	gs.log.Info("rules active", gs.fields(gs.active)...)
}

// warnOfAttempts names the entries of charge_once that g no longer has. Descriptors with such an
// entry may match no rule of g, so clients decide with a header whether a limit applies.
func (gs *generations) warnOfAttempts(g *config.Generation) {
	for _, domain := range g.Rules.Domains() {
		if before := gs.active.Rules.AttemptEntry(domain); before != "" && before != g.Rules.AttemptEntry(domain) {
			gs.log.Warn("charge_once no longer has this entry, so descriptors with it may match no rule and no limit applies: let Envoy no longer send it",
				zap.String("domain", safetext.Text(domain)), zap.String("entry", safetext.Text(before)))
		}
	}
}

// take makes g the active generation in metrics and pages. The caller has locked gs.mu.
func (gs *generations) take(g *config.Generation) {
	gs.active, gs.loaded, gs.described = g, time.Now(), nil
	for _, w := range g.Warnings {
		gs.log.Warn("configuration", zap.String("problem", w.String()))
	}
	if g.Rules.Missing() {
		return
	}
	gs.metrics.Loaded()
	gs.stats.Loaded()
	if gs.broken() != nil {
		gs.metrics.Broken()
	}
}

// broken returns what is wrong with newer generations than the active one. The caller has locked
// gs.mu.
func (gs *generations) broken() error { return errors.Join(gs.refused[:]...) }

func (gs *generations) fields(g *config.Generation) []zap.Field {
	domains := slices.Clone(g.Rules.Domains())
	for i := range domains {
		domains[i] = safetext.Text(domains[i])
	}
	f := []zap.Field{
		zap.String("generation", g.Digest),
		zap.Strings("domains", domains),
		zap.Int("rules", len(g.Rules.All())),
	}
	if t := g.Rules.Tiers(); t != nil && gs.settings.Tiers.Source == settings.TiersFile {
		f = append(f, zap.Int("subjects", t.Subjects()))
	}
	return f
}

// reload reads the files again and replaces the active generation. If the files are broken,
// the active generation stays, and metrics, log and /rlconfig show the problems. If an xDS
// server has the rules, they stay as they are.
//
// reload reads without mu, because large files take time and pages must not wait for them.
func (gs *generations) reload() {
	gs.loading.Lock()
	defer gs.loading.Unlock()
	var g *config.Generation
	var err error
	if gs.remote == nil {
		g, err = config.Load(gs.settings)
	} else {
		g, err = config.LoadSent(gs.settings, gs.now().Sent, nil)
	}
	gs.replace(fromFiles, g, err)
}

// load makes rules of the xDS server active. It returns why the active ones stay.
func (gs *generations) load(sent *config.Sent) error {
	gs.loading.Lock()
	defer gs.loading.Unlock()
	g, err := config.LoadSent(gs.settings, sent, gs.now())
	gs.replace(fromServer, g, err)
	return err
}

func (gs *generations) refuse(err error) {
	gs.loading.Lock()
	defer gs.loading.Unlock()
	gs.replace(fromServer, nil, err)
}

func (gs *generations) now() *config.Generation {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.active
}

// replace makes g the active generation, or reports err. The caller has locked gs.loading.
func (gs *generations) replace(from origin, g *config.Generation, err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	before := gs.refused[from]
	gs.refused[from] = err
	if err != nil {
		gs.metrics.Refused()
		gs.stats.Refused()
		gs.log.Error("configuration refused, the last good one stays active; correct the files",
			zap.String("generation", gs.active.Digest), zap.String("problems", err.Error()))
		return
	}
	if g.Digest == gs.active.Digest && before == nil && g.Rules.Missing() == gs.active.Rules.Missing() {
		text := "the files were read again and have not changed"
		if from == fromServer {
			text = "the xDS server sent the same rules again"
		}
		gs.log.Info(text, zap.String("generation", g.Digest))
		return
	}
	first := gs.active.Rules.Missing()
	gs.redis.countsInFlight(g.Rules.HoldScopes())
	gs.warnOfAttempts(g)
	gs.decider.Swap(g.Rules)
	gs.take(g)
	switch {
	case g.Rules.Missing(): // only the tiers have changed
	case first:
		gs.log.Info("rules active", gs.fields(g)...)
	default:
		gs.log.Info("rules reloaded", gs.fields(g)...)
	}
}

// page returns what /rlconfig shows. The caller must not change the rules in it.
func (gs *generations) page() admin.Active {
	gs.mu.Lock()
	g, loaded, refused, rules := gs.active, gs.loaded, gs.broken(), gs.described
	gs.mu.Unlock()
	if rules == nil { // 10,000 rules take a while, and the console asks every two seconds
		rules = describe(g.Rules)
		for i, at := range g.Locations {
			rules[i].File, rules[i].Line = at.File, at.Line
		}
		gs.mu.Lock()
		if gs.active == g {
			gs.described = rules
		}
		gs.mu.Unlock()
	}
	a := admin.Active{Generation: g.Digest, Loaded: loaded.UTC(), Files: append([]string{}, g.Files...), Rules: rules}
	if gs.remote != nil {
		a.Files = append(a.Files, "xds "+string(gs.settings.Rules.XDS.Address))
		a.Notes = append(a.Notes, "rules.source: xds, "+gs.remote.text())
	}
	if gs.settings.Rules.ShadowMode {
		a.Notes = append(a.Notes, "rules.shadow_mode: every rule only observes")
	}
	if gs.settings.DropIn.QuotaMode {
		a.Notes = append(a.Notes, "QUOTA_MODE: every rule is a quota rule")
	}
	a.Notes = append(a.Notes, fmt.Sprintf("store.on_error: %s, for rules without on_store_error", gs.settings.Store.OnError))
	if refused != nil {
		a.Refused = refused.Error()
	}
	return a
}

// rules returns the active rules, and reports whether the values of a key are API keys.
func (gs *generations) rules() (active *rules.Rules, hides func(key string) bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.active.Rules, gs.active.Secrets.Hides
}

// describe returns the path, the name, the limits and the other traits of every rule.
func describe(rs *rules.Rules) []admin.Rule {
	all := make([]admin.Rule, 0, len(rs.All()))
	for _, r := range rs.All() {
		rule := admin.Rule{Path: r.String(), Name: r.Name, Limits: []string{}, Traits: r.Traits(), Domain: r.Domain, Words: r.Words()}
		if text := describeTerms(&r.Terms); text != "" {
			rule.Limits = append(rule.Limits, text)
		} else if len(r.ByTier) == 0 {
			rule.Limits = append(rule.Limits, "no limit")
		}
		for _, t := range slices.Sorted(maps.Keys(r.ByTier)) {
			terms := r.ByTier[t]
			rule.Limits = append(rule.Limits, t+": "+cmp.Or(describeTerms(&terms), "no limit"))
		}
		for i, n := range r.Path {
			if r.Hides(i) && !n.Open() {
				n.Value = "***"
			}
			rule.Entries = append(rule.Entries, n.String())
		}
		all = append(all, rule)
	}
	return all
}

// describeTerms returns the limits of t as text. It is empty if t has no limits.
func describeTerms(t *rules.Terms) string {
	if t.Unlimited {
		return "unlimited"
	}
	parts := make([]string, len(t.Limits))
	for i := range t.Limits {
		l := &t.Limits[i]
		parts[i] = l.Text()
		if starts := l.CalendarText(); starts != "" {
			parts[i] += " (" + starts + ")"
		}
		if l.Precision > 0 {
			parts[i] += fmt.Sprintf(" (precision %v)", l.Precision)
		}
		if lease := rules.FormatLease(l.Lease); lease != "" {
			parts[i] += fmt.Sprintf(" (lease %s)", lease)
		}
	}
	text := strings.Join(parts, " and ")
	if t.Observe > 0 && text != "" {
		text += fmt.Sprintf(" (%.4g%% observed)", 100*t.Observe)
	}
	return text
}

// Describe returns one line for each rule, with its path, its name, its limits and its other
// traits.
func (r Running) Describe() []string {
	rules := describe(r.Rules)
	lines := make([]string, len(rules))
	for i, rule := range rules {
		lines[i] = safetext.Text(rule.String())
	}
	return lines
}
