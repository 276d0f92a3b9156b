package tier

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
)

// CacheOptions are what a [Cache] needs. All are required but those that say so.
type CacheOptions struct {
	Source Source
	// Timeout bounds one question to the source.
	Timeout time.Duration
	// LookupsPerSecond is how many questions are asked in a second at most.
	LookupsPerSecond int
	// Subjects is how many records of known keys are held at most, Unknown of keys
	// that nobody has.
	Subjects, Unknown int
	// TTL is how long a record counts without being asked for again, UnknownTTL the
	// same for a key that nobody has. Each record's own is up to a tenth longer or
	// shorter.
	TTL, UnknownTTL time.Duration
	// Stale is how long after that a record still counts while the source cannot say.
	// Zero: not at all.
	Stale time.Duration
	// Failures in a row make the source be left alone. After Retry one question tries.
	Failures int
	Retry    time.Duration
	// Questions is how many questions are under way at most, of which a fifth is kept
	// for known keys. It should be no more than the source answers within Timeout, or
	// keys that somebody makes up have questions time out. Zero: 1024.
	Questions int
	// PlainKeys: the source is asked by API keys themselves, so that nobody is asked
	// for by a digest alone.
	PlainKeys bool
	// KnownTier reports whether rules know a tier. nil: they know all. A record with
	// another one is counted and logged, and counts.
	KnownTier func(tier string) bool
	// KnownRule reports whether a rule has a name. nil: all have. An override of
	// another one is counted and logged.
	KnownRule func(name string) bool
	// Panicked is told that the source did. May be nil.
	Panicked func()
	// SourceSeconds is told how long each question took. May be nil.
	SourceSeconds func(seconds float64)
	// Log gets a line for each change of state, SampledLog what single records and
	// questions say. nil: none.
	Log, SampledLog *zap.Logger
}

// defaultQuestions is CacheOptions.Questions where that is zero.
const defaultQuestions = 1024

// Cache is a [Resolver] in front of a [Source]. It is safe for concurrent use; make
// one with [NewCache]. The manual of the package says who waits how long and what is
// answered when.
type Cache struct {
	opts  CacheOptions
	start time.Time
	// Apart, so that a flood of made-up keys pushes out none but themselves.
	known, unknown *otter.Cache[selector, *held]

	// What has changed, by the number of the change. mu is held to write.
	changes    atomic.Uint64
	everything atomic.Uint64
	anyID      atomic.Uint64
	changed    [stripes]atomic.Uint64
	seed       maphash.Seed

	mu        sync.Mutex // never held while the source is asked, nor while a log is written
	closed    bool
	flights   map[sum]*flight
	questions share
	pace      pace
	tiers     map[string]string

	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	open    atomic.Bool
	cause   atomic.Pointer[error] // of the last failure

	news     atomic.Int32 // of the breaker, that is to be logged
	watching atomic.Bool
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	count    counters
}

var _ Resolver = (*Cache)(nil)

// NewCache returns a cache that holds nothing yet. It asks the source nothing before
// it is asked itself. [Cache.Close] closes the source too.
func NewCache(o CacheOptions) (*Cache, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.SampledLog == nil {
		o.SampledLog = zap.NewNop()
	}
	c := &Cache{
		opts:    o,
		start:   time.Now(),
		seed:    maphash.MakeSeed(),
		flights: make(map[sum]*flight),
		pace:    newPace(o.LookupsPerSecond),
		tiers:   make(map[string]string),
	}
	if c.opts.Questions == 0 {
		c.opts.Questions = defaultQuestions
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	var err error
	if c.known, err = newRecords(o.Subjects); err != nil {
		return nil, err
	}
	if c.unknown, err = newRecords(o.Unknown); err != nil {
		return nil, err
	}
	c.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:       o.Retry,
		ReadyToTrip:   func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= uint32(o.Failures) },
		IsSuccessful:  func(err error) bool { return err == nil || errors.Is(err, ErrBadRecord) },
		IsExcluded:    func(error) bool { return c.ctx.Err() != nil },
		OnStateChange: c.switched,
	})
	return c, nil
}

func (o *CacheOptions) validate() error {
	if o.Source == nil {
		return errors.New("a cache needs a source")
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"Timeout", int64(o.Timeout)},
		{"LookupsPerSecond", int64(o.LookupsPerSecond)},
		{"Subjects", int64(o.Subjects)},
		{"Unknown", int64(o.Unknown)},
		{"TTL", int64(o.TTL)},
		{"UnknownTTL", int64(o.UnknownTTL)},
		{"Failures", int64(o.Failures)},
		{"Retry", int64(o.Retry)},
		{"Stale", int64(o.Stale) + 1},         // zero will do
		{"Questions", int64(o.Questions) + 1}, // and here
	} {
		if n.value <= 0 {
			return fmt.Errorf("%s is too small for a cache", n.name)
		}
	}
	return nil
}

func newRecords(most int) (*otter.Cache[selector, *held], error) {
	return otter.New(&otter.Options[selector, *held]{
		MaximumSize: most,
		// What it has to tidy up is little, and no goroutine is to outlive Close.
		Executor: func(f func()) { f() },
	})
}

func (c *Cache) now() time.Duration { return time.Since(c.start) }

// Resolve implements [Resolver]. If the cache holds a record that still counts, Resolve
// neither waits nor allocates.
func (c *Cache) Resolve(ctx context.Context, k Key, wait time.Duration) (a Answer, ok bool) {
	s, ok := sumOf(k)
	if !ok {
		c.count.negativeHits.Add(1)
		return Answer{}, true // no source can know it
	}
	now, h := c.now(), c.get(&s)
	if a, ok = c.fromMemory(k, &s, h, now); ok || wait < 0 {
		return a, ok
	}
	f, err := c.ask(k, &s, h)
	if h != nil && now < h.until+c.opts.Stale && c.breaker.State() == gobreaker.StateOpen {
		wait = 0 // the question is from before that: there is little hope, and something to answer
	}
	if err != nil || !f.wait(ctx, wait) || f.err != nil {
		return c.without(h), true
	}
	c.count.asked.Add(1)
	return f.held.answer(), true
}

// fromMemory answers by the record h, which may be nil. It reports false if the source
// must be asked first.
func (c *Cache) fromMemory(k Key, s *sum, h *held, now time.Duration) (a Answer, ok bool) {
	switch {
	case h == nil:
	case c.fresh(h, s, now):
		if !h.known() {
			c.count.negativeHits.Add(1)
			return Answer{}, true
		}
		if now >= h.ahead() {
			c.refresh(k, s, h, now)
		}
		c.count.hits.Add(1)
		return h.answer(), true
	case c.onHold(h, s, now):
		return c.without(h), true
	}
	if c.mute(k) {
		return c.without(h), true
	}
	return Answer{}, false
}

// mute reports whether the source cannot be asked for a key: by an empty one, or by
// a digest alone where it wants the key.
func (c *Cache) mute(k Key) bool { return c.opts.PlainKeys && k.Digest != "" && k.Plain == "" }

// without answers while the source cannot say, by the record that is held, if any.
func (c *Cache) without(h *held) Answer {
	if h != nil {
		if now := c.now(); now < h.until+c.opts.Stale {
			c.count.stale.Add(1)
			c.count.staleAge.Store(int64(now - h.asked))
			a := h.answer()
			a.Stale = true
			return a
		}
	}
	c.count.unavailable.Add(1)
	return Answer{Unavailable: true}
}

// refresh asks for a record that counts still, unless there is something to wait for.
func (c *Cache) refresh(k Key, s *sum, h *held, now time.Duration) {
	if c.mute(k) || c.onHold(h, s, now) || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	_, _ = c.askLocked(k, s, h)
}

// An Inspection is what a cache holds of a key.
type Inspection struct {
	// Held: there is a record that counts, at least while the source cannot say.
	// Otherwise the rest is zero.
	Held bool
	// Subject is nil if nobody has the key.
	Subject *Subject
	// Age is the time since the source was asked.
	Age time.Duration
	// Fresh: the next request is answered by it without asking.
	Fresh bool
}

// Look says what is held of a key. It asks nobody, and is no request.
func (c *Cache) Look(k Key) Inspection {
	s, ok := sumOf(k)
	if !ok {
		return Inspection{}
	}
	return c.inspect(c.peek(&s), &s)
}

func (c *Cache) inspect(h *held, s *sum) Inspection {
	now := c.now()
	if h == nil || now >= h.until+c.opts.Stale {
		return Inspection{}
	}
	return Inspection{Held: true, Subject: h.answer().Subject, Age: now - h.asked, Fresh: c.fresh(h, s, now)}
}

// Lookup asks the source for a key, whatever is held of it, and waits until it
// answers, fails, or ctx ends. With an error it returns what Look does.
func (c *Cache) Lookup(ctx context.Context, k Key) (Inspection, error) {
	s, ok := sumOf(k)
	if !ok {
		return Inspection{}, errors.New("the key is neither a digest of 64 hexadecimal digits nor the id of a subject")
	}
	if c.mute(k) {
		return c.Look(k), errors.New("the source is asked by API keys themselves, and here is only a digest; ask for the subject by its id")
	}
	f, err := c.ask(k, &s, c.peek(&s))
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
	h := f.held // which counts, even if the source allows no record to
	return Inspection{Held: true, Subject: h.answer().Subject, Age: c.now() - h.asked, Fresh: c.fresh(h, &s, c.now())}, nil
}

// Close ends the questions that are under way and closes the source. What is held is
// answered still. [Cache.Run] must have returned.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	err := c.opts.Source.Close()
	c.wg.Wait()
	return err
}
