package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxEnds is the most ends that wait for the shared store.
	maxEnds = 1 << 16
	// endAge is how long an end waits for the shared store. After that, what the stream holds
	// there ends by itself.
	endAge = 10 * time.Minute
	// endPause and endPauseMost are the shortest and the longest time between two attempts.
	endPause, endPauseMost = 100 * time.Millisecond, 2 * time.Second
	// endTimeout bounds one attempt.
	endTimeout = time.Second
)

var (
	_ window.Ender = (*Store)(nil)
	_ window.Ender = (*Shares)(nil)
)

// errNoEnder is the error of an end if the shared store does not hear of ends.
var errNoEnder = errors.New("local: the shared store hears of no ends of streams")

// streamEnds are ends of streams that the shared store has not heard of yet. The zero value has none.
type streamEnds struct {
	mu      sync.Mutex
	waiting map[window.StreamID]waitingEnd
	stop    context.CancelFunc // of the goroutine that delivers them; nil: none
	closed  bool
	wg      sync.WaitGroup
}

// A waitingEnd is an end that the shared store has not heard of yet.
type waitingEnd struct {
	deny  time.Duration
	until time.Duration // by the clock of the Store
}

// End implements [window.Ender]. If the shared store cannot be told, End returns its error, and
// Store tells it later: for ten minutes at most, and 65,536 ends at most. What a stream holds
// of which the shared store never hears ends by itself.
func (s *Store) End(ctx context.Context, stream window.StreamID, deny time.Duration) (held bool, err error) {
	ender, ok := s.store.(window.Ender)
	if !ok {
		return false, errNoEnder
	}
	held, err = ender.End(ctx, stream, deny)
	if err != nil && !errors.Is(err, window.ErrBadCheck) {
		s.endLater(ender, stream, waitingEnd{deny, s.clock() + endAge})
	}
	return held, err
}

// endLater makes the Store tell the shared store later that a stream has ended.
func (s *Store) endLater(ender window.Ender, stream window.StreamID, end waitingEnd) {
	e := &s.ends
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.waiting[stream]; !ok && len(e.waiting) >= maxEnds || e.closed {
		return
	}
	if e.waiting == nil {
		e.waiting = make(map[window.StreamID]waitingEnd)
	}
	e.waiting[stream] = end
	if e.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		e.stop = stop
		e.wg.Go(func() { s.deliverEnds(ctx, ender) })
	}
}

// deliverEnds tells the shared store of the ends that wait, until none is left.
func (s *Store) deliverEnds(ctx context.Context, ender window.Ender) {
	pause := endPause
	for ctx.Err() == nil {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		for {
			stream, end, ok := s.ends.first()
			if !ok {
				return
			}
			if s.clock() < end.until {
				within, cancel := context.WithTimeout(ctx, endTimeout)
				_, err := ender.End(within, stream, end.deny)
				cancel()
				if err != nil {
					pause = min(2*pause, endPauseMost)
					break
				}
				pause = endPause
			}
			s.ends.mu.Lock()
			delete(s.ends.waiting, stream)
			s.ends.mu.Unlock()
		}
	}
}

// first returns an end that waits. If there is none, the goroutine that delivers them must end.
func (e *streamEnds) first() (stream window.StreamID, end waitingEnd, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for stream, end := range e.waiting {
		return stream, end, true
	}
	if e.stop != nil {
		e.stop()
	}
	e.waiting, e.stop = nil, nil // a map does not become smaller
	return 0, waitingEnd{}, false
}

// close ends the goroutine that delivers ends. Those that wait are lost.
func (e *streamEnds) close() {
	e.mu.Lock()
	e.closed = true
	if e.stop != nil {
		e.stop()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

// End implements [window.Ender] for what streams hold in this process: what the shares have
// admitted, and what Learn has noted.
func (s *Shares) End(ctx context.Context, stream window.StreamID, deny time.Duration) (held bool, err error) {
	held, err = s.store.End(ctx, stream, deny)
	if err != nil {
		return held, fmt.Errorf("local: %w", err)
	}
	return held, nil
}

// learnHold notes what a stream of this process holds in the shared store. So if an outage
// begins, the share counts it until the stream ends. If another check has denied the group, the
// stream holds nothing, and ends soon.
func (s *Shares) learnHold(c *window.Check, d *window.Decision) {
	if !d.Allowed || c.Cost == 0 || c.Mode == window.Refund {
		return
	}
	check, decision := [1]window.Check{*c}, [1]window.Decision{}
	check[0].Mode = window.Always // it holds already, whatever the share is
	_, _ = s.store.Take(context.Background(), window.NoWait, check[:], decision[:])
}
