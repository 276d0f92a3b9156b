package insight

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxText bounds each text of a denial, in bytes, without the mark that it was cut.
	maxText = 128
	cut     = "…"
	// maxQueue bounds the events that are recorded but not yet in the ring.
	maxQueue = 1024
)

// A recorder keeps denials. Requests choose by a sampler whether they are recorded, copy
// themselves, and leave the copy in a queue. They take no lock of the recorder. One goroutine,
// and each question, moves the queue to the ring, the tops and the log.
type recorder struct {
	now            func() time.Time
	denials, nears *sampler
	// What was seen since the start: denied requests, those that were only observed, and those
	// near a limit.
	enforced, shadow, atLimit atomic.Uint64
	queue                     chan event    // only drain receives, with mu held, so that no event is in between
	wake                      chan struct{} // the queue is not empty
	// lost is how many events of each order of tops were left out since the last drain, so that no
	// recorded event stands for them.
	// lostSample is true if one of them stood for several.
	lost       [len(TopOrders)]atomic.Uint64
	lostSample atomic.Bool
	tops       tops

	// ring has the denial with a number n at n modulo its length. last is the newest number.
	ring     []atomic.Pointer[Denial]
	last     atomic.Uint64
	recorded atomic.Uint64

	mu    sync.Mutex // of what follows, and of moves out of the queue
	lines lines

	closed    chan struct{}
	ended     chan struct{}
	closeOnce sync.Once
}

// An event is a denial, or a request near a limit.
type event struct {
	*Denial
	near   bool
	number uint64 // of all denials, or of all that were only observed
}

func newRecorder(o Options) *recorder {
	now := o.Now()
	return &recorder{
		now: o.Now, denials: newSampler(o.PerSecond, now), nears: newSampler(o.PerSecond, now),
		queue: make(chan event, max(min(o.PerSecond, maxQueue), 16)), ring: make([]atomic.Pointer[Denial], max(o.Denials, 1)),
		lines: newLines(o), wake: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}),
	}
}

// run empties the queue and adapts the sample until close.
func (r *recorder) run() {
	defer close(r.ended)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-r.closed:
			r.drain()
			return
		case <-r.wake:
			r.drain()
		case <-second.C:
			r.tick()
		}
	}
}

func (r *recorder) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.denials.tick(now, r.seen())
	r.nears.tick(now, r.atLimit.Load())
}

func (r *recorder) close() {
	r.closeOnce.Do(func() { close(r.closed) })
	<-r.ended
}

func (r *recorder) seen() uint64 { return r.enforced.Load() + r.shadow.Load() }

func (r *recorder) denied(req *decide.Request, v *decide.Verdict, s *decide.LimitStatus) {
	seen := &r.enforced
	if s.Observed {
		seen = &r.shadow
	}
	number := seen.Add(1)
	stands, record := r.denials.choose()
	if !record {
		r.lose(orderOf(false, s.Observed), stands)
		return
	}
	r.put(event{Denial: r.copyOf(req, v, s, stands), number: number})
}

func (r *recorder) near(req *decide.Request, v *decide.Verdict, s *decide.LimitStatus) {
	r.atLimit.Add(1)
	stands, record := r.nears.choose()
	if !record {
		r.lose(orderOf(true, false), stands)
		return
	}
	r.put(event{Denial: r.copyOf(req, v, s, stands), near: true})
}

// lose notes that events are left out.
func (r *recorder) lose(order int, stands uint64) {
	if stands > 0 {
		r.lost[order].Add(stands)
	}
	if stands > 1 {
		r.lostSample.Store(true)
	}
}

// put leaves an event in the queue. If the queue is full, the event is lost: requests do not
// wait.
func (r *recorder) put(e event) {
	select {
	case r.queue <- e:
	default:
		r.lose(orderOf(e.near, e.Shadow), e.Stands)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// copyOf returns a denial without a part of the request's memory.
func (r *recorder) copyOf(req *decide.Request, v *decide.Verdict, s *decide.LimitStatus, stands uint64) *Denial {
	p := s.Caller(req)
	d := &Denial{
		At: r.now(), Domain: shown(req.Domain), Rule: shown(s.Rule.Name), Tier: shown(s.Tier),
		Subject: shown(p.Subject), Digest: strings.Clone(p.Digest), Address: p.Address,
		Route: shown(p.Route), RequestID: shown(p.RequestID),
		Limit: s.Limit.Hits, Used: s.Limit.Hits - min(s.Decision.Remaining, s.Limit.Hits), Cost: s.Cost,
		Window: s.Limit.Window.Seconds(), Never: s.Decision.Never, Of: len(v.Limits),
		Rate: uint64(s.Limit.Rate), Shadow: s.Observed, Degraded: v.Degraded, Stands: stands,
	}
	if s.Limit.Policy != window.Sliding {
		d.Policy = s.Limit.Policy.String()
	}
	if s.Blind {
		d.Used = 0 // unknown
	}
	if !d.Never {
		d.Wait, d.Reset = s.Wait().Seconds(), d.At.Add(s.Wait())
	}
	for i := range v.Limits {
		if &v.Limits[i] == s {
			d.Which = i + 1
		}
		// Another limit of the request may know whose request it is.
		if d.Subject == "" && d.Digest == "" {
			d.Subject = shown(v.Limits[i].Subject)
		}
	}
	return d
}

// shown returns a copy of a text as people can see it: at most maxText bytes, and a mark if some are
// missing.
func shown(text string) string { return shownUpTo(text, maxText) }

// shownUpTo is shown with a bound of its own.
func shownUpTo(text string, most int) string {
	text, missing := safetext.Bytes(text, most)
	if missing {
		return text + cut
	}
	return text
}

func (r *recorder) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		select {
		case e := <-r.queue:
			r.move(e)
		default:
			r.moveLost()
			return
		}
	}
}

// moveLost takes the numbers of events that were left out into the tops. They count as of now,
// which is a little later than the events, so that no list leaves them out too early. The caller
// holds mu.
func (r *recorder) moveLost() {
	sampled := r.lostSample.Swap(false)
	for order := range r.lost {
		if n := r.lost[order].Swap(0); n > 0 {
			r.tops.miss(order, n, sampled, r.now())
		}
	}
}

// move takes one event into the ring, the tops and the log. The caller holds mu.
func (r *recorder) move(e event) {
	r.tops.add(e)
	if e.near {
		return
	}
	e.ID = r.recorded.Add(1)
	r.ring[e.ID%uint64(len(r.ring))].Store(e.Denial)
	r.last.Store(e.ID)
	r.lines.write(e)
}
