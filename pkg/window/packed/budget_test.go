package packed

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestHoldsFull: a budget that has [window.MaxHolds] reservations denies the next one, and says why.
func TestHoldsFull(t *testing.T) {
	const now = int64(1e15)
	c := window.Check{Key: "{k}", Cost: 1, Stream: 1 << 40, Budget: &window.Budget{Hold: time.Hour}, Limit: window.Limit{Hits: 1 << 20, Window: time.Hour}}
	for _, tt := range []struct {
		holds int
		cost  uint64
		full  bool
	}{{window.MaxHolds - 1, 1, false}, {window.MaxHolds, 1, true}, {window.MaxHolds, 1 << 20, false}, {window.MaxHolds, 1<<20 + 1, false}} {
		b := binary.BigEndian.AppendUint64(nil, 165<<56|uint64(now))
		b = binary.BigEndian.AppendUint64(b, uint64(tt.holds))
		b = binary.BigEndian.AppendUint64(b, uint64(time.Hour.Milliseconds())<<32)
		for i := range tt.holds {
			b = binary.BigEndian.AppendUint64(b, uint64(i+1))
			b = append(binary.BigEndian.AppendUint64(b, uint64(now/coarse+60_000)<<16), 0, 0, 0, 0, 1)
		}
		var (
			log State
			h   Reserved
			d   window.Decision
		)
		c.Cost = tt.cost
		log.Look(nil, now, &c)
		h.Look(b, now, &c, false)
		h.Answer(&log, &c, h.Room(&log, &c), &d)
		if d.HoldsFull != tt.full || d.Reserved != uint64(tt.holds) || d.HoldsFull && d.RetryAfter == 0 {
			t.Errorf("%+v: %+v", tt, d)
		}
	}
}
