//go:build linux && (amd64 || arm64) && !plainsockets

package socket

import (
	"sync"
	"time"
)

// base is what instants are counted from, because int64 compares faster than time.Time.
var base = time.Now()

// A deadline is that of one direction of a stream. It sets the timer of the stream only if the new
// deadline is earlier than the one that the timer is set to. Otherwise the timer is set again when it
// has fired: a caller with a deadline for each call hardly ever sets it.
type deadline struct {
	set func(time.Time) error // sets the timer

	mu          sync.Mutex
	want, armed int64 // the deadline, and what the timer is set to; since base, 0: none
}

// change is SetReadDeadline or SetWriteDeadline of net.Conn. On a closed stream it may return nil.
func (d *deadline) change(t time.Time) error {
	want := int64(0)
	if !t.IsZero() {
		now := time.Now()
		// At most half of what int64 holds, so that the sum fits.
		if want = int64(now.Sub(base) + min(t.Sub(now), 1<<62)); want == 0 {
			want = 1
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = want
	if want == 0 || d.armed != 0 && d.armed <= want {
		return nil
	}
	return d.arm()
}

// early reports whether the timer has fired before the deadline. Then it sets the timer again.
func (d *deadline) early() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.want != 0 && d.want <= int64(time.Since(base)) {
		return false
	}
	return d.arm() == nil
}

func (d *deadline) arm() error {
	d.armed = d.want
	if d.want == 0 {
		return d.set(time.Time{})
	}
	return d.set(base.Add(time.Duration(d.want)))
}
