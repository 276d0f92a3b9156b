package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/daemon/snapshot"
	"github.com/slidegate/slidegate/internal/migrate/compat/stats"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A store decides requests.
type store struct {
	decides window.Store // decides every request if it can
	local   window.Store // decides by this instance's share if decides fails; nil with the memory store
	// holds says in which scopes requests in flight may hold something. Nil with the memory store.
	holds func([]window.Scope)
	// keeper reads and removes the logs of decides, and localKeeper those of local.
	keeper, localKeeper window.Keeper
	state               func() storeState // of its servers; nil with the memory store
	missing             string            // Running.StoreMissing
	// clock returns the store's clock: the time since 1970-01-01 UTC. Nil: the store has the
	// time of day.
	clock func() time.Duration
	// connected reports whether there is a connection to a server of the store. Nil: nothing
	// needs to know.
	connected func() bool
	parts     []part // run until the process stops
	// memory returns what the memory store holds. Nil: another store.
	memory func() memstore.Stats
	// leases returns what became of reserved hits. Nil with the memory store.
	leases func() insight.Leases
	// measure adds what is known of connections and memory. Nil with the memory store.
	measure func(*stats.Stats)
	close   func() error
}

// openStore opens the store of the settings. Redis need not answer yet. Messages about
// single requests go to sampledLog. answered is redisstore.Options.Answered.
func openStore(ctx context.Context, s settings.Settings, m *metrics.Metrics, registry prometheus.Registerer, version string, log, sampledLog *zap.Logger, answered func(context.Context, int)) (*store, error) {
	if s.Store.Type == settings.StoreMemory {
		return openMemory(ctx, s.Store.Memory, registry, log)
	}
	r, err := openRedis(ctx, s, m, version, log, sampledLog, answered)
	if err != nil {
		return nil, err
	}
	return r.asStore(registry), nil
}

// openMemory opens the memory store, with its snapshot if the settings name one.
func openMemory(ctx context.Context, s settings.Memory, registry prometheus.Registerer, log *zap.Logger) (*store, error) {
	m, err := snapshot.Open(ctx, s.Snapshot, memstore.Options{MaxBytes: s.Bound(), Owner: descriptors.RuleOfKey}, log)
	if err != nil {
		return nil, fmt.Errorf("store.memory.snapshot: %w", err)
	}
	metrics.Memory(registry, m.Stats)
	return &store{
		memory:  m.Stats,
		decides: m,
		keeper:  m,
		clock:   m.Now,
		close: func() error {
			if err := m.Close(); err != nil {
				return fmt.Errorf("closing the store: store.memory.snapshot: %w", err)
			}
			return nil
		},
	}, nil
}

// storeFailed returns a function that logs errors of single requests with what the operator can do.
// redisScope logs when a server stops deciding. sampledLog is sampled.
func storeFailed(sampledLog *zap.Logger) func(error) {
	return func(err error) {
		switch {
		case errors.Is(err, window.ErrBadCheck):
			// The request is wrong; the store works.
			sampledLog.Error("the store refused an invalid request", zap.Error(err))
		case errors.Is(err, memstore.ErrFull):
			// The store still decides for every log that it holds.
			sampledLog.Warn("the store is full; raise store.memory.max_bytes", zap.Error(err))
		}
	}
}
