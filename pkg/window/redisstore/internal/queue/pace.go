package queue

import "time"

// A Pace counts the calls that a server has under way, and says whether another may start. While a
// server is busy, a second call would only wait there. So it may start only if there is no other one,
// and the requests that come meanwhile share it. A Pace is not safe for concurrent use.
type Pace struct {
	Calls    int // the most calls that may be under way
	UnderWay int

	least int64 // the shortest round trip since begun, in nanoseconds; zero: there was none
	begun int64
	busy  bool
}

// The round trip of a busy server takes more than busyFrom times as long as the shortest one. A network
// or a busy machine of our own seldom delays it as much: there a second call saves time. The shortest
// is found anew after some time, because the way to the server may change.
const (
	busyFrom = 8
	renewed  = int64(time.Minute)
)

// Learn takes the round trip of a call, from sent to received on one clock, in nanoseconds.
func (p *Pace) Learn(sent, received int64) {
	took := max(received-sent, 1)
	if p.least == 0 || received-p.begun > renewed {
		p.least, p.begun = took, received
	}
	p.least = min(p.least, took)
	p.busy = took > busyFrom*p.least
}

// most returns how many calls may be under way now.
func (p *Pace) most() int {
	if p.busy {
		return 1
	}
	return p.Calls
}

// Room reports whether another call may start.
func (p *Pace) Room() bool { return p.UnderWay < p.most() }

// Begin reports whether another call may start, and counts it then.
func (p *Pace) Begin() bool {
	room := p.Room()
	if room {
		p.UnderWay++
	}
	return room
}

// Next reports whether another call follows one that has ended: requests wait, and there are not too
// many calls under way. Otherwise one fewer is under way.
func (p *Pace) Next(wait bool) bool {
	more := wait && p.UnderWay <= p.most()
	if !more {
		p.UnderWay--
	}
	return more
}
