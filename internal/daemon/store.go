package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/daemon/snapshot"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/internal/operate/sharedlist"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/document"
)

// A store keeps the logs of the process: in memory, or in Redis. One of the two is nil.
type store struct {
	memory *snapshot.Store
	redis  *redisStore
}

// openStore opens the store of the settings. Redis need not answer yet. Messages about
// single requests go to sampledLog. answered is redisstore.Options.Answered.
func openStore(ctx context.Context, s settings.Settings, m *metrics.Metrics, registry prometheus.Registerer, version string, log, sampledLog *zap.Logger, answered func(context.Context, int)) (st store, err error) {
	if s.Store.Type == settings.StoreMemory {
		st.memory, err = openMemory(ctx, s.Store.Memory, registry, log)
		return st, err
	}
	if st.redis, err = openRedis(ctx, s, m, version, log, sampledLog, answered); err == nil {
		st.redis.register(registry)
	}
	return st, err
}

func openMemory(ctx context.Context, s settings.Memory, registry prometheus.Registerer, log *zap.Logger) (*snapshot.Store, error) {
	m, err := snapshot.Open(ctx, s.Snapshot, memstore.Options{MaxBytes: s.Bound(), Owner: descriptors.RuleOfKey}, log)
	if err != nil {
		return nil, fmt.Errorf("store.memory.snapshot: %w", err)
	}
	metrics.Memory(registry, m.Stats)
	return m, nil
}

func (s store) close() error {
	if s.redis != nil {
		if err := s.redis.Close(); err != nil {
			return fmt.Errorf("closing the store: %w", err)
		}
		return nil
	}
	if err := s.memory.Close(); err != nil {
		return fmt.Errorf("closing the store: store.memory.snapshot: %w", err)
	}
	return nil
}

func (s store) decide(o *decide.Options) {
	if s.redis == nil {
		o.Store, o.Clock = s.memory, s.memory.Now
		return
	}
	o.Store, o.Local = s.redis.Front, s.redis.Fallback
}

func (s store) inspect(o *insight.Options) {
	if s.redis == nil {
		o.Inspector, o.Budgets = s.memory, s.memory
		return
	}
	o.Inspector, o.Budgets, o.Local, o.FallbackQuotas = s.redis, s.redis.Shared, s.redis.Fallback, s.redis.Fallback
}

// document returns a document that all instances share, or one of this process if the store is in memory.
// In Redis its key is the name below the prefix of the region.
func (s store) document(of *settings.Store, name string) sharedlist.Document {
	if s.redis == nil {
		return new(sharedlist.Memory)
	}
	return document.New(s.redis.Scopes[window.Region].Client, of.Redis.KeyPrefix+name)
}

func (s store) fill(state *glance.State) {
	if s.redis == nil {
		m := s.memory.Stats()
		state.Store.Logs, state.Store.Bytes = m.Logs, m.Bytes
		return
	}
	state.Store.Servers, state.Store.Instances = s.redis.states().all(), s.redis.scopes[0].Instances()
	l := s.redis.Front.Stats()
	state.Leases = glance.Leases{Made: l.Leases, Admitted: l.LeasedHits, Returned: l.ReturnedHits}
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
			// The store still decides for every log that it has.
			sampledLog.Warn("the store is full; raise store.memory.max_bytes", zap.Error(err))
		}
	}
}
