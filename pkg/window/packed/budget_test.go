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

// TestNextOfExpired: the last reservation ends of a large log whose others have expired. No reservation is the next to expire
// then, and a shorter one that comes later expires in time.
func TestNextOfExpired(t *testing.T) {
	var (
		log   State
		h     Reserved
		bytes []byte
	)
	const now = int64(1e15)
	at := func(clock int64, stream window.StreamID, hold time.Duration) window.Check {
		c := window.Check{Cost: 1, Stream: stream, Budget: &window.Budget{Hold: hold}, Limit: window.Limit{Hits: 1000, Window: time.Hour}}
		log.Look(nil, clock, &c)
		h.Look(bytes, clock, &c, 0)
		return c
	}
	reserve := func(clock int64, stream window.StreamID, hold time.Duration) {
		c := at(clock, stream, hold)
		h.Reserve(&log, &c)
		bytes = h.State.Log()
	}
	for stream := range window.StreamID(40) {
		reserve(now, 1+stream, 10*time.Second)
	}
	reserve(now+20_000_000, 41, time.Minute)
	reserve(now+21_000_000, 42, time.Minute)
	for stream := window.StreamID(42); stream > 40; stream-- {
		c := at(now+22_000_000, stream, time.Minute)
		h.Settle(&log, &c, &window.Ending{}, false, true)
		bytes = h.State.Log()
	}
	if _, err := Decode(bytes); err != nil {
		t.Error(err)
	}
	reserve(now+23_000_000, 43, 10*time.Second)
	if at(now+34_000_000, 44, time.Minute); h.State.rest != 0 {
		t.Errorf("%d is reserved after all have expired", h.State.rest)
	}
}
