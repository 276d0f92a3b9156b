package redisstore

import (
	"bytes"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// TestDebtIsBounded proves that the script rounds the times of debt as package window
// does, once a log has 10,000 slots.
func TestDebtIsBounded(t *testing.T) {
	r := newRig(t)
	for _, win := range []time.Duration{time.Second, 7*24*time.Hour + 1234567*time.Microsecond} {
		clock := int64(1_000_000_000_000)
		unit := window.Unit(win).Microseconds()
		c := window.Check{Key: "debt", Limit: window.Limit{Hits: 9000, Window: win}, Cost: 1, Mode: window.Always}
		var log []byte
		var want window.Decision
		for range window.ExactHits - 5 {
			clock += unit
			log = windowtest.Take(log, clock, &c, &want)
		}
		key := string(appendKey(nil, "", c.Log()))
		if err := r.client.Set(t.Context(), key, log, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			clock += max(win.Microseconds()/window.ExactHits/7, 1)
			log = windowtest.Take(log, clock, &c, &want)
			got := r.take(clock, &c, 0)
			if got.decision != want || !bytes.Equal(withoutExpiry(got.log), withoutExpiry(log)) {
				t.Fatalf("window %v, charge %d: got %+v and %d bytes, want %+v and %d bytes", win, i, got.decision, len(got.log), want, len(log))
			}
		}
	}
}
