package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/redisclient"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// redisStore is a store in Redis with its client, and with what the process answers in
// front of it.
type redisStore struct {
	*redisstore.Store
	client  redis.UniversalClient
	local   *local.Store
	shares  *local.Shares
	metrics *metrics.Metrics
	log     *zap.Logger

	missing error       // why it could not be reached at the start; nil: it was
	reached atomic.Bool // since the start
	isDeaf  atomic.Bool
	mu      sync.Mutex
	away    map[string]bool // servers that do not decide, or not everything
	evicts  map[string]bool // servers that may throw logs away
}

// Close gives back what is reserved and closes the client too.
func (r *redisStore) Close() error {
	if r.local == nil {
		return errors.Join(r.Store.Close(), r.client.Close())
	}
	var err error
	if r.shares != nil {
		err = r.shares.Close() // first: it may charge the store
	}
	return errors.Join(err, r.local.Close(), r.client.Close())
}

// asStore returns r as the store of the process.
func (r *redisStore) asStore(registry prometheus.Registerer) *store {
	metrics.Store(registry, r.Stats)
	metrics.Pool(registry, r.poolStats)
	metrics.Local(registry, r.localStats)
	s := &store{
		decides: r.local, local: r.shares, state: r.state,
		parts: []part{r.reach, r.watch},
		close: func() error {
			if err := r.Close(); err != nil {
				return fmt.Errorf("closing the store: %w", err)
			}
			return nil
		},
	}
	if r.missing != nil {
		s.missing = "it cannot be reached; until it answers, on_store_error decides every request; " + redisAdvice
	}
	return s
}

// settler charges Redis with what was admitted without it.
type settler struct {
	*local.Store
	redis *redisstore.Store
}

// Doubt implements local.Settler.
func (settler) Doubt(err error) (local.Doubt, bool) {
	d, known := redisstore.DoubtOf(err)
	return local.Doubt(d), known
}

// Read implements local.Settler.
func (s settler) Read(ctx context.Context, id window.LogID) ([]byte, error) {
	return s.redis.Read(ctx, id)
}

// openRedis returns a store in Redis.
func openRedis(ctx context.Context, s settings.Settings, m *metrics.Metrics, log, sampledLog *zap.Logger) (*redisStore, error) {
	redis.SetLogger(redisLog{log})
	r := &redisStore{metrics: m, log: sampledLog, away: make(map[string]bool), evicts: make(map[string]bool)}
	o := storeClient(s.Store, log)
	o.Connected = func() { r.Connected() }
	client, err := redisclient.New(o)
	if err != nil {
		return nil, err
	}
	r.client = client
	prefix := s.Store.Redis.KeyPrefix
	r.Store = redisstore.New(client, redisstore.Options{
		Name:          masterName(&s.Store.Redis.URL),
		Prefix:        prefix,
		Timeout:       s.Store.Timeout,
		Failures:      s.Store.Redis.Breaker.Failures,
		ProbeInterval: s.Store.Redis.Breaker.ProbeInterval,
		Refunds:       prefix + refundsChannel,
		Changed:       r.changed,
		Deaf:          r.deaf,
		Policy:        r.policy,
		Foreign: func(win time.Duration) {
			m.ForeignValue()
			sampledLog.Error("a value in Redis was not a log of ours: it was thrown away, and its quota begins anew; does something else write under store.redis.key_prefix?",
				zap.String("prefix", prefix), zap.Duration("window", win))
		},
	})
	keys := s.Store.LocalKeys
	if keys == 0 {
		keys = -1 // remember nothing
	}
	if r.local, err = local.New(&reporting{Store: r.Store, log: sampledLog}, local.Options{Keys: keys, Reserver: r.Store}); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.shares, err = local.NewShares(local.ShareOptions{
		Replicas: s.Store.Replicas, Memory: bounds(s.Store.Memory), Settler: settler{r.local, r.Store}, Timeout: s.Store.Timeout,
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if r.missing = r.load(ctx, s.Store.Redis.DialTimeout+s.Store.Timeout); r.missing != nil {
		log.Warn("Redis cannot be reached: until it answers, limits are not shared, and on_store_error decides every request; a rule without it gets store.on_error; "+redisAdvice,
			zap.String("store.on_error", s.Store.OnError), zap.Error(r.missing))
	}
	return r, nil
}

// redisAdvice is what to look at if Redis cannot be reached.
const redisAdvice = "check that it runs, that it is at store.redis.url, and that its user and password are right"

// refundsChannel is where the script tells of refunds, behind the prefix of keys.
const refundsChannel = "refunds"

// storeClient returns the options of the client for the store's Redis.
func storeClient(s settings.Store, log *zap.Logger) redisclient.Options {
	return redisclient.Options{Redis: s.Redis, Section: "store.redis", Timeout: s.Timeout, Log: log}
}

// masterName names the one server of a Sentinel set, which has no address of its own. It
// is empty for other servers: they are called by their addresses.
func masterName(servers *settings.RedisURL) string {
	if servers.Topology == settings.RedisSentinel {
		return "master " + servers.Master
	}
	return ""
}

// changed says once when a server stops deciding, and once when it decides again.
func (r *redisStore) changed(c redisstore.Change) {
	r.mu.Lock()
	if c.Open || c.Refuses {
		r.away[c.Node] = true
	} else {
		delete(r.away, c.Node)
	}
	away := len(r.away)
	r.mu.Unlock()
	r.metrics.StoreDown(away > 0)
	if c.Refuses {
		r.log.Warn("a server of the store refuses to write: it decides denials, and on_store_error or store.on_error everything else for its keys",
			zap.String("node", c.Node), zap.String("class", string(c.Class)), zap.Error(c.Err))
		return
	}
	if c.Open {
		r.log.Warn("a server of the store cannot decide and is not asked; on_store_error decides for its keys, or store.on_error for rules without it",
			zap.String("node", c.Node), zap.String("class", string(c.Class)), zap.Error(c.Err))
		return
	}
	if r.local != nil {
		r.local.ForgetAll() // it may have lost what denied
	}
	r.log.Info("a server of the store decides again", zap.String("node", c.Node))
}

// deaf says once that refunds of other instances are not heard of.
func (r *redisStore) deaf(err error) {
	switch {
	case err == nil:
		if r.isDeaf.CompareAndSwap(true, false) {
			r.log.Info("this instance hears again of refunds that other instances make")
		}
	case r.isDeaf.CompareAndSwap(false, true):
		r.log.Warn("this instance does not hear of refunds that other instances make, so it remembers denials for seconds only; does Redis run, and may its user subscribe to the channel?", zap.Error(err))
	}
}

// policy says once for each change what the maxmemory-policy of a server means.
func (r *redisStore) policy(node, policy string, err error) {
	r.mu.Lock()
	before := r.evicts[node]
	r.evicts[node] = err == nil && policy != redisstore.NoEviction
	evicts := r.evicts[node]
	r.mu.Unlock()
	switch {
	case err != nil:
		r.log.Warn("the maxmemory-policy of a server of the store cannot be read, so nothing will tell if it evicts logs; grant the user +info",
			zap.String("node", node), zap.Error(err))
	case evicts:
		r.log.Warn("a server of the store evicts logs when its memory is full, which resets their limits; set its maxmemory-policy to noeviction",
			zap.String("node", node), zap.String("policy", policy))
	case before:
		r.log.Info("a server of the store does not evict logs any more", zap.String("node", node))
	}
}

// load makes the scripts known.
func (r *redisStore) load(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.Load(ctx)
}

// reachInterval is how often Redis is looked for that has not been there since
// the start.
const reachInterval = time.Second

// reach looks for Redis until it is there, so that an instance which gets no
// requests before it is ready becomes ready.
func (r *redisStore) reach(ctx context.Context) error {
	tick := time.NewTicker(reachInterval)
	defer tick.Stop()
	for !r.state().Reached {
		select {
		case <-tick.C:
			_ = r.load(ctx, reachInterval) // the next try is soon
		case <-ctx.Done():
			return nil
		}
	}
	if r.missing != nil {
		r.log.Info("Redis answers now")
	}
	<-ctx.Done()
	return nil
}

// watch forgets denials that somebody has made untrue.
func (r *redisStore) watch(ctx context.Context) error {
	return r.Watch(ctx, r.local.Forget, r.local.ForgetAll)
}

// state is what is known of the servers.
func (r *redisStore) state() storeState {
	var state storeState
	for _, n := range r.Stats().Nodes {
		reason := ""
		if n.Open || n.Refuses {
			reason = cmp.Or(string(n.Class), "unknown")
		}
		evicts := ""
		if n.Evicts() {
			evicts = n.Policy
		}
		state.Nodes = append(state.Nodes, nodeState{n.Address, reason, evicts})
		if n.ClockKnown {
			r.reached.Store(true)
		}
	}
	state.Reached = r.reached.Load()
	return state
}

// poolStats is what the pool of connections has counted, of a cluster those of
// all nodes. Asking a cluster for it that was never reached would look for one
// and wait.
func (r *redisStore) poolStats() metrics.PoolStats {
	if !r.state().Reached {
		return metrics.PoolStats{}
	}
	s := r.client.PoolStats()
	return metrics.PoolStats{
		Hits: uint64(s.Hits), Misses: uint64(s.Misses), Timeouts: uint64(s.Timeouts), Stale: uint64(s.StaleConns),
		Connections: int(s.TotalConns), Idle: int(s.IdleConns),
	}
}

// redisLog takes what go-redis would print on standard error by itself: details
// of single connections, whose sum is what redisStore.changed says.
type redisLog struct{ log *zap.Logger }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Debug("redis client", zap.String("detail", fmt.Sprintf(format, v...)))
}

// localStats is what the process has answered by itself.
func (r *redisStore) localStats() metrics.LocalStats {
	s := r.local.Stats()
	settled := r.shares.Settled()
	return metrics.LocalStats{
		Denials: s.Denials, Keys: s.Keys, Leased: s.LeasedHits, Returned: s.ReturnedHits,
		Settled: settled.Charged, Found: settled.Found, Abandoned: settled.Abandoned,
	}
}
