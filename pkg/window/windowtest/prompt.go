package windowtest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/slidegate/slidegate/pkg/window"
)

// prompted makes a store of a [window.Prompter] that is asked by TryTake first, in
// every call or in every other one, and by Take where that does not decide.
type prompted struct {
	window.Prompter
	every int64 // 1: in every call
	calls atomic.Int64
}

// Take implements [window.Store]. TryTake has no context, so one that is done is
// left to Take.
func (p *prompted) Take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if p.calls.Add(1)%p.every == 0 && ctx.Err() == nil {
		if decided, err := p.TryTake(checks, decisions); decided || err != nil {
			return err
		}
	}
	return p.Prompter.Take(ctx, checks, decisions)
}

// promptedBy has TryTake asked first in every so many calls, of stores that have it.
func promptedBy(every int64, open func(*testing.T) Harness) func(*testing.T) Harness {
	return func(t *testing.T) Harness {
		h := open(t)
		if p, ok := h.Store.(window.Prompter); ok {
			h.Store = &prompted{Prompter: p, every: every}
		}
		return h
	}
}
