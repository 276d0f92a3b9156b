package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/redisclient"
	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/core/policy"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/httpsource"
	"github.com/slidegate/slidegate/internal/core/tier/pgsource"
	"github.com/slidegate/slidegate/internal/core/tier/redissource"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// subjects finds the subjects of API keys in a source of tiers. It is nil if the settings
// name a tiers file or no tiers.
type subjects struct {
	*tier.Cache
	rules  func() *policy.Rules // the active rules, which name the tiers
	source string               // tiers.source
	byKey  bool                 // the source gets API keys instead of digests
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
func openSubjects(s settings.Settings, secrets *tier.Secrets, rules func() *policy.Rules, m *metrics.Metrics, registry prometheus.Registerer, log, sampledLog *zap.Logger) (*subjects, error) {
	t := s.Tiers
	if !t.Asks() {
		return nil, nil
	}
	source, err := openSource(s, log, sampledLog)
	if err != nil {
		return nil, err
	}
	sub := &subjects{rules: rules, source: t.Source, byKey: asksByKey(t), log: log}
	sub.Cache, err = tier.NewCache(tier.CacheOptions{
		Source:        source,
		Timeout:       s.TiersTimeout(),
		Subjects:      knownKeys,
		Unknown:       unknownKeys,
		TTL:           t.Cache.TTL,
		UnknownTTL:    10 * time.Second,
		Stale:         t.Cache.Stale,
		Failures:      5,
		Retry:         time.Second,
		PlainKeys:     sub.byKey,
		Questions:     questions(t),
		KnownTier:     sub.knowsTier,
		KnownRule:     sub.knowsRule,
		Panicked:      m.Panicked,
		SourceSeconds: metrics.Tiers(registry, func() tier.CacheStats { return sub.Stats() }, secrets.FoundByPrevious),
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

// keys returns the place where the admin port looks up subjects.
func (s *subjects) keys(rules func() *policy.Rules) admin.Tiers {
	if s == nil {
		return directory{rules}
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

// asksByKey reports whether the source gets API keys themselves instead of digests.
func asksByKey(t settings.Tiers) bool {
	return t.Source == settings.TiersOverHTTP && t.HTTP.Send == settings.SendKey
}

func (s *subjects) knowsTier(name string) bool {
	d := s.rules().Tiers()
	return d == nil || d.HasTier(name)
}

// knowsRule reports whether one of the active rules has a name.
func (s *subjects) knowsRule(name string) bool {
	return slices.ContainsFunc(s.rules().All(), func(r *policy.Rule) bool { return r.Name == name })
}

// questions returns how many questions are under way at most. Zero means the default of the
// cache. Each question to PostgreSQL has a connection. One over HTTP is for one key only.
func questions(t settings.Tiers) int {
	switch t.Source {
	case settings.TiersInPostgres:
		return t.Postgres.PoolSize
	case settings.TiersOverHTTP:
		return httpsource.Connections
	}
	return 0
}

// probe asks the source for a key that no subject has. So the log says at the start whether
// the source answers, and the first request finds a connection.
func (s *subjects) probe(ctx context.Context) {
	k := tier.Key{Digest: strings.Repeat("0", tier.DigestLen)}
	if s.byKey {
		k = tier.Key{ID: "no-such-key"}
	}
	if _, err := s.Lookup(ctx, k); err != nil && ctx.Err() == nil {
		s.log.Warn("the source of tiers does not answer yet", zap.Error(err))
	} else if err == nil {
		s.log.Info("the source of tiers answers")
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

// CheckSource reports errors in the settings of the source of tiers. It does not connect to
// the source.
func CheckSource(s settings.Settings) error {
	if !s.Tiers.Asks() {
		return nil
	}
	source, err := openSource(s, zap.NewNop(), zap.NewNop())
	if err != nil {
		return err
	}
	return source.Close()
}

// AskSource asks the source of the settings for the first of keys that it knows, with the query of the
// service. It returns nil if the source knows none of them.
func AskSource(ctx context.Context, s settings.Settings, keys []tier.Key) (*tier.Subject, error) {
	source, err := openSource(s, zap.NewNop(), zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }() // a source only reads, so no data is lost
	for _, k := range keys {
		if !asksByKey(s.Tiers) {
			k.Plain = ""
		}
		r, err := source.Lookup(ctx, k)
		if err != nil {
			return nil, err
		}
		if r.Subject != nil {
			return r.Subject, nil
		}
	}
	return nil, nil
}

func openSource(s settings.Settings, log, sampledLog *zap.Logger) (tier.Source, error) {
	switch s.Tiers.Source {
	case settings.TiersInRedis:
		return openRedisSource(s, log, sampledLog)
	case settings.TiersInPostgres:
		return openPostgresSource(s, log, sampledLog)
	default:
		return openHTTPSource(s, log)
	}
}

func openRedisSource(s settings.Settings, log, sampledLog *zap.Logger) (tier.Source, error) {
	client, err := redisclient.New(redisclient.Options{Redis: s.TiersRedis(), Section: "tiers.redis", Timeout: s.TiersTimeout(), Log: log})
	if err != nil {
		return nil, err
	}
	return redissource.New(redissource.Options{
		Client: client, KeyPrefix: s.Tiers.Redis.KeyPrefix, Channel: settings.TiersChannel, Overrides: rules.ReadOverrides, Log: sampledLog,
	}), nil
}

func openPostgresSource(s settings.Settings, log, sampledLog *zap.Logger) (tier.Source, error) {
	p := s.Tiers.Postgres
	password, err := watch.Secret("tiers.postgres.password_file", p.Password, p.PasswordFile, log)
	if err != nil {
		return nil, err
	}
	o := pgsource.Options{
		URL:       p.URL.Reveal(),
		Password:  password,
		Query:     p.Query,
		QueryByID: p.QueryByID,
		Channel:   p.Channel,
		PoolSize:  p.PoolSize,
		Timeout:   s.TiersTimeout(),
		Overrides: rules.ReadOverrides,
		Log:       sampledLog,
	}
	if o.TLS, err = watch.TLS("tiers.postgres.tls", p.TLS.Files(), p.TLSConfig, log); err != nil {
		return nil, err
	}
	return pgsource.New(o)
}

func openHTTPSource(s settings.Settings, log *zap.Logger) (tier.Source, error) {
	h := s.Tiers.HTTP
	token, err := watch.Secret("tiers.http.token_file", h.Token, h.TokenFile, log)
	if err != nil {
		return nil, err
	}
	o := httpsource.Options{
		URL:       h.URL.Parsed,
		SendKey:   h.Send == settings.SendKey,
		Token:     token,
		Timeout:   s.TiersTimeout(),
		Overrides: rules.ReadOverrides,
	}
	if o.TLS, err = watch.TLS("tiers.http.tls", h.TLS.Files(), h.TLS.Config, log); err != nil {
		return nil, err
	}
	return httpsource.New(o), nil
}

// directory looks up subjects of the tiers file for the admin port.
type directory struct{ rules func() *policy.Rules }

// Look implements admin.Tiers.
func (d directory) Look(k tier.Key) tier.Inspection {
	t := d.rules().Tiers()
	if t == nil {
		return tier.Inspection{}
	}
	a, _ := t.Resolve(context.Background(), k, tier.NoWait) // a directory always answers
	return tier.Inspection{Held: true, Fresh: true, Subject: a.Subject}
}

// Lookup implements admin.Tiers.
func (d directory) Lookup(_ context.Context, k tier.Key) (tier.Inspection, error) {
	return d.Look(k), nil
}

// Invalidate implements admin.Tiers. It does nothing, because the service reads the file when
// it changes.
func (directory) Invalidate(tier.Change) {}
