package adaptertest

import (
	"context"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
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

// Waiting is a store that decides nothing without waiting.
type Waiting struct{ window.Store }

// Take implements [window.Store].
func (s Waiting) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if !wait {
		return false, nil
	}
	return s.Store.Take(ctx, wait, checks, decisions)
}

// Broken is a store that fails with Err.
type Broken struct{ Err error }

// Take implements [window.Store].
func (b Broken) Take(context.Context, bool, []window.Check, []window.Decision) (decided bool, err error) {
	return true, b.Err
}

// Close implements [window.Store].
func (Broken) Close() error { return nil }

// Panicking is a store that panics.
type Panicking struct{ window.Store }

// Take implements [window.Store].
func (Panicking) Take(context.Context, bool, []window.Check, []window.Decision) (decided bool, err error) {
	panic("Take")
}

// Uncounted is a policy.Meters that counts nothing.
type Uncounted struct{}

// Meter implements [policy.Meters].
func (Uncounted) Meter(string, string) policy.Meter { return Uncounted{} }

// UnknownDomain implements [policy.Meters].
func (Uncounted) UnknownDomain() {}

// Detail implements [policy.Meter].
func (Uncounted) Detail([]byte, policy.Outcome) {}

// Count implements [policy.Meter].
func (Uncounted) Count(policy.Outcome) {}
