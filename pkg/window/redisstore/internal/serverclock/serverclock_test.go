package serverclock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestClock proves what a clock makes of replies, in microseconds. The server's
// clock is 1,000 s ahead of the local one.
func TestClock(t *testing.T) {
	const ahead = 1_000_000_000
	type reply struct{ server, sent, received int64 } // microseconds, of their own clocks
	for _, tt := range []struct {
		name    string
		replies []reply
		ask     int64 // an instant of the local clock, microseconds
		want    int64 // of the server's
	}{
		{"nothing known", nil, 500, 0},
		// Read 30 us after it was sent and 70 us before it was there: the offset is
		// 999,999,930 to 1,000,000,031.
		{"one reply", []reply{{ahead + 130, 100, 200}}, 500, ahead + 500 - 71},
		// The second is closer at its lower end.
		{"two replies", []reply{{ahead + 130, 100, 200}, {ahead + 290, 200, 300}}, 500, ahead + 500 - 11},
		{"a worse one teaches nothing", []reply{{ahead + 190, 100, 200}, {ahead + 210, 200, 300}}, 500, ahead + 500 - 11},
		// In a second either clock may be off by half a millisecond.
		{"drift", []reply{{ahead + 190, 100, 200}}, 1_000_200, ahead + 1_000_200 - 11 - 1000},
		{"set forward", []reply{{ahead + 190, 100, 200}, {2*ahead + 290, 200, 300}}, 500, 2*ahead + 500 - 11},
		{"set back", []reply{{ahead + 190, 100, 200}, {ahead/2 + 290, 200, 300}}, 500, ahead/2 + 500 - 11},
	} {
		var c Bounds
		for _, r := range tt.replies {
			c.Learn(r.server, r.sent*1000, r.received*1000)
		}
		if got := c.Deadline(tt.ask * 1000); got != tt.want {
			t.Errorf("%s: %d us is %d us of the server, want %d", tt.name, tt.ask, got, tt.want)
		}
		if got := c.Deadline(0); got != 0 {
			t.Errorf("%s: no deadline is %d us of the server", tt.name, got)
		}
	}
}

// TestClockIsNeverLate runs two clocks that drift apart as fast as they may, and
// jump now and then, and proves that a deadline is never later on the server than
// it is here, and not much earlier.
func TestClockIsNeverLate(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var c Bounds
		offset := int64(1e15) + rnd.Int64N(1e12)
		rate := (rnd.Float64()*2 - 1) / drift
		server := func(local int64) int64 { // both in nanoseconds, the server's result in microseconds
			return (local + int64(float64(local)*rate) + offset) / 1000
		}
		local, jumped := int64(1), true
		for range 300 {
			sent := local + rnd.Int64N(1e7)
			read := sent + rnd.Int64N(1e6)
			received := read + rnd.Int64N(1e6)
			local = received
			if rnd.IntN(50) == 0 {
				offset += rnd.Int64N(1e12) - 5e11
				jumped = true
			}
			c.Learn(server(read), sent, received)
			if jumped {
				jumped = false
				continue // what was in flight when it jumped tells too little to contradict, perhaps
			}
			deadline := local + rnd.Int64N(15e6)
			got, truth := c.Deadline(deadline), server(deadline)
			if got > truth {
				t.Fatalf("a deadline %d us too late", got-truth)
			}
			if early := time.Duration(truth-got) * time.Microsecond; early > time.Millisecond+time.Millisecond/2 { // the slowest reply, and drift
				t.Fatalf("a deadline %v too early", early)
			}
		}
	}
}
