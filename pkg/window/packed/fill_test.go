package packed

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// fill returns a log in which a limit is used up, one hit at each step of an
// even pace over the window, and the time of the last one.
func fill(tb testing.TB, limit uint64, win, precision time.Duration) (log []byte, now int64) {
	tb.Helper()
	c := &window.Check{Limit: window.Limit{Hits: limit, Window: win}, Cost: 1, Precision: precision}
	w := win.Microseconds()
	for i := range int64(limit) {
		now = w + i*w/int64(limit)
		var d window.Decision
		if log = take(log, now, c, &d); !d.Allowed {
			tb.Fatalf("hit %d of %d at an even pace: got %+v", i+1, limit, d)
		}
	}
	return log, now
}
