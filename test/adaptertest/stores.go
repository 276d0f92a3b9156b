package adaptertest

import (
	"context"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// Memory returns an embedded store whose clock is now.
func Memory(t testing.TB, now func() time.Duration) window.Store {
	t.Helper()
	store := memstore.New(memstore.Options{Clock: now, SweepInterval: -1})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// WaitingStore is a store that decides nothing without waiting.
type WaitingStore struct{ window.Store }

// Take implements [window.Store].
func (s WaitingStore) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if !wait {
		return false, nil
	}
	return s.Store.Take(ctx, wait, checks, decisions)
}

// FailingStore is a store that fails with Err.
type FailingStore struct{ Err error }

// Take implements [window.Store].
func (b FailingStore) Take(context.Context, bool, []window.Check, []window.Decision) (decided bool, err error) {
	return true, b.Err
}

// Close implements [window.Store].
func (FailingStore) Close() error { return nil }

// PanickingStore is a store that panics.
type PanickingStore struct{ window.Store }

// Take implements [window.Store].
func (PanickingStore) Take(context.Context, bool, []window.Check, []window.Decision) (decided bool, err error) {
	panic("Take")
}
