package redisstore

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

// Stats count what a store has done since it was made, and describe its servers.
type Stats struct {
	// Sent counts how often requests were sent, and Batches the calls of the script that they
	// shared.
	Sent, Batches uint64
	// BatchSizes counts batches by their number of requests: up to 1, 2, 4, 8, 16, 32 and
	// 64.
	BatchSizes [7]uint64
	// Probes counts the probes of servers whose breaker is open.
	Probes uint64
	// Refused counts the requests that were not sent because too many waited for the server, by
	// priority. They are failures of [failure.Overload].
	Refused map[window.Priority]uint64
	// NotTakenBack counts the hits that were reserved and could not be given back, so they count
	// until they expire.
	NotTakenBack uint64
	// Failures counts the requests that could not be decided, by class.
	Failures map[failure.Class]uint64
	// Instances is the number of instances that share the logs, by [Store.Count]. It is at least 1.
	Instances int
	// Nodes describes the servers, sorted by address.
	Nodes []NodeStats
}

// NodeStats describes one server.
type NodeStats struct {
	Address string
	// Open says that the breaker is open, because the server has failed.
	Open bool
	// Refuses says that the server refuses to write, so it decides only denials.
	Refuses bool
	// Class is the reason, if Open or Refuses is true.
	Class failure.Class
	// Policy is the maxmemory-policy; empty: unknown. With a policy other than NoEviction
	// the server may delete logs.
	Policy string
	// Queued counts the requests that wait to be sent, InFlight the calls of the script
	// that the server has not answered.
	Queued, InFlight int
	// ClockKnown says that the server has answered.
	ClockKnown bool
}

// Evicts reports whether the server may delete logs when its memory is full.
func (s *NodeStats) Evicts() bool { return s.Policy != "" && s.Policy != NoEviction }

// counts holds the counters of Stats.
type counts struct {
	sent, batches, probes, notTakenBack atomic.Uint64

	sizes    [7]atomic.Uint64
	failures map[failure.Class]*atomic.Uint64
	refused  [window.PriorityHigh - window.PriorityLow + 1]atomic.Uint64 // by priority, the lowest first
}

func (c *counts) init() {
	c.failures = make(map[failure.Class]*atomic.Uint64, len(failure.Classes))
	for _, class := range failure.Classes {
		c.failures[class] = new(atomic.Uint64)
	}
}

// count counts a failure and returns it.
func (s *Store) count(err error) error {
	if err == nil {
		return nil
	}
	if c, ok := s.counts.failures[failure.Of(err)]; ok {
		c.Add(1)
	}
	return err
}

// Stats returns the counters of the store and the state of its servers.
func (s *Store) Stats() Stats {
	c := &s.counts
	stats := Stats{
		Sent: c.sent.Load(), Batches: c.batches.Load(), Probes: c.probes.Load(),
		NotTakenBack: c.notTakenBack.Load(),
		Instances:    s.Instances(),
		Failures:     make(map[failure.Class]uint64, len(c.failures)),
		Refused:      make(map[window.Priority]uint64, len(window.Priorities)),
	}
	for i, p := range window.Priorities {
		stats.Refused[p] = c.refused[i].Load()
	}
	for i := range c.sizes {
		stats.BatchSizes[i] = c.sizes[i].Load()
	}
	for class, n := range c.failures {
		stats.Failures[class] = n.Load()
	}
	s.dropIdle()
	for n := range s.all {
		stats.Nodes = append(stats.Nodes, n.stats())
	}
	if s.cluster != nil {
		s.topology.mu.Lock()
		if !s.topology.known && s.topology.failed != nil {
			stats.Nodes = append(stats.Nodes, NodeStats{Address: clusterAddress, Open: true, Class: failure.Classify(s.topology.failed)})
		}
		s.topology.mu.Unlock()
	}
	slices.SortFunc(stats.Nodes, func(a, b NodeStats) int { return cmp.Compare(a.Address, b.Address) })
	return stats
}

// dropIdle removes servers of a cluster that were not asked for long while others were: they
// have no slot any more.
func (s *Store) dropIdle() {
	var last int64
	for n := range s.all {
		last = max(last, n.lastAsked.Load())
	}
	for n := range s.all {
		if !n.open.Load() && last-n.lastAsked.Load() > int64(forgetAfter) {
			s.forget(n)
		}
	}
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
	s.Queued, s.InFlight = n.queue.Len(), n.pace.UnderWay
	n.mu.Unlock()
	s.ClockKnown = n.clock.Known()
	return s
}
