package tier

import "time"

// pace bounds the questions per second. The source sees no more in any second. A token
// bucket would admit its burst in addition to its rate. A fixed time between questions
// would not help either, because questions may be delayed on their way.
//
// Unknown keys may use four fifths. So a flood of invalid keys leaves a fifth for known
// keys whose records expire.
type pace struct{ all, unknown turns }

func newPace(perSecond int) pace {
	return pace{newTurns(perSecond), newTurns(forUnknown(perSecond))}
}

// forUnknown returns how many of n questions may be for unknown keys.
func forUnknown(n int) int { return max(1, n-(n+4)/5) }

func (p *pace) room(known bool, now time.Duration) bool {
	return p.all.room(now) && (known || p.unknown.room(now))
}

func (p *pace) take(known bool) {
	p.all.take()
	if !known {
		p.unknown.take()
	}
}

func (p *pace) end(known bool, now time.Duration) {
	p.all.end(now)
	if !known {
		p.unknown.end(now)
	}
}

// turns are the questions that are possible in one second. A question has its turn until
// one second after its end. Before its end the source has seen it.
type turns struct {
	ended   []time.Duration // a ring of the free turns: when their questions ended
	next, n int             // the index of the oldest free turn, and how many are free
}

func newTurns(n int) turns {
	t := turns{ended: make([]time.Duration, n), n: n}
	for i := range t.ended {
		t.ended[i] = -time.Second
	}
	return t
}

func (t *turns) room(now time.Duration) bool { return t.n > 0 && now-t.ended[t.next] >= time.Second }

func (t *turns) take() {
	t.next = (t.next + 1) % len(t.ended)
	t.n--
}

func (t *turns) end(now time.Duration) {
	t.ended[(t.next+t.n)%len(t.ended)] = now
	t.n++
}

// share counts the questions under way: all of them, and those for unknown keys.
type share struct{ all, unknown int }

func (n *share) room(most int, known bool) bool {
	return n.all < most && (known || n.unknown < forUnknown(most))
}

func (n *share) add(known bool, d int) {
	n.all += d
	if !known {
		n.unknown += d
	}
}
