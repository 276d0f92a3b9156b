package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/sources"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/cache"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// subjects finds the subjects of API keys in a customer source. It is nil if the settings
// name a tiers file or no tiers.
type subjects struct {
	*cache.Cache
	source string // tiers.source
	byKey  bool   // the source gets API keys instead of digests
	log    *zap.Logger
}

const (
	// knownKeys is how many API keys with a subject are remembered, and unknownKeys how many
	// others.
	knownKeys   = 1_000_000
	unknownKeys = 100_000
)

// openSubjects opens the source of the settings, which need not answer yet. It returns nil
// if the settings name no source. openSubjects itself does not call rules: requests do.
func openSubjects(s settings.Settings, secrets *tier.Secrets, rs func() *rules.Rules, m *metrics.Metrics, registry prometheus.Registerer, log, sampledLog *zap.Logger) (*subjects, error) {
	t := s.Tiers
	if !t.Asks() {
		return nil, nil
	}
	source, err := sources.Open(s, log, sampledLog)
	if err != nil {
		return nil, err
	}
	sub := &subjects{source: t.Source, byKey: sources.AsksByKey(t), log: log}
	sub.Cache, err = cache.New(cache.Options{
		Source:     source,
		Timeout:    s.TiersTimeout(),
		Subjects:   knownKeys,
		Unknown:    unknownKeys,
		TTL:        t.Cache.TTL,
		UnknownTTL: 10 * time.Second,
		Stale:      t.Cache.Stale,
		Breaker:    cache.Breaker{Failures: 5, Retry: time.Second},
		PlainKeys:  sub.byKey,
		Questions:  sources.Parallel(t),
		Names: cache.Names{
			Tier: func(name string) bool { d := rs().Tiers(); return d == nil || d.HasTier(name) },
			Rule: func(name string) bool {
				return slices.ContainsFunc(rs().All(), func(r *rules.Rule) bool { return r.Name == name })
			},
		},
		Panicked:      m.Panicked,
		SourceSeconds: metrics.Tiers(registry, func() cache.Stats { return sub.Stats() }, secrets.FoundByPrevious),
		Log:           log,
		SampledLog:    sampledLog,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tiers: %w", err), source.Close())
	}
	return sub, nil
}

func (s *subjects) close() error {
	if s != nil {
		_ = s.Close() // a source only reads, so no data is lost
	}
	return nil
}

// resolver returns s, or nil if there is no source.
func (s *subjects) resolver() tier.Resolver {
	if s == nil {
		return nil
	}
	return s
}

// keys returns what looks up subjects for the admin port.
func (s *subjects) keys(rs func() *rules.Rules) admin.Tiers {
	if s == nil {
		return directory{rs}
	}
	return s
}

// parts returns the parts that run until the process stops.
func (s *subjects) parts() []part {
	if s == nil {
		return nil
	}
	return []part{s.Run, func(ctx context.Context) error {
		s.probe(ctx)
		<-ctx.Done()
		return nil
	}}
}

// probe asks the source for a key that no subject has. So the log says at the start whether
// the source answers, and the first request finds a connection.
func (s *subjects) probe(ctx context.Context) {
	k := tier.Key{Digest: strings.Repeat("0", tier.DigestLen)}
	if s.byKey {
		k = tier.Key{ID: "no-such-key"}
	}
	if _, err := s.Lookup(ctx, k); err != nil && ctx.Err() == nil {
		s.log.Warn("the customer source does not answer yet", zap.Error(err))
	} else if err == nil {
		s.log.Info("the customer source answers")
	}
}

// text returns a line for /healthcheck. It is empty if there is no source.
func (s *subjects) text() string {
	switch {
	case s == nil:
		return ""
	case s.Stats().Open:
		return s.source + ", fails and is not asked; known subjects keep their tiers"
	default:
		return s.source
	}
}

// directory looks up subjects of the tiers file for the admin port.
type directory struct{ rules func() *rules.Rules }

// Look implements admin.Tiers.
func (d directory) Look(k tier.Key) tier.Inspection {
	t := d.rules().Tiers()
	if t == nil {
		return tier.Inspection{}
	}
	a, _ := t.Resolve(context.Background(), k, tier.NoWait) // a directory always answers
	return tier.Inspection{Cached: true, Fresh: true, Subject: a.Subject}
}

// Lookup implements admin.Tiers.
func (d directory) Lookup(_ context.Context, k tier.Key) (tier.Inspection, error) {
	return d.Look(k), nil
}

// Known implements admin.Tiers.
func (d directory) Known() iter.Seq[*tier.Subject] {
	if t := d.rules().Tiers(); t != nil {
		return t.All()
	}
	return func(func(*tier.Subject) bool) {}
}

// Invalidate implements admin.Tiers. It does nothing, because the service reads the file when
// it changes.
func (directory) Invalidate(tier.Change) {}
