package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/fallback"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/internal/core/tier/cache"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// An instance is one process: the real code from a request to the bytes that it sends to Redis.
type instance struct {
	w      *world
	number int
	name   string
	begun  time.Duration

	clients  []redis.UniversalClient
	stores   []*redisstore.Store
	shared   *redisstore.Scopes
	front    *lease.Store
	fallback *fallback.Store
	tiers    *cache.Cache
	decider  *decide.Decider

	customers *customers
	pauses    *pauses
	unwatch   context.CancelFunc
	uncount   context.CancelFunc
	watched   sync.WaitGroup

	// The world's mu guards these.
	frozen  time.Duration   // until when nothing gets in or out
	cut     []time.Duration // until when it cannot reach each server
	gone    bool            // it was killed
	stopped bool            // it was killed, or stopped in order
	reports []report
}

const (
	storeTimeout = 15 * time.Millisecond
	envoyTimeout = 20 * time.Millisecond
)

// newInstance starts an instance. generation counts its starts.
func newInstance(w *world, position, generation int) *instance {
	in := &instance{w: w, number: position, name: fmt.Sprintf("rls-%d", position), begun: w.now(), frozen: -counted, cut: slices.Repeat([]time.Duration{-counted}, len(w.servers))}
	if generation > 0 {
		in.name += fmt.Sprintf("-%d", generation)
	}
	names := make([]string, w.plan.scopes())
	for i := range names {
		client := in.client(w.servers[i])
		in.clients = append(in.clients, client)
		o := redisstore.Options{Name: w.servers[i].name, Timeout: cmp.Or(w.mutants.timeout, storeTimeout), ProbeInterval: w.mutants.probes, MaxWaiting: 10_000, Changed: in.changed}
		if i > 0 {
			o.Calls = 8
		}
		in.stores = append(in.stores, redisstore.New(client, o))
		names[i] = scopeName(i)
	}
	in.shared = redisstore.NewScopes(names, in.stores)
	for i := range names {
		in.shared.Holds(window.Scope(i))
	}
	var err error
	if in.front, err = lease.New(in.shared, lease.Options{Reserver: w.mutants.reserver(in.shared)}); err != nil {
		panic(err)
	}
	instances := func(s window.Scope) int { return in.stores[s].Instances() }
	if w.mutants.alone {
		instances = func(window.Scope) int { return 1 }
	}
	in.fallback, err = fallback.New(fallback.Options{Instances: instances, Timeout: storeTimeout})
	if err != nil {
		panic(err)
	}
	in.tiers = newCustomers(in)
	in.count()
	in.pauses = &pauses{w: w, waiting: make(map[window.Flusher]chan struct{})}
	in.decider = decide.NewDecider(newRules(w.plan, &w.mutants), decide.Options{Store: apart{in.front}, Local: in.fallback, Patience: inflight.DefaultPatience, Subjects: in.tiers, Wait: tierPatience})
	return in
}

// apart is a store that no two streams ask at the same moment: an end wakes all requests that wait, and
// the order in which they go on would be another one in each run.
type apart struct{ *lease.Store }

func (a apart) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if wait && checks[0].Stream != 0 {
		time.Sleep(time.Duration(checks[0].Stream>>8%1000) * time.Nanosecond)
	}
	return a.Store.Take(ctx, wait, checks, decisions)
}

// count counts the instances, until the instance stops.
func (in *instance) count() {
	var ctx context.Context
	ctx, in.uncount = context.WithCancel(context.Background())
	for _, s := range in.stores {
		in.watched.Go(func() { _ = s.Count(ctx, func(int, int, error) {}) })
	}
}

// stop ends the instance in order, as SIGTERM does.
func (in *instance) stop() {
	in.uncount()
	in.unwatch()
	in.watched.Wait()
	_ = in.tiers.Close()
	_ = in.fallback.Close()
	_ = in.front.Close()
	for i, s := range in.stores {
		_ = s.Close()
		_ = in.clients[i].Close()
	}
}

// changed notes that a server has stopped deciding for the instance, or decides again.
func (in *instance) changed(c redisstore.Change) {
	in.w.mu.Lock()
	defer in.w.mu.Unlock()
	switch {
	case c.Open:
		in.w.note("%s asks %s no more: %v", in.name, c.Node, c.Class)
	case !c.Refuses:
		in.w.note("%s asks %s again", in.name, c.Node)
	}
}

// client returns a client of a server, or of all as a cluster, with the options of the service.
func (in *instance) client(s *server) redis.UniversalClient {
	const patience = 250 * time.Millisecond
	o := &redis.UniversalOptions{
		Addrs: []string{s.name}, Protocol: 2, MaxRetries: -1, MaxRedirects: 3, ContextTimeoutEnabled: true, PoolSize: 10, PoolTimeout: storeTimeout,
		ReadTimeout: patience, WriteTimeout: patience, DialTimeout: patience, DialerRetries: 1, DisableIdentity: true, PipelinePoolSize: -1,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 4 * time.Millisecond,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, _, address string) (net.Conn, error) {
			for _, to := range in.w.servers {
				if to.name == address {
					conn, err := to.dial(ctx, in)
					if err != nil {
						return failedConn{err: err}, nil // as the service: otherwise go-redis does not dial again for a second
					}
					return conn, nil
				}
			}
			return nil, fmt.Errorf("no server has the address %s", address)
		},
	}
	if !in.w.plan.Cluster {
		c := o.Simple()
		c.MaintNotificationsConfig = o.MaintNotificationsConfig
		return redis.NewClient(c)
	}
	c := o.Cluster()
	c.DisableRoutingPolicies = true
	c.ClusterStateReloadInterval = time.Hour // only a redirection makes it ask again
	c.ClusterSlots = in.w.clusterSlots
	return redis.NewClusterClient(c)
}

// A failedConn is a connection that could not be made.
type failedConn struct {
	net.Conn
	err error
}

func (c failedConn) Read([]byte) (int, error)            { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)           { return 0, c.err }
func (failedConn) Close() error                          { return nil }
func (failedConn) SetDeadline(time.Time) error           { return nil }
func (failedConn) SetReadDeadline(time.Time) error       { return nil }
func (failedConn) SetWriteDeadline(time.Time) error      { return nil }
func (failedConn) RemoteAddr() net.Addr                  { return &net.TCPAddr{} }
func (failedConn) LocalAddr() net.Addr                   { return &net.TCPAddr{} }
func (failedConn) SyscallConn() (syscall.RawConn, error) { return nil, errors.ErrUnsupported }

// reset removes a log, as the API of operators does.
func (in *instance) reset(ctx context.Context, id window.LogID) error {
	readings, err := in.shared.Remove(ctx, []window.LogID{id})
	if len(readings) > 0 || err != nil {
		in.front.Reset(id)
	}
	if len(readings) > 0 {
		in.fallback.Reset(id)
	}
	return err
}

// restart kills or stops the instance, and starts it again after a time.
func (w *world) restart(number int, inOrder bool, after time.Duration) {
	w.mu.Lock()
	old := w.instances[number]
	if old == nil {
		w.mu.Unlock()
		return // it is starting again already
	}
	old.stopped = true
	w.instances[number] = nil // Envoy sends nothing to it
	if !inOrder {
		old.gone = true
		w.hangUp(func(p *pipe) bool { return p.from == old })
	}
	w.mu.Unlock()
	if inOrder {
		time.Sleep(envoyTimeout) // it answers what it has
	}
	old.stop()
	if left := after; left > 0 {
		time.Sleep(left)
	}
	w.mu.Lock()
	w.starts++
	fresh := w.starts
	w.mu.Unlock()
	in := newInstance(w, number, fresh)
	w.mu.Lock()
	w.instances[number] = in
	w.started = append(w.started, w.now())
	w.note("%s starts", in.name)
	w.mu.Unlock()
}
