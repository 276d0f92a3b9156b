package tier

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
)

var (
	errLimited = errors.New("the source is not asked: it has had lookups_per_second questions, or too many are under way")
	errClosed  = errors.New("the cache is closed")
)

// A flight is a question that is under way. All requests for its key wait for it.
type flight struct {
	change uint64        // the number of the last change before the question
	done   chan struct{} // closed once the rest is set
	held   *held         // nil if there is an err
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

// ask begins a question to the source, or returns the one for the same key that is under
// way. seen is the record that the caller cannot use, or nil.
func (c *Cache) ask(k Key, s *sum, seen *held) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.askLocked(k, s, seen)
}

// askLocked is ask with mu held.
func (c *Cache) askLocked(k Key, s *sum, seen *held) (*flight, error) {
	// The answer to a question from before a change may be from before it too.
	if f := c.flights[*s]; f != nil && f.change >= c.required(nil, s) {
		return f, nil
	}
	now, last := c.now(), c.peek(s)
	if last != nil && last != seen && c.fresh(last, s, now) {
		f := &flight{done: make(chan struct{}), held: last}
		close(f.done) // another question has just ended
		return f, nil
	}
	known := last != nil && last.known()
	done, err := c.admit(known, now)
	if err != nil {
		return nil, err
	}
	f := &flight{change: c.changes.Load(), done: make(chan struct{})}
	c.flights[*s] = f
	sum := *s
	c.wg.Go(func() {
		h, err := c.question(f, k, &sum, last)
		if err != nil {
			c.cause.Store(&err)
		}
		done(err)
		c.settle(f, &sum, h, err, known)
		c.tell()
	})
	return f, nil
}

// admit admits one more question, or returns why it does not. The caller calls done with
// the question's error, or nil. mu is held.
func (c *Cache) admit(known bool, now time.Duration) (done func(error), err error) {
	if c.closed {
		return nil, errClosed
	}
	if !c.questions.room(c.opts.Questions, known) || !c.pace.room(known, now) {
		c.count.limited.Add(1)
		return nil, errLimited
	}
	if done, err = c.breaker.Allow(); err != nil {
		c.count.refused.Add(1)
		return nil, fmt.Errorf("the source is not asked, because it has failed: %w", *c.cause.Load())
	}
	c.questions.add(known, 1)
	c.pace.take(known)
	return done, nil
}

// question asks the source and makes the record to hold from its answer. Its error does
// not contain the key.
func (c *Cache) question(f *flight, k Key, s *sum, last *held) (*held, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.Timeout)
	defer cancel()
	asked := c.now()
	if k.Digest != "" {
		k.Digest = hex.EncodeToString(s[:]) // in lower case
	}
	r, err := c.lookup(ctx, k, last.record())
	if c.opts.SourceSeconds != nil {
		c.opts.SourceSeconds((c.now() - asked).Seconds())
	}
	switch {
	case err != nil:
	case r == nil:
		err = fmt.Errorf("%w: the source returned none", ErrBadRecord)
	case r.Subject != nil && r.Subject.ID == "":
		err = fmt.Errorf("%w: the subject has no id", ErrBadRecord)
	}
	if err != nil {
		c.failed(ctx, err)
		return nil, hide(err, k.Plain)
	}
	h := &held{asked: asked, change: f.change}
	copy(h.verifier[:], s.verifier())
	ttl := c.opts.UnknownTTL
	if r.Subject != nil {
		ttl = c.opts.TTL
		h.subject = *r.Subject
		h.subject.ID = strings.Clone(r.Subject.ID) // it may be part of a longer text
	}
	if r.Tag != "" {
		h.extra = &heldExtra{tag: strings.Clone(r.Tag), maxAge: r.MaxAge}
	}
	h.until = asked + s.lifetime(ttl, r.MaxAge)
	c.answered(h)
	return h, nil
}

// lookup asks the source. It turns a panic of the source into an error about the record.
func (c *Cache) lookup(ctx context.Context, k Key, last *Record) (r *Record, err error) {
	defer func() {
		if recover() == nil { // the value may contain a key, so it is not logged
			return
		}
		if c.opts.Panicked != nil {
			c.opts.Panicked()
		}
		c.opts.Log.Error("a question to the source of tiers panicked; this is a bug, please report it", zap.ByteString("stack", debug.Stack()))
		r, err = nil, fmt.Errorf("%w: reading it panicked", ErrBadRecord)
	}()
	return c.opts.Source.Lookup(ctx, k, last)
}

// answered counts an answer of the source.
func (c *Cache) answered(h *held) {
	c.count.answered.Store(time.Now().UnixNano())
	if !h.known() {
		c.count.unknown.Add(1)
		return
	}
	c.count.found.Add(1)
	if t := h.subject.Tier; t != "" && c.opts.KnownTier != nil && !c.opts.KnownTier(t) {
		c.count.unknownTiers.Add(1)
		c.opts.SampledLog.Warn("the source of tiers has a subject with an unknown tier: the subject gets the default tier",
			zap.String("subject", h.subject.ID), zap.String("tier", t))
	}
	if h.subject.Extra == nil || c.opts.KnownRule == nil {
		return
	}
	for rule := range h.subject.Extra.Overrides {
		if !c.opts.KnownRule(rule) {
			c.count.unknownRules.Add(1)
			c.opts.SampledLog.Warn("the source of tiers has an override for an unknown rule: it has no effect",
				zap.String("subject", h.subject.ID), zap.String("rule", rule))
		}
	}
}

// failed counts a question that the source did not answer.
func (c *Cache) failed(ctx context.Context, err error) {
	switch {
	case errors.Is(err, ErrBadRecord):
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
	if errors.Is(err, ErrBadRecord) {
		h.kind = ErrBadRecord
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

// settle ends a flight. The cache keeps the record unless it holds one from after a later
// change.
func (c *Cache) settle(f *flight, s *sum, h *held, err error, known bool) {
	switch {
	case errors.Is(err, ErrBadRecord):
		c.opts.SampledLog.Warn("the source of tiers has a malformed record: the last valid record of the key still counts",
			zap.Error(err))
	case err != nil && c.ctx.Err() == nil && !c.open.Load():
		c.opts.SampledLog.Warn("the source of tiers has not answered a question", zap.Error(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.peek(s)
	switch {
	case now != nil && now.change > f.change:
	case err == nil:
		h.subject.Tier = c.intern(h.subject.Tier)
		c.put(s, h)
	case errors.Is(err, ErrBadRecord):
		c.put(s, c.hold(now, f, s))
	}
	if c.flights[*s] == f {
		delete(c.flights, *s)
	}
	c.questions.add(known, -1)
	c.pace.end(known, c.now())
	f.held, f.err = h, err
	close(f.done)
}

// hold returns a copy of h, or an expired record if h is nil. The source is not asked for
// its key for UnknownTTL.
func (c *Cache) hold(h *held, f *flight, s *sum) *held {
	now := c.now()
	next := held{until: now - c.opts.Stale, asked: now, change: f.change} // never an answer
	if h != nil {
		next = *h
	}
	copy(next.verifier[:], s.verifier())
	var extra heldExtra
	if next.extra != nil {
		extra = *next.extra
	}
	extra.hold, extra.change = now+s.lifetime(c.opts.UnknownTTL, 0), f.change
	next.extra = &extra
	return &next
}

// maxTiers is how many names of tiers the records share.
const maxTiers = 1024

// intern returns a tier's name in memory that all records share. mu is held.
func (c *Cache) intern(tier string) string {
	if same, ok := c.tiers[tier]; ok {
		return same
	}
	tier = strings.Clone(tier)
	if len(c.tiers) < maxTiers {
		c.tiers[tier] = tier
	}
	return tier
}

// The values of Cache.news. Zero: there is nothing to log.
const (
	newsBack int32 = iota + 1
	newsGone
)

// switched is called by the breaker, which is locked meanwhile. So tell logs the change
// later.
func (c *Cache) switched(_ string, _, to gobreaker.State) {
	wasOpen := c.open.Swap(to != gobreaker.StateClosed)
	switch {
	case to == gobreaker.StateClosed:
		c.news.Store(newsBack)
	case !wasOpen:
		c.news.Store(newsGone)
	}
}

// tell logs the last change of the breaker.
func (c *Cache) tell() {
	switch c.news.Swap(0) {
	case newsBack:
		c.opts.Log.Info("the source of tiers answers again")
	case newsGone:
		c.opts.Log.Warn("the source of tiers does not answer and is not asked: cached subjects keep their tier, and tiers.on_error decides for all others",
			zap.Error(*c.cause.Load()))
	}
}
