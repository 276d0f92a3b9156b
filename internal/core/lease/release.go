package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxReleases is the most releases that wait for the shared store.
	maxReleases = 1 << 16
	// releaseAge is how long a release waits for the shared store. After that, an active request
	// ends there by itself.
	releaseAge = 10 * time.Minute
	// releasePause and maxReleasePause are the shortest and the longest time between two attempts.
	releasePause, maxReleasePause = 100 * time.Millisecond, 2 * time.Second
	// releaseTimeout bounds one attempt.
	releaseTimeout = time.Second
	// ambiguousAge is shorter than the 10 s for which the shared store knows that a stream has ended.
	ambiguousAge = 5 * time.Second
)

var _ window.Releaser = (*Store)(nil)

// errNoRelease is the error of End if the shared store does not count requests in flight.
var errNoRelease = errors.New("lease: the shared store releases no requests in flight")

// releases are ends of streams that the shared store does not know yet. The zero value has none.
type releases struct {
	mu      sync.Mutex
	waiting []release          // the oldest first
	stop    context.CancelFunc // of the goroutine that sends them; nil: none
	closed  bool
	wg      sync.WaitGroup
}

// A release is the end of a stream that the shared store does not know yet.
type release struct {
	end   window.Ending
	until time.Duration // by the clock of the Store
	// ambiguous is when the shared store has failed in a way that may have ended the stream. After ambiguousAge,
	// costs without a reservation could be charged twice. Zero: it has not.
	ambiguous time.Duration
}

// fail notes that an attempt has failed.
func (r *release) fail(err error, now time.Duration) {
	uncharged, ok := errors.AsType[interface {
		error
		Uncharged() bool
	}](err)
	if r.ambiguous == 0 && (!ok || !uncharged.Uncharged()) {
		r.ambiguous = max(now, 1)
	}
}

// End implements [window.Releaser]. If the shared store fails, End returns its error, and Store sends
// the end again later: for ten minutes at most, and 65,536 ends at most. Without that, its active
// requests end by themselves.
func (s *Store) End(ctx context.Context, end window.Ending) (settled window.Settled, err error) {
	releaser, ok := s.store.(window.Releaser)
	if !ok {
		return settled, errNoRelease
	}
	settled, err = releaser.End(ctx, end)
	if err != nil && !errors.Is(err, window.ErrBadCheck) {
		end.Costs = slices.Clone(end.Costs) // they are the caller's
		r := release{end: end, until: s.clock() + releaseAge}
		r.fail(err, s.clock())
		s.releaseLater(releaser, r)
	}
	return settled, err
}

// releaseLater makes the Store send the end of a stream again later.
func (s *Store) releaseLater(releaser window.Releaser, r release) {
	all := &s.releases
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.waiting) >= maxReleases || all.closed {
		return
	}
	all.waiting = append(all.waiting, r)
	if all.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		all.stop = stop
		all.wg.Go(func() { s.sendReleases(ctx, releaser) })
	}
}

// sendReleases sends the releases that wait to the shared store, until none is left.
func (s *Store) sendReleases(ctx context.Context, releaser window.Releaser) {
	pause := releasePause
	for ctx.Err() == nil {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		for {
			r, ok := s.releases.first()
			if !ok {
				return
			}
			if s.clock() < r.until {
				within, cancel := context.WithTimeout(ctx, releaseTimeout)
				r.end.Denied = r.end.Denied || r.ambiguous != 0 && s.clock()-r.ambiguous > ambiguousAge
				_, err := releaser.End(within, r.end)
				cancel()
				if err != nil {
					r.fail(err, s.clock())
					s.releases.mu.Lock()
					s.releases.waiting[0] = r
					s.releases.mu.Unlock()
					pause = min(2*pause, maxReleasePause)
					break
				}
				pause = releasePause
			}
			s.releases.mu.Lock()
			s.releases.waiting = s.releases.waiting[1:]
			s.releases.mu.Unlock()
		}
	}
}

// first returns the oldest release that waits. If there is none, the goroutine that sends them must end.
func (all *releases) first() (r release, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.waiting) > 0 {
		return all.waiting[0], true
	}
	if all.stop != nil {
		all.stop()
	}
	all.waiting, all.stop = nil, nil
	return release{}, false
}

// close ends the goroutine that sends releases. Those that wait are lost.
func (all *releases) close() {
	all.mu.Lock()
	all.closed = true
	if all.stop != nil {
		all.stop()
	}
	all.mu.Unlock()
	all.wg.Wait()
}
