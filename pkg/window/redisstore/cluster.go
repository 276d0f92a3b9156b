package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// route sets the hash tag of a message. It returns false if its logs have several, and so are
// probably on several slots.
func (m *message) route() bool {
	m.tag = window.HashTag(m.group.Keys[0])
	for _, k := range m.group.Keys[1:] {
		if window.HashTag(k) != m.tag {
			return false
		}
	}
	return true
}

// A topology records whether the cluster's client knows which server has which slot. The
// client asks a server for it. The first time it does so in the background, so a caller
// waits for it no longer than for a decision.
type topology struct {
	mu      sync.Mutex
	known   bool
	loading chan struct{} // closed when known; nil before the first call
	failed  error         // of the last try
}

// nodeFor returns the node that has a key. On a cluster it waits for the topology until deadline, a
// local instant; 0: until ctx is done.
func (s *Store) nodeFor(ctx context.Context, key string, deadline int64) (*node, error) {
	if s.single != nil {
		return s.single, nil
	}
	if err := s.learnTopology(ctx, deadline); err != nil {
		return nil, err
	}
	client, err := s.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, &failure.Error{Class: failure.Connect, Err: err}
	}
	n := s.nodeOf(client)
	n.tagged(key)
	return n, nil
}

// learnTopology waits until the topology is known. If the last try to learn it failed, it
// returns that error at once.
func (s *Store) learnTopology(ctx context.Context, deadline int64) error {
	t := &s.topology
	t.mu.Lock()
	if t.known {
		t.mu.Unlock()
		return nil
	}
	if t.loading == nil {
		t.loading = make(chan struct{})
		s.background(s.loadTopology)
	}
	loading, failed := t.loading, t.failed
	t.mu.Unlock()
	if failed != nil {
		return &failure.Error{Class: failure.Connect, Err: failed}
	}
	var expired <-chan time.Time
	if deadline != 0 {
		timer := time.NewTimer(time.Duration(deadline - serverclock.Now()))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-loading:
		return nil
	case <-ctx.Done():
		return &failure.Error{Class: failure.Gone, Err: ctx.Err()}
	case <-expired:
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.failed != nil { // since this call began
			return &failure.Error{Class: failure.Connect, Err: t.failed}
		}
		return &failure.Error{Class: failure.Connect, Err: errors.New("no node of the cluster has answered yet which node has which slot")}
	}
}

// mustWait reports whether a message on a cluster needs something before the call that decides it: the
// topology, or that a stream is noted.
func (s *Store) mustWait(m *message) bool {
	stream, _, _, _ := m.group.Stream()
	s.topology.mu.Lock()
	defer s.topology.mu.Unlock()
	return stream != 0 || !s.topology.known
}

// loadTopology asks until the topology is known.
func (s *Store) loadTopology() {
	t := &s.topology
	for {
		ctx, cancel := context.WithTimeout(s.life.stopped, longest)
		_, err := s.cluster.MasterForKey(ctx, "")
		cancel()
		t.mu.Lock()
		if err == nil {
			t.known, t.failed = true, nil
			close(t.loading)
			t.mu.Unlock()
			return
		}
		first := t.failed == nil
		t.failed = err
		t.mu.Unlock()
		if first {
			s.opts.Changed(Change{Node: clusterAddress, Open: true, Class: failure.Classify(err), Err: err})
			defer s.opts.Changed(Change{Node: clusterAddress})
		}
		if !s.pause(s.opts.ProbeInterval) {
			return
		}
	}
}

// clusterAddress is the address of a cluster while no node has answered yet.
const clusterAddress = "cluster"

// nodeOf returns the node of a server's client.
func (s *Store) nodeOf(client *redis.Client) *node {
	return s.nodes.Of(client, func() *node { return s.newNode(client, client.Options().Addr) })
}

// all yields every node, in the order in which they were found.
func (s *Store) all(yield func(*node) bool) {
	if s.single != nil {
		yield(s.single)
		return
	}
	s.nodes.All(yield)
}

// forget removes a node that is no longer asked.
func (s *Store) forget(n *node) { s.nodes.Delete(n.client) }
