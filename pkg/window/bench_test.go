package window

import (
	"fmt"
	"testing"
	"time"
)

// fill returns a log in which a limit is used up, one hit at each step of an
// even pace over the window, and the time of the last one.
func fill(tb testing.TB, limit uint64, win, precision time.Duration) (log []byte, now int64) {
	tb.Helper()
	c := &Check{Limit: Limit{Hits: limit, Window: win}, Cost: 1, Precision: precision}
	w := win.Microseconds()
	for i := range int64(limit) {
		now = w + i*w/int64(limit)
		var d Decision
		if log = take(log, now, c, &d); !d.Allowed {
			tb.Fatalf("hit %d of %d at an even pace: got %+v", i+1, limit, d)
		}
	}
	return log, now
}

var benchLimits = []struct {
	hits      uint64
	precision string
}{
	{10, "0"},
	{100, "0"},
	{3_000, "0"},
	{100_000, "0"},
	{100_000, "auto"},
	{1_000_000, "0"},
	{1_000_000, "auto"},
}

const benchWindow = 10 * time.Minute

func precisionOf(hits uint64, name string) time.Duration {
	if name == "auto" {
		return Precision(Limit{Hits: hits, Window: benchWindow})
	}
	return 0
}

// BenchmarkAllowed charges at the pace of the limit, so that the log is full and
// every charge drops what has just expired.
func BenchmarkAllowed(b *testing.B) {
	for _, l := range benchLimits {
		b.Run(fmt.Sprintf("limit=%d/precision=%s", l.hits, l.precision), func(b *testing.B) {
			precision := precisionOf(l.hits, l.precision)
			log, now := fill(b, l.hits, benchWindow, precision)
			c := &Check{Limit: Limit{Hits: l.hits + l.hits/1000 + 2, Window: benchWindow}, Cost: 1, Precision: precision}
			pace := benchWindow.Microseconds() / int64(l.hits)
			var d Decision
			b.ReportAllocs()
			for b.Loop() {
				now += pace
				if log = take(log, now, c, &d); !d.Allowed {
					b.Fatalf("got %+v", d)
				}
			}
			b.ReportMetric(float64(len(log)), "log-bytes")
		})
	}
}

// BenchmarkDenied asks a full log.
func BenchmarkDenied(b *testing.B) {
	for _, l := range benchLimits {
		b.Run(fmt.Sprintf("limit=%d/precision=%s", l.hits, l.precision), func(b *testing.B) {
			precision := precisionOf(l.hits, l.precision)
			log, now := fill(b, l.hits, benchWindow, precision)
			c := &Check{Limit: Limit{Hits: l.hits, Window: benchWindow}, Cost: 1, Precision: precision}
			var d Decision
			b.ReportAllocs()
			for b.Loop() {
				if log = take(log, now, c, &d); d.Allowed {
					b.Fatalf("got %+v", d)
				}
			}
		})
	}
}

// BenchmarkOnce measures the single calls that cost the most, on a log of its own
// each: everything or half expires at once, the log grows, the log shrinks.
func BenchmarkOnce(b *testing.B) {
	for _, l := range benchLimits {
		if l.hits < 3000 {
			continue
		}
		precision := precisionOf(l.hits, l.precision)
		full, now := fill(b, l.hits, benchWindow, precision)
		w := benchWindow.Microseconds()
		c := &Check{Limit: Limit{Hits: 2 * l.hits, Window: benchWindow}, Cost: 1, Precision: precision}
		for _, call := range []struct {
			name string
			at   int64
		}{
			{"all expire", now + 2*w},
			{"half expires", now + w/2},
			{"shrinks", now + w - w/5},
		} {
			b.Run(fmt.Sprintf("%s/limit=%d/precision=%s", call.name, l.hits, l.precision), func(b *testing.B) {
				var d Decision
				log := make([]byte, len(full))
				var took time.Duration
				for b.Loop() {
					copy(log, full)
					start := time.Now()
					take(log, call.at, c, &d)
					took += time.Since(start)
				}
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/call")
			})
		}

		// A log grows at the charge that finds it full.
		var d Decision
		grows := append([]byte(nil), full...)
		at := now
		for fits := len(grows); len(grows) == fits; {
			full = append(full[:0], grows...)
			at++
			if precision > 0 {
				at += precision.Microseconds()
			}
			if at >= 2*w {
				break // bounded by the precision
			}
			grows = take(grows, at, c, &d)
		}
		b.Run(fmt.Sprintf("grows/limit=%d/precision=%s", l.hits, l.precision), func(b *testing.B) {
			if at >= 2*w {
				b.Skip("a log of this precision has its size")
			}
			for b.Loop() {
				take(full, at, c, &d)
			}
		})
	}
}
