package cache

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// TestCacheNoWait proves that a request that may not wait gets each answer that needs
// no waiting, counted once. Without such an answer nothing is counted or asked.
func TestCacheNoWait(t *testing.T) {
	a, held := key("a"), func(t *testing.T, _ *fake, l logged) { l.is(t, key("a"), "free", "") }
	for _, c := range []struct {
		name   string
		key    tier.Key
		plain  bool // the source is asked by the keys themselves
		before func(t *testing.T, f *fake, l logged)
		ok     bool
		want   string // the tier, "no subject" or "unavailable"
		stale  bool
		asks   int // questions that it begins
		count  Stats
	}{
		{name: "no key at all", key: tier.Key{Digest: "ff"}, ok: true, want: "no subject", count: Stats{NegativeHits: 1}},
		{name: "never asked", key: a},
		{name: "held", key: a, before: held, ok: true, want: "free", count: Stats{Hits: 1}},
		{name: "held, by id", key: tier.Key{ID: "acme"}, before: func(t *testing.T, _ *fake, l logged) {
			l.is(t, tier.Key{ID: "acme"}, "free", "")
		}, ok: true, want: "free", count: Stats{Hits: 1}},
		{name: "held without a subject", key: key("z"), before: func(t *testing.T, _ *fake, l logged) {
			l.is(t, key("z"), "no subject", "")
		}, ok: true, want: "no subject", count: Stats{NegativeHits: 1}},
		{name: "asked for ahead", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			time.Sleep(53 * time.Second)
		}, ok: true, want: "free", asks: 1, count: Stats{Hits: 1}},
		{name: "over", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			time.Sleep(67 * time.Second)
		}},
		{name: "changed", key: a, before: func(t *testing.T, f *fake, l logged) {
			held(t, f, l)
			l.Invalidate(tier.Change{ID: "acme"})
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
			f.do(func() { f.err = fmt.Errorf("%w: a row", tier.ErrBadRecord) })
			l.is(t, a, "free", "stale")
		}, ok: true, want: "free", stale: true, count: Stats{Stale: 1}},
		{name: "a question is under way", key: a, before: func(t *testing.T, f *fake, l logged) {
			f.do(func() { f.delay = time.Second / 2 })
			l.is(t, a, "unavailable", "")
		}},
		{name: "cannot be asked for", key: a, plain: true, ok: true, want: "unavailable", count: Stats{Unavailable: 1}},
		{name: "over, and cannot be asked for", key: a, plain: true, before: func(t *testing.T, _ *fake, l logged) {
			l.is(t, tier.Key{Digest: a.Digest, Plain: "a"}, "free", "")
			time.Sleep(67 * time.Second)
		}, ok: true, want: "free", stale: true, count: Stats{Stale: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFake()
				f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"), "acme")
				l := cache(t, f, func(o *Options) { o.PlainKeys = c.plain })
				if c.before != nil {
					c.before(t, f, l)
				}
				before, asked, began := l.Stats(), f.questions(), time.Now()
				got, ok := l.Resolve(t.Context(), c.key, tier.NoWait)
				after := l.Stats()
				if time.Since(began) != 0 {
					t.Error("it waited")
				}
				synctest.Wait()
				if ok != c.ok || f.questions() != asked+c.asks {
					t.Errorf("Resolve = %+v, %v and %d questions, want %v and %d", got, ok, f.questions()-asked, c.ok, c.asks)
				}
				count := Stats{
					Hits: after.Hits - before.Hits, NegativeHits: after.NegativeHits - before.NegativeHits, Asked: after.Asked - before.Asked,
					Stale: after.Stale - before.Stale, Unavailable: after.Unavailable - before.Unavailable,
				}
				if count != c.count {
					t.Errorf("counted %+v, want %+v", count, c.count)
				}
				want := tier.Answer{Unavailable: c.want == "unavailable", Stale: c.stale}
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

// TestCacheNoWaitAllocates proves that a request that may not wait needs no memory.
func TestCacheNoWaitAllocates(t *testing.T) {
	f := newFake()
	f.set(tier.Subject{ID: "acme", Tier: "free"}, digest("a"))
	l := cache(t, f, nil)
	if _, err := l.Lookup(t.Context(), key("a")); err != nil {
		t.Fatal(err)
	}
	a, z := key("a"), key("z")
	if n := testing.AllocsPerRun(100, func() { l.Resolve(t.Context(), a, tier.NoWait) }); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { l.Resolve(t.Context(), z, tier.NoWait) }); n != 0 {
		t.Errorf("a key that is not held allocates %v times", n)
	}
}

// fixedAnswers is a resolver that has an answer for each digest. An answer that needs a
// source is missing without waiting.
type fixedAnswers map[string]fixedAnswer

type fixedAnswer struct {
	tier.Answer
	needsSource bool
}

func (f fixedAnswers) Resolve(_ context.Context, k tier.Key, wait time.Duration) (a tier.Answer, ok bool) {
	answer := f[k.Digest]
	if answer.needsSource && wait < 0 {
		return tier.Answer{}, false
	}
	return answer.Answer, true
}

// TestSecretsResolve proves that the subject of the current digest counts, else that of
// the previous one. Without waiting there is an answer if all digests that count have
// one.
func TestSecretsResolve(t *testing.T) {
	one, two := tier.NewSecrets(nil, []byte("a newer pepper")), tier.NewSecrets(nil, []byte("a newer pepper"))
	two.Previous([]byte("an older pepper"))
	current, previous := two.Fingerprint("k")[:tier.DigestLen], two.Fingerprint("k")[tier.DigestLen:]
	acme, bolt := &tier.Subject{ID: "acme"}, &tier.Subject{ID: "bolt"}
	for _, s := range []*tier.Secrets{one, two} {
		for _, first := range []tier.Answer{{Subject: acme}, {}, {Unavailable: true}} {
			for _, second := range []tier.Answer{{Subject: bolt}, {}, {Unavailable: true}} {
				want, wantFound, both := first, uint64(0), s == two && first.Subject == nil
				switch {
				case both && second.Subject != nil:
					want, wantFound = second, 1
				case both:
					want.Unavailable = first.Unavailable || second.Unavailable
				}
				for _, wait := range []time.Duration{tier.NoWait, 0} {
					for _, source := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
						r := fixedAnswers{current: {first, source[0]}, previous: {second, source[1]}}
						found := s.FoundByPrevious()
						got, ok := s.Resolve(t.Context(), r, s.Fingerprint("k"), "k", wait)
						found = s.FoundByPrevious() - found
						if wait < 0 && (source[0] || both && source[1]) {
							if ok || found != 0 {
								t.Errorf("%+v, then %+v, of which %v need a source: %v with %d found, want no answer", first, second, source, ok, found)
							}
						} else if !ok || got != want || found != wantFound {
							t.Errorf("%+v, then %+v, of which %v need a source, with wait %v: %+v, %v with %d found, want %+v with %d",
								first, second, source, wait, got, ok, found, want, wantFound)
						}
					}
				}
			}
		}
	}
}
