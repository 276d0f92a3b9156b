package packed

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// flightOf returns a check of a stream for one place of 50.
func flightOf(stream window.StreamID) *window.Check {
	return &window.Check{Key: "k", Cost: 1, Stream: stream, Limit: window.Limit{Hits: 50, Window: 10 * time.Second, Policy: window.InFlight}}
}

// heldBy returns a log with a hold of each stream from 1 on, a millisecond after the other.
func heldBy(streams int) (log []byte, clock int64) {
	var s State
	for i := range streams {
		clock = 1e12 + int64(i)*1000
		c := flightOf(window.StreamID(i + 1))
		s.Look(log, clock, c)
		s.Charge(c)
		log = s.Log()
	}
	return log, clock
}

// at returns the bytes of the i-th hold.
func at(log []byte, i int) []byte { return log[atHolds+i*holdBytes:][:holdBytes] }

// TestCorruptHolds changes the sum of a log, so that it contradicts the holds. Look finds that.
// LookNew finds it too, unless the log is long and shows that nothing has changed for a new
// stream.
func TestCorruptHolds(t *testing.T) {
	long, now := heldBy(40)
	for _, tt := range []struct {
		name     string
		change   func(log []byte, c *window.Check)
		clock    int64
		believed bool
	}{
		{"nothing else", func([]byte, *window.Check) {}, now, true},
		{"all but the first 100 ms", func([]byte, *window.Check) {}, now + 9_900_000, true},
		{"the first has expired", func([]byte, *window.Check) {}, 1e12 + 10_000_000, false},
		{"a hold that is longer than the check's", func(_ []byte, c *window.Check) { c.Limit.Window -= time.Millisecond }, now, false},
		{"the first has ended", func(log []byte, _ *window.Check) { at(log, 0)[20] = 0 }, now, false},
		{"the last has ended", func(log []byte, _ *window.Check) { at(log, 39)[20] = 0 }, now, false},
		{"the first ends last", func(log []byte, _ *window.Check) { at(log, 0)[12]++ }, now, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log, c := bytes.Clone(long), flightOf(1000)
			tt.change(log, c)
			log[atHoldSum+6] = 49
			var s State
			s.Look(log, tt.clock, c)
			if !s.Corrupt() || s.Log() != nil || !s.Room(c) {
				t.Errorf("Look: corrupt %t, room %t, want both", s.Corrupt(), s.Room(c))
			}
			s.LookNew(log, tt.clock, c)
			if s.Corrupt() == tt.believed {
				t.Errorf("LookNew: corrupt %t, want %t", s.Corrupt(), !tt.believed)
			}
			var d window.Decision
			if s.Answer(c, s.Room(c), &d); tt.believed && d.Remaining != 1 {
				t.Errorf("LookNew: %+v, want 1 that remains, by the header", d)
			}
		})
	}
	for streams, believed := range map[int]bool{0: false, 1: false, 32: false, 33: true} {
		log, now := heldBy(max(streams, 1))
		log = log[:atHolds+streams*holdBytes]
		log[atHoldSum+6] = 49
		var s State
		if s.LookNew(log, now, flightOf(1000)); s.Corrupt() == believed {
			t.Errorf("%d holds: corrupt %t, want %t", streams, s.Corrupt(), !believed)
		}
	}
}

// TestHoldsOutOfOrder exchanges the ends of two holds. LookNew does not read them, but no wait is
// longer than until the last hold ends.
func TestHoldsOutOfOrder(t *testing.T) {
	log, now := heldBy(40)
	binary.BigEndian.PutUint16(at(log, 1)[8:], 1<<15)
	var s State
	if s.Look(log, now, flightOf(1000)); !s.Corrupt() {
		t.Error("Look: the log is not corrupt")
	}
	c, d := flightOf(1000), window.Decision{}
	c.Limit.Hits, c.Cost = 40, 2
	s.LookNew(log, now, c)
	s.Answer(c, s.Room(c), &d)
	if want := 10 * time.Second; s.Corrupt() || d.Allowed || d.RetryAfter != want || d.ResetAfter != want {
		t.Errorf("LookNew: corrupt %t, %+v, want a denial for %v", s.Corrupt(), d, want)
	}
}

// TestNewStreamThatHolds: no stream gets two holds, even if the caller of LookNew does not know of
// the first one.
func TestNewStreamThatHolds(t *testing.T) {
	log, now := heldBy(40)
	var s State
	s.LookNew(log, now, flightOf(7))
	s.Charge(flightOf(7))
	if contents, err := Decode(s.Log()); err != nil || len(contents.Holds) != 40 {
		t.Errorf("%d holds, error %v, want 40", len(contents.Holds), err)
	}
}
