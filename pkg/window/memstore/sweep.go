package memstore

import (
	"runtime"
	"time"
)

// sweepChunk is the effort of a sweep under one lock: about 256 logs.
const sweepChunk = 256 * (logEffort + bucketEffort)

// sweep visits one shard per tick until the store is closed.
func (s *Store) sweep(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(s.shards) {
		select {
		case <-s.done:
			return
		case <-tick.C:
			s.sweepShard(&s.shards[i])
		}
	}
}

// Sweep visits every shard once and drops the logs that have expired entirely. It is for a store
// without a sweeper, whose clock does not follow real time.
func (s *Store) Sweep() {
	for i := range s.shards {
		s.sweepShard(&s.shards[i])
	}
}

// sweepShard moves the hand of a shard over all of its buckets, and then removes unneeded
// buckets. It does both in chunks, and frees the lock in between.
func (s *Store) sweepShard(sh *shard) {
	swept := 0
	s.inChunks(sh, func() (done bool) {
		swept += sh.visit(sweepChunk, s.clock().Microseconds(), nil, sh.near())
		return swept >= sh.buckets
	})
	s.inChunks(sh, func() (done bool) { return sh.shrink(sweepChunk / logEffort) })
}

// inChunks calls f under a shard's lock until it is done or the store is closed.
func (s *Store) inChunks(sh *shard, f func() (done bool)) {
	for {
		sh.mu.Lock()
		done := f()
		sh.mu.Unlock()
		select {
		case <-s.done:
			return
		default:
		}
		if done {
			return
		}
		runtime.Gosched() // lets a goroutine that waits for the lock have it
	}
}
