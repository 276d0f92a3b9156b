package memstore

import (
	"maps"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
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
	for win, t := range sh.tables {
		t.sweep(clock, win)
		if len(t.logs) == 0 {
			delete(sh.tables, win)
		}
	}
}

func (t *table) sweep(clock int64, win time.Duration) {
	var v window.View
	for key, l := range t.logs {
		if v.Look(l.packed, clock, win); v.Idle() {
			delete(t.logs, key)
		}
	}
	if t.peak >= minShrink && len(t.logs) <= t.peak/4 {
		t.logs = maps.Collect(maps.All(t.logs))
		t.peak = len(t.logs)
	}
}
