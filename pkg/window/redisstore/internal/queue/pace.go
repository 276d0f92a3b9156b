package queue

import (
	"sync/atomic"
	"time"
)

// A Pace counts the calls that a server has under way, and says whether another may start. While other
// instances keep a server busy, a second call would only wait there. So it may start only if there is no
// other one, and the requests that come meanwhile share it. A single instance needs two: the server decides
// one while the instance reads the other. Only Learn is safe for concurrent use.
type Pace struct {
	Calls    int // the most calls that may be under way
	UnderWay int

	least atomic.Int64 // the shortest round trip since begun, in nanoseconds; zero: there was none
	begun atomic.Int64
	busy  atomic.Bool
}

// The round trip of a busy server takes more than busyFrom times as long as the shortest one. A network
// or a busy machine of our own seldom delays it as much: there a second call saves time. The shortest
// is found anew after some time, because the way to the server may change.
const (
	busyFrom = 8
	renewed  = int64(time.Minute)
)

// Learn takes the round trip of a call, from sent to received on one clock, in nanoseconds. others says
// that other instances ask the server too. If two calls learn at once, one may be lost.
func (p *Pace) Learn(sent, received int64, others bool) {
	if !others {
		p.busy.Store(false)
		return
	}
	took := max(received-sent, 1)
	least := p.least.Load()
	if least == 0 || received-p.begun.Load() > renewed {
		least = took
		p.begun.Store(received)
	}
	least = min(least, took)
	p.least.Store(least)
	p.busy.Store(took > busyFrom*least)
}

// most returns how many calls may be under way now.
func (p *Pace) most() int {
	if p.busy.Load() {
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
