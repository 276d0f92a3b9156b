package compare

import (
	"sync"
	"time"
)

// Reason is why one service denies a call that the other one allows.
type Reason int

// The reasons. The package comment says what each of them claims.
const (
	Same Reason = iota // there is no difference
	Other
	WindowEdge
	FreeDenial
)

// Reasons lists all reasons by number with their metric label.
var Reasons = [...]string{Same: "", Other: "other", WindowEdge: "window_edge", FreeDenial: "free_denial"}

// String returns the metric label.
func (r Reason) String() string { return Reasons[r] }

// reason returns why the answers differ. now is when the answer of the other service came.
func (q *question) reason(a *answer, now time.Time, past *denials) Reason {
	if q.ours == OverLimit {
		if q.crossesEdges(a, now) {
			return WindowEdge
		}
		return Other
	}
	at := q.subject(a)
	if at < 0 {
		return Other // no descriptor has a rule
	}
	denied := past.last(q.descriptors[at].hash)
	for i := range q.limits {
		l := &q.limits[i]
		if l.descriptor == at && l.agrees(a) && !denied.Before(lastEdge(now, l.limit.Window)) {
			return FreeDenial
		}
	}
	return Other
}

// crossesEdges reports whether an edge of the other service's windows explains every denial
// of this service.
func (q *question) crossesEdges(a *answer, now time.Time) (crosses bool) {
	for i := range q.limits {
		l := &q.limits[i]
		if !l.denies {
			continue
		}
		// The hit that must expire before the cost has room. What came after it has room.
		blocking := q.at.Add(l.retryAfter - l.limit.Window)
		if l.never || !l.agrees(a) || blocking.After(lastEdge(now, l.limit.Window)) {
			return false
		}
		crosses = true
	}
	return crosses
}

func (l *limit) agrees(a *answer) bool {
	if l.descriptor >= len(a.statuses) {
		return false
	}
	s := a.statuses[l.descriptor]
	return s.limited && s.hits == l.limit.Hits && s.window == l.limit.Window
}

// lastEdge returns the last edge of the fixed windows of envoyproxy/ratelimit, which begin at
// multiples of their length since 1970 in UTC.
func lastEdge(now time.Time, window time.Duration) time.Time {
	since := now.UnixNano()
	return time.Unix(0, since-since%int64(window))
}

// maxDenials bounds the descriptors whose last denial is remembered.
const maxDenials = 1 << 14

// denials remembers when this service last denied a call with a descriptor. A descriptor with
// the same slot replaces another one. The zero value is ready. It is safe for
// concurrent use.
type denials struct {
	mu    sync.Mutex
	slots [maxDenials]denial
}

type denial struct {
	hash uint64
	at   int64 // nanoseconds since 1970
}

// note remembers a denied call. at is not before the other service has charged the call.
func (d *denials) note(q *question, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range q.descriptors {
		d.slots[one.hash%maxDenials] = denial{one.hash, at.UnixNano()}
	}
}

// last returns when note was last called for a descriptor. If that is not known, it is long
// ago.
func (d *denials) last(hash uint64) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[hash%maxDenials]; s.hash == hash {
		return time.Unix(0, s.at)
	}
	return time.Unix(0, 0)
}
