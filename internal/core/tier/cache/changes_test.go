package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// TestCacheInvalidate proves that the next request asks for a changed record, and for no
// other.
func TestCacheInvalidate(t *testing.T) {
	keys := []tier.Key{key("a1"), key("a2"), {ID: "acme"}, key("b"), key("z"), {ID: "zeta"}}
	for name, c := range map[string]struct {
		change tier.Change
		asked  []int // of keys
	}{
		"digest":         {tier.Change{Digest: digest("a1")}, []int{0}},
		"unknown digest": {tier.Change{Digest: digest("z")}, []int{4}},
		// The subject may have got the unknown key.
		"id":         {tier.Change{ID: "acme"}, []int{0, 1, 2, 4, 5}},
		"other id":   {tier.Change{ID: "coil"}, []int{4, 5}},
		"both":       {tier.Change{Digest: digest("b"), ID: "acme"}, []int{0, 1, 2, 3, 4, 5}},
		"everything": {tier.Change{}, []int{0, 1, 2, 3, 4, 5}},
		"no digest":  {tier.Change{Digest: "rubbish"}, []int{0, 1, 2, 3, 4, 5}},
		"rubbish":    {tier.Change{Digest: "rubbish", ID: "coil"}, []int{0, 1, 2, 3, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFake()
				f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a1"), digest("a2"), "acme")
				f.set(tier.Subject{ID: "bolt", Tier: "free"}, digest("b"))
				l := cache(t, f, nil)
				// All of these are in stripes of their own.
				for l.ofID("acme") == l.ofID("bolt") || l.ofID("coil") == l.ofID("acme") || l.ofID("coil") == l.ofID("bolt") {
					l = cache(t, f, nil)
				}
				for _, k := range keys {
					l.resolve(t, k)
				}
				l.asks(t, f, len(keys))
				l.Invalidate(c.change)
				for range 2 {
					for _, k := range keys {
						l.resolve(t, k)
					}
				}
				var got []int
				for _, q := range f.asked {
					for i, k := range keys {
						if k == q.key {
							got = append(got, i)
						}
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(c.asked) {
					t.Errorf("asked for %v, want %v", got, c.asked)
				}
			})
		})
	}
}

// TestCacheInvalidateDown proves that a changed record is a stale answer while the source
// does not answer.
func TestCacheInvalidateDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, l := acmeCached(t)
		f.do(func() { f.err = errDown })
		for _, ch := range []tier.Change{{Digest: digest("a")}, {ID: "acme"}, {}} {
			l.Invalidate(ch)
			l.is(t, key("a"), "free", "stale")
		}
	})
}

// TestCacheInvalidateUnderWay proves that the answer to a question from before a change
// does not count after it, in any order of answers.
func TestCacheInvalidateUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		change        tier.Change
		first, second time.Duration // how long the questions take
	}{
		"digest":       {tier.Change{Digest: digest("a")}, 3 * time.Millisecond, time.Millisecond},
		"id":           {tier.Change{ID: "acme"}, 3 * time.Millisecond, time.Millisecond},
		"everything":   {tier.Change{}, 3 * time.Millisecond, time.Millisecond},
		"in order":     {tier.Change{ID: "acme"}, 3 * time.Millisecond, 4 * time.Millisecond},
		"not asked by": {tier.Change{ID: "acme"}, 3 * time.Millisecond, -1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFake()
				f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
				f.delay = c.first
				l := cache(t, f, nil)
				got := make(chan tier.Answer)
				go func() { got <- l.resolve(t, key("a")) }()
				time.Sleep(2 * time.Millisecond)
				f.set(tier.Subject{ID: "acme", Tier: "pro"}, digest("a"))
				l.Invalidate(c.change)
				if c.second >= 0 {
					f.do(func() { f.delay = c.second })
					l.is(t, key("a"), "pro", "")
				}
				if a := <-got; a.Subject == nil || a.Subject.Tier != "free" {
					t.Errorf("who asked before the change got %+v, want free", a.Subject)
				}
				f.do(func() { f.delay = 0 })
				l.is(t, key("a"), "pro", "")
				l.asks(t, f, 2)
				if f.atOnce > 2 {
					t.Errorf("%d questions for one key at once", f.atOnce)
				}
			})
		})
	}
}

// TestCacheStripes proves that only ids of the same stripe change together.
func TestCacheStripes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		l := cache(t, f, nil)
		other := ""
		for i := 0; other == ""; i++ {
			if id := fmt.Sprint("other-", i); l.ofID(id) == l.ofID("acme") {
				other = id
			}
		}
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
		l.is(t, key("a"), "free", "")
		l.Invalidate(tier.Change{ID: other})
		l.is(t, key("a"), "free", "")
		l.is(t, key("a"), "free", "")
		l.asks(t, f, 2)
	})
}

// run runs the cache until the test ends.
func (l logged) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestCacheRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
		l := cache(t, watched{f}, nil)
		l.run(t)
		w := <-f.watches
		l.is(t, key("a"), "free", "")
		if l.Stats().Watching {
			t.Error("changes are told of before the source is ready")
		}
		w.ready() // the record may have changed since the question
		l.is(t, key("a"), "free", "")
		l.asks(t, f, 2)
		f.set(tier.Subject{ID: "acme", Tier: "pro"}, digest("a"))
		l.is(t, key("a"), "free", "")
		w.changed(tier.Change{ID: "acme"})
		l.is(t, key("a"), "pro", "")
		l.asks(t, f, 1)
		if s := l.Stats(); !s.Watching || s.Pushes != 1 {
			t.Errorf("%+v, want one push", s)
		}

		w.end <- errDown
		synctest.Wait()
		if l.Stats().Watching {
			t.Error("the source tells no changes")
		}
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a")) // while the source does not report changes
		// Run tries again, at growing intervals.
		for i := range 12 {
			began := time.Now()
			w = <-f.watches
			pause := time.Since(began)
			most := min(minBackoff<<i, maxBackoff)
			if pause < most/2 || pause > most {
				t.Errorf("pause %d is %v, want %v to %v", i, pause, most/2, most)
			}
			w.end <- fmt.Errorf("attempt %d", i)
		}
		w = <-f.watches
		if _, err := l.Lookup(t.Context(), key("a")); err != nil {
			t.Fatal(err)
		}
		f.set(tier.Subject{ID: "acme", Tier: "pro"}, digest("a"))
		l.is(t, key("a"), "free", "")
		w.ready()
		l.is(t, key("a"), "pro", "")
		var lines []string
		for _, e := range l.states.All() {
			lines = append(lines, e.Message)
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "does not report") || !strings.Contains(lines[1], "reports changes again") {
			t.Errorf("log = %q, want a line for each change", lines)
		}

		// After a long time of watching it tries again soon.
		time.Sleep(time.Hour)
		w.end <- errors.New("gone")
		began := time.Now()
		<-f.watches
		if pause := time.Since(began); pause > minBackoff {
			t.Errorf("pause = %v, want it short", pause)
		}
	})
}

// TestCacheRunWithoutWatcher proves that a source that is no Watcher is asked when records
// expire.
func TestCacheRunWithoutWatcher(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := cache(t, newFake(), nil)
		l.run(t)
		time.Sleep(time.Hour)
		if s := l.Stats(); s.Watching || l.states.Len() != 0 {
			t.Errorf("%+v, %v, want nothing", s, l.states.All())
		}
	})
}
