package windowtest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/slidegate/slidegate/pkg/window"
)

// unwaited asks a store without waiting first, and then, if the store has not
// decided, with waiting: in every call, or in every other one. In half of these calls the store may
// pause.
type unwaited struct {
	window.Store
	every int64 // 1: in every call
	calls atomic.Int64
}

// Take implements [window.Store].
func (u *unwaited) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if n := u.calls.Add(1); n%u.every == 0 && ctx.Err() == nil {
		first := ctx
		if n/u.every%2 == 0 {
			first = context.WithValue(ctx, window.PauserKey{}, window.Pauser(Flushing{}))
		}
		if decided, err := u.Store.Take(first, window.NoWait, checks, decisions); decided || err != nil {
			return decided, err
		}
	}
	return u.Store.Take(ctx, wait, checks, decisions)
}

// Flushing is a Pauser of calls that wait alone.
type Flushing struct{}

// Pause implements [window.Pauser].
func (Flushing) Pause(f window.Flusher) error {
	f.Flush()
	return nil
}

// UnwaitedFirst has the stores that open makes asked without waiting first, in one of
// every so many calls.
func UnwaitedFirst(every int64, open func(*testing.T) Harness) func(*testing.T) Harness {
	return func(t *testing.T) Harness {
		h := open(t)
		h.Store = &unwaited{Store: h.Store, every: every}
		return h
	}
}
