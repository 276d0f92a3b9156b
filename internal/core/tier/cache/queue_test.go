package cache

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// batched is a fake that answers for up to 100 keys at once.
type batched struct {
	*fake
	largest, under, most int
}

func (*batched) Batch() int { return 100 }

func (b *batched) LookupAll(_ context.Context, keys []tier.Key) []tier.Result {
	b.do(func() {
		b.largest, b.under = max(b.largest, len(keys)), b.under+1
		b.most = max(b.most, b.under)
	})
	results := make([]tier.Result, len(keys))
	time.Sleep(b.delay)
	for i, k := range keys {
		results[i].Record = b.records[k.Digest+k.ID]
		if results[i].Record == nil {
			results[i].Record = &tier.Record{}
		}
	}
	b.do(func() { b.under-- })
	return results
}

// TestCacheStorm proves that many new customers at once are all known at their second call,
// while the source has few questions under way.
func TestCacheStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const customers = 20_000
		f := newFake()
		f.delay = 2 * time.Millisecond
		for i := range customers {
			f.set(tier.Subject{ID: fmt.Sprint(i), Tier: "pro"}, digest(fmt.Sprint(i)))
		}
		b := &batched{fake: f}
		l := cache(t, b, func(o *Options) { o.Questions, o.Subjects, o.Unknown = 4, customers, customers })
		for i := range customers {
			l.Resolve(t.Context(), key(fmt.Sprint(i)), 0)
		}
		began := time.Now()
		synctest.Wait()
		time.Sleep(time.Second)
		for i := range customers {
			l.is(t, key(fmt.Sprint(i)), "pro", "")
		}
		if s := l.Stats(); s.Limited != 0 || l.underWay() != 0 || b.most != 3 || b.largest != 100 {
			t.Errorf("%+v, %d questions at once with up to %d keys, want 3 with 100", s, b.most, b.largest)
		}
		if time.Since(began) != time.Second {
			t.Error("the second call of a customer waited")
		}
	})
}

// TestCacheInventedKeys proves that customers are found, new ones at the second call and
// known ones without a wait, while a client invents more keys than the source answers.
func TestCacheInventedKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const known, fresh = 15, 50
		f := newFake()
		for i := range known + fresh {
			f.set(tier.Subject{ID: fmt.Sprint(i), Tier: "free"}, digest(fmt.Sprint(i)))
		}
		l := cache(t, f, func(o *Options) {
			o.Questions, o.TTL, o.Unknown = 4, 2*time.Second, 500
		})
		for i := range known {
			l.is(t, key(fmt.Sprint(i)), "free", "")
		}
		f.do(func() { f.delay = 4 * time.Millisecond }) // at most 1000 look-ups in a second
		made := 0
		for i := range 2_000 {
			for range 5 {
				l.Resolve(t.Context(), key(fmt.Sprint("made up ", made)), 0)
				made++
			}
			time.Sleep(time.Millisecond)
			if a, _ := l.Resolve(t.Context(), key(fmt.Sprint(i%known)), 10*time.Millisecond); a.Stale || a.Subject == nil {
				t.Fatalf("call %d: a known customer got %+v", i, a)
			}
			if n := i / 40; i%40 == 0 {
				l.Resolve(t.Context(), key(fmt.Sprint(known+n)), 0)
				time.Sleep(10 * time.Millisecond)
				if a, _ := l.Resolve(t.Context(), key(fmt.Sprint(known+n)), 10*time.Millisecond); a.Subject == nil {
					t.Fatalf("call %d: a new customer got %+v at the second call", i, a)
				}
			}
		}
		s := l.Stats()
		if s.Limited < 1000 || l.records.unknown.EstimatedSize() > 500 || l.underWay() > 2000 {
			t.Errorf("%+v, want many dropped and all bounded", s)
		}
	})
}

// TestCacheRefreshesWait proves that refreshes of valid records use only places that no
// other look-up wants, and that first look-ups have places that no refresh takes.
func TestCacheRefreshesWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		const subjects = 100
		for i := range subjects {
			f.set(tier.Subject{ID: fmt.Sprint(i), Tier: "free"}, digest(fmt.Sprint(i)))
		}
		f.set(tier.Subject{ID: "new", Tier: "pro"}, digest("new"))
		l := cache(t, f, func(o *Options) { o.Questions = 4 })
		for i := range subjects {
			l.is(t, key(fmt.Sprint(i)), "free", "")
		}
		f.do(func() { f.delay = wait / 4 })
		time.Sleep(53 * time.Second)
		for i := range subjects {
			l.is(t, key(fmt.Sprint(i)), "free", "")
		}
		l.is(t, key("new"), "pro", "") // within wait
		if n := f.questions(); n > subjects+10 {
			t.Errorf("%d questions, want the new customer's before most refreshes", n)
		}
		// The records expire while they wait for a refresh: their requests have precedence.
		l.Invalidate(tier.Change{ID: "99"})
		l.is(t, key("99"), "free", "")
		time.Sleep(time.Second)
		if s := l.Stats(); l.underWay() != 0 || s.Stale+s.Unavailable != 0 {
			t.Errorf("%+v, want all refreshed", s)
		}
	})
}

// TestCacheQuestions proves that first look-ups leave places to known keys, and that
// what waits is bounded while the source hangs.
func TestCacheQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
		l := cache(t, f, func(o *Options) { o.Questions, o.Unknown, o.Timeout = 8, 100, time.Minute })
		l.is(t, key("a"), "free", "")
		l.asks(t, f, 1)
		time.Sleep(2 * time.Minute)
		f.do(func() { f.delay = time.Hour })
		for i := range 500 {
			l.Resolve(t.Context(), key(fmt.Sprint("made up ", i)), 0)
		}
		synctest.Wait()
		l.asks(t, f, 6)
		l.is(t, key("a"), "free", "stale")
		l.asks(t, f, 1)
		if s := l.Stats(); l.underWay() != 107 || s.Limited != 394 {
			t.Errorf("%+v, want 7 under way, 100 that wait, and the others dropped", s)
		}
	})
}
