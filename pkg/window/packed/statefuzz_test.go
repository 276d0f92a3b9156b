package packed

import (
	"bytes"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// FuzzState decides on any bytes: no panic, answers within bounds, and after a write the bytes
// are a log that Decode reads.
func FuzzState(f *testing.F) {
	seeds := [][]byte{
		nil,
		{0xa1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9},
		{0xa2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0},
		{0xa3, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0},
		{0xa4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3},
	}
	for i, seed := range seeds {
		f.Add(seed, int64(300+i), uint8(i), uint8(0), uint64(1), uint32(5), uint32(3), int64(1_000_000))
	}
	f.Fuzz(func(t *testing.T, log []byte, clock int64, policy, mode uint8, cost uint64, hits, rate uint32, win int64) {
		c := &window.Check{
			Key: "k", Cost: cost, Mode: window.Mode(mode % 5),
			Limit: window.Limit{Hits: uint64(hits), Window: time.Duration(win) * time.Microsecond, Policy: window.Policy(policy % 6)},
		}
		switch c.Limit.Policy {
		case window.TokenBucket:
			c.Limit.Rate = rate
		case window.Calendar:
			start := max(clock/1e6, 0) / 60 * 60
			c.Period = window.Period{Start: start, End: start + 60, Next: start + 120}
		case window.InFlight:
			c.Stream = window.StreamID(rate) + 1
		default:
		}
		if _, ok := window.WithoutLog(c); ok || window.Validate([]window.Check{*c}, make([]window.Decision, 1)) != nil {
			return
		}
		_, err := Decode(log)
		if used, _ := Weigh(log, clock, c.Log(), c.Limit.Hits); used > 0 && len(log) == 0 {
			t.Errorf("nothing uses %d", used)
		}
		AskReading(log, clock, c)
		if c.Limit.Policy == window.Sliding || c.Limit.Policy == window.InFlight {
			if err != nil {
				return // only Decode checks all of these
			}
		}
		var d window.Decision
		before := bytes.Clone(log)
		after := takeState(log, clock, c, &d)
		if d.RetryAfter < 0 || d.UnitAfter < 0 || d.ResetAfter < 0 || d.Allowed && (d.Never || d.RetryAfter != 0) || d.Remaining > c.Limit.Hits {
			t.Errorf("%+v of %+v at %d on %x", d, c, clock, before)
		}
		if len(after) > 0 {
			if _, err := Decode(after); err != nil {
				t.Errorf("%+v at %d made %x of %x: %v", c, clock, after, before, err)
			}
		}
	})
}
