package memstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// BenchmarkTake measures one request on the store's own clock: groups of one and
// three checks, allowed and denied, by one caller and by many, on a hundred
// thousand keys.
func BenchmarkTake(b *testing.B) {
	const keys = 100_000
	s := memstore.New(memstore.Options{})
	defer s.Close()

	for _, size := range []int{1, 3} {
		for _, outcome := range []struct {
			name  string
			limit window.Limit
			allow bool
		}{
			{"allowed", window.Limit{Hits: 1 << 30, Window: time.Second}, true},
			{"denied", window.Limit{Hits: 5, Window: time.Hour}, false},
		} {
			name := fmt.Sprintf("checks=%d/%s", size, outcome.name)
			all := make([][]window.Check, keys)
			for i := range all {
				for j := range size {
					all[i] = append(all[i], window.Check{Key: fmt.Sprintf("%s:%d:%d", name, i, j), Limit: outcome.limit, Cost: 1})
				}
				d := make([]window.Decision, size)
				for range 5 {
					if _, err := s.Take(b.Context(), window.MayWait, all[i], d); err != nil {
						b.Fatal(err)
					}
				}
			}
			call := func(b *testing.B, i int, d []window.Decision) {
				if _, err := s.Take(b.Context(), window.MayWait, all[i%keys], d); err != nil {
					b.Error(err)
				} else if windowtest.Allowed(d) != outcome.allow {
					b.Errorf("got %+v, want allowed %t", d, outcome.allow)
				}
			}
			b.Run(name+"/serial", func(b *testing.B) {
				b.ReportAllocs()
				d := make([]window.Decision, size)
				for i := 0; b.Loop(); i++ {
					call(b, i, d)
				}
			})
			b.Run(name+"/parallel", func(b *testing.B) {
				b.ReportAllocs()
				var start atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					d := make([]window.Decision, size)
					for i := int(start.Add(7919)); pb.Next(); i++ {
						call(b, i, d)
					}
				})
			})
		}
	}
}

// naive is what one writes first: a log of times behind a mutex of its own, in a
// map that is safe for concurrent use. It takes single checks of cost 1.
type naive struct{ logs sync.Map }

type naiveLog struct {
	mu    sync.Mutex
	times []time.Time
}

func (n *naive) take(c *window.Check) bool {
	v, ok := n.logs.Load(c.Log())
	if !ok {
		v, _ = n.logs.LoadOrStore(c.Log(), new(naiveLog))
	}
	l := v.(*naiveLog)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	expired := 0
	for expired < len(l.times) && !l.times[expired].After(now.Add(-c.Limit.Window)) {
		expired++
	}
	l.times = append(l.times[:0], l.times[expired:]...)
	if uint64(len(l.times)) >= c.Limit.Hits {
		return false
	}
	l.times = append(l.times, now)
	return true
}

// BenchmarkBesideNaive compares the store, without and with bounds, with a
// sync.Map and a mutex for each key: single checks, most of them denied, on a
// hundred thousand keys. One iteration is one decision of each.
func BenchmarkBesideNaive(b *testing.B) {
	const keys = 100_000
	checks := make([][]window.Check, keys)
	for i := range checks {
		checks[i] = []window.Check{{Key: fmt.Sprintf("a-key-of-some-length:%d", i), Limit: window.Limit{Hits: 10, Window: time.Minute}, Cost: 1}}
	}
	open := memstore.New(memstore.Options{})
	defer open.Close()
	bounded := memstore.New(memstore.Options{MaxKeys: 1_000_000, MaxBytes: 256 << 20})
	defer bounded.Close()
	other := new(naive)
	for _, tt := range []struct {
		name string
		take func(i int, d []window.Decision)
	}{
		{"memstore", func(i int, d []window.Decision) { _, _ = open.Take(b.Context(), window.MayWait, checks[i], d) }},
		{"memstore-bounded", func(i int, d []window.Decision) { _, _ = bounded.Take(b.Context(), window.MayWait, checks[i], d) }},
		{"sync.Map", func(i int, _ []window.Decision) { other.take(&checks[i][0]) }},
	} {
		d := make([]window.Decision, 1)
		for i := range 12 * keys {
			tt.take(i%keys, d)
		}
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			var start atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				d := make([]window.Decision, 1)
				for i := int(start.Add(7919)); pb.Next(); i++ {
					tt.take(i%keys, d)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mdecisions/s")
		})
	}
}

// BenchmarkLargeLog measures charges to one log of 900 kB whose shard is near its
// bound: each drops a slot and needs no more bytes, which the store must see.
func BenchmarkLargeLog(b *testing.B) {
	const slots = 100_000
	now := time.Duration(0)
	s := memstore.New(memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1, MaxBytes: 1 << 20})
	defer s.Close()
	c := []window.Check{{Key: "large", Limit: window.Limit{Hits: slots, Window: slots * time.Microsecond}, Cost: 1}}
	d := make([]window.Decision, 1)
	call := func() {
		now += time.Microsecond
		if _, err := s.Take(b.Context(), window.MayWait, c, d); err != nil || !d[0].Allowed {
			b.Fatalf("got %+v, error %v, want allowed", d, err)
		}
	}
	for range 2 * slots {
		call()
	}
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

// ofOne is an owner of all keys.
func ofOne(string) string { return "edge|api_key" }

// BenchmarkFull measures a store without room: each new key takes the place of
// another one, or is refused.
func BenchmarkFull(b *testing.B) {
	for _, outcome := range []struct {
		name  string
		hits  uint64
		owner func(string) string
	}{
		{"another goes", 100, nil},
		{"refused", 1, nil},
		{"another of the owner goes", 100, ofOne},
		{"refused to the owner", 1, ofOne},
	} {
		b.Run(outcome.name, func(b *testing.B) {
			s := memstore.New(memstore.Options{MaxKeys: 1_000_000, SweepInterval: -1, Owner: outcome.owner})
			defer s.Close()
			c := []window.Check{{Limit: window.Limit{Hits: outcome.hits, Window: time.Hour}, Cost: 1}}
			d := make([]window.Decision, 1)
			for i := range 1_100_000 {
				c[0].Key = fmt.Sprint("old", i)
				_, _ = s.Take(b.Context(), window.MayWait, c, d)
			}
			names := make([]string, 1<<20)
			for i := range names {
				names[i] = fmt.Sprint("new", i)
			}
			var longest time.Duration
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c[0].Key = names[i%len(names)]
				i++
				start := time.Now()
				_, _ = s.Take(b.Context(), window.MayWait, c, d)
				longest = max(longest, time.Since(start))
			}
			b.ReportMetric(float64(longest.Microseconds()), "longest-us")
		})
	}
}

// BenchmarkReceipts measures one check without a receipt, with a new one each time, and as a
// repeat. Compare them within one run.
func BenchmarkReceipts(b *testing.B) {
	s := memstore.New(memstore.Options{SweepInterval: -1})
	defer s.Close()
	plain := window.Check{Key: "{k}", Cost: 1, Limit: window.Limit{Hits: window.MaxHits - 1, Window: 10 * time.Second}, Precision: time.Second}
	for name, next := range map[string]func(n uint64) window.Once{
		"none": func(uint64) window.Once { return window.Once{} },
		"new":  func(n uint64) window.Once { return window.Once{ID: 2 + n%1_000_000, For: time.Second, Repeats: 1} },
		"repeat": func(n uint64) window.Once {
			return window.Once{ID: 1<<40 + n/window.MaxRepeats%1000, For: time.Hour, Repeats: window.MaxRepeats}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			c, d := [1]window.Check{plain}, [1]window.Decision{}
			for n := uint64(0); b.Loop(); n++ {
				c[0].Once = next(n)
				if _, err := s.Take(b.Context(), window.MayWait, c[:], d[:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
