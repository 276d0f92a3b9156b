package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// bubble runs a test with a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestCacheJitter(t *testing.T) {
	const n = 1000
	shortest, longest, soonest := time.Hour, time.Duration(0), 0
	for i := range n {
		s, _ := tier.SumOf(key(fmt.Sprint(i)))
		d := lifetime(&s, time.Minute, 0)
		shortest, longest = min(shortest, d), max(longest, d)
		if d < 57*time.Second {
			soonest++
		}
	}
	if shortest < 54*time.Second || shortest > 55*time.Second || longest > 66*time.Second || longest < 65*time.Second {
		t.Errorf("a ttl of 1m is between %v and %v, want 54s to 66s", shortest, longest)
	}
	if soonest < n/6 || soonest > n/3 {
		t.Errorf("%d of %d are in the first quarter, want them spread", soonest, n)
	}
}

// TestCacheMaxAge proves that the source may shorten the ttl, but not lengthen it.
func TestCacheMaxAge(t *testing.T) {
	for _, c := range []struct {
		maxAge   time.Duration
		min, max time.Duration
	}{
		{0, 54 * time.Second, 66 * time.Second},
		{time.Hour, 54 * time.Second, 66 * time.Second},
		{10 * time.Second, 9 * time.Second, 10 * time.Second},
		{-1, 0, 0},
	} {
		for i := range 100 {
			s, _ := tier.SumOf(key(fmt.Sprint(i)))
			if d := lifetime(&s, time.Minute, c.maxAge); d < c.min || d > c.max {
				t.Errorf("max-age %v: lifetime %v, want %v to %v", c.maxAge, d, c.min, c.max)
			}
		}
	}
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.records[digest("a")] = &tier.Record{Subject: &tier.Subject{ID: "acme", Tier: "free"}, MaxAge: -1}
		l := cache(t, f, nil)
		for range 3 {
			l.is(t, key("a"), "free", "")
			l.asks(t, f, 1)
		}
		f.do(func() { f.err = errDown })
		l.is(t, key("a"), "free", "stale")
	})
}

// TestCacheRefreshAhead proves that a key that is used often never waits for the source.
func TestCacheRefreshAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, l := acmeCached(t)
		f.do(func() { f.delay = time.Second / 2 })
		for range 1000 {
			time.Sleep(time.Second)
			began := time.Now()
			l.is(t, key("a"), "free", "")
			if time.Since(began) != 0 {
				t.Fatal("a request waited")
			}
		}
		if n := f.questions(); n < 1000/66 || n > 1000/43+1 {
			t.Errorf("%d questions in 1000 s, want one for each ttl less its last fifth", n)
		}
		if s := l.Stats(); s.Hits != 1000 || s.Asked != 1 {
			t.Errorf("%+v, want 1000 hits", s)
		}
	})
}

// TestCacheWait proves that a request waits no longer than it says, and that the next
// request gets the late answer.
func TestCacheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"), digest("b"), digest("c"))
		l := cache(t, f, nil)
		f.do(func() { f.delay = 100 * time.Millisecond })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		soon, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		for _, c := range []struct {
			key        string
			ctx        context.Context
			wait, want time.Duration
		}{
			{"c", soon, wait, 3 * time.Millisecond},
			{"a", t.Context(), wait, wait},
			{"a", t.Context(), 0, 0},
			{"b", ended, wait, 0},
		} {
			began := time.Now()
			a, ok := l.Resolve(c.ctx, key(c.key), c.wait)
			if got := time.Since(began); got != c.want {
				t.Errorf("%s waited %v, want %v", c.key, got, c.want)
			}
			if !ok || !a.Unavailable || a.Subject != nil || a.Stale {
				t.Errorf("%s got %+v, %v, want unavailable", c.key, a, ok)
			}
		}
		time.Sleep(100 * time.Millisecond)
		for _, k := range []string{"a", "b", "c"} {
			l.is(t, key(k), "free", "")
		}
		l.asks(t, f, 3)
	})
}

func TestCacheOneFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
		f.delay = wait / 2
		l := cache(t, f, nil)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { l.is(t, key("a"), "free", "") })
		}
		wg.Wait()
		l.asks(t, f, 1)
		if s := l.Stats(); s.Asked != 100 || s.Found != 1 {
			t.Errorf("%+v, want 100 answered by one question", s)
		}
	})
}

// TestCacheStale proves that an outage of the source changes nothing for known keys.
func TestCacheStale(t *testing.T) {
	for name, away := range map[string]func(*fake){
		"fails":  func(f *fake) { f.err = errDown },
		"slow":   func(f *fake) { f.delay = 20 * time.Millisecond },
		"silent": func(f *fake) { f.delay = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, l := acmeCached(t)
				l.is(t, key("z"), "no subject", "")
				time.Sleep(67 * time.Second)
				f.do(func() { away(f) })
				l.is(t, key("a"), "free", "stale")
				l.is(t, key("z"), "no subject", "stale")
				l.is(t, key("b"), "unavailable", "")
				if s := l.Stats(); s.Stale != 2 || s.Unavailable != 1 {
					t.Errorf("%+v, want 2 stale, 1 unavailable", s)
				}
				if name == "slow" {
					time.Sleep(20 * time.Millisecond)
					l.is(t, key("a"), "free", "")
					return
				}
				time.Sleep(time.Hour - 20*time.Second)
				l.is(t, key("a"), "free", "stale")
				time.Sleep(20 * time.Second)
				l.is(t, key("a"), "unavailable", "")
				f.do(func() { f.err, f.delay = nil, 0 })
				time.Sleep(2 * time.Second) // the question that tries may be under way
				l.is(t, key("a"), "free", "")
			})
		})
	}
}

// TestCacheBreaker proves that a source that fails is not asked, and that no request waits
// for it.
func TestCacheBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.err, f.delay = errDown, time.Millisecond
		l := cache(t, f, nil)
		for i := range 50 {
			began := time.Now()
			l.is(t, key(fmt.Sprint(i)), "unavailable", "")
			if i >= 5 && time.Since(began) != 0 {
				t.Error("a request waited for a source that is not asked")
			}
		}
		l.asks(t, f, 5)
		if s := l.Stats(); s.Errors != 5 || s.Refused != 45 || !s.Open {
			t.Errorf("%+v, want 5 errors, 45 refused", s)
		}
		for range 10 { // one question tries, each second
			time.Sleep(1001 * time.Millisecond)
			for i := range 10 {
				l.is(t, key(fmt.Sprint(i)), "unavailable", "")
			}
		}
		l.asks(t, f, 10)
		f.do(func() { f.err = nil })
		time.Sleep(1001 * time.Millisecond)
		l.is(t, key("a"), "no subject", "")
		l.is(t, key("b"), "no subject", "")
		if s := l.Stats(); s.Open {
			t.Errorf("%+v, want it to be asked", s)
		}
		var lines []string
		for _, e := range l.states.All() {
			lines = append(lines, e.Message)
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "does not answer") || !strings.Contains(lines[1], "answers again") {
			t.Errorf("log = %q, want a line for each change", lines)
		}
		if got := l.states.All()[0].ContextMap()["error"]; got != errDown.Error() {
			t.Errorf("error in the log = %v, want the cause", got)
		}
	})
}

// TestCacheBadRecord proves that a malformed record affects only its own key.
func TestCacheBadRecord(t *testing.T) {
	for name, spoil := range map[string]func(*fake){
		"error": func(f *fake) { f.err = fmt.Errorf("%w: row of acme: overrides: no JSON", tier.ErrBadRecord) },
		"no id": func(f *fake) {
			f.records = map[string]*tier.Record{digest("a"): {Subject: &tier.Subject{}}, digest("n"): {Subject: &tier.Subject{}}}
		},
		"no record": func(f *fake) { f.none = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, l := acmeCached(t)
				time.Sleep(67 * time.Second)
				f.do(func() { spoil(f) })
				l.asks(t, f, 1)
				for range 20 {
					l.is(t, key("a"), "free", "stale")
					l.is(t, key("n"), "unavailable", "")
				}
				l.asks(t, f, 2) // one for each key
				if s := l.Stats(); s.BadRecords != 2 || s.Open || s.Errors != 0 {
					t.Errorf("%+v, want 2 bad records", s)
				}
				if l.samples.FilterMessageSnippet("malformed record").Len() != 2 || l.states.Len() != 0 {
					t.Errorf("log = %v and %v, want a sampled line for each", l.samples.All(), l.states.All())
				}
				for i := range 10 { // the source answers, so other keys are still looked up
					_, err := l.Lookup(t.Context(), key(fmt.Sprint("more ", i)))
					if name == "error" && !errors.Is(err, tier.ErrBadRecord) {
						t.Errorf("Lookup = %v, want what the source said", err)
					}
				}
				l.asks(t, f, 10)
				time.Sleep(11 * time.Second)
				l.is(t, key("a"), "free", "stale")
				l.is(t, key("n"), "unavailable", "")
				l.asks(t, f, 2)
				// The record is repaired.
				f.do(func() { f.err, f.none, f.records = nil, false, make(map[string]*tier.Record) })
				f.set(tier.Subject{ID: "acme", Tier: "pro"}, digest("a"), digest("n"))
				l.is(t, key("a"), "free", "stale")
				l.Invalidate(tier.Change{ID: "acme"})
				l.is(t, key("a"), "pro", "")
				l.is(t, key("n"), "pro", "")
			})
		})
	}
}

// TestCacheFlood proves that unknown keys evict unknown keys only.
func TestCacheFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const subjects = 500
		f := newFake()
		for i := range subjects {
			f.set(tier.Subject{ID: fmt.Sprint(i), Tier: "free"}, digest(fmt.Sprint(i)))
		}
		l := cache(t, f, func(o *Options) {
			o.Unknown = 100
		})
		for i := range subjects {
			l.is(t, key(fmt.Sprint(i)), "free", "")
		}
		for i := range 20_000 {
			l.is(t, key(fmt.Sprint("made up ", i)), "no subject", "")
		}
		if known, unknown := l.records.known.EstimatedSize(), l.records.unknown.EstimatedSize(); known != subjects || unknown > 100 {
			t.Errorf("%d known and %d unknown keys, want %d and 100 at most", known, unknown, subjects)
		}
		l.asks(t, f, subjects+20_000)
		for i := range subjects {
			l.is(t, key(fmt.Sprint(i)), "free", "")
		}
		l.asks(t, f, 0)
	})
}

// TestCacheKeys proves that two digests with the same first half do not share a record, and that no
// source is asked for an invalid key.
func TestCacheKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		a := digest("a")
		b := a[:32] + digest("b")[32:]
		f.set(tier.Subject{ID: "acme", Tier: "free"}, a)
		l := cache(t, f, nil)
		l.is(t, tier.Key{Digest: a}, "free", "")
		l.is(t, tier.Key{Digest: b}, "no subject", "")
		for _, k := range []tier.Key{{}, {Digest: "x"}, {Digest: strings.Repeat("x", tier.DigestLen)}, {ID: strings.Repeat("i", tier.MaxText+1)}, {ID: "a\nb"}} {
			f.set(tier.Subject{ID: "evil", Tier: "pro"}, k.Digest+k.ID)
			l.is(t, k, "no subject", "")
		}
		var known []string
		for s := range l.Known() {
			known = append(known, s.ID)
		}
		if len(known) != 1 || known[0] != "acme" {
			t.Errorf("the cache knows %v, want acme alone", known)
		}
		// An id that looks like a digest is an id.
		l.is(t, tier.Key{ID: a}, "free", "")
		l.asks(t, f, 3)
	})
}

func TestCacheUnknownTier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "gold"}, digest("a"))
		f.set(tier.Subject{ID: "bolt", Tier: "free"}, digest("b"))
		f.set(tier.Subject{ID: "coil"}, digest("c"))
		f.set(tier.Subject{ID: "dyno", Tier: "free", Disabled: true}, digest("d"))
		l := cache(t, f, func(o *Options) { o.Names.Tier = func(tier string) bool { return tier == "free" } })
		l.is(t, key("a"), "gold", "")
		l.is(t, key("b"), "free", "")
		l.is(t, key("c"), "", "")
		if s := l.resolve(t, key("d")).Subject; s == nil || !s.Disabled {
			t.Errorf("got %+v, want one that is disabled", s)
		}
		if l.samples.Len() != 1 || l.samples.All()[0].ContextMap()["tier"] != "gold" {
			t.Errorf("log = %v, want the one unknown tier", l.samples.All())
		}
	})
}

func TestCacheLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
		l := cache(t, f, nil)
		look := func(want tier.Inspection) {
			t.Helper()
			got := l.Look(key("a"))
			if (got.Subject == nil) != (want.Subject == nil) || got.Cached != want.Cached || got.Fresh != want.Fresh || got.Age != want.Age {
				t.Errorf("Look = %+v, want %+v", got, want)
			}
		}
		some := &tier.Subject{}
		look(tier.Inspection{})
		l.is(t, key("a"), "free", "")
		time.Sleep(time.Second)
		look(tier.Inspection{Cached: true, Fresh: true, Subject: some, Age: time.Second})
		got, err := l.Lookup(t.Context(), key("a"))
		if err != nil || got.Age != 0 || got.Subject.ID != "acme" {
			t.Errorf("Lookup = %+v, %v, want it anew", got, err)
		}
		look(tier.Inspection{Cached: true, Fresh: true, Subject: some})
		time.Sleep(70 * time.Second)
		look(tier.Inspection{Cached: true, Subject: some, Age: 70 * time.Second})
		f.do(func() { f.err = errDown })
		got, err = l.Lookup(t.Context(), key("a"))
		if !errors.Is(err, errDown) || got.Age != 70*time.Second {
			t.Errorf("Lookup = %+v, %v, want what is held and why", got, err)
		}
		f.do(func() { f.err, f.delay = nil, time.Minute })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err = l.Lookup(ctx, key("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lookup = %v, want that it took too long", err)
		}
		if _, err = l.Lookup(ctx, tier.Key{Digest: "x"}); err == nil {
			t.Error("Lookup of what is no key succeeds")
		}
		time.Sleep(2 * time.Hour)
		look(tier.Inspection{})
		l.asks(t, f, 4)
		if s := l.Stats(); s.Hits+s.NegativeHits+s.Asked+s.Stale+s.Unavailable != 1 {
			t.Errorf("%+v, want one request", s)
		}
	})
}

// TestCachePlainKey proves that only the source gets the key itself, even if the source
// repeats it.
func TestCachePlainKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const plain = "sk-test-distinctive"
		f := newFake()
		l := cache(t, f, nil)
		k := tier.Key{Digest: digest(plain), Plain: plain}
		var texts []string
		for _, err := range []error{
			fmt.Errorf("cannot use %q", plain), fmt.Errorf("%w: body says %s", tier.ErrBadRecord, plain),
			errDown, errDown, errDown, errDown, fmt.Errorf("refused: %s", plain), nil, nil,
		} {
			f.do(func() { f.err = err })
			l.Invalidate(tier.Change{})
			_, err := l.Lookup(t.Context(), k)
			texts = append(texts, fmt.Sprintf("%v %+v %#v", err, err, err))
		}
		if f.asked[0].key.Plain != plain {
			t.Error("the source was not told the key")
		}
		for _, e := range append(l.states.All(), l.samples.All()...) {
			texts = append(texts, fmt.Sprintf("%s %+v", e.Message, e.ContextMap()))
		}
		h := l.peek(func() *tier.Sum { s, _ := tier.SumOf(k); return &s }())
		texts = append(texts, fmt.Sprintf("%+v %+v", h, l.Stats()))
		for _, text := range texts {
			if strings.Contains(text, plain) {
				t.Errorf("the key is in %q", text)
			}
		}
		if !strings.Contains(texts[0], "(API key)") || !strings.Contains(strings.Join(texts, "\n"), "has failed") {
			t.Errorf("texts = %q, want all kinds of errors", texts)
		}
	})
}

// TestCacheJustAnswered proves that a request does not ask if another question for its key
// has just ended.
func TestCacheJustAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
		l := cache(t, f, nil)
		s, _ := tier.SumOf(key("a"))
		seen := l.peek(&s)
		l.is(t, key("a"), "free", "")
		q, err := l.ask(key("a"), &s, seen, first)
		if err != nil || !q.wait(t.Context(), 0) || q.record.subject.ID != "acme" {
			t.Errorf("ask = %+v, %v, want what is held", q, err)
		}
		l.asks(t, f, 1)
	})
}

// TestCacheClose proves that Close ends questions, and that these do not count as failures
// of the source.
func TestCacheClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		l := cache(t, f, nil)
		l.is(t, key("a"), "no subject", "")
		f.delay = time.Hour
		for i := range 10 {
			l.Resolve(t.Context(), key(fmt.Sprint("k", i)), 0)
		}
		synctest.Wait()
		began := time.Now()
		if err := l.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("Close = %v after %v, want it at once", err, time.Since(began))
		}
		if !f.closed {
			t.Error("the source is open still")
		}
		l.is(t, key("a"), "no subject", "")
		l.is(t, key("b"), "unavailable", "")
		if s := l.Stats(); s.Open || s.Errors+s.Timeouts != 0 || l.underWay() != 0 || l.states.Len()+l.samples.Len() != 0 {
			t.Errorf("%+v, log = %v %v, want no failure", s, l.states.All(), l.samples.All())
		}
	})
}

func TestCacheSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var got []float64
		f := newFake()
		f.delay = wait / 5
		l := cache(t, f, func(o *Options) { o.SourceSeconds = func(s float64) { got = append(got, s) } })
		l.is(t, key("a"), "no subject", "")
		if len(got) != 1 || got[0] != (wait/5).Seconds() {
			t.Errorf("questions took %v, want one of 1ms", got)
		}
	})
}

// TestCacheWithoutLogs proves that a cache needs no logs.
func TestCacheWithoutLogs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.err = errDown
		l := cache(t, f, func(o *Options) { o.Log, o.SampledLog = nil, (*zap.Logger)(nil) })
		for range 10 {
			l.is(t, key("a"), "unavailable", "")
		}
	})
}

// TestCacheIDsAreNoKeys proves that no API key has the sum of an id as its digest. Without
// a salt, "id\x00acme" would have.
func TestCacheIDsAreNoKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "pro"}, "acme")
		l := cache(t, f, nil)
		for _, madeUp := range []string{"id\x00acme", "acme", "id.acme"} {
			l.is(t, tier.Key{ID: "acme"}, "pro", "")
			l.is(t, key(madeUp), "no subject", "")
			l.is(t, tier.Key{ID: "acme"}, "pro", "")
		}
		l.asks(t, f, 4)
	})
}

// TestCachePlainKeys proves that a source that needs the key itself is not asked without
// it, and that this is no failure of the source.
func TestCachePlainKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "pro"}, digest("a"), "acme")
		l := cache(t, f, func(o *Options) { o.PlainKeys = true })
		for range 50 {
			l.is(t, tier.Key{Digest: digest("")}, "unavailable", "")
			l.is(t, tier.Key{Digest: digest("a")}, "unavailable", "")
		}
		if _, err := l.Lookup(t.Context(), tier.Key{Digest: digest("a")}); err == nil || !strings.Contains(err.Error(), "by its id") {
			t.Errorf("Lookup by a digest: %v, want what to do", err)
		}
		l.asks(t, f, 0)
		l.is(t, tier.Key{Digest: digest("a"), Plain: "a"}, "pro", "")
		l.is(t, tier.Key{Digest: digest("a")}, "pro", "") // the cache holds it
		l.is(t, tier.Key{ID: "acme"}, "pro", "")
		l.asks(t, f, 2)
		time.Sleep(time.Hour / 2)
		l.is(t, tier.Key{Digest: digest("a")}, "pro", "stale")
		l.asks(t, f, 0)
		if s := l.Stats(); s.Open || s.Refused+s.Errors != 0 {
			t.Errorf("%+v, want no failure", s)
		}
	})
}

// slowLog is a log whose writes block.
type slowLog struct {
	zapcore.LevelEnabler
	wrote chan struct{}
}

func (slowLog) With([]zapcore.Field) zapcore.Core { return nil }

func (s slowLog) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.AddCore(e, s)
}

func (s slowLog) Write(zapcore.Entry, []zapcore.Field) error {
	s.wrote <- struct{}{}
	time.Sleep(time.Hour)
	return nil
}

func (slowLog) Sync() error { return nil }

// TestCacheSlowLog proves that no request waits for the log.
func TestCacheSlowLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.err = errDown
		log := slowLog{zapcore.InfoLevel, make(chan struct{}, 1)}
		l := cache(t, f, func(o *Options) { o.Log = zap.New(log) })
		for i := range 20 {
			began := time.Now()
			l.is(t, key(fmt.Sprint(i)), "unavailable", "")
			if waited := time.Since(began); waited > wait {
				t.Fatalf("waited %v", waited)
			}
		}
		<-log.wrote
	})
}

// panicky is a source that panics.
type panicky struct{ *fake }

func (panicky) Lookup(context.Context, tier.Key) (*tier.Record, error) { panic("a key, maybe") }

func TestCacheSourcePanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		panics := 0
		l := cache(t, panicky{newFake()}, func(o *Options) { o.Panicked = func() { panics++ } })
		l.is(t, key("a"), "unavailable", "")
		if s := l.Stats(); panics != 1 || s.BadRecords != 1 || s.Open {
			t.Errorf("%d panics, %+v, want one of one key", panics, s)
		}
		for _, e := range append(l.states.All(), l.samples.All()...) {
			if strings.Contains(fmt.Sprint(e), "a key, maybe") {
				t.Errorf("the log has what the panic held: %v", e)
			}
		}
	})
}

func TestCacheUnknownRules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free", Extra: &tier.Extra{Overrides: map[string]tier.Override{"per-key": {}, "perkey": {}}}}, digest("a"))
		l := cache(t, f, func(o *Options) { o.Names.Rule = func(rule string) bool { return rule == "per-key" } })
		l.is(t, key("a"), "free", "")
		logged := l.samples.FilterField(zap.String("rule", "perkey")).Len()
		if logged != 1 || l.samples.Len() != 1 {
			t.Errorf("%v, want one unknown rule", l.samples.All())
		}
	})
}

// TestCacheLookupOfWhatMayNotBeKept proves that Lookup returns a record that the source
// does not allow to keep.
func TestCacheLookupOfWhatMayNotBeKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
		f.do(func() { f.records[digest("a")].MaxAge = -time.Second })
		l := cache(t, f, func(o *Options) { o.Stale = 0 })
		i, err := l.Lookup(t.Context(), key("a"))
		if err != nil || !i.Cached || i.Subject == nil || i.Subject.ID != "acme" || i.Fresh {
			t.Errorf("%+v, %v, want acme, which is not kept", i, err)
		}
	})
}
