package redisclient

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// Stores are the store in Redis with its client, the store of this process in front of it, and the
// shares of this process beside it.
type Stores struct {
	*redisstore.Store
	Client redis.UniversalClient
	Local  *local.Store
	Shares *local.Shares
}

// StoresOptions say what a process wants to hear of its stores. Log is required.
type StoresOptions struct {
	Log *zap.Logger
	// Connected is that of [Options].
	Connected func()
	// Store has functions that the store calls. OpenStores sets its other fields.
	Store redisstore.Options
	// Wrap returns the store that Local asks. Nil: the store in Redis itself.
	Wrap func(*redisstore.Store) window.Store
}

// OpenStores returns the stores for a section store. Redis need not answer yet.
func OpenStores(s settings.Store, o StoresOptions) (*Stores, error) {
	client, err := New(Options{Redis: s.Redis.Redis, Section: "store.redis", Timeout: s.Timeout, Connected: o.Connected, Log: o.Log})
	if err != nil {
		return nil, err
	}
	st := &Stores{Client: client}
	to, changed := o.Store, o.Store.Changed
	to.Name, to.Prefix, to.Timeout = masterName(&s.Redis.URL), s.Redis.KeyPrefix, s.Timeout
	to.Failures, to.ProbeInterval = s.Redis.Breaker.Failures, s.Redis.Breaker.ProbeInterval
	to.Refunds = to.Prefix + redisstore.RefundsChannel
	to.Changed = func(c redisstore.Change) {
		if !c.Open && !c.Refuses && st.Local != nil {
			st.Local.ForgetAll() // the server may have lost the logs behind the remembered denials
		}
		if changed != nil {
			changed(c)
		}
	}
	st.Store = redisstore.New(client, to)
	var asked window.Store = st.Store
	if o.Wrap != nil {
		asked = o.Wrap(st.Store)
	}
	keys := s.LocalKeys
	if keys == 0 {
		keys = -1 // local.New: remember no denials
	}
	if st.Local, err = local.New(asked, local.Options{Keys: keys, Reserver: st.Store}); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	maxKeys, maxBytes := s.Memory.Bounds()
	st.Shares, err = local.NewShares(local.ShareOptions{
		Replicas: s.Replicas, Memory: memstore.Options{MaxKeys: maxKeys, MaxBytes: maxBytes}, Settler: st.Settler(), Timeout: s.Timeout,
	})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

// Close gives back the hits that are reserved, and closes the stores and the client. Call it once.
func (s *Stores) Close() error {
	if s.Local == nil {
		return errors.Join(s.Store.Close(), s.Client.Close())
	}
	var err error
	if s.Shares != nil {
		err = s.Shares.Close() // before the store, which it may still charge
	}
	return errors.Join(err, s.Local.Close(), s.Client.Close())
}

// Hear forgets remembered denials when another process refunds or removes their logs, until ctx ends.
func (s *Stores) Hear(ctx context.Context) error {
	return s.Watch(ctx, redisstore.Heard{Refunded: s.Local.Forget, Removed: s.Reset, Missed: s.Local.ForgetAll})
}

// Reset forgets what this process knows of a log that was removed from Redis.
func (s *Stores) Reset(id window.LogID) {
	s.Local.Reset(id)
	s.Shares.Reset(id)
}

// Settler returns what charges Redis for hits that this process admitted without it.
func (s *Stores) Settler() local.Settler { return settler{s.Local, s.Store} }

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

// masterName returns a name for the master of a Sentinel set, whose address changes. For
// other servers it is empty: metrics and messages show their addresses.
func masterName(servers *settings.RedisURL) string {
	if servers.Topology == settings.RedisSentinel {
		return "master " + servers.Master
	}
	return ""
}
