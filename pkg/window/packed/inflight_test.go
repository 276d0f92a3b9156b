package packed

import (
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

// TestCorruptHolds changes a log, so that its header contradicts itself or the slots. Look finds the first always, and the
// second if the log is small.
func TestCorruptHolds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(log []byte)
		always bool // also in a large log
	}{
		{"the sum", func(b []byte) { b[atHoldSum+6]++ }, false},
		{"the rest", func(b []byte) { b[atRest+6]-- }, false},
		{"the number of holds", func(b []byte) { b[atNumber+1]-- }, false},
		{"the next end", func(b []byte) { b[atNext+5]++ }, false},
		{"the last end", func(b []byte) { b[atLast+5]++ }, false},
		{"the last cost", func(b []byte) { b[atLast+12]++ }, false},
		{"the order", func(b []byte) { at(b, 1)[12]++ }, false},
		{"a cost", func(b []byte) { at(b, 1)[20]++ }, false},
		{"a hole", func(b []byte) { clear(at(b, 1)[:8]); b[atNumber+1]-- }, false},
		{"the first is behind the passed", func(b []byte) { b[atFront+1]++ }, true},
		{"the passed is behind the last", func(b []byte) { b[atPassed+1] = 200 }, true},
		{"more slots than bytes", func(b []byte) { b[atSlots+1] = 200 }, true},
		{"no holds", func(b []byte) { b[atNumber+1] = 0 }, true},
		{"more holds than slots", func(b []byte) { b[atNumber+1]++ }, true},
		{"more rest than sum", func(b []byte) { b[atRest]++ }, true},
		{"ends too late", func(b []byte) { b[atLast] = 255 }, true},
	} {
		for streams, small := range map[int]bool{briefHolds: true, briefHolds + 1: false} {
			log, now := heldBy(streams)
			tt.change(log)
			for _, look := range []func(*State, []byte, int64, *window.Check){(*State).Look, lookNew} {
				var s State
				c := flightOf(1000)
				if look(&s, log, now, c); s.Corrupt() != (small || tt.always) || s.Corrupt() && (s.Log() != nil || !s.Room(c)) {
					t.Errorf("%s, %d holds: corrupt %t, room %t", tt.name, streams, s.Corrupt(), s.Room(c))
				}
			}
			if _, err := Decode(log); err == nil {
				t.Errorf("%s, %d holds: Decode takes it for a log", tt.name, streams)
			}
		}
	}
	for _, length := range []int{atHolds, atHolds - 1, atHolds + holdBytes - 1, atHolds + (maxHoldSlots+1)*holdBytes} {
		log, now := heldBy(1)
		log = append(log, make([]byte, length)...)[:length]
		var s State
		if s.Look(log, now, flightOf(1000)); !s.Corrupt() {
			t.Errorf("%d bytes: not corrupt", length)
		}
	}
}

// TestWrongSum: a large log that contradicts itself is counted again when all of it is written.
func TestWrongSum(t *testing.T) {
	log, now := heldBy(100)
	log[atHoldSum+6], log[atRest+6] = 109, 108
	var s State
	for stream := range window.StreamID(80) {
		s.Look(log, now, flightOf(1+stream))
		if !s.End(0) {
			t.Fatalf("stream %d held nothing", 1+stream)
		}
		log = s.Log()
	}
	if contents, err := Decode(log); err != nil || len(contents.Holds) != 20 {
		t.Errorf("%d holds, error %v, want 20", len(contents.Holds), err)
	}
}

// TestHoldsOutOfOrder: no wait is longer than until the last hold ends, by the header.
func TestHoldsOutOfOrder(t *testing.T) {
	log, now := heldBy(40)
	binary.BigEndian.PutUint16(at(log, 1)[8:], 1<<15)
	var s State
	c, d := flightOf(1000), window.Decision{}
	c.Limit.Hits, c.Cost = 40, 2
	lookNew(&s, log, now, c)
	s.Answer(c, s.Room(c), &d)
	if want := 10 * time.Second; s.Corrupt() || d.Allowed || d.RetryAfter != want || d.ResetAfter != want {
		t.Errorf("corrupt %t, %+v, want a denial for %v", s.Corrupt(), d, want)
	}
}

// TestHoles: holds of a large log that go in any order leave holes, which neither count nor keep their bytes.
func TestHoles(t *testing.T) {
	const streams = 1000
	for name, order := range map[string]func(i int) int{
		"first":  func(i int) int { return i },
		"last":   func(i int) int { return streams - 1 - i },
		"spread": func(i int) int { return i * 389 % streams },
		"pairs":  func(i int) int { return (streams - 1 - i) ^ 1 }, // the last one when there is a hole before it
	} {
		log, now := heldBy(streams)
		for i := range streams {
			var (
				s State
				d window.Decision
			)
			c := flightOf(window.StreamID(order(i) + 1))
			s.Look(log, now, c)
			if c.Limit.Hits = streams; !s.End(0) {
				t.Fatalf("%s: stream %d held nothing", name, c.Stream)
			}
			log = s.Log()
			left := streams - 1 - i
			if s.Answer(c, true, &d); d.Remaining != uint64(i+1) {
				t.Fatalf("%s: %+v after %d ends", name, d, i+1)
			}
			if left == 0 {
				break
			}
			contents, err := Decode(log)
			if slots := (len(log) - atHolds) / holdBytes; err != nil || len(contents.Holds) != left || slots > 2*left+briefHolds {
				t.Fatalf("%s: %d slots, %d holds after %d ends, error %v", name, slots, len(contents.Holds), i+1, err)
			}
		}
		if log != nil {
			t.Errorf("%s: %d bytes are left", name, len(log))
		}
	}
}

// lookNew is [State.LookHold] for a stream that holds nothing.
func lookNew(s *State, log []byte, clock int64, c *window.Check) { s.LookHold(log, clock, c, NoHold) }

// TestEndOfHold: a hold of a large log is found, whatever the caller knows of its end. The streams of holds with the same end are not confused.
func TestEndOfHold(t *testing.T) {
	log, now := heldBy(100)
	for stream := range window.StreamID(3) { // which end together
		var s State
		lookNew(&s, log, now, flightOf(201+stream))
		s.Charge(flightOf(201 + stream))
		log = s.Log()
	}
	contents, _ := Decode(log)
	for _, h := range contents.Holds {
		for _, ends := range []int64{0, h.Ends.Milliseconds(), h.Ends.Milliseconds() - 7, h.Ends.Milliseconds() + 7, 1, 1 << 47} {
			var s State
			if s.LookHold(log, now, flightOf(h.Stream), ends); !s.Holds() {
				t.Errorf("stream %d holds nothing if its end is %d, and it is %d", h.Stream, ends, h.Ends.Milliseconds())
			}
		}
	}
	for _, ends := range []int64{NoHold, 0, contents.Holds[7].Ends.Milliseconds()} {
		var s State
		if s.LookHold(log, now, flightOf(1000), ends); s.Holds() {
			t.Errorf("a stream without a hold holds something that ends at %d", ends)
		}
	}
}

// TestHolesExpire: when holds of a large log expire, the holes between them do not count.
func TestHolesExpire(t *testing.T) {
	const streams = 300
	log, now := heldBy(streams)
	for stream := 2; stream < streams; stream += 3 {
		var s State
		s.Look(log, now, flightOf(window.StreamID(stream)))
		s.End(0)
		log = s.Log()
	}
	// Those of the first 30 streams have expired. Of each three, one has ended before.
	var s State
	s.Look(log, 1e12+29_000+10_000_000, flightOf(1000))
	s.Charge(flightOf(1000))
	contents, err := Decode(s.Log())
	if want := streams - 30 - (streams-30)/3 + 1; err != nil || len(contents.Holds) != want {
		t.Errorf("%d holds, error %v, want %d", len(contents.Holds), err, want)
	}
}
