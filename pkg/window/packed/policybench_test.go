package packed

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// BenchmarkPolicies measures a hit under a limit of each policy that is allowed, and one that
// is denied, through a State: a hit of any policy costs about as much as one of sliding.
func BenchmarkPolicies(b *testing.B) {
	for p := window.Sliding; p <= window.SlidingCounter; p++ {
		for _, hits := range []uint64{1 << 20, 10} {
			name := map[bool]string{true: "denied", false: "allowed"}[hits == 10]
			b.Run(p.String()+"/"+name, func(b *testing.B) {
				c := &window.Check{Key: "k", Limit: window.Limit{Hits: 100, Window: time.Second, Policy: p}, Cost: 1}
				pace := int64(10_000) // as fast as the limit, microseconds
				if p == window.TokenBucket {
					c.Limit.Rate = 101
				}
				if hits == 10 {
					c.Limit.Window, pace = time.Hour, 0
				}
				now := int64(1.8e15)
				if p == window.Calendar {
					c.Period = window.Period{Start: now / 1e6, End: now/1e6 + 1e6, Next: now/1e6 + 2e6}
					c.Limit.Hits = window.Unlimited - 1
				}
				if hits == 10 {
					c.Limit.Hits = 10
				}
				if p == window.SlidingCounter && pace > 0 {
					c.Limit.Hits = 102
				}
				var (
					log []byte
					d   window.Decision
				)
				for range 101 {
					now += pace
					log = takeState(log, now, c, &d)
				}
				allowed := 0
				b.ReportAllocs()
				for b.Loop() {
					if now += pace; now > 2.7e15 {
						now = 1.8e15
					}
					if log = takeState(log, now, c, &d); d.Allowed {
						allowed++
					}
				}
				b.ReportMetric(float64(allowed)/float64(b.N), "allowed/op")
			})
		}
	}
}
