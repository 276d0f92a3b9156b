// Package sources opens the customer source that the settings name: Redis, PostgreSQL or HTTP.
// [Check] checks these settings without a connection. [Open] makes the source of package
// redissource, pgsource or httpsource, and [Ask] asks it for a few keys once.
package sources

import (
	"context"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/redisclient"
	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/httpsource"
	"github.com/slidegate/slidegate/internal/core/tier/pgsource"
	"github.com/slidegate/slidegate/internal/core/tier/redissource"
)

// Open opens the customer source of the settings. It need not answer yet.
func Open(s settings.Settings, log, sampledLog *zap.Logger) (tier.Source, error) {
	switch s.Tiers.Source {
	case settings.TiersInRedis:
		return openRedisSource(s, log, sampledLog)
	case settings.TiersInPostgres:
		return openPostgresSource(s, log, sampledLog)
	default:
		return openHTTPSource(s, log)
	}
}

// AsksByKey reports whether the source gets API keys themselves instead of digests.
func AsksByKey(t settings.Tiers) bool {
	return t.Source == settings.TiersOverHTTP && t.HTTP.Send == settings.SendKey
}

// Parallel returns how many lookups are under way at most. Zero means the default of the
// cache. Each lookup in PostgreSQL has a connection. A lookup over HTTP is for one key only.
func Parallel(t settings.Tiers) int {
	switch t.Source {
	case settings.TiersInPostgres:
		return t.Postgres.PoolSize
	case settings.TiersOverHTTP:
		return httpsource.Connections
	}
	return 0
}

// Check reports errors in the settings of the customer source. It does not connect to
// the source.
func Check(s settings.Settings) error {
	if !s.Tiers.Asks() {
		return nil
	}
	source, err := Open(s, zap.NewNop(), zap.NewNop())
	if err != nil {
		return err
	}
	return source.Close()
}

// Ask asks the source of the settings for the first of keys that it knows, with the query of the
// service. It returns nil if the source knows none of them.
func Ask(ctx context.Context, s settings.Settings, keys []tier.Key) (*tier.Subject, error) {
	source, err := Open(s, zap.NewNop(), zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }() // a source only reads, so no data is lost
	for _, k := range keys {
		if !AsksByKey(s.Tiers) {
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
