// Package stores opens the logs of a process in Redis, in each of its scopes. It puts together the
// client and the store of each scope, the leases and remembered denials in front of Redis, and the
// quotas without it. rls and limiter/redislimit have the same.
package stores

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/redisclient"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/fallback"
	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// Redis has the logs of a process in Redis. Create it with [Open]. It is a [inspect.Inspector] of the logs of
// all scopes, and its methods are safe for concurrent use.
type Redis struct {
	// Scopes are the stores by the numbers of their scopes. The first is that of the region.
	Scopes []*Scope
	// Shared decides for all scopes, and Front in front of it: every request goes to Front. If it
	// fails, Fallback decides.
	Shared   *redisstore.Scopes
	Front    *lease.Store
	Fallback *fallback.Store
}

var _ inspect.Inspector = (*Redis)(nil)

// A Scope is the store of one scope in Redis, with its client.
type Scope struct {
	*redisstore.Store
	Client redis.UniversalClient
	Number window.Scope
}

// Options say what a process observes of one scope. Log is required.
type Options struct {
	Log *zap.Logger
	// Connected is that of [redisclient.Options].
	Connected func()
	// Store has functions that the store calls. Open sets its other fields.
	Store redisstore.Options
}

// Open opens the scopes of the section: the region and the others. of returns the options of each.
// Redis need not answer yet.
func Open(s settings.Store, of func(window.Scope) Options) (*Redis, error) {
	names := s.Scopes.Names()
	var (
		r       Redis
		stores  []*redisstore.Store
		timeout time.Duration
	)
	for i := range names {
		one, err := openScope(s, window.Scope(i), of(window.Scope(i)))
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.Scopes, stores = append(r.Scopes, one), append(stores, one.Store)
		timeout = max(timeout, s.TimeoutOf(one.Number))
	}
	r.Shared = redisstore.NewScopes(names, stores)
	var err error
	if r.Front, err = lease.New(r.Shared, lease.Options{Reserver: r.Shared}); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.Fallback, err = fallback.New(fallback.Options{
		Instances: func(scope window.Scope) int { return stores[scope].Instances() },
		Memory:    memstore.Options{MaxBytes: s.Memory.Bound(), Owner: descriptors.RuleOfKey}, Timeout: timeout,
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &r, nil
}

const (
	// maxWaiting is how many requests wait for a server at most.
	maxWaiting = 10_000
	// farCalls is how many calls a server of another scope has under way at most. Its round trip may be long.
	farCalls = 8
)

func openScope(s settings.Store, scope window.Scope, o Options) (*Scope, error) {
	at, section := s.RedisOf(scope)
	client, err := redisclient.New(redisclient.Options{Redis: *at, Section: section, Timeout: s.TimeoutOf(scope), Connected: o.Connected, Log: o.Log})
	if err != nil {
		return nil, err
	}
	to := o.Store
	to.Name, to.Prefix, to.Timeout = masterName(&at.URL), at.KeyPrefix, s.TimeoutOf(scope)
	to.MaxWaiting = cmp.Or(to.MaxWaiting, maxWaiting)
	if scope != window.Region {
		to.Calls = farCalls
	}
	return &Scope{redisstore.New(client, to), client, scope}, nil
}

// Close gives back the hits that are reserved, and closes the stores of all scopes and their
// clients. Call it once.
func (r *Redis) Close() error {
	var err error
	if r.Fallback != nil {
		err = r.Fallback.Close() // before the store, which it may still charge
	}
	if r.Front != nil {
		err = errors.Join(err, r.Front.Close())
	}
	for _, one := range r.Scopes {
		err = errors.Join(err, one.Close(), one.Client.Close())
	}
	return err
}

// Read implements [inspect.Inspector].
func (r *Redis) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return r.Shared.Read(ctx, ids)
}

// List implements [inspect.Inspector].
func (r *Redis) List(ctx context.Context, m inspect.Match, cursor string) (ids []window.LogID, next string, err error) {
	return r.Shared.List(ctx, m, cursor)
}

// Remove implements [inspect.Inspector]. What this process remembers of a removed log goes with it.
func (r *Redis) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	readings, err := r.Shared.Remove(ctx, ids)
	for i := range readings {
		r.Front.Reset(readings[i].ID)
		r.Fallback.Reset(readings[i].ID)
	}
	if err != nil && len(readings) < len(ids) {
		// The others may have been removed too. If not, their leases are lost and what Fallback
		// admitted must stay.
		for _, id := range ids {
			r.Front.Reset(id)
		}
	}
	return readings, err
}

// masterName returns a name for the master of a Sentinel set, whose address changes. For
// other servers it is empty: metrics and messages show their addresses.
func masterName(servers *settings.RedisURL) string {
	if servers.Topology == settings.RedisSentinel {
		return "master " + servers.Master
	}
	return ""
}
