package tier

import "time"

// aSecond is what a second is taken for. It is longer than one, so that the source
// sees no more either if some questions are held up on their way.
const aSecond = 1050 * time.Millisecond

// pace is how many questions may be asked in a second. Whatever the second, it is no
// more than that: a bucket of tokens would admit its burst on top of its rate.
//
// What nobody is known to have may use four fifths of it. So whoever asks for keys
// that he makes up leaves the rest to those that have to be asked for again.
type pace struct{ all, strangers recent }

func newPace(perSecond int) pace {
	return pace{newRecent(perSecond), newRecent(forStrangers(perSecond))}
}

func forStrangers(n int) int { return max(1, n-(n+4)/5) }

func (p *pace) room(known bool, now time.Duration) bool {
	return p.all.room(now) && (known || p.strangers.room(now))
}

func (p *pace) take(known bool, now time.Duration) {
	p.all.take(now)
	if !known {
		p.strangers.take(now)
	}
}

// recent is when the newest questions were asked, as many as there may be in a
// second.
type recent struct {
	times []time.Duration
	next  int // the oldest
}

func newRecent(n int) recent {
	r := recent{times: make([]time.Duration, n)}
	for i := range r.times {
		r.times[i] = -aSecond
	}
	return r
}

func (r *recent) room(now time.Duration) bool { return now-r.times[r.next] >= aSecond }

func (r *recent) take(now time.Duration) {
	r.times[r.next] = now
	r.next = (r.next + 1) % len(r.times)
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
