package simulate

import (
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// pauses lets the calls of an instance pause that come within a moment, as those that came in one read of a
// connection do. Then one send asks for all of them.
type pauses struct {
	w       *world
	mu      sync.Mutex
	waiting map[window.Flusher]chan struct{} // closed after the flush
}

// together is how long calls that pause wait for each other.
const together = 200 * time.Microsecond

// Pause implements [window.Pauser].
func (p *pauses) Pause(f window.Flusher) error {
	p.mu.Lock()
	flushed := p.waiting[f]
	if flushed == nil {
		flushed = make(chan struct{})
		p.waiting[f] = flushed
		p.w.running.Go(func() {
			time.Sleep(together)
			p.mu.Lock()
			delete(p.waiting, f)
			p.mu.Unlock()
			f.Flush()
			close(flushed)
		})
	}
	p.mu.Unlock()
	<-flushed
	return nil
}
