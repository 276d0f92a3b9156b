package tier

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestCacheTry: what Resolve answers without asking Try answers too, counted alike,
// and where it does not nothing has happened.
func TestCacheTry(t *testing.T) {
	a, held := key("a"), func(t *testing.T, _ *fake, l logged) { l.is(t, key("a"), "free", "") }
	for _, c := range []struct {
		name   string
		key    Key
		plain  bool // the source is asked by the keys themselves
		before func(t *testing.T, f *fake, l logged)
		ok     bool
		want   string // the tier, "nobody" or "unavailable"
		stale  bool
		asks   int // questions that it begins
		count  CacheStats
	}{
		{name: "no key at all", key: Key{Digest: "ff"}, ok: true, want: "nobody", count: CacheStats{NegativeHits: 1}},
		{name: "never asked", key: a},
		{name: "held", key: a, before: held, ok: true, want: "free", count: CacheStats{Hits: 1}},
		{name: "held, by id", key: Key{ID: "acme"}, before: func(t *testing.T, _ *fake, l logged) {
			l.is(t, Key{ID: "acme"}, "free", "")
		}, ok: true, want: "free", count: CacheStats{Hits: 1}},
		{name: "held of nobody", key: key("z"), before: func(t *testing.T, _ *fake, l logged) {
			l.is(t, key("z"), "nobody", "")
		}, ok: true, want: "nobody", count: CacheStats{NegativeHits: 1}},
		{name: "asked for ahead", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			time.Sleep(53 * time.Second)
		}, ok: true, want: "free", asks: 1, count: CacheStats{Hits: 1}},
		{name: "over", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			time.Sleep(67 * time.Second)
		}},
		{name: "changed", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			l.Invalidate(Change{ID: "acme"})
		}},
		{name: "over, and the source is away", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			time.Sleep(67 * time.Second)
			f.do(func() { f.err = errDown })
			for range 10 {
				l.is(t, a, "free", "stale")
			}
		}},
		{name: "on hold", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			time.Sleep(67 * time.Second)
			f.do(func() { f.err = fmt.Errorf("%w: a row", ErrBadRecord) })
			l.is(t, a, "free", "stale")
		}, ok: true, want: "free", stale: true, count: CacheStats{Stale: 1}},
		{name: "a question is under way", key: a, before: func(t *testing.T, f *fake, l logged) {
			f.do(func() { f.delay = time.Second / 2 })
			l.is(t, a, "unavailable", "")
		}},
		{name: "cannot be asked for", key: a, plain: true, ok: true, want: "unavailable", count: CacheStats{Unavailable: 1}},
		{name: "over, and cannot be asked for", key: a, plain: true, before: func(t *testing.T, _ *fake, l logged) {
			l.is(t, Key{Digest: a.Digest, Plain: "a"}, "free", "")
			time.Sleep(67 * time.Second)
		}, ok: true, want: "free", stale: true, count: CacheStats{Stale: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFake()
				f.set(Subject{ID: "acme", Tier: "free"}, digest("a"), "acme")
				l := cache(t, f, func(o *CacheOptions) { o.PlainKeys = c.plain })
				if c.before != nil {
					c.before(t, f, l)
				}
				before, asked, began := l.Stats(), f.questions(), time.Now()
				got, ok := l.Try(c.key)
				after := l.Stats()
				if time.Since(began) != 0 {
					t.Error("it waited")
				}
				synctest.Wait()
				if ok != c.ok || f.questions() != asked+c.asks {
					t.Errorf("Try = %+v, %v and %d questions, want %v and %d", got, ok, f.questions()-asked, c.ok, c.asks)
				}
				count := CacheStats{
					Hits: after.Hits - before.Hits, NegativeHits: after.NegativeHits - before.NegativeHits, Asked: after.Asked - before.Asked,
					Stale: after.Stale - before.Stale, Unavailable: after.Unavailable - before.Unavailable,
				}
				if count != c.count {
					t.Errorf("counted %+v, want %+v", count, c.count)
				}
				want := Answer{Unavailable: c.want == "unavailable", Stale: c.stale}
				tier := ""
				if got.Subject != nil {
					tier = got.Subject.Tier
				}
				if got.Subject = nil; ok && (got != want || tier != "" && tier != c.want || tier == "" && c.want == "free") {
					t.Errorf("got %+v and tier %q, want %s, stale %v", got, tier, c.want, c.stale)
				}
			})
		})
	}
}

// TestCacheTryAllocates: it is asked by who has nobody wait for memory.
func TestCacheTryAllocates(t *testing.T) {
	f := newFake()
	f.set(Subject{ID: "acme", Tier: "free"}, digest("a"))
	l := cache(t, f, nil)
	if _, err := l.Lookup(t.Context(), key("a")); err != nil {
		t.Fatal(err)
	}
	a, z := key("a"), key("z")
	if n := testing.AllocsPerRun(100, func() { l.Try(a) }); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { l.Try(z) }); n != 0 {
		t.Errorf("a key that is not held allocates %v times", n)
	}
}

// partly is a resolver that answers some keys at once, and counts nothing.
type partly map[string]struct {
	Answer
	waits bool
}

func (p partly) Try(k Key) (Answer, bool) {
	a := p[k.Digest]
	if a.waits {
		return Answer{}, false
	}
	return a.Answer, true
}

func (p partly) Resolve(_ context.Context, k Key, _ time.Duration) Answer { return p[k.Digest].Answer }

// TestSecretsTry: a key with two digests is answered at once where each that counts
// is, and then as by Resolve.
func TestSecretsTry(t *testing.T) {
	one, two := NewSecrets(nil, []byte("a newer pepper")), NewSecrets(nil, []byte("a newer pepper"))
	two.Previous([]byte("an older pepper"))
	now, old := two.Fingerprint("k")[:DigestLen], two.Fingerprint("k")[DigestLen:]
	acme, nobody, away := Answer{Subject: &Subject{ID: "acme"}}, Answer{}, Answer{Unavailable: true}
	for _, s := range []*Secrets{one, two} {
		for _, first := range []Answer{acme, nobody, away} {
			for _, second := range []Answer{acme, nobody, away} {
				for _, waits := range []string{"", "first", "second", "both"} {
					p := partly{}
					p[now] = struct {
						Answer
						waits bool
					}{first, waits == "first" || waits == "both"}
					p[old] = struct {
						Answer
						waits bool
					}{second, waits == "second" || waits == "both"}
					needs := p[now].waits || s == two && first.Subject == nil && p[old].waits

					found := s.FoundByPrevious()
					want := s.Resolve(t.Context(), p, s.Fingerprint("k"), "k", 0)
					wantFound := s.FoundByPrevious() - found
					got, ok := s.Try(p, s.Fingerprint("k"), "k")
					gotFound := s.FoundByPrevious() - found - wantFound
					if ok == needs || ok && (got != want || gotFound != wantFound) || !ok && gotFound != 0 {
						t.Errorf("%+v, then %+v, waiting for %q: Try = %+v, %v with %d found, Resolve = %+v with %d",
							first, second, waits, got, ok, gotFound, want, wantFound)
					}
				}
			}
		}
	}
}
