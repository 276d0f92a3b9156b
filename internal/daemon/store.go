package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// openStore returns the store of the settings. Redis need not be there yet.
func openStore(s config.Settings) (window.Store, error) {
	switch s.Store.Type {
	case config.StoreMemory:
		return memstore.New(memstore.Options{}), nil
	case config.StoreRedis:
		client, err := redisClient(s)
		if err != nil {
			return nil, err
		}
		return closing{redisstore.New(client, redisstore.Options{Prefix: s.Store.Redis.KeyPrefix}), client}, nil
	default:
		return nil, fmt.Errorf("store.type: unknown store %q", s.Store.Type)
	}
}

// reporting says once when its store stops deciding, and once when it decides
// again. A caller that gave up says nothing about the store.
type reporting struct {
	window.Store
	log     *zap.Logger
	metrics *metrics.Metrics
	down    atomic.Bool
}

// Take implements window.Store.
func (r *reporting) Take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	err := r.Store.Take(ctx, checks, decisions)
	switch {
	case err == nil:
		if r.down.Load() && r.down.CompareAndSwap(true, false) {
			r.metrics.StoreDown(false)
			r.log.Info("the store decides again")
		}
	case errors.Is(err, context.Canceled), errors.Is(err, window.ErrBadCheck):
	case r.down.CompareAndSwap(false, true):
		r.metrics.StoreDown(true)
		r.log.Warn("the store cannot decide; Envoy gets UNAVAILABLE", zap.Error(err))
	}
	return err
}

// closing closes the client that its store only borrows.
type closing struct {
	window.Store
	client *redis.Client
}

func (c closing) Close() error {
	if err := c.Store.Close(); err != nil {
		return err
	}
	return c.client.Close()
}

// redisClient makes a client whose every wait ends within store.timeout.
func redisClient(s config.Settings) (*redis.Client, error) {
	o, err := redis.ParseURL(s.Store.Redis.URL.Reveal())
	if err != nil {
		// The text of err may hold the password of the URL.
		return nil, fmt.Errorf("store.redis.url: not a URL of the form %s", "redis://[user:password@]host:port/database")
	}
	timeout := s.Store.Timeout
	// A write that was sent may have been charged: a second try would charge again.
	o.MaxRetries = -1
	// The caller's deadline ends a call, wherever it waits.
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	// One try to connect: the next request is the retry.
	o.DialerRetries = 1
	o.PoolSize = s.Store.Redis.PoolSize // zero: ten per CPU
	// Connecting costs a round trip less without CLIENT SETINFO, and without the
	// hand-over protocol of a managed service, which plain servers refuse.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}
