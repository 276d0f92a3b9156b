package memstore

import (
	"maps"
	"time"
)

// sweep visits one shard per tick until the store is closed, so that no lock is
// held for longer than a shard takes.
func (s *Store) sweep(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % shardCount {
		select {
		case <-s.done:
			return
		case <-tick.C:
			s.shards[i].sweep(s.clock().Microseconds())
		}
	}
}

// sweep drops the logs in which nothing counts any more at the time clock, in
// microseconds.
func (sh *shard) sweep(clock int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for id, l := range sh.logs {
		if l.gone(clock, id.Window) {
			delete(sh.logs, id)
		}
	}
	if sh.peak >= minShrink && len(sh.logs) <= sh.peak/4 {
		sh.logs = maps.Collect(maps.All(sh.logs))
		sh.peak = len(sh.logs)
	}
}
