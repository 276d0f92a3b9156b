package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// maxLanes bounds how many keys a Transport paces at a time.
	maxLanes = 1024

	// A window is stretched by 1/slackPart of it, and by leastSlack. So it does not matter if the
	// clock of the server is a little slower, or if it rounds times.
	slackPart  = 1000
	leastSlack = time.Millisecond

	// A request may pass late by 1/catchUpPart of the window without delaying the next ones.
	catchUpPart = 100

	// A server rounds a reset up to whole seconds.
	rounding = time.Second
)

// A lane lets the requests of one key pass, one after the other.
type lane struct {
	turn chan struct{} // has a value while a request goes next; waiting requests get it in their order

	mu      sync.Mutex
	users   int           // requests that have the lane
	waiting int           // those before their turn, and the one that has it
	seen    time.Time     // the last use
	last    time.Time     // when a request passed
	spacing time.Duration // between two requests
	catchUp time.Duration // how late a request may pass without delaying the next ones
	longest time.Duration // Transport.Pace
	limit   int64         // requests in window; 0 if unknown
	window  time.Duration // stretched
	history history
	until   time.Time // before it, no request passes
	status  int       // of the response that set until
}

// enter returns the lane of a request, or nil if it is not paced.
func (t *Transport) enter(req *http.Request) *lane {
	if t.Pace <= 0 {
		return nil
	}
	var key string
	switch {
	case t.Key != nil:
		key = t.Key(req)
	case req.URL == nil:
		return nil // Base refuses it
	default:
		key = host(req.URL)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[key]
	if l == nil {
		if len(t.lanes) >= maxLanes && !t.forget() {
			return nil
		}
		if t.lanes == nil {
			t.lanes = make(map[string]*lane)
		}
		l = &lane{turn: make(chan struct{}, 1), longest: t.Pace, history: history{begin: time.Now()}}
		t.lanes[key] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	l.seen = time.Now()
	return l
}

// host returns the host and port of a URL in one spelling.
func host(u *url.URL) string {
	name := strings.ToLower(u.Host)
	if u.Scheme == "http" {
		return strings.TrimSuffix(name, ":80")
	}
	return strings.TrimSuffix(name, ":443")
}

// forget removes the lane that was used least recently. If all are in use, it returns false.
func (t *Transport) forget() bool {
	var oldest string
	var at time.Time
	found := false
	for key, l := range t.lanes {
		l.mu.Lock()
		if l.users == 0 && (!found || l.seen.Before(at)) {
			oldest, at, found = key, l.seen, true
		}
		l.mu.Unlock()
	}
	delete(t.lanes, oldest)
	return found
}

func (l *lane) leave() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
}

// wait blocks until the request may be sent. It returns a *WaitError at once if that takes
// longer than the request may wait. The caller gives passed to learn. delayed is true if the wait of a
// response delayed the request, and the limit is unknown. Then nothing keeps the requests apart that were
// delayed together.
func (l *lane) wait(ctx context.Context, b *budget) (passed time.Duration, delayed bool, err error) {
	if l == nil {
		return 0, false, nil
	}
	if err := l.queue(b); err != nil {
		return 0, false, err
	}
	defer l.dequeue()
	begin := time.Now()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
	b.used += time.Since(begin)
	defer func() { <-l.turn }()
	for {
		passed, wait, status := l.next()
		if wait <= 0 {
			return passed, l.delayed(begin), nil
		}
		if err := b.sleep(ctx, wait, status); err != nil {
			return 0, false, err
		}
	}
}

// queue joins the requests that wait for their turn, if the turn comes in time.
func (l *lane) queue(b *budget) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait, status := l.free(time.Now())
	if err := b.check(max(wait, 0)+time.Duration(l.waiting)*l.spacing, status); err != nil {
		return err
	}
	l.waiting++
	return nil
}

// delayed reports whether the wait of a response delayed a request that waits since a time, and the limit is
// unknown.
func (l *lane) delayed(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spacing == 0 && since.Before(l.until)
}

func (l *lane) dequeue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
}

// free returns how long the next request has to wait, 0 or less if it may pass, and the status of
// the response that said so. The caller holds the lock.
func (l *lane) free(now time.Time) (time.Duration, int) {
	spaced, reported := l.last.Add(l.spacing).Sub(now), l.until.Sub(now)
	if room, ok := l.history.room(l.limit, l.window); ok {
		spaced = max(spaced, min(room.Sub(now), l.last.Add(l.longest).Sub(now)))
	}
	if reported >= spaced {
		return reported, l.status
	}
	return spaced, 0
}

// next lets a request pass, or returns what free does.
func (l *lane) next() (passed, wait time.Duration, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if wait, status := l.free(now); wait > 0 {
		return 0, wait, status
	}
	// The next request is spaced from the time at which this one was due. So a timer that is a
	// little late does not slow down all requests behind it.
	l.last = l.last.Add(l.spacing)
	if earliest := now.Add(-l.catchUp); l.last.Before(earliest) {
		l.last = earliest
	}
	return l.history.pass(now), 0, 0
}

// learn takes the advice of a response. passed is what wait returned for its request. denied says that
// the response is a denial, and wait is how long, with the random part.
func (l *lane) learn(a advice, passed time.Duration, denied bool, wait time.Duration, status int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case a.window > 0:
		l.limit, l.window, l.catchUp = a.limit, a.window+a.window/slackPart+leastSlack, a.window/catchUpPart
		l.spacing = l.window / time.Duration(a.limit)
		l.history.count(a.limit)
	case a.remaining > 0 && a.hasReset:
		l.spacing, l.catchUp, l.limit = a.reset/time.Duration(a.remaining), 0, 0
	}
	l.spacing = min(l.spacing, l.longest)
	l.history.answered(passed, now, status == http.StatusTooManyRequests)
	if !denied {
		// While requests are spaced, one of them often takes the rest of the limit, which is
		// free again at the next one. A longer reset means that the limit is used up.
		if a.remaining != 0 || !a.hasReset || a.reset <= l.spacing+rounding {
			return
		}
		// If the requests of the lane explain the reset, their times are more precise.
		if room, ok := l.history.room(l.limit, l.window); ok && room.Sub(now) >= a.reset-rounding-l.spacing {
			return
		}
		wait = a.reset
	}
	if until := now.Add(wait); until.After(l.until) {
		l.until, l.status = until, status
	}
}
