package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/admin"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

var _ inspect.Inspector = (*Store)(nil)

// inspector returns what reads, lists and removes the logs of the store.
func (s *Store) inspector() *admin.Inspector {
	return &admin.Inspector{
		Servers: inspected{s}, Clustered: s.cluster != nil, Client: s.client, Logs: &s.scripts.logs,
		Prefix: s.opts.Prefix, Timeout: max(s.opts.Timeout, admin.Timeout), Chunk: maxRequests,
	}
}

// Read implements [inspect.Inspector]. One call of a script reads up to 48 logs of one slot at one
// instant of the server's clock. A value that is not a log makes a log without entries, and stays.
// So does a log of more than a megabyte, which [Options.MaxLogSlots] rules out. All errors have a
// [failure.Class].
//
// Failures do not open the breaker of a server. While it is open, the server is not asked.
func (s *Store) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return s.inspector().Read(ctx, ids)
}

// Remove implements [inspect.Inspector]. It also removes a value that is not a log. While a slot of a
// cluster moves, its logs are removed one after the other. After a timeout, the server may still
// remove the logs. Remove does not try again what may have run. All errors have a [failure.Class].
//
// Failures do not open the breaker of a server. While it is open, the server is not asked.
func (s *Store) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return s.inspector().Remove(ctx, ids)
}

// List implements [inspect.Inspector] by SCAN, on one server after the other. A call looks at up
// to 16,000 keys of a server, also at keys that are not logs. With [inspect.Match.Tag] it asks
// only the server of that slot. The probes of the store are not listed.
//
// While a slot moves, and if a failover changes the servers, a list may miss logs. If the
// server of the cursor is no longer a master, the error wraps [inspect.ErrCursor]. All other
// errors have a [failure.Class].
func (s *Store) List(ctx context.Context, m inspect.Match, cursor string) (ids []window.LogID, next string, err error) {
	return s.inspector().List(ctx, m, cursor)
}

// inspected is a store whose logs an operator inspects.
type inspected struct{ *Store }

// adminDeadline returns the local instant until which an operator waits for the topology.
func (s inspected) adminDeadline() int64 {
	return serverclock.Now() + int64(max(s.opts.Timeout, admin.Timeout))
}

// Of implements [admin.Servers].
func (s inspected) Of(ctx context.Context, key string) (admin.Server, error) {
	n, err := s.nodeFor(ctx, key, s.adminDeadline())
	if err != nil {
		return nil, err
	}
	return n, nil
}

// At implements [admin.Servers].
func (s inspected) At(address string) admin.Server {
	for n := range s.all {
		if n.address == address {
			return n
		}
	}
	return nil
}

// All implements [admin.Servers].
func (s inspected) All(ctx context.Context) ([]admin.Server, error) {
	if err := s.learnTopology(ctx, s.adminDeadline()); err != nil {
		return nil, err
	}
	var (
		mu      sync.Mutex
		masters []admin.Server
	)
	err := s.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, s.nodeOf(c))
		return nil
	})
	if err == nil && len(masters) == 0 {
		err = errors.New("the cluster has no master")
	}
	if err != nil {
		return nil, &failure.Error{Class: failure.Connect, Err: failure.Explain(ctx, err)}
	}
	slices.SortFunc(masters, func(a, b admin.Server) int { return cmp.Compare(a.Address(), b.Address()) })
	return masters, nil
}

// Address returns the address of the server.
func (n *node) Address() string { return n.address }

// Process implements [script.Client].
func (n *node) Process(ctx context.Context, cmd redis.Cmder) error { return n.client.Process(ctx, cmd) }

// Refused implements [admin.Server].
func (n *node) Refused() error {
	if n.open.Load() {
		return n.refused()
	}
	return nil
}
