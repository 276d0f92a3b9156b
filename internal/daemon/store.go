package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// openStore returns the store of the settings. Redis need not be there yet. What
// a store tells of single logs goes to sampledLog.
func openStore(ctx context.Context, s config.Settings, m *metrics.Metrics, log, sampledLog *zap.Logger) (window.Store, error) {
	switch s.Store.Type {
	case config.StoreMemory:
		return openMemory(s.Store.Memory, log)
	case config.StoreRedis:
		return openRedis(ctx, s, m, log, sampledLog)
	default:
		return nil, fmt.Errorf("store.type: unknown store %q", s.Store.Type)
	}
}

// openRedis returns a store in Redis.
func openRedis(ctx context.Context, s config.Settings, m *metrics.Metrics, log, sampledLog *zap.Logger) (window.Store, error) {
	redis.SetLogger(redisLog{log})
	client, err := redisClient(s)
	if err != nil {
		return nil, err
	}
	prefix := s.Store.Redis.KeyPrefix
	store := redisstore.New(client, redisstore.Options{
		Prefix:  prefix,
		Timeout: s.Store.Timeout,
		Foreign: func(win time.Duration) {
			m.ForeignValue()
			sampledLog.Error("a value in Redis was not a log of ours: it was thrown away, and its quota begins anew; does something else write under store.redis.key_prefix?",
				zap.String("prefix", prefix), zap.Duration("window", win))
		},
	})
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+s.Store.Timeout)
	defer cancel()
	if err := store.Load(ctx); err != nil {
		log.Info("the script is not loaded into Redis yet; the first call will do it", zap.Error(err))
	}
	return closing{store, client}, nil
}

// downAfter is how many failures in a row make a store count as down: more than
// what a moment of overload gives, few enough to be told at once.
const downAfter = 3

// reporting says once when its store stops deciding, and once when it decides
// again.
type reporting struct {
	window.Store
	log      *zap.Logger // sampled: single logs can be broken, and a store can flap
	metrics  *metrics.Metrics
	failures atomic.Int32 // in a row
	down     atomic.Bool
}

// Take implements window.Store.
func (r *reporting) Take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	err := r.Store.Take(ctx, checks, decisions)
	switch {
	case err == nil:
		if r.failures.Load() != 0 {
			r.failures.Store(0)
		}
		if r.down.Load() && r.down.CompareAndSwap(true, false) {
			r.metrics.StoreDown(false)
			r.log.Info("the store decides again")
		}
	case errors.Is(err, window.ErrBadCheck):
		// One request, not the store.
		r.log.Error("a check cannot be decided", zap.Error(err))
	case errors.Is(err, memstore.ErrFull):
		// It decides for all who have a log, and counts those whom it refuses.
		r.log.Warn("the store is full: raise store.memory.max_keys or store.memory.max_bytes", zap.Error(err))
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), policy.ErrStoreTimeout):
		// The caller gave up first, which says nothing about the store.
	case r.failures.Add(1) >= downAfter && r.down.CompareAndSwap(false, true):
		r.metrics.StoreDown(true)
		r.log.Warn("the store cannot decide; rules without on_store_error are answered UNAVAILABLE", zap.Error(err))
	}
	return err
}

// redisLog takes what go-redis would print on standard error by itself: details
// of single connections, whose sum is what reporting says.
type redisLog struct{ log *zap.Logger }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Debug("redis client", zap.String("detail", fmt.Sprintf(format, v...)))
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

// dialTimeout bounds a connection that is being made, while no caller waits for
// it longer than for a decision.
const dialTimeout = 250 * time.Millisecond

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
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout
	// A connection may take longer than the one request that asked for it waits:
	// given up each time, a slow moment would never get one. The next requests
	// have it then. One try: the next request is the retry.
	o.DialTimeout = max(dialTimeout, timeout)
	o.DialerRetries = 1
	o.PoolSize = s.Store.Redis.PoolSize // zero: ten per CPU
	// Connecting costs a round trip less without CLIENT SETINFO, and without the
	// hand-over protocol of a managed service, which plain servers refuse.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}
