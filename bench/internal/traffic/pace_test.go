package traffic

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 105*time.Millisecond)
		defer cancel()
		var calls, running, most atomic.Int64
		Every(ctx, 10*time.Millisecond, 3, func(int) {
			most.Store(max(most.Load(), running.Add(1)))
			calls.Add(1)
			Pause(t.Context(), 20*time.Millisecond)
			running.Add(-1)
		})
		if calls.Load() != 10 || most.Load() > 3 || running.Load() != 0 {
			t.Errorf("got %d calls, %d at once, %d still running, want 10, at most 3, none", calls.Load(), most.Load(), running.Load())
		}
	})
}
