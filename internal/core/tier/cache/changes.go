package cache

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// stripes is how many numbers of changes the cache keeps, for digests and for ids. Keys
// that share a stripe change together, which costs one question to the source each.
const stripes = 1 << 16

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// ofID returns the number of the last change in the stripe of an id.
func (c *Cache) ofID(id string) *atomic.Uint64 {
	return &c.changes.changed[maphash.String(c.changes.seed, id)%stripes]
}

// ofKey returns the number of the last change in the stripe of a key.
func (c *Cache) ofKey(s *tier.Sum) *atomic.Uint64 {
	return &c.changes.changed[binary.BigEndian.Uint16(s[:])]
}

// Invalidate makes records expire, because they may have changed. The next request for
// one of them asks the source. While the source does not answer, the records are stale
// answers.
func (c *Cache) Invalidate(ch tier.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.changes.last.Add(1)
	if ch.Digest != "" {
		if s, ok := tier.SumOf(tier.Key{Digest: ch.Digest}); ok {
			c.ofKey(&s).Store(n)
		} else {
			ch = tier.Change{} // an invalid digest: any record may have changed
		}
	}
	if ch.ID != "" {
		c.ofID(ch.ID).Store(n)
		c.changes.anyID.Store(n) // it may have got a key that was unknown
	}
	if ch == (tier.Change{}) {
		c.changes.everything.Store(n)
	}
}

// required returns the number of the last change that concerns the record h. If h is nil,
// it concerns an unknown key.
func (c *Cache) required(h *cacheRecord, s *tier.Sum) uint64 {
	n := max(c.changes.everything.Load(), c.ofKey(s).Load())
	if h == nil || !h.known() {
		return max(n, c.changes.anyID.Load())
	}
	return max(n, c.ofID(h.subject.ID).Load())
}

// fresh reports whether a record is valid, so that it needs no question.
func (c *Cache) fresh(h *cacheRecord, s *tier.Sum, now time.Duration) bool {
	return now < h.until && (h.change == c.changes.last.Load() || h.change >= c.required(h, s))
}

// paused reports whether the source is not asked, because it has answered with a
// malformed record.
func (c *Cache) paused(h *cacheRecord, s *tier.Sum, now time.Duration) bool {
	return h.pause != nil && now < h.pause.until && h.pause.change >= c.required(h, s)
}

// Run watches the source for changes until ctx ends. Each time that watching begins, all
// records expire, because changes may have been missed. If the source is no [tier.Watcher],
// Run only waits.
func (c *Cache) Run(ctx context.Context) error {
	w, ok := c.opts.Source.(tier.Watcher)
	if !ok {
		<-ctx.Done()
		return nil
	}
	var lost atomic.Bool
	ready := func() {
		c.Invalidate(tier.Change{})
		c.watching.Store(true)
		if lost.Swap(false) {
			c.opts.Log.Info("the customer source reports changes again")
		}
	}
	changed := func(ch tier.Change) {
		c.count.pushes.Add(1)
		c.Invalidate(ch)
	}
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		began := c.now()
		err := w.Watch(ctx, ready, changed)
		c.watching.Store(false)
		if ctx.Err() != nil {
			return nil
		}
		if !lost.Swap(true) {
			c.opts.Log.Warn("the customer source does not report changes: they are seen when records expire", zap.Error(err))
		}
		if c.now()-began > maxBackoff {
			backoff = minBackoff
		}
		select {
		case <-time.After(backoff/2 + rand.N(backoff/2)): //nolint:gosec // spreads replicas, hides nothing
		case <-ctx.Done():
			return nil
		}
	}
}
