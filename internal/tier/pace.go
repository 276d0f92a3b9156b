package tier

import "time"

// pace is how many questions may be asked in a second. Whatever the second, the source
// sees no more than that: a bucket of tokens would admit its burst on top of its rate,
// and a second from one question to the next would not do either, because some may be
// held up on their way.
//
// What nobody is known to have may use four fifths of it. So whoever asks for keys
// that he makes up leaves the rest to those that have to be asked for again.
type pace struct{ all, strangers turns }

func newPace(perSecond int) pace {
	return pace{newTurns(perSecond), newTurns(forStrangers(perSecond))}
}

func forStrangers(n int) int { return max(1, n-(n+4)/5) }

func (p *pace) room(known bool, now time.Duration) bool {
	return p.all.room(now) && (known || p.strangers.room(now))
}

func (p *pace) take(known bool) {
	p.all.take()
	if !known {
		p.strangers.take()
	}
}

func (p *pace) end(known bool, now time.Duration) {
	p.all.end(now)
	if !known {
		p.strangers.end(now)
	}
}

// turns are as many as there may be questions in a second. A question has one until a
// second after its end, before which the source has seen it.
type turns struct {
	ended   []time.Duration // when those that no question under way has were given back
	next, n int             // the oldest of them, and how many there are
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

// share counts the questions under way, in the same parts.
type share struct{ all, strangers int }

func (n *share) room(most int, known bool) bool {
	return n.all < most && (known || n.strangers < forStrangers(most))
}

func (n *share) add(known bool, d int) {
	n.all += d
	if !known {
		n.strangers += d
	}
}
