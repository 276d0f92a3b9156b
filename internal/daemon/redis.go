package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/redisclient"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/daemon/stores"
	"github.com/slidegate/slidegate/internal/migrate/compat/stats"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

// redisStore is the store in Redis, of all scopes. Nil: the store is in memory.
type redisStore struct {
	*stores.Redis
	scopes []*redisScope // by their numbers; the first is that of the region
	pings  bool          // settings.DropIn.NeedsStore
}

type redisScope struct {
	*stores.Scope
	name    string // of the scope; empty: there is one
	section string // of the settings
	page    string // explains each class of failures
	metrics *metrics.Metrics
	log     *zap.Logger

	missing error           // why Redis did not answer at the start; nil if it answered
	reached atomic.Bool     // a server has answered since the start
	refused atomic.Bool     // the server refused the last heartbeat
	silent  atomic.Bool     // no server has answered the last ping
	made    atomic.Uint64   // connections
	mu      sync.Mutex      // guards evicts
	evicts  map[string]bool // servers that may evict logs
}

func (r *redisStore) register(registry prometheus.Registerer) {
	metrics.Local(registry, func() uint64 { return r.Front.Stats().Denials })
	for _, one := range r.scopes {
		scoped := registry
		if one.name != "" {
			scoped = prometheus.WrapRegistererWith(prometheus.Labels{"scope": one.name}, registry)
		}
		metrics.Store(scoped, one.Stats)
	}
}

// parts returns the parts that run until the process stops.
func (r *redisStore) parts() (all []part) {
	if r == nil {
		return nil
	}
	for _, one := range r.scopes {
		all = append(all, one.reach, one.count)
	}
	if r.pings {
		all = append(all, r.scopes[0].keepPinging)
	}
	return all
}

func (r *redisStore) missing() string {
	if r != nil {
		for _, one := range r.scopes {
			if one.missing != nil {
				return "Redis does not answer; until it does, on_store_error decides for its keys; " + one.advice()
			}
		}
	}
	return ""
}

func (r *redisStore) countsInFlight(in []window.Scope) {
	if r != nil {
		for _, scope := range in {
			r.Shared.Holds(scope)
		}
	}
}

// openRedis returns the store in Redis, of all scopes. Redis need not answer yet. Messages about single requests go to sampledLog.
func openRedis(ctx context.Context, s settings.Settings, m *metrics.Metrics, version string, log, sampledLog *zap.Logger, answered func(context.Context, int)) (*redisStore, error) {
	redis.SetLogger(redisLog{log})
	names := s.Store.Scopes.Names()
	r := &redisStore{scopes: make([]*redisScope, len(names)), pings: s.DropIn.NeedsStore}
	for i, name := range names {
		_, section := s.Store.RedisOf(window.Scope(i))
		one := &redisScope{section: section, page: docs.URL(version, "operate.md"), metrics: m, log: sampledLog, evicts: make(map[string]bool)}
		if len(names) > 1 {
			one.name, one.log = name, sampledLog.With(zap.String("scope", name))
		}
		r.scopes[i] = one
	}
	var err error
	r.Redis, err = stores.Open(s.Store, func(scope window.Scope) stores.Options {
		return r.scopes[scope].options(s.Store, log, answered)
	})
	if err != nil {
		return nil, err
	}
	for i, one := range r.scopes {
		one.Scope = r.Scopes[i]
	}
	m.StoreDown(r.isDown)
	var load sync.WaitGroup
	for _, one := range r.scopes {
		load.Go(func() { one.greet(ctx, s, log) })
	}
	load.Wait()
	return r, nil
}

// storeFailures is redisstore.Options.Failures. Tests set it.
var storeFailures int

func (r *redisScope) options(s settings.Store, log *zap.Logger, answered func(context.Context, int)) stores.Options {
	prefix := s.Redis.KeyPrefix
	for i := range s.Scopes {
		if s.Scopes[i].Name == r.name {
			prefix = s.Scopes[i].Redis.KeyPrefix
		}
	}
	return stores.Options{
		Log: log,
		Connected: func() {
			r.made.Add(1)
			r.Connected()
		},
		Store: redisstore.Options{
			Failures: storeFailures, // zero: its default
			Changed:  r.changed, Answered: answered, Policy: r.policy,
			Corrupt: func(win time.Duration) {
				r.metrics.CorruptValue()
				r.log.Error("a value in Redis was not a log of Slidegate; Slidegate deleted it, so its quota is reset; find the program that writes under "+r.section+".key_prefix",
					zap.String("prefix", prefix), zap.Duration("window", win))
			},
		},
	}
}

func (r *redisScope) greet(ctx context.Context, s settings.Settings, log *zap.Logger) {
	call := s.Store.TimeoutOf(r.Number)
	if r.missing = r.load(ctx, redisclient.DialTimeout(call)+call); r.missing != nil {
		fields := []zap.Field{zap.String("store.on_error", s.Store.OnError), zap.Error(r.missing)}
		if r.name != "" {
			fields = append(fields, zap.String("scope", r.name))
		}
		log.Warn("Redis cannot be reached; until it answers, on_store_error decides for its keys, or store.on_error for rules without it; "+r.advice(), fields...)
	}
}

func (r *redisScope) advice() string {
	return "check that Redis runs, that " + r.section + ".url is its address, and that user and password are right"
}

// changed logs once when a server stops deciding, and once when it decides again.
func (r *redisScope) changed(c redisstore.Change) {
	if c.Refuses {
		r.log.Warn("a server of the store refuses to write; it still denies requests; for every other request to its keys on_store_error decides, or store.on_error for rules without it; repair the server: "+r.page+"#"+string(c.Class)+" says how",
			zap.String("node", c.Node), zap.String("class", string(c.Class)), zap.Error(c.Err))
		return
	}
	if c.Open {
		r.log.Warn("a server of the store cannot decide and is not asked; on_store_error decides for its keys, or store.on_error for rules without it; repair the server: "+r.page+"#"+string(c.Class)+" says how",
			zap.String("node", c.Node), zap.String("class", string(c.Class)), zap.Error(c.Err))
		return
	}
	r.log.Info("a server of the store decides again", zap.String("node", c.Node))
}

// count counts the instances that share the logs, until ctx ends. It logs once when the server refuses
// that, and once when it is possible again. The store reports other errors.
func (r *redisScope) count(ctx context.Context) error {
	return r.Count(ctx, func(before, now int, err error) {
		if before != now {
			r.log.Info("the number of instances that share the limits has changed", zap.Int("before", before), zap.Int("now", now))
		}
		switch class := failure.Of(err); {
		case err == nil:
			if r.refused.CompareAndSwap(true, false) {
				r.log.Info("this instance is counted again")
			}
		case class == failure.Permission || class == failure.Other:
			if r.refused.CompareAndSwap(false, true) {
				r.log.Warn("this instance cannot be counted, so local may admit too much while Redis is unavailable; check the rights of the user of Redis, and that no other program writes the key instances below the key prefix",
					zap.Int("instances", now), zap.Error(err))
			}
		}
	})
}

// policy logs each change of the maxmemory-policy of a server, with its consequence.
func (r *redisScope) policy(node, policy string, err error) {
	r.mu.Lock()
	before := r.evicts[node]
	r.evicts[node] = err == nil && policy != redisstore.NoEviction
	evicts := r.evicts[node]
	r.mu.Unlock()
	switch {
	case err != nil:
		r.log.Warn("Slidegate may not read the maxmemory-policy of a server of the store, so it cannot warn if the server evicts logs; grant the user +info",
			zap.String("node", node), zap.Error(err))
	case evicts:
		r.log.Warn("a server of the store evicts logs when its memory is full, which resets their limits; set its maxmemory-policy to noeviction",
			zap.String("node", node), zap.String("policy", policy))
	case before:
		r.log.Info("a server of the store no longer evicts logs", zap.String("node", node))
	}
}

func (r *redisScope) load(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.Load(ctx)
}

const reachInterval = time.Second

// reach calls Redis until it answers for the first time. So an instance becomes ready that
// gets no requests before it is ready.
func (r *redisScope) reach(ctx context.Context) error {
	tick := time.NewTicker(reachInterval)
	defer tick.Stop()
	for !r.state().Reached {
		select {
		case <-tick.C:
			_ = r.load(ctx, reachInterval) // after an error, the next tick tries again
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

// keepPinging asks the servers once a second whether they answer, until ctx ends. An instance
// without requests would not notice otherwise that they do not answer.
func (r *redisScope) keepPinging(ctx context.Context) error {
	tick := time.NewTicker(reachInterval)
	defer tick.Stop()
	for {
		r.silent.Store(!r.answers(ctx))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// answers reports whether a server answers a ping. An error of the server is an answer too.
func (r *redisScope) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reachInterval)
	defer cancel()
	var answered atomic.Bool
	ping := func(ctx context.Context, c redis.Cmdable) {
		var refused redis.Error
		if err := c.Ping(ctx).Err(); err == nil || errors.As(err, &refused) {
			answered.Store(true)
		}
	}
	if cluster, ok := r.Client.(*redis.ClusterClient); ok {
		// The error is that of one master, or that no node knows the masters.
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			ping(ctx, c)
			return nil
		})
	} else {
		ping(ctx, r.Client)
	}
	return answered.Load()
}

// states returns the last known state of the servers of all scopes. It does not call them.
func (r *redisStore) states() storeState {
	state := r.scopes[0].state()
	for _, one := range r.scopes[1:] {
		further := one.state()
		further.Scope = one.name
		state.Further = append(state.Further, further)
	}
	return state
}

// state returns the last known state of the servers of this scope. It does not call them.
func (r *redisScope) state() storeState {
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
		state.Nodes = append(state.Nodes, glance.Server{Address: n.Address, Reason: reason, Evicts: evicts})
		if n.ClockKnown {
			r.reached.Store(true)
		}
	}
	state.Reached = r.reached.Load()
	return state
}

// isDown reports whether a server of any scope does not decide, or only denies.
func (r *redisStore) isDown() bool {
	return slices.ContainsFunc(r.states().all(), func(n glance.Server) bool { return n.Reason != "" })
}

// connections returns the number of connections in the pool; for a cluster, the sum over its
// nodes. It is zero until a server has answered: before that, PoolStats of a cluster would
// connect and wait.
func (r *redisScope) connections() uint64 {
	if !r.state().Reached {
		return 0
	}
	return uint64(r.Client.PoolStats().TotalConns)
}

// measure adds what envoyproxy/ratelimit measures of connections to Redis, and of its memory of
// denials.
func (r *redisStore) measure(s *stats.Stats) {
	region := r.scopes[0]
	s.Gauge("redis_pool.cx_active", region.connections)
	s.Counter("redis_pool.cx_total", region.made.Load)
	s.Counter("redis_pool.cx_local_close", func() uint64 {
		now := region.connections()
		return max(region.made.Load(), now) - now
	})
	if s.Remembers() {
		s.Gauge("localcache.entryCount", func() uint64 { return uint64(r.Front.Stats().Keys) })
	}
}

// redisLog logs, at level debug, the lines that go-redis would print on standard error. They
// are about single connections. For the operator, redisScope.changed sums them up.
type redisLog struct{ log *zap.Logger }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Debug("redis client", zap.String("detail", fmt.Sprintf(format, v...)))
}
