package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
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

// redisStore is a store in Redis and the client that it borrows.
type redisStore struct {
	*redisstore.Store
	client redis.UniversalClient
	nodes  *nodes
}

// Close closes the client too.
func (r *redisStore) Close() error {
	return errors.Join(r.Store.Close(), r.client.Close())
}

// openRedis returns a store in Redis.
func openRedis(ctx context.Context, s config.Settings, m *metrics.Metrics, log, sampledLog *zap.Logger) (*redisStore, error) {
	redis.SetLogger(redisLog{log})
	client, err := redisClient(s, log)
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
	r := &redisStore{Store: store, client: client, nodes: newNodes(s.Store.Redis.URL)}
	ctx, cancel := context.WithTimeout(ctx, s.Store.Redis.DialTimeout+s.Store.Timeout)
	defer cancel()
	if err := store.Load(ctx); err != nil {
		log.Info("the script is not loaded into Redis yet; the first call will do it", zap.Error(err))
	} else {
		r.nodes.reach()
	}
	return r, nil
}

// reachInterval is how often Redis is looked for that has not been there since
// the start.
const reachInterval = time.Second

// reach asks the time until a server tells it for the first time, so that an
// instance which gets no requests before it is ready becomes ready.
func (r *redisStore) reach(ctx context.Context) error {
	tick := time.NewTicker(reachInterval)
	defer tick.Stop()
	for !r.nodes.isReached() {
		if r.answers(ctx) {
			r.nodes.reach()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// answers reports whether a server tells the time, of a cluster any master. The
// service's user may ask for it: the script does.
func (r *redisStore) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reachInterval)
	defer cancel()
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.client.Time(ctx).Err() == nil
	}
	var told atomic.Bool
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		err := node.Time(ctx).Err()
		if err == nil {
			told.Store(true)
		}
		return err
	})
	return told.Load()
}

// poolStats is what the pool of connections has counted, of a cluster those of
// all nodes. Asking a cluster for it that was never reached would look for one
// and wait.
func (r *redisStore) poolStats() metrics.PoolStats {
	if !r.nodes.isReached() {
		return metrics.PoolStats{}
	}
	s := r.client.PoolStats()
	return metrics.PoolStats{
		Hits: uint64(s.Hits), Misses: uint64(s.Misses), Timeouts: uint64(s.Timeouts), Stale: uint64(s.StaleConns),
		Connections: int(s.TotalConns), Idle: int(s.IdleConns),
	}
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
	nodes    *nodes       // nil: not in Redis
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
		r.nodes.reach()
		if r.down.Load() && r.down.CompareAndSwap(true, false) {
			r.metrics.StoreDown(false)
			r.nodes.all("")
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
		r.nodes.all(reason(err))
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
