package insight

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/core/cells"
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
	seen           seen
	queue          chan event    // only drain receives, with mu locked, so that no event is in between
	wake           chan struct{} // the queue is not empty
	dropped        dropped
	tops           tops
	ring           ring

	mu    sync.Mutex // of what follows, and of moves out of the queue
	lines lines

	closed    chan struct{}
	ended     chan struct{}
	closeOnce sync.Once
}

// seen counts the events since the start, by their index in TopOrders.
type seen [len(TopOrders)]cells.Counter

// denials returns the number of denied and of only observed requests.
func (s *seen) denials() uint64 {
	return s[orderOf(false, false)].Load() + s[orderOf(false, true)].Load()
}

// dropped counts events per ranking that no sample represents, since the last drain.
type dropped struct {
	events  [len(TopOrders)]atomic.Uint64
	sampled [len(TopOrders)]atomic.Bool // one of them stood for several
}

// add counts an event of a ranking, which stands for several.
func (d *dropped) add(order int, stands uint64) {
	if stands > 0 {
		d.events[order].Add(stands)
	}
	if stands > 1 {
		d.sampled[order].Store(true)
	}
}

// A ring has the last denials. The denial with the number n is at n modulo the length.
type ring struct {
	denials  []atomic.Pointer[Denial]
	newest   atomic.Uint64 // the number of the newest denial
	recorded atomic.Uint64
}

// add puts a denial into the ring, and gives it its number. Two calls must not overlap.
func (r *ring) add(d *Denial) {
	d.ID = r.recorded.Add(1)
	r.denials[d.ID%uint64(len(r.denials))].Store(d)
	r.newest.Store(d.ID)
}

// An event is a denial, or a request near a limit.
type event struct {
	*Denial
	near   bool
	number uint64 // of all denials, or of all that were only observed
}

func newRecorder(o Record, clock func() time.Time) *recorder {
	now := clock()
	return &recorder{
		now: clock, denials: newSampler(o.PerSecond, now), nears: newSampler(o.PerSecond, now),
		queue: make(chan event, max(min(o.PerSecond, maxQueue), 16)), ring: ring{denials: make([]atomic.Pointer[Denial], max(o.Denials, 1))},
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
	r.denials.tick(now, r.seen.denials())
	r.nears.tick(now, r.seen[orderOf(true, false)].Load())
}

func (r *recorder) close() {
	r.closeOnce.Do(func() { close(r.closed) })
	<-r.ended
}

// record records a denial, or a request near a limit, if its sampler chooses it.
func (r *recorder) record(near bool, req *decide.Request, v *decide.Verdict, s *decide.LimitStatus) {
	order, sampler := orderOf(near, s.Observed()), r.denials
	if near {
		sampler = r.nears
	}
	r.seen[order].Add(1)
	if stands, chosen := sampler.choose(); chosen {
		r.put(event{Denial: r.copyOf(req, v, s, stands), near: near, number: r.seen[order].Load()})
	} else {
		r.dropped.add(order, stands)
	}
}

// put leaves an event in the queue. If the queue is full, the event is dropped: requests do not
// wait.
func (r *recorder) put(e event) {
	select {
	case r.queue <- e:
	default:
		r.dropped.add(orderOf(e.near, e.Shadow), e.Stands)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// copyOf returns a denial without a part of the request's memory.
func (r *recorder) copyOf(req *decide.Request, v *decide.Verdict, s *decide.LimitStatus, stands uint64) *Denial {
	d := &Denial{
		At: r.now(), Domain: shown(req.Domain), Rule: shown(s.Rule.Name), Caller: CallerOf(req, s), Terms: TermsOf(&s.Limit),
		Used: s.Spent(), Reserved: s.Decision.Reserved, Cost: s.Cost, Retry: Retry{Never: s.Decision.Never},
		Position: Position{Of: len(v.Limits)}, Shadow: s.Observed(), Degraded: v.Degraded, Stands: stands,
	}
	if s.Limit.Policy == window.Sliding {
		d.Policy = ""
	}
	if s.DeniedUndecided() {
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

// CallerOf returns the caller that a limit counts. Its texts have a bound and are copies.
func CallerOf(req *decide.Request, s *decide.LimitStatus) Caller {
	p := s.Caller(req)
	return Caller{
		Subject: shown(p.Subject), Digest: strings.Clone(p.Digest), Address: p.Address, Tier: shown(s.Tier), Route: shown(p.Route), RequestID: shown(p.RequestID),
	}
}

// shown returns a copy of a text as people can see it: at most maxText bytes, and a mark if some are
// missing.
func shown(text string) string { return shownUpTo(text, maxText) }

// shownUpTo is shown with its own bound.
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
			r.moveDropped()
			return
		}
	}
}

// moveDropped takes the numbers of dropped events into the tops. They count as of now, which is a
// little later than the events, so that no list leaves them out too early. The caller has locked mu.
func (r *recorder) moveDropped() {
	for order := range r.dropped.events {
		sampled := r.dropped.sampled[order].Swap(false)
		if n := r.dropped.events[order].Swap(0); n > 0 {
			r.tops.miss(order, n, sampled, r.now())
		}
	}
}

// move takes one event into the ring, the tops and the log. The caller has locked mu.
func (r *recorder) move(e event) {
	r.tops.add(e)
	if e.near {
		return
	}
	r.ring.add(e.Denial)
	r.lines.write(e)
}
