package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("connection refused")

// fake is a source whose answers a test sets.
type fake struct {
	mu      sync.Mutex
	records map[string]*tier.Record // by digest or id
	err     error                   // the error of each question
	delay   time.Duration           // how long a question takes
	none    bool                    // it returns neither a record nor an error
	closed  bool

	asked   []question
	under   map[string]int // questions under way
	atOnce  int            // the largest number for one key
	watches chan *watch
}

type question struct {
	at  time.Time
	key tier.Key
}

// watch is one call of Watch.
type watch struct {
	ready   func()
	changed func(tier.Change)
	end     chan error
}

func newFake() *fake {
	return &fake{records: make(map[string]*tier.Record), under: make(map[string]int), watches: make(chan *watch)}
}

func (f *fake) Lookup(ctx context.Context, k tier.Key) (*tier.Record, error) {
	name := k.Digest + k.ID
	f.mu.Lock()
	f.asked = append(f.asked, question{time.Now(), k})
	f.under[name]++
	f.atOnce = max(f.atOnce, f.under[name])
	delay, err, r := f.delay, f.err, f.records[name]
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.under[name]--
		f.mu.Unlock()
	}()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case err != nil:
		return nil, err
	case f.none:
		return nil, nil
	case r == nil:
		return &tier.Record{}, nil
	}
	return r, nil
}

func (f *fake) Close() error {
	f.closed = true
	return nil
}

// set gives keys to a subject.
func (f *fake) set(s tier.Subject, keys ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		f.records[k] = &tier.Record{Subject: &s}
	}
}

func (f *fake) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// questions returns how many there were.
func (f *fake) questions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// watched is a fake that reports changes.
type watched struct{ *fake }

func (f watched) Watch(ctx context.Context, ready func(), changed func(tier.Change)) error {
	w := &watch{ready, changed, make(chan error)}
	select {
	case f.watches <- w:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-w.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// digest returns the digest of an API key.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func key(apiKey string) tier.Key { return tier.Key{Digest: digest(apiKey)} }

const wait = 5 * time.Millisecond

// options returns the options of most tests.
func options(s tier.Source) Options {
	return Options{
		Source: s, Timeout: time.Second, Questions: 1024,
		Subjects: 1000, Unknown: 100,
		TTL: time.Minute, UnknownTTL: 10 * time.Second, Stale: time.Hour,
		Breaker: Breaker{Failures: 5, Retry: time.Second},
	}
}

// logged is a cache with its two logs.
type logged struct {
	*Cache
	states, samples *observer.ObservedLogs
}

// cache returns a cache that is closed when the test ends. change may change the options.
func cache(t *testing.T, s tier.Source, change func(*Options)) logged {
	t.Helper()
	o := options(s)
	var l logged
	var core zapcore.Core
	core, l.states = observer.New(zap.InfoLevel)
	o.Log = zap.New(core)
	core, l.samples = observer.New(zap.InfoLevel)
	o.SampledLog = zap.New(core)
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	l.Cache = c
	return l
}

// underWay returns how many look-ups wait or are under way.
func (l logged) underWay() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flights)
}

// resolve resolves a key as a request does.
func (l logged) resolve(t *testing.T, k tier.Key) tier.Answer {
	t.Helper()
	a, ok := l.Resolve(t.Context(), k, wait)
	if !ok {
		t.Error("Resolve may wait and has no answer")
	}
	return a
}

// is fails unless the answer for k has that tier. tier may also be "no subject" or
// "unavailable". flags is "" or "stale".
func (l logged) is(t *testing.T, k tier.Key, tier, flags string) {
	t.Helper()
	a := l.resolve(t, k)
	got := "no subject"
	switch {
	case a.Unavailable:
		got = "unavailable"
	case a.Subject != nil:
		got = a.Subject.Tier
	}
	if got != tier || a.Stale != (flags == "stale") {
		t.Errorf("got %s, stale %v, want %s %s", got, a.Stale, tier, flags)
	}
}

// asks fails unless the source got so many questions since the last call of asks.
func (l logged) asks(t *testing.T, f *fake, want int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := len(f.asked); got != want {
		t.Errorf("%d questions, want %d", got, want)
	}
	f.asked = nil
}

// acmeCached returns a source with the key a of acme, and a cache that has looked it up.
func acmeCached(t *testing.T) (*fake, logged) {
	t.Helper()
	f := newFake()
	f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
	l := cache(t, f, nil)
	l.is(t, key("a"), "free", "")
	return f, l
}
