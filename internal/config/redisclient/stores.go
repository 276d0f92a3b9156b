package redisclient

import (
	"cmp"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/fallback"
	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// Stores are the stores of all scopes in Redis, with what decides before and without them.
type Stores struct {
	// Scopes are the stores by the numbers of their scopes. The first is that of the region.
	Scopes []*Scope
	// Shared decides for all scopes, Local in front of it, and Shares without it.
	Shared *redisstore.Scopes
	Local  *lease.Store
	Shares *fallback.Store
}

// A Scope is the store of one scope in Redis, with its client.
type Scope struct {
	*redisstore.Store
	Client redis.UniversalClient
	Number window.Scope
}

// StoresOptions say what a process wants to hear of its stores. Log is required.
type StoresOptions struct {
	Log *zap.Logger
	// Connected is that of [Options].
	Connected func()
	// Store has functions that the store calls. OpenScopes sets its other fields.
	Store redisstore.Options
}

// OpenScopes returns the stores of the region and of the other scopes of the section. of returns
// the options of each. Redis need not answer yet.
func OpenScopes(s settings.Store, of func(window.Scope) StoresOptions) (*Stores, error) {
	names := s.Scopes.Names()
	var (
		st      Stores
		stores  []*redisstore.Store
		timeout time.Duration
	)
	for i := range names {
		one, err := openScope(s, window.Scope(i), of(window.Scope(i)))
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		st.Scopes, stores = append(st.Scopes, one), append(stores, one.Store)
		timeout = max(timeout, s.TimeoutOf(one.Number))
	}
	st.Shared = redisstore.NewScopes(names, stores)
	var err error
	if st.Local, err = lease.New(st.Shared, lease.Options{Reserver: st.Shared}); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	st.Shares, err = fallback.New(fallback.Options{
		Instances: func(scope window.Scope) int { return stores[scope].Instances() },
		Memory:    memstore.Options{MaxBytes: s.Memory.Bound(), Owner: descriptors.RuleOfKey}, Timeout: timeout,
	})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &st, nil
}

const (
	// maxWaiting is how many requests wait for a server at most.
	maxWaiting = 10_000
	// farCalls is how many calls a server of another scope has under way at most. It may be far away.
	farCalls = 8
)

// openScope returns the store of one scope and its client.
func openScope(s settings.Store, scope window.Scope, o StoresOptions) (*Scope, error) {
	at, section := s.RedisOf(scope)
	client, err := New(Options{Redis: *at, Section: section, Timeout: s.TimeoutOf(scope), Connected: o.Connected, Log: o.Log})
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
func (s *Stores) Close() error {
	var err error
	if s.Shares != nil {
		err = s.Shares.Close() // before the store, which it may still charge
	}
	if s.Local != nil {
		err = errors.Join(err, s.Local.Close())
	}
	for _, one := range s.Scopes {
		err = errors.Join(err, one.Close(), one.Client.Close())
	}
	return err
}

// Reset forgets what this process knows of a log that was removed from Redis.
func (s *Stores) Reset(id window.LogID) {
	s.Local.Reset(id)
	s.Shares.Reset(id)
}

// masterName returns a name for the master of a Sentinel set, whose address changes. For
// other servers it is empty: metrics and messages show their addresses.
func masterName(servers *settings.RedisURL) string {
	if servers.Topology == settings.RedisSentinel {
		return "master " + servers.Master
	}
	return ""
}
