// Package redislimit keeps the logs of package limiter in Redis, as the service rls does. So
// programs and instances of rls on one Redis share their limits. [Open] makes the [Store] from a
// settings file or an environment.
//
// They share a log if they have the same key prefix, the same rules (domain, path and window), the
// same secrets, and the same tiers. The surest way is one settings file for all of them: give it to
// [limiter.ReadRules] and in [Options].
//
// In front of Redis, a [Store] remembers denials and spends leases as the service does. For rules with
// on_store_error local, it has this process's quota of each limit: the limit divided by the number of
// instances and programs, which count themselves in Redis.
//
// If rules count in other scopes than the region, name their Redis in store.scopes of [Options.Settings]
// or [Options.Environ], as for rls.
package redislimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/daemon/stores"
	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/pkg/window"
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
	// Settings is the settings file of the service. Its section store counts. Empty: none.
	Settings string
	// Environ has SLIDEGATE_ variables, in the form of os.Environ. Nil: none.
	Environ []string
	// Changed is called when a server of Redis stops deciding, with the reason, and when it decides
	// again, with nil. If there are several scopes, their names come first: "global host:6379". It must
	// be quick and must not call the store. Nil: no call.
	Changed func(server string, err error)
}

// A Store keeps logs in Redis. Make it with [Open]: the zero value is not usable. It is a
// [limiter.Fallback], and its methods are safe for concurrent use. Programs call Ping and Close, and
// the Limiter calls the others.
type Store struct {
	redis   *stores.Redis
	scopes  []string
	stop    context.CancelFunc
	counted sync.WaitGroup
	closing sync.Once
	closed  error // of Close
}

var (
	_ limiter.Fallback = (*Store)(nil)
	_ window.Releaser  = (*Store)(nil)
)

// Open returns a Store. Redis need not answer yet: until it does, on_store_error decides. The error
// names every mistake in o.
func Open(o Options) (*Store, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	scopes := s.Store.Scopes.Names()
	logs, err := stores.Open(s.Store, func(scope window.Scope) stores.Options {
		var of string
		if len(scopes) > 1 {
			of = scopes[scope] + " "
		}
		return stores.Options{Log: zap.NewNop(), Store: redisstore.Options{Changed: o.changed(of)}}
	})
	if err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	r := &Store{redis: logs, scopes: scopes}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	for _, one := range logs.Scopes {
		r.counted.Go(func() { _ = one.Count(ctx, func(int, int, error) {}) }) // returns nil
	}
	return r, nil
}

// settings returns the settings that o stands for.
func (o *Options) settings() (settings.Settings, error) {
	environ := append(slices.Clone(o.Environ), settings.EnvPrefix+"STORE_TYPE="+settings.StoreRedis)
	fields := make(map[string]string) // of o, by their variables
	set := func(is bool, field, name, value string) {
		if is {
			name = settings.EnvPrefix + name
			// A variable that the field replaces does not count, so that what is said of the field is true.
			environ = slices.DeleteFunc(environ, func(v string) bool { return strings.HasPrefix(v, name+"=") })
			environ, fields[name] = append(environ, name+"="+value), "Options."+field
		}
	}
	set(o.URL != "", "URL", "STORE_REDIS_URL", o.URL)
	set(o.KeyPrefix != "", "KeyPrefix", "STORE_REDIS_KEY_PREFIX", o.KeyPrefix)
	set(o.Timeout != 0, "Timeout", "STORE_TIMEOUT", o.Timeout.String())
	s, _, err := settings.Load(o.Settings, environ)
	if err != nil {
		if problems, ok := errors.AsType[strict.Problems](err); ok {
			for i := range problems {
				if p := &problems[i]; fields[p.Path] != "" {
					p.File, p.Path = "", fields[p.Path]
				}
			}
		}
		return s, fmt.Errorf("redislimit: %w", err)
	}
	return s, nil
}

// changed returns what the store of a scope calls if a server changes, or nil. of begins the names of
// its servers.
func (o *Options) changed(of string) func(redisstore.Change) {
	if o.Changed == nil {
		return nil
	}
	return func(c redisstore.Change) {
		if (c.Open || c.Refuses) && c.Err == nil {
			c.Err = errors.New("the server does not decide")
		}
		o.Changed(of+c.Node, c.Err)
	}
}

// Take implements [window.Store].
func (r *Store) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	return r.redis.Front.Take(ctx, wait, checks, decisions)
}

// Scopes returns the names of the scopes by their numbers. The first is region.
func (r *Store) Scopes() []string { return slices.Clone(r.scopes) }

// Holds says that requests in flight may hold something in a scope from now on.
func (r *Store) Holds(scope window.Scope) { r.redis.Shared.Holds(scope) }

// End implements [window.Releaser].
func (r *Store) End(ctx context.Context, end window.Ending) (window.Settled, error) {
	return r.redis.Front.End(ctx, end)
}

// Local returns the store that decides by this process's quota of each limit.
func (r *Store) Local() window.Store { return r.redis.Fallback }

// Ping asks the Redis of each scope to load the scripts, and returns the errors. A program need not
// call it: Take does the same when it must.
func (r *Store) Ping(ctx context.Context) error {
	var errs []error
	for i, one := range r.redis.Scopes {
		err := one.Load(ctx)
		if err != nil && len(r.scopes) > 1 {
			err = fmt.Errorf("scope %s: %w", r.scopes[i], err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close gives back the hits that are reserved, and closes the connections. Call it after the last
// decision. A second call does nothing, and returns the same error.
func (r *Store) Close() error {
	r.closing.Do(func() {
		r.stop()
		r.counted.Wait()
		r.closed = r.redis.Close()
	})
	return r.closed
}
