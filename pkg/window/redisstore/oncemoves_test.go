package redisstore_test

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// TestOnceWhileASlotMoves: a request with an idempotency key is decided while the slot of its log moves, as one
// without a key is.
func TestOnceWhileASlotMoves(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: 2 * time.Second})
	t.Cleanup(func() { _ = s.Close() })
	one := tagged("tag", 1000, 1, 1)
	slot := c.Slot(redisstore.KeyName("", one.Log()))
	from := c.MasterOfSlot(slot)
	to := c.Masters()[0]
	if to.Addr() == from.Addr() {
		to = c.Masters()[1]
	}
	take(t, s, one)
	ask := func(what string, attempt uint64) {
		t.Helper()
		next := tagged("tag", 1000, 1, attempt)
		if attempt == 0 {
			next.Once = window.Once{}
		}
		if _, err := s.Take(t.Context(), window.MayWait, []window.Check{next}, make([]window.Decision, 1)); err != nil {
			t.Errorf("%s: attempt %d: %v", what, attempt, err)
		}
	}
	c.BeginMigration(slot, from, to)
	ask("the log is at the old server", 0)
	ask("the log is at the old server", 1)
	ask("the log is at the old server", 2)
	c.MigrateKeys(slot, from, to, 100)
	ask("the log is at the new server", 0)
	ask("the log is at the new server", 1)
	ask("the log is at the new server", 3)
	c.FinishMigration(slot, from, to)
	ask("afterwards", 4)
}
