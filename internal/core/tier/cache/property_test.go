package cache

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// TestCacheProperties resolves keys while the source changes, fails, hangs and recovers at
// random. The source reports some of its changes. A naive oracle, the history of each key
// in the source, checks each answer.
func TestCacheProperties(t *testing.T) {
	var total Stats
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		questions := rapid.SampledFrom([]int{1, 2, 1000}).Draw(rt, "questions under way")
		steps := rapid.IntRange(1, 1000).Draw(rt, "steps")
		var failure string
		synctest.Test(t, func(t *testing.T) {
			failure = (&history{r: rand.New(rand.NewPCG(seed, 1)), questions: questions}).run(t, steps, &total)
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
	for name, n := range map[string]uint64{
		"hits": total.Hits, "negative": total.NegativeHits, "asked": total.Asked, "stale": total.Stale, "unavailable": total.Unavailable,
		"bad": total.BadRecords, "timeouts": total.Timeouts, "errors": total.Errors, "limited": total.Limited, "refused": total.Refused,
	} {
		if n == 0 {
			t.Errorf("%s: none in all runs, so nothing was proven", name)
		}
	}
	t.Logf("%+v", total)
}

// history is one run of random steps.
type history struct {
	r         *rand.Rand
	questions int

	mu      sync.Mutex
	f       *fake
	c       *Cache
	truth   map[string][]version // of each key, the newest last
	told    map[string]time.Time // when the source last reported a change
	trouble time.Time            // when the source last failed or was slow
	failure string
}

// version is the tier of a key in the source from a time on. An empty tier means that the
// key is unknown.
type version struct {
	at   time.Time
	tier string
}

const (
	historyTTL     = 10 * time.Second
	historyUnknown = 3 * time.Second
	historyStale   = 60 * time.Second
)

func (h *history) run(t *testing.T, steps int, total *Stats) string {
	h.f = newFake()
	h.truth, h.told = make(map[string][]version), make(map[string]time.Time)
	o := options(h.f)
	o.TTL, o.UnknownTTL, o.Stale = historyTTL, historyUnknown, historyStale
	o.Questions, o.Subjects, o.Unknown = h.questions, 100, 1
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h.c = c
	ids := []string{"acme", "bolt", "coil"}
	var keys []tier.Key // two of each subject, and its id
	owner := make(map[string]string)
	for _, id := range ids {
		for _, k := range []tier.Key{key(id + "1"), key(id + "2"), {ID: id}} {
			keys = append(keys, k)
			owner[k.Digest+k.ID] = id
			h.truth[k.Digest+k.ID] = []version{{at: time.Now()}}
		}
	}
	var wg sync.WaitGroup
	h.trouble = time.Now().Add(-time.Hour)
	for range steps {
		switch h.r.IntN(20) {
		case 0, 1: // a subject changes, and the source reports it or not
			id, told := ids[h.r.IntN(len(ids))], h.r.IntN(3)
			level := []string{"", "free", "pro", "gold"}[h.r.IntN(4)]
			h.mu.Lock()
			for _, k := range keys {
				name := k.Digest + k.ID
				if owner[name] != id {
					continue
				}
				h.f.do(func() {
					delete(h.f.records, name)
					if level != "" {
						h.f.records[name] = &tier.Record{Subject: &tier.Subject{ID: id, Tier: level}}
					}
				})
				h.truth[name] = append(h.truth[name], version{time.Now(), level})
				switch told {
				case 0:
					h.told[name] = time.Now()
				case 1:
					if k.Digest != "" {
						h.told[name] = time.Now()
						h.c.Invalidate(tier.Change{Digest: k.Digest})
					}
				}
			}
			if told == 0 {
				h.c.Invalidate(tier.Change{ID: id})
			}
			h.mu.Unlock()
		case 2:
			h.mu.Lock()
			for name := range h.truth {
				h.told[name] = time.Now()
			}
			h.c.Invalidate(tier.Change{})
			h.mu.Unlock()
		case 3, 4:
			h.be()
		case 5, 6, 7, 8:
			time.Sleep(time.Duration(h.r.ExpFloat64() * float64(time.Second)))
		case 9:
			time.Sleep(time.Duration(h.r.ExpFloat64() * float64(historyTTL)))
		case 10:
			if h.r.IntN(10) == 0 {
				time.Sleep(time.Duration(h.r.ExpFloat64() * float64(historyStale)))
			}
		default:
			for range 1 + h.r.IntN(3) {
				k, noWait := keys[h.r.IntN(len(keys))], h.r.IntN(2) == 0
				wg.Go(func() { h.ask(t, k, noWait) })
			}
			if h.r.IntN(2) == 0 {
				wg.Wait()
			}
			time.Sleep(time.Duration(h.r.IntN(3)) * time.Millisecond)
		}
	}
	wg.Wait()
	synctest.Wait()
	add(total, h.c.Stats())
	if err := h.c.Close(); err != nil {
		t.Error(err)
	}
	return h.failure
}

// be makes the source answer, fail, be slow, hang, or return malformed records.
func (h *history) be() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f.do(func() {
		if h.f.err != nil || h.f.delay > h.quick() {
			h.trouble = time.Now()
		}
		h.f.err, h.f.delay = nil, 0
		switch h.r.IntN(10) {
		case 0:
			h.f.err = errDown
		case 1:
			h.f.delay = 100 * time.Millisecond
		case 2:
			h.f.delay = time.Hour
		case 3:
			h.f.err = fmt.Errorf("%w: a row", tier.ErrBadRecord)
		case 4, 5:
			h.f.delay = wait / 2
		}
	})
}

// quick returns the delay of the source with which each look-up ends in time. If few
// questions are under way, look-ups wait for each other.
func (h *history) quick() time.Duration {
	if h.questions < 9 {
		return 0
	}
	return wait / 2
}

// well reports whether the source has answered all questions quickly for so long that no
// earlier question is under way, the breaker is closed, and no key is on hold.
func (h *history) well() (well bool) {
	h.f.do(func() {
		well = h.f.err == nil && h.f.delay <= h.quick() && time.Since(h.trouble) > 4*time.Second
	})
	return well
}

// ask resolves a key, without waiting first if noWait, and checks the answer.
func (h *history) ask(t *testing.T, k tier.Key, noWait bool) {
	name := k.Digest + k.ID
	h.mu.Lock()
	began, wasWell, told := time.Now(), h.well(), h.told[name]
	h.mu.Unlock()
	before := h.c.Stats()
	var a tier.Answer
	atOnce, ok := false, false
	if noWait {
		a, atOnce = h.c.Resolve(t.Context(), k, tier.NoWait)
	}
	if !atOnce {
		if a, ok = h.c.Resolve(t.Context(), k, wait); !ok {
			t.Error("Resolve may wait and has no answer")
		}
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	// While one question tries the source, the others are refused.
	after := h.c.Stats()
	well := wasWell && h.well() && after.Limited == before.Limited && after.Refused == before.Refused && !after.Open
	got := ""
	if a.Subject != nil {
		got = a.Subject.Tier
	}
	if waited := now.Sub(began); waited > wait || atOnce && waited > 0 {
		h.fail("waited %v, want %v at most", waited, wait)
	}
	if a.Unavailable {
		if a.Subject != nil || a.Stale {
			h.fail("%+v: it is unavailable and is not", a)
		}
		if well {
			h.fail("unavailable although the source answers")
		}
		return
	}
	if a.Stale && well {
		h.fail("stale although the source answers")
	}
	// The answer may be so old:
	since := now.Add(-historyTTL*11/10 - 2*wait)
	if a.Subject == nil {
		since = now.Add(-historyUnknown*11/10 - 2*wait)
	}
	if a.Stale {
		since = since.Add(-historyStale)
	} else if told.After(since) {
		since = told
	}
	if !h.heldSince(name, got, since) {
		h.fail("%q (stale %v) was not true since %v ago", got, a.Stale, now.Sub(since))
	}
}

// heldSince reports whether the source held a tier at some time since then.
func (h *history) heldSince(name, tier string, since time.Time) bool {
	versions := h.truth[name]
	for i, v := range versions {
		ended := i+1 < len(versions) && versions[i+1].at.Before(since)
		if v.tier == tier && !ended {
			return true
		}
	}
	return false
}

func (h *history) fail(format string, args ...any) {
	if h.failure == "" {
		h.failure = fmt.Sprintf(format, args...)
	}
}

func add(total *Stats, s Stats) {
	for _, n := range []struct {
		to *uint64
		of uint64
	}{
		{&total.Hits, s.Hits},
		{&total.NegativeHits, s.NegativeHits},
		{&total.Asked, s.Asked},
		{&total.Stale, s.Stale},
		{&total.Unavailable, s.Unavailable},
		{&total.Found, s.Found},
		{&total.Unknown, s.Unknown},
		{&total.BadRecords, s.BadRecords},
		{&total.Timeouts, s.Timeouts},
		{&total.Errors, s.Errors},
		{&total.Limited, s.Limited},
		{&total.Refused, s.Refused},
	} {
		*n.to += n.of
	}
}
