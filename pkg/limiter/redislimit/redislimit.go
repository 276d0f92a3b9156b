// Package redislimit keeps the logs of package limiter in Redis, exactly as the service rls does:
// programs and instances of rls on one Redis share their limits.
//
// They share a log if they have the same key prefix, the same rules (domain, path and window), the
// same secrets, and the same tiers. The surest way is one settings file for all of them: give it to
// [limiter.ReadRules] and in [Options].
//
// In front of Redis, a [Store] remembers denials and spends leases as the service does. Beside it
// is this process's share of each limit, for rules with on_store_error local. Its size is the limit
// divided by store.replicas: count the program's processes there, too.
package redislimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/internal/redisclient"
	"github.com/slidegate/slidegate/pkg/limiter"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// Options say which Redis, and how. Fields that are set override the settings file and Environ.
type Options struct {
	// URL is that of store.redis.url: redis://host:port/db, rediss://, unix://, redis-sentinel:// or
	// redis-cluster://, with user:password@ if Redis needs them.
	URL string
	// KeyPrefix is that of store.redis.key_prefix. Empty: that of the settings, slidegate:.
	KeyPrefix string
	// Timeout bounds one decision. Zero: store.timeout of the settings, 15 ms.
	Timeout time.Duration
	// Replicas is how many processes share the limits. Zero: store.replicas of the settings, 1.
	Replicas int
	// Settings is the settings file of the service. Its section store counts. Empty: none.
	Settings string
	// Environ has SLIDEGATE_ variables, in the form of os.Environ. Nil: none.
	Environ []string
	// Changed is called when a server of Redis stops deciding, with the reason, and when it decides
	// again, with nil. It must be quick and must not call the store. Nil: no call.
	Changed func(server string, err error)
}

// A Store keeps logs in Redis. Make it with [Open]: the zero value is not usable. It is a
// [limiter.Fallback]; its methods are safe for concurrent use.
type Store struct {
	redis   *redisstore.Store
	ahead   *local.Store // in front of redis
	shares  *local.Shares
	client  redis.UniversalClient
	stop    context.CancelFunc
	watched sync.WaitGroup
	closing sync.Once
	closed  error // of Close
}

var _ limiter.Fallback = (*Store)(nil)

// Open returns a Store. Redis need not answer yet: until it does, on_store_error decides. The error
// names every mistake in o.
func Open(o Options) (*Store, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	r := new(Store)
	if r.client, err = redisclient.New(redisclient.Options{
		Redis: s.Store.Redis.Redis, Section: "store.redis", Timeout: s.Store.Timeout, Log: zap.NewNop(),
	}); err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	if err = r.open(&s.Store, o.Changed); err != nil {
		return nil, errors.Join(fmt.Errorf("redislimit: %w", err), r.client.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.watched.Go(func() {
		// Without the channel, denials are remembered for seconds only. Nothing else depends on it.
		_ = r.redis.Watch(ctx, redisstore.Heard{Refunded: r.ahead.Forget, Removed: r.reset, Missed: r.ahead.ForgetAll})
	})
	return r, nil
}

// settings returns the settings that o stands for.
func (o *Options) settings() (settings.Settings, error) {
	environ := append([]string(nil), o.Environ...)
	set := func(name, value string) { environ = append(environ, settings.EnvPrefix+name+"="+value) }
	set("STORE_TYPE", settings.StoreRedis)
	if o.URL != "" {
		set("STORE_REDIS_URL", o.URL)
	}
	if o.KeyPrefix != "" {
		set("STORE_REDIS_KEY_PREFIX", o.KeyPrefix)
	}
	if o.Timeout != 0 {
		set("STORE_TIMEOUT", o.Timeout.String())
	}
	if o.Replicas != 0 {
		set("STORE_REPLICAS", fmt.Sprint(o.Replicas))
	}
	s, _, err := settings.Load(o.Settings, environ)
	if err != nil {
		return s, fmt.Errorf("redislimit: %w", err)
	}
	if s.Store.Peers != "" {
		return s, errors.New("redislimit: store.peers: the library does not count peers: set store.replicas, or Replicas")
	}
	return s, nil
}

// open makes the stores. The client is made.
func (r *Store) open(s *settings.Store, changed func(string, error)) (err error) {
	prefix := s.Redis.KeyPrefix
	name := ""
	if s.Redis.URL.Topology == settings.RedisSentinel {
		name = "master " + s.Redis.URL.Master // whose address changes
	}
	r.redis = redisstore.New(r.client, redisstore.Options{
		Name: name, Prefix: prefix, Timeout: s.Timeout,
		Failures: s.Redis.Breaker.Failures, ProbeInterval: s.Redis.Breaker.ProbeInterval,
		Refunds: prefix + redisstore.RefundsChannel,
		Changed: func(c redisstore.Change) {
			stopped := c.Open || c.Refuses
			if !stopped && r.ahead != nil {
				r.ahead.ForgetAll() // the server may have lost the logs behind the remembered denials
			}
			switch {
			case changed == nil:
			case stopped && c.Err == nil:
				changed(c.Node, errors.New("the server does not decide"))
			default:
				changed(c.Node, c.Err)
			}
		},
	})
	keys := s.LocalKeys
	if keys == 0 {
		keys = -1 // local.New: remember no denials
	}
	if r.ahead, err = local.New(r.redis, local.Options{Keys: keys, Reserver: r.redis}); err != nil {
		return errors.Join(err, r.redis.Close())
	}
	r.shares, err = local.NewShares(local.ShareOptions{
		Replicas: s.Replicas, Settler: settler{r.ahead, r.redis}, Timeout: s.Timeout,
		Memory: memstore.Options{MaxKeys: int(min(s.Memory.MaxKeys, math.MaxInt)), MaxBytes: int64(min(s.Memory.MaxBytes, math.MaxInt64))},
	})
	if err != nil {
		return errors.Join(err, r.ahead.Close())
	}
	return nil
}

// Take implements [window.Store].
func (r *Store) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	return r.ahead.Take(ctx, wait, checks, decisions)
}

// Local returns the store that decides by this process's share of each limit.
func (r *Store) Local() window.Store { return r.shares }

// Ping asks Redis to load the scripts, and returns the error. A program need not call it: Take does
// the same when it must.
func (r *Store) Ping(ctx context.Context) error { return r.redis.Load(ctx) }

// reset forgets what this process knows of a log that was removed from Redis.
func (r *Store) reset(id window.LogID) {
	r.ahead.Reset(id)
	r.shares.Reset(id)
}

// Close gives back the hits that are reserved, and closes the connections. Call it after the last
// decision. A second call does nothing, and returns the same error.
func (r *Store) Close() error {
	r.closing.Do(func() {
		r.stop()
		r.watched.Wait()
		r.closed = errors.Join(r.shares.Close(), r.ahead.Close(), r.client.Close()) // shares may still charge the store
	})
	return r.closed
}

// settler charges Redis for hits that this process admitted without it.
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
	return s.redis.Bytes(ctx, id)
}
