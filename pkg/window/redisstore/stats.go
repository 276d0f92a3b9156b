package redisstore

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// Stats are what a store has done since it was made, and how its servers are.
type Stats struct {
	// Calls are the requests that were asked of Redis. Sent are those that were sent,
	// each time that they were, and Batches the calls of the script that they shared.
	Calls, Sent, Batches uint64
	// BatchSizes are the batches by how many requests they held: up to 1, 2, 4, 8,
	// 16, 32 and 64.
	BatchSizes [7]uint64
	// Late are the requests that the script refused because they came after their
	// deadline: not charged.
	Late uint64
	// Probes are the tries of servers that are not asked.
	Probes uint64
	// Dropped are the requests that were not sent, because their callers had left.
	Dropped uint64
	// TakenBack are the hits that were reserved and given back, NotTakenBack those
	// for which that failed, so that they count until they expire.
	TakenBack, NotTakenBack uint64
	// Failures are the requests that could not be decided.
	Failures map[Class]uint64
	// Nodes are the servers, by address.
	Nodes []NodeStats
}

// NodeStats are how one server is.
type NodeStats struct {
	Address string
	// Open says that the server is not asked, because it has failed.
	Open bool
	// Refuses says that it refuses to write, so that only denials are decided.
	Refuses bool
	// Class says why, if Open or Refuses.
	Class Class
	// Policy is its maxmemory-policy; empty: not known. With another one than
	// NoEviction the server may throw logs away.
	Policy string
	// Queued are the requests that wait to be sent, InFlight the calls of the
	// script that it has not answered.
	Queued, InFlight int
	// ClockOffset is how far its clock is ahead of the local one, and ClockError by
	// how much that may be wrong; meaningless unless ClockKnown.
	ClockOffset, ClockError time.Duration
	ClockKnown              bool
}

// Evicts reports whether the server may throw logs away when its memory is full.
func (s *NodeStats) Evicts() bool { return s.Policy != "" && s.Policy != NoEviction }

// counts are the counters behind Stats.
type counts struct {
	calls, sent, batches, probes, late, dropped, takenBack, notTakenBack atomic.Uint64

	sizes    [7]atomic.Uint64
	failures map[Class]*atomic.Uint64
}

func (c *counts) init() {
	c.failures = make(map[Class]*atomic.Uint64, len(Classes))
	for _, class := range Classes {
		c.failures[class] = new(atomic.Uint64)
	}
}

// count counts a failure and returns it.
func (s *Store) count(err error) error {
	if err == nil {
		return nil
	}
	if c, ok := s.counts.failures[ClassOf(err)]; ok {
		c.Add(1)
	}
	return err
}

// Stats returns what a store has done and how its servers are.
func (s *Store) Stats() Stats {
	c := &s.counts
	stats := Stats{
		Calls: c.calls.Load(), Sent: c.sent.Load(), Batches: c.batches.Load(),
		Probes: c.probes.Load(), Late: c.late.Load(), Dropped: c.dropped.Load(),
		TakenBack: c.takenBack.Load(), NotTakenBack: c.notTakenBack.Load(),
		Failures: make(map[Class]uint64, len(c.failures)),
	}
	for i := range c.sizes {
		stats.BatchSizes[i] = c.sizes[i].Load()
	}
	for class, n := range c.failures {
		stats.Failures[class] = n.Load()
	}
	if s.single != nil {
		stats.Nodes = append(stats.Nodes, s.single.stats())
	}
	s.dropIdle()
	s.nodes.Range(func(_, n any) bool {
		stats.Nodes = append(stats.Nodes, n.(*node).stats())
		return true
	})
	if s.cluster != nil {
		s.topology.mu.Lock()
		if !s.topology.known && s.topology.failed != nil {
			stats.Nodes = append(stats.Nodes, NodeStats{Address: clusterAddress, Open: true, Class: classify(s.topology.failed)})
		}
		s.topology.mu.Unlock()
	}
	slices.SortFunc(stats.Nodes, func(a, b NodeStats) int { return cmp.Compare(a.Address, b.Address) })
	return stats
}

// dropIdle forgets servers of a cluster that have not been asked for long while
// others have: they serve no slot any more.
func (s *Store) dropIdle() {
	var last int64
	s.nodes.Range(func(_, n any) bool {
		last = max(last, n.(*node).asked.Load())
		return true
	})
	s.nodes.Range(func(client, n any) bool {
		if n := n.(*node); !n.open.Load() && last-n.asked.Load() > int64(forgetAfter) {
			s.nodes.Delete(client)
		}
		return true
	})
}

func (n *node) stats() NodeStats {
	s := NodeStats{Address: n.address, Open: n.open.Load()}
	if cause := n.cause.Load(); s.Open && cause != nil {
		s.Class = cause.Class
	}
	if cause := n.refuses.Load(); !s.Open && cause != nil {
		s.Refuses, s.Class = true, cause.Class
	}
	if policy := n.policy.Load(); policy != nil {
		s.Policy = *policy
	}
	n.mu.Lock()
	s.Queued, s.InFlight = len(n.queue), n.inFlight
	n.mu.Unlock()
	s.ClockOffset, s.ClockError, s.ClockKnown = n.clock.bounds()
	return s
}
