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
		b := heldUntil(tt.holds, now/coarse+60_000, now)
		var (
			log State
			h   Reserved
			d   window.Decision
		)
		c.Cost = tt.cost
		log.Look(nil, now, &c)
		h.Look(b, now, &c, 0)
		h.Answer(&log, &c, h.Room(&log, &c), &d)
		if d.HoldsFull != tt.full || d.Reserved != uint64(tt.holds) || d.HoldsFull && d.RetryAfter == 0 {
			t.Errorf("%+v: %+v", tt, d)
		}
	}
}

// heldUntil returns the holds of a budget of so many streams, which all end at once, in milliseconds.
func heldUntil(streams int, ends, clock int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, 165<<56|uint64(clock))
	b = binary.BigEndian.AppendUint64(b, uint64(streams))
	b = binary.BigEndian.AppendUint64(b, uint64(time.Hour.Milliseconds())<<32)
	b = binary.BigEndian.AppendUint64(b, uint64(streams)<<16|uint64(streams))
	b = append(binary.BigEndian.AppendUint64(b, uint64(streams)<<8)[:atNext], 0, 0, 0, 0, 0, 0)
	putEnds(b[atNext:], ends)
	last := append(binary.BigEndian.AppendUint64(nil, uint64(ends)<<16), 0, 0, 0, 0, 1)[:13]
	b = append(b, last...)
	for i := range streams {
		b = append(binary.BigEndian.AppendUint64(b, uint64(i+1)), last...)
	}
	return b
}
