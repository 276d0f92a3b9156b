package tier

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// stripes is how many digests and ids are told apart. Those that share one change
// together, which costs a question to the source and nothing else.
const stripes = 1 << 16

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

func (c *Cache) ofID(id string) *atomic.Uint64 {
	return &c.changed[maphash.String(c.seed, id)%stripes]
}

func (c *Cache) ofKey(s *sum) *atomic.Uint64 {
	return &c.changed[binary.BigEndian.Uint16(s[:])]
}

// Invalidate says that records may have changed: they are asked for before they are
// answered again. Nothing is forgotten: while the source cannot say, they count as if
// they had expired.
func (c *Cache) Invalidate(ch Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.changes.Add(1)
	if ch.Digest != "" {
		if s, ok := sumOf(Key{Digest: ch.Digest}); ok {
			c.ofKey(&s).Store(n)
		} else {
			ch = Change{} // nobody can tell whose it is
		}
	}
	if ch.ID != "" {
		c.ofID(ch.ID).Store(n)
		c.anyID.Store(n) // it may have a key now that nobody had
	}
	if ch == (Change{}) {
		c.everything.Store(n)
	}
}

// required returns the last change that concerns a record, or one of a key of which
// nothing is known if h is nil.
func (c *Cache) required(h *held, s *sum) uint64 {
	n := max(c.everything.Load(), c.ofKey(s).Load())
	if h == nil || !h.known() {
		return max(n, c.anyID.Load())
	}
	return max(n, c.ofID(h.subject.ID).Load())
}

// fresh reports whether a record counts without being asked for.
func (c *Cache) fresh(h *held, s *sum, now time.Duration) bool {
	return now < h.until && (h.change == c.changes.Load() || h.change >= c.required(h, s))
}

// onHold reports whether it would be in vain to ask.
func (c *Cache) onHold(h *held, s *sum, now time.Duration) bool {
	return h.says != nil && now < h.says.hold && h.says.change >= c.required(h, s)
}

// Run has the source tell its changes, until ctx ends. Whenever it begins to, all
// records are asked for anew, because some changes may have been missed. Without a
// [Watcher] there is nothing to do.
func (c *Cache) Run(ctx context.Context) error {
	w, ok := c.opts.Source.(Watcher)
	if !ok {
		<-ctx.Done()
		return nil
	}
	var lost atomic.Bool
	ready := func() {
		c.Invalidate(Change{})
		c.watching.Store(true)
		if lost.Swap(false) {
			c.opts.Log.Info("the source of tiers tells of changes again")
		}
	}
	changed := func(ch Change) {
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
			c.opts.Log.Warn("the source of tiers does not tell of changes: they are seen when records expire", zap.Error(err))
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
