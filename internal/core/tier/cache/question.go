package cache

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unique"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/tier"
)

var (
	errDropped = errors.New("the source is not asked: more keys wait for it than it answers")
	errClosed  = errors.New("the cache is closed")
)

// A flight is the look-up of a key, which waits for a question or is part of one. All
// requests for its key wait for it.
type flight struct {
	key   tier.Key
	sum   tier.Sum
	class class // guarded by Cache.mu

	change uint64        // the number of the last change before the question
	done   chan struct{} // closed once the rest is set
	record *cacheRecord  // nil if there is an err
	err    error
}

// wait reports whether the flight has ended.
func (f *flight) wait(ctx context.Context, wait time.Duration) bool {
	select {
	case <-f.done:
		return true
	default:
	}
	if wait <= 0 {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-f.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// ask asks the source for a key, or returns the flight for it that has not ended. seen is
// the record that the caller cannot use, or nil. The look-up waits at least in class want.
func (c *Cache) ask(k tier.Key, s *tier.Sum, seen *cacheRecord, want class) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.askLocked(k, s, seen, want)
}

// askLocked is ask; the caller has locked mu.
func (c *Cache) askLocked(k tier.Key, s *tier.Sum, seen *cacheRecord, want class) (*flight, error) {
	now, last := c.now(), c.peek(s)
	if want != ahead && last != nil && last.known() {
		want = expired
	}
	if f := c.flights[*s]; f != nil {
		if f.class != begun {
			c.drop(c.queue.promote(f, want))
			return f, nil
		}
		// The answer to a question from before a change may be from before it too.
		if f.change >= c.required(nil, s) {
			return f, nil
		}
	}
	f := &flight{key: k, sum: *s, class: want, done: make(chan struct{})}
	switch {
	case last != nil && last != seen && c.fresh(last, s, now):
		f.record = last // another question has just ended
		close(f.done)
		return f, nil
	case c.closed:
		return nil, errClosed
	case c.health.breaker.State() == gobreaker.StateOpen:
		return nil, c.refused()
	}
	f.key.ID, f.key.Plain = strings.Clone(k.ID), strings.Clone(k.Plain)
	if k.Digest != "" {
		f.key.Digest = hex.EncodeToString(s[:]) // in lower case
	}
	c.flights[*s] = f
	c.drop(c.queue.push(f))
	c.begin()
	return f, nil
}

// drop ends a flight without a question. f may be nil. The caller has locked mu.
func (c *Cache) drop(f *flight) {
	if f != nil {
		c.count.limited.Add(1)
		c.end(f, nil, errDropped)
	}
}

// refused counts a look-up while the source is not asked, and returns why.
func (c *Cache) refused() error {
	c.count.refused.Add(1)
	return fmt.Errorf("the source is not asked, because it has failed: %w", *c.health.cause.Load())
}

// begin begins questions for the flights that wait, while there are slots. The caller has locked mu.
func (c *Cache) begin() {
	for {
		batch, known := c.queue.take(c.batch)
		if len(batch) == 0 {
			return
		}
		done, err := c.health.breaker.Allow()
		if err == nil {
			for _, f := range batch {
				f.change = c.changes.last.Load()
			}
			c.wg.Go(func() {
				c.question(batch, known, done)
				c.logHealth()
			})
			continue
		}
		for _, f := range batch {
			c.end(f, nil, c.refused())
		}
		c.queue.count(known, -1)
	}
}

// question asks the source for the keys of a batch, and settles their flights. done gets
// the error of the source, or nil.
func (c *Cache) question(batch []*flight, known bool, done func(error)) {
	var failure error
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.Timeout)
	defer cancel()
	asked := c.now()
	results := c.lookup(ctx, batch)
	if c.opts.SourceSeconds != nil {
		c.opts.SourceSeconds((c.now() - asked).Seconds())
	}
	records := make([]*cacheRecord, len(batch))
	for i, f := range batch {
		r := &results[i]
		if records[i], r.Err = f.read(r, asked, c); r.Err != nil {
			c.failed(ctx, r.Err)
			r.Err = hide(r.Err, f.key.Plain)
			c.complain(r.Err)
		}
		if r.Err != nil && !errors.Is(r.Err, tier.ErrBadRecord) {
			failure = r.Err
		}
	}
	if failure != nil {
		c.health.cause.Store(&failure)
	}
	done(failure)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range batch {
		c.settle(f, records[i], results[i].Err)
	}
	c.queue.count(known, -1)
	c.begin()
}

// read makes the record of the cache from the answer of the source.
func (f *flight) read(r *tier.Result, asked time.Duration, c *Cache) (*cacheRecord, error) {
	switch {
	case r.Err != nil:
		return nil, r.Err
	case r.Record == nil:
		return nil, fmt.Errorf("%w: the source returned none", tier.ErrBadRecord)
	case r.Record.Subject != nil && r.Record.Subject.ID == "":
		return nil, fmt.Errorf("%w: the subject has no id", tier.ErrBadRecord)
	}
	h := &cacheRecord{asked: asked, change: f.change}
	ttl := c.opts.UnknownTTL
	if s := r.Record.Subject; s != nil {
		ttl = c.opts.TTL
		h.subject = *s
		h.subject.ID = strings.Clone(s.ID) // it may be part of a longer text
	}
	h.until = asked + lifetime(&f.sum, ttl, r.Record.MaxAge)
	c.answered(h)
	return h, nil
}

// lookup asks the source. It turns a panic of the source into errors about the records.
func (c *Cache) lookup(ctx context.Context, batch []*flight) (results []tier.Result) {
	defer func() {
		if recover() == nil { // the value may contain a key, so it is not logged
			return
		}
		if c.opts.Panicked != nil {
			c.opts.Panicked()
		}
		c.opts.SampledLog.Error("reading a record of a subject panicked; this is a bug, please report it", zap.ByteString("stack", debug.Stack()))
		results = make([]tier.Result, len(batch))
		for i := range results {
			results[i].Err = fmt.Errorf("%w: reading it panicked", tier.ErrBadRecord)
		}
	}()
	if len(batch) == 1 {
		f := batch[0]
		r, err := c.opts.Source.Lookup(ctx, f.key)
		return []tier.Result{{Record: r, Err: err}}
	}
	keys := make([]tier.Key, len(batch))
	for i, f := range batch {
		keys[i] = f.key
	}
	return c.opts.Source.(tier.Batcher).LookupAll(ctx, keys)
}

// answered counts an answer of the source.
func (c *Cache) answered(h *cacheRecord) {
	if !h.known() {
		c.count.unknown.Add(1)
		return
	}
	c.count.found.Add(1)
	if t := h.subject.Tier; t != "" && c.opts.Names.Tier != nil && !c.opts.Names.Tier(t) {
		c.opts.SampledLog.Warn("the customer source has a subject with an unknown tier: the subject gets the default tier",
			zap.String("subject", h.subject.ID), zap.String("tier", t))
	}
	if h.subject.Extra == nil || c.opts.Names.Rule == nil {
		return
	}
	for rule := range h.subject.Extra.Overrides {
		if !c.opts.Names.Rule(rule) {
			c.opts.SampledLog.Warn("the customer source has an override for an unknown rule: it has no effect",
				zap.String("subject", h.subject.ID), zap.String("rule", rule))
		}
	}
}

// failed counts a question that the source did not answer.
func (c *Cache) failed(ctx context.Context, err error) {
	switch {
	case errors.Is(err, tier.ErrBadRecord):
		c.count.badRecords.Add(1)
	case c.ctx.Err() != nil: // closed
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		c.count.timeouts.Add(1)
	default:
		c.count.errors.Add(1)
	}
}

// hide removes the API key plain from an error. A source that needs the key may repeat
// it in an error.
func hide(err error, plain string) error {
	if plain == "" || !strings.Contains(err.Error(), plain) {
		return err
	}
	h := hidden{text: strings.ReplaceAll(err.Error(), plain, "(API key)")}
	if errors.Is(err, tier.ErrBadRecord) {
		h.kind = tier.ErrBadRecord
	}
	return h
}

// hidden is an error whose key was removed. It does not wrap the original error.
type hidden struct {
	text string
	kind error // ErrBadRecord, or nil
}

func (h hidden) Error() string { return h.text }
func (h hidden) Unwrap() error { return h.kind }

// complain logs why the source has no valid record of a key.
func (c *Cache) complain(err error) {
	switch {
	case errors.Is(err, tier.ErrBadRecord):
		c.opts.SampledLog.Warn("the customer source has a malformed record: the last valid record of the key still counts; correct the record",
			zap.Error(err))
	case c.ctx.Err() == nil && !c.health.open.Load():
		c.opts.SampledLog.Warn("the customer source does not answer a look-up", zap.Error(err))
	}
}

// settle ends a flight with its result. The cache keeps the record unless it holds one from
// after a later change. The caller has locked mu.
func (c *Cache) settle(f *flight, h *cacheRecord, err error) {
	now := c.peek(&f.sum)
	switch {
	case now != nil && now.change > f.change:
	case err == nil:
		h.subject.Tier = unique.Make(h.subject.Tier).Value() // records of one time share its memory
		c.put(&f.sum, h)
	case errors.Is(err, tier.ErrBadRecord):
		c.put(&f.sum, c.withPause(now, f, &f.sum))
	}
	c.end(f, h, err)
}

// end ends a flight. Its requests get h or err. The caller has locked mu.
func (c *Cache) end(f *flight, h *cacheRecord, err error) {
	if c.flights[f.sum] == f {
		delete(c.flights, f.sum)
	}
	f.key = tier.Key{} // it may have an API key
	f.record, f.err = h, err
	close(f.done)
}

// withPause returns a copy of h, or an expired record if h is nil. The source is not asked for
// its key for UnknownTTL.
func (c *Cache) withPause(h *cacheRecord, f *flight, s *tier.Sum) *cacheRecord {
	now := c.now()
	next := cacheRecord{until: now - c.opts.Stale, asked: now, change: f.change} // never an answer
	if h != nil {
		next = *h
	}
	next.pause = &pause{until: now + lifetime(s, c.opts.UnknownTTL, 0), change: f.change}
	return &next
}

// switched is called by the breaker, which is locked meanwhile. So logHealth logs the change later.
func (c *Cache) switched(_ string, _, to gobreaker.State) {
	c.health.open.Store(to != gobreaker.StateClosed)
}

// logHealth logs whether the source is asked, if that has changed since the last line.
func (c *Cache) logHealth() {
	switch open := c.health.open.Load(); {
	case c.health.logged.Swap(open) == open:
	case open:
		c.opts.Log.Warn("the customer source does not answer and is not asked: cached subjects keep their tier, and tiers.on_error decides for all others",
			zap.Error(*c.health.cause.Load()))
	default:
		c.opts.Log.Info("the customer source answers again")
	}
}
