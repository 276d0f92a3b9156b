package tier

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"unique"
)

// benchSource is a source with a subject for each key, or without subjects.
type benchSource struct {
	empty bool

	mu    sync.Mutex
	asked []time.Time
}

func (e *benchSource) Lookup(_ context.Context, k Key, _ *Record) (*Record, error) {
	if e.empty {
		e.mu.Lock()
		e.asked = append(e.asked, time.Now())
		e.mu.Unlock()
		return &Record{}, nil
	}
	return &Record{Subject: &Subject{ID: "customer-" + k.Digest[:8], Tier: fmt.Sprint("tier-", k.Digest[0]%4)}}, nil
}

func (*benchSource) Close() error { return nil }

// most returns how many questions there were in a second at most.
func (e *benchSource) most() (most int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := 0
	for i, t := range e.asked {
		for t.Sub(e.asked[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// digestOf returns the digest of the key with a number.
func digestOf(i int) string {
	return fmt.Sprintf("%016x%016x%032x", uint64(i)*0x9e3779b97f4a7c15, i, i)
}

// fill fills a cache with that many subjects.
func fill(b *testing.B, c *Cache, subjects int) {
	b.Helper()
	for i := range subjects {
		k := Key{Digest: digestOf(i)}
		s, _ := sumOf(k)
		f := &flight{sum: s}
		r, err := c.opts.Source.Lookup(b.Context(), k, nil)
		h, bad := f.read(&Result{r, err}, c.now(), c)
		if bad != nil {
			b.Fatal(err)
		}
		c.mu.Lock()
		h.subject.Tier = unique.Make(h.subject.Tier).Value()
		c.put(&s, h)
		c.mu.Unlock()
	}
	if n := c.known.EstimatedSize(); n < subjects*99/100 {
		b.Fatalf("%d subjects are held, want %d", n, subjects)
	}
}

func benchCache(b *testing.B, s Source) *Cache {
	b.Helper()
	c, err := NewCache(CacheOptions{
		Source: s, Timeout: time.Second,
		Subjects: 1_000_000, Unknown: 100_000,
		TTL: time.Hour, UnknownTTL: 10 * time.Second, Stale: 24 * time.Hour,
		Failures: 5, Retry: time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return c
}

func BenchmarkCache(b *testing.B) {
	secrets := NewSecrets(nil, []byte("pepper-pepper-pepper"))
	b.Run("hit", func(b *testing.B) {
		c := benchCache(b, &benchSource{})
		k := Key{Digest: secrets.Digest("key-777")}
		c.Resolve(b.Context(), k, time.Second)
		b.ReportAllocs()
		for b.Loop() {
			if a, _ := c.Resolve(b.Context(), k, 0); a.Subject == nil {
				b.Fatal("gone")
			}
		}
	})
	// After a change, each hit has to check the stripes of its own record.
	b.Run("hit-after-changes", func(b *testing.B) {
		c := benchCache(b, &benchSource{})
		k := Key{Digest: secrets.Digest("key-777")}
		c.Resolve(b.Context(), k, time.Second)
		c.Invalidate(Change{ID: "other"})
		b.ReportAllocs()
		for b.Loop() {
			if a, _ := c.Resolve(b.Context(), k, 0); a.Subject == nil {
				b.Fatal("gone")
			}
		}
	})
	b.Run("hit-parallel", func(b *testing.B) {
		c := benchCache(b, &benchSource{})
		k := Key{Digest: secrets.Digest("key-777")}
		c.Resolve(b.Context(), k, time.Second)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.Resolve(context.Background(), k, 0)
			}
		})
	})
	b.Run("hit-id", func(b *testing.B) {
		c := benchCache(b, &idSource{})
		k := Key{ID: "customer-777"}
		c.Resolve(b.Context(), k, time.Second)
		b.ReportAllocs()
		for b.Loop() {
			if a, _ := c.Resolve(b.Context(), k, 0); a.Subject == nil {
				b.Fatal("gone")
			}
		}
	})
	b.Run("miss-unknown-flood", func(b *testing.B) {
		s := &benchSource{empty: true}
		c := benchCache(b, s)
		n := 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			c.Resolve(b.Context(), Key{Digest: digestOf(n)}, 0)
		}
		b.ReportMetric(float64(s.most()), "lookups/s")
		b.ReportMetric(float64(c.unknown.EstimatedSize()), "held")
	})
	// Each hit is for another record, so that the processor's cache does not have it.
	b.Run("hit-of-1M", func(b *testing.B) {
		const subjects = 1_000_000
		c := benchCache(b, &benchSource{})
		fill(b, c, subjects)
		keys := make([]Key, subjects)
		for i := range keys {
			keys[i].Digest = digestOf(i * 7919 % subjects)
		}
		n, found := 0, 0
		b.ReportAllocs()
		for b.Loop() {
			if a, _ := c.Resolve(b.Context(), keys[n%subjects], 0); a.Subject != nil {
				found++
			}
			n++
		}
		b.ReportMetric(float64(found)/float64(n), "found")
	})
}

// idSource is a source with a subject for each id.
type idSource struct{ benchSource }

func (*idSource) Lookup(_ context.Context, k Key, _ *Record) (*Record, error) {
	return &Record{Subject: &Subject{ID: k.ID, Tier: "free"}}, nil
}

// BenchmarkCacheMemory fills a cache with 1,000,000 subjects and reports the memory of
// each. Their ids have 17 bytes.
func BenchmarkCacheMemory(b *testing.B) {
	const subjects = 1_000_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := benchCache(b, &benchSource{})
		fill(b, c, subjects)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/subjects, "bytes/subject")
		runtime.KeepAlive(c)
	}
}
