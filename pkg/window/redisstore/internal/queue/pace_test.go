package queue

import (
	"testing"
	"time"
)

// TestPace makes calls to a server that is idle, busy, and idle again, and to one to which the way
// becomes longer, until no other instance asks it.
func TestPace(t *testing.T) {
	p := Pace{Calls: 2}
	now := time.Hour
	learn := func(took time.Duration) {
		now += took
		p.Learn(int64(now-took), int64(now), true)
	}
	begins := func(want ...bool) {
		t.Helper()
		for i, want := range want {
			if got := p.Begin(); got != want {
				t.Fatalf("call %d begins: %t, want %t; %d are under way", i, got, want, p.UnderWay)
			}
		}
	}
	begins(true, true, false) // nothing is known yet
	learn(time.Millisecond)
	if !p.Next(true) || p.Next(false) || p.Next(false) || p.UnderWay != 0 {
		t.Fatalf("idle: two calls and one that follows have ended: %d are under way", p.UnderWay)
	}
	learn(8 * time.Millisecond)
	begins(true, true, false)
	learn(9 * time.Millisecond) // busy
	if p.Next(true) || !p.Next(true) || p.UnderWay != 1 {
		t.Fatalf("busy: one call goes on, and the other does not: %d are under way", p.UnderWay)
	}
	begins(false)
	learn(time.Millisecond)
	begins(true, false)
	learn(9 * time.Millisecond)
	now += time.Minute
	learn(9 * time.Millisecond)
	if p.Next(false) {
		t.Fatalf("a call follows, and no request waits: %d are under way", p.UnderWay)
	}
	begins(true, false)
	learn(90 * time.Millisecond)
	p.Next(false)
	begins(false)
	p.Learn(int64(now), int64(now+time.Second), false) // the others have ended
	begins(true, false)
}
