package redisclient

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// Stores are the store of one scope in Redis with its client, and the store of this process in front
// of it and the shares beside it, which all scopes have in common.
type Stores struct {
	*redisstore.Store
	Client redis.UniversalClient
	Scope  window.Scope
	Local  *local.Store
	Shares *local.Shares

	// Only those of the region have the following. Shared is the store of all scopes. Scopes is the
	// same, and nil if there is one scope. Others are the stores of the other scopes.
	Shared Shared
	Scopes *redisstore.Scopes
	Others []*Stores
}

// Shared is the store in Redis, of one scope or of several.
type Shared interface {
	window.Ender
	window.Keeper
	window.Store
	local.Reserver
}

// StoresOptions say what a process wants to hear of its stores. Log is required.
type StoresOptions struct {
	Log *zap.Logger
	// Connected is that of [Options].
	Connected func()
	// Store has functions that the store calls. OpenScopes sets its other fields.
	Store redisstore.Options
	// Wrap returns the store that Local asks, from that of all scopes. Nil: that store itself. Only
	// the options of the region have it.
	Wrap func(Shared) window.Store
}

// OpenScopes returns the stores of the region, with those of the other scopes of the section. of
// returns the options of each. Redis need not answer yet.
func OpenScopes(s settings.Store, of func(window.Scope) StoresOptions) (*Stores, error) {
	names := s.Scopes.Names()
	var (
		all     []*Stores
		stores  []*redisstore.Store
		timeout time.Duration
	)
	for i := range names {
		one, err := openStore(s, window.Scope(i), of(window.Scope(i)))
		if err != nil {
			for _, opened := range all {
				err = errors.Join(err, opened.close())
			}
			return nil, err
		}
		all, stores = append(all, one), append(stores, one.Store)
		timeout = max(timeout, s.TimeoutOf(one.Scope))
	}
	st := all[0]
	st.Others, st.Shared = all[1:], st.Store
	if len(st.Others) > 0 {
		st.Scopes = redisstore.NewScopes(names, stores)
		st.Shared = st.Scopes
	}
	var asked window.Store = st.Shared
	if wrap := of(window.Region).Wrap; wrap != nil {
		asked = wrap(st.Shared)
	}
	keys := s.LocalKeys
	if keys == 0 {
		keys = -1 // local.New: remember no denials
	}
	var err error
	if st.Local, err = local.New(asked, local.Options{Keys: keys, Reserver: st.Shared}); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	maxKeys, maxBytes := s.Memory.Bounds()
	st.Shares, err = local.NewShares(local.ShareOptions{
		Instances: func(scope window.Scope) int { return stores[scope].Instances() },
		Memory:    memstore.Options{MaxKeys: maxKeys, MaxBytes: maxBytes, Owner: descriptors.RuleOfKey}, Timeout: timeout,
	})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	for _, one := range st.Others {
		one.Local, one.Shares = st.Local, st.Shares
	}
	return st, nil
}

// farCalls is how many calls a server of another scope has under way at most. It may be far away.
const farCalls = 8

// openStore returns the store of one scope and its client, without those that all have in common.
func openStore(s settings.Store, scope window.Scope, o StoresOptions) (*Stores, error) {
	at, section := s.RedisOf(scope)
	client, err := New(Options{Redis: at.Redis, Section: section, Timeout: s.TimeoutOf(scope), Connected: o.Connected, Log: o.Log})
	if err != nil {
		return nil, err
	}
	st := &Stores{Client: client, Scope: scope}
	to := o.Store
	to.Name, to.Prefix, to.Timeout = masterName(&at.URL), at.KeyPrefix, s.TimeoutOf(scope)
	to.Failures, to.ProbeInterval, to.MaxWaiting = at.Breaker.Failures, at.Breaker.ProbeInterval, at.MaxWaiting
	to.MaxLogSlots = at.MaxLogSlots
	if scope != window.Region {
		to.Calls = farCalls
	}
	st.Store = redisstore.New(client, to)
	return st, nil
}

// close closes the store of one scope and its client.
func (s *Stores) close() error { return errors.Join(s.Store.Close(), s.Client.Close()) }

// All returns the stores of all scopes, by their numbers. Only those of the region have them.
func (s *Stores) All() []*Stores { return append([]*Stores{s}, s.Others...) }

// Close gives back the hits that are reserved, and closes the stores of all scopes and their
// clients. Call it once, and only for the region.
func (s *Stores) Close() error {
	var err error
	if s.Shares != nil {
		err = s.Shares.Close() // before the store, which it may still charge
	}
	if s.Local != nil {
		err = errors.Join(err, s.Local.Close())
	}
	for _, one := range s.All() {
		err = errors.Join(err, one.close())
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
