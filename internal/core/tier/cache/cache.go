package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// Options are the options of a [Cache]. All are required unless their comment has a default.
type Options struct {
	Source tier.Source
	// Timeout bounds one question to the source.
	Timeout time.Duration
	// Subjects is how many records of known keys the cache holds at most, and Unknown
	// how many of unknown keys.
	Subjects, Unknown int
	// TTL is how long the record of a known key is valid, and UnknownTTL that of an
	// unknown key. The time of each record is up to a tenth longer or shorter.
	TTL, UnknownTTL time.Duration
	// Stale is how long after that the record is still an answer while the source does
	// not answer. Zero: not at all.
	Stale time.Duration
	// Breaker says when the cache stops asking a source that fails.
	Breaker Breaker
	// Questions is how many questions are under way at most. A quarter of them is
	// reserved for keys with an earlier answer, and a quarter for all others. Zero: 4.
	Questions int
	// PlainKeys says that the source needs the API key itself. Without the key the
	// cache does not ask it.
	PlainKeys bool
	// Names says which tiers and rules there are.
	Names Names
	// Panicked is called after a panic of the source. It may be nil.
	Panicked func()
	// SourceSeconds observes how long each question took. It may be nil.
	SourceSeconds func(seconds float64)
	// Log gets a line when the source fails or recovers. SampledLog gets lines about
	// single records and questions. Nil disables them.
	Log, SampledLog *zap.Logger
}

// Breaker says when a cache stops asking: after so many Failures in a row it asks the source
// nothing for Retry. Then it tries one question.
type Breaker struct {
	Failures int
	Retry    time.Duration
}

// Names says which names in records there are. A nil function knows all names.
type Names struct {
	// Tier reports whether the rules have a tier. A record with an unknown tier is logged, and is
	// valid.
	Tier func(tier string) bool
	// Rule reports whether there is a rule with a name. An override of an unknown rule is logged.
	Rule func(name string) bool
}

const (
	// defaultQuestions is Options.Questions where that is zero.
	defaultQuestions = 4
	// maxWaiting is how many look-ups of each class wait at most. Each takes about
	// 400 bytes.
	maxWaiting = 1 << 15
)

// Cache is a [tier.Resolver] in front of a [tier.Source]. It is safe for concurrent use; make
// one with [New]. The package comment says how long requests wait and what they
// get.
type Cache struct {
	opts    Options
	start   time.Time
	records records
	changes changeNumbers

	mu      sync.Mutex // not locked during a question or while a log line is written
	closed  bool
	flights map[tier.Sum]*flight
	queue   queue
	batch   int // the most keys of one question

	health   health
	watching atomic.Bool
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	count    counters
}

// records are what a cache holds. There are two caches, so that a flood of unknown keys evicts
// unknown keys only.
type records struct {
	known, unknown *otter.Cache[tier.Sum, *cacheRecord]
}

// health says whether the source is asked.
type health struct {
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	open    atomic.Bool
	cause   atomic.Pointer[error] // of the last failure
	logged  atomic.Bool           // the last line about it says open
}

// changeNumbers have the number of the last change: of all, of all records, of any subject, and of each
// stripe. Writers hold Cache.mu.
type changeNumbers struct {
	last       atomic.Uint64
	everything atomic.Uint64
	anyID      atomic.Uint64
	changed    [stripes]atomic.Uint64
	seed       maphash.Seed
}

var _ tier.Resolver = (*Cache)(nil)

// New returns an empty cache. [Cache.Close] closes the source too.
func New(o Options) (*Cache, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.SampledLog == nil {
		o.SampledLog = zap.NewNop()
	}
	c := &Cache{
		opts:    o,
		start:   time.Now(),
		flights: make(map[tier.Sum]*flight),
		batch:   1,
	}
	c.changes.seed = maphash.MakeSeed()
	c.queue.slots = cmp.Or(o.Questions, defaultQuestions)
	known, unknown := min(o.Subjects, maxWaiting), min(o.Unknown, maxWaiting)
	c.queue.most = [begun]int{ahead: known, first: unknown, again: unknown, expired: known}
	if b, ok := o.Source.(tier.Batcher); ok {
		c.batch = max(1, b.Batch())
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	var err error
	if c.records.known, err = newRecords(o.Subjects); err != nil {
		return nil, err
	}
	if c.records.unknown, err = newRecords(o.Unknown); err != nil {
		return nil, err
	}
	c.health.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:       o.Breaker.Retry,
		ReadyToTrip:   func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= uint32(o.Breaker.Failures) },
		IsSuccessful:  func(err error) bool { return err == nil || errors.Is(err, tier.ErrBadRecord) },
		IsExcluded:    func(error) bool { return c.ctx.Err() != nil },
		OnStateChange: c.switched,
	})
	return c, nil
}

func newRecords(most int) (*otter.Cache[tier.Sum, *cacheRecord], error) {
	return otter.New(&otter.Options[tier.Sum, *cacheRecord]{
		MaximumSize: most,
		// Its maintenance is short. In a goroutine it could run after Close.
		Executor: func(f func()) { f() },
	})
}

func (c *Cache) now() time.Duration { return time.Since(c.start) }

// Resolve implements [tier.Resolver]. If the cache holds a record that still counts, Resolve
// neither waits nor allocates.
func (c *Cache) Resolve(ctx context.Context, k tier.Key, wait time.Duration) (a tier.Answer, ok bool) {
	s, ok := tier.SumOf(k)
	if !ok {
		c.count.negativeHits.Add(1)
		return tier.Answer{}, true // no source can know it
	}
	now, h := c.now(), c.get(&s)
	a, ok = c.fromMemory(k, &s, h, now)
	switch {
	case ok:
		return a, true
	case wait == tier.OnlyKnown && h != nil && h.known():
		wait = 0
	case wait < 0:
		return a, false
	}
	f, err := c.ask(k, &s, h, first)
	if h != nil && now < h.until+c.opts.Stale && c.health.breaker.State() == gobreaker.StateOpen {
		wait = 0 // the breaker opened after the question began, and h is an answer
	}
	if err != nil || !f.wait(ctx, wait) || f.err != nil {
		return c.withoutSource(h), true
	}
	c.count.asked.Add(1)
	return f.record.answer(), true
}

// fromMemory answers by the record h, which may be nil. It reports false if the source
// must be asked first.
func (c *Cache) fromMemory(k tier.Key, s *tier.Sum, h *cacheRecord, now time.Duration) (a tier.Answer, ok bool) {
	switch {
	case h == nil:
	case c.fresh(h, s, now):
		if !h.known() {
			c.count.negativeHits.Add(1)
			return tier.Answer{}, true
		}
		if now >= h.ahead() {
			c.refresh(k, s, h, now)
		}
		c.count.hits.Add(1)
		return h.answer(), true
	case c.paused(h, s, now):
		return c.withoutSource(h), true
	}
	if c.lacksKey(k) {
		return c.withoutSource(h), true
	}
	return tier.Answer{}, false
}

// lacksKey reports whether the source cannot be asked, because it needs the API key
// itself and k has only the digest.
func (c *Cache) lacksKey(k tier.Key) bool { return c.opts.PlainKeys && k.Digest != "" && k.Plain == "" }

// withoutSource answers while the source does not, by the record h, which may be nil.
func (c *Cache) withoutSource(h *cacheRecord) tier.Answer {
	if h != nil {
		if now := c.now(); now < h.until+c.opts.Stale {
			c.count.stale.Add(1)
			a := h.answer()
			a.Stale = true
			return a
		}
	}
	c.count.unavailable.Add(1)
	return tier.Answer{Unavailable: true}
}

// refresh asks the source for a record that is still valid, unless mu is busy.
func (c *Cache) refresh(k tier.Key, s *tier.Sum, h *cacheRecord, now time.Duration) {
	if c.lacksKey(k) || c.paused(h, s, now) || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	_, _ = c.askLocked(k, s, h, ahead)
}

// Known iterates over the subjects whose records the cache holds, in no order. A subject with several
// keys comes several times.
func (c *Cache) Known() iter.Seq[*tier.Subject] {
	return func(yield func(*tier.Subject) bool) {
		for h := range c.records.known.Values() {
			if !yield(&h.subject) {
				return
			}
		}
	}
}

// Look returns what the cache holds for a key. It asks no source and counts nothing.
func (c *Cache) Look(k tier.Key) tier.Inspection {
	s, ok := tier.SumOf(k)
	if !ok {
		return tier.Inspection{}
	}
	return c.inspect(c.peek(&s), &s)
}

func (c *Cache) inspect(h *cacheRecord, s *tier.Sum) tier.Inspection {
	now := c.now()
	if h == nil || now >= h.until+c.opts.Stale {
		return tier.Inspection{}
	}
	return tier.Inspection{Cached: true, Subject: h.answer().Subject, Age: now - h.asked, Fresh: c.fresh(h, s, now)}
}

// Lookup asks the source for a key even if the cache holds a record. It waits until the
// source answers or fails, or ctx ends. With an error it returns what Look returns.
func (c *Cache) Lookup(ctx context.Context, k tier.Key) (tier.Inspection, error) {
	s, ok := tier.SumOf(k)
	if !ok {
		return tier.Inspection{}, errors.New("the key is neither a digest of 64 hexadecimal digits nor the id of a subject")
	}
	if c.lacksKey(k) {
		return c.Look(k), errors.New("the source is asked by API keys themselves, and here is only a digest; ask for the subject by its id")
	}
	f, err := c.ask(k, &s, c.peek(&s), again)
	if err != nil {
		return c.Look(k), err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return c.Look(k), fmt.Errorf("the source has not answered: %w", ctx.Err())
	}
	if f.err != nil {
		return c.Look(k), f.err
	}
	h := f.record // an answer, even if the source allows to keep no record
	return tier.Inspection{Cached: true, Subject: h.answer().Subject, Age: c.now() - h.asked, Fresh: c.fresh(h, &s, c.now())}, nil
}

// Close ends the questions that are under way and closes the source. Resolve still
// answers by the records that the cache holds. [Cache.Run] must have returned.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	for class := range begun {
		for _, f := range c.queue.shiftAll(maxWaiting, class) {
			c.end(f, nil, errClosed)
		}
	}
	c.mu.Unlock()
	c.cancel()
	err := c.opts.Source.Close()
	c.wg.Wait()
	return err
}
