package insight

import (
	"fmt"
	"testing"
)

// BenchmarkDenied measures a denial that is recorded, and one that the sample leaves out.
func BenchmarkDenied(b *testing.B) {
	c, rs := newClock(), rules(b)
	a := ask(b, rs, "per-user", "user", "acme", "remote_address", "192.0.2.7", "path", "/search")
	b.Run("recorded", func(b *testing.B) {
		i := open(b, c, func(o *Options) { o.PerSecond = 100_000 })
		b.ReportAllocs()
		for b.Loop() {
			i.recorder.denials.chosen.Store(0)
			a.deny(i)
		}
	})
	b.Run("left-out", func(b *testing.B) {
		i := open(b, c, nil)
		i.recorder.denials.oneOf.Store(1 << 40)
		b.ReportAllocs()
		for b.Loop() {
			a.deny(i)
		}
	})
	b.Run("left-out-parallel", func(b *testing.B) {
		i := open(b, c, nil)
		i.recorder.denials.oneOf.Store(1 << 40)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				i.Denied(&a.req, &a.v, &a.v.Limits[0])
			}
		})
	})
}

// BenchmarkLogs lists a page of 100 logs of a store in memory.
func BenchmarkLogs(b *testing.B) {
	c := newCounted(b, nil)
	for n := range 100_000 {
		c.ask(1, fmt.Sprintf("remote_address=10.%d.%d.%d", n>>16, n>>8&255, n&255))
	}
	var q LogsQuery
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.Logs(b.Context(), q)
		if err != nil {
			b.Fatal(err)
		}
		q.Cursor = l.Next // of the last page: the first one
	}
}
