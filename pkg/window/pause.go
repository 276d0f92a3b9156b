package window

import "context"

// PauserKey is the key of the [Pauser] in a context.
type PauserKey struct{}

// A Pauser lets several calls of [Store.Take] on one goroutine wait together, instead of each on its
// own goroutine. It is in the context of a Take without wait: the caller cannot block there, but can
// let the call pause while it makes others. A store need not make use of it.
type Pauser interface {
	// Pause returns after the caller has called Flush of f, once for all calls that have paused for f.
	// f must be comparable. On an error the caller gives the call up: Take must return, and it is as
	// unknown as after any other error whether it has charged.
	Pause(f Flusher) error
}

// A Flusher does at once what several calls have paused for. Flush may block.
type Flusher interface{ Flush() }

// PauserOf returns the Pauser in ctx. Nil: there is none, so a Take without wait cannot pause.
func PauserOf(ctx context.Context) Pauser {
	p, _ := ctx.Value(PauserKey{}).(Pauser)
	return p
}

// WithoutPauser returns ctx without its Pauser.
func WithoutPauser(ctx context.Context) context.Context {
	if PauserOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, PauserKey{}, nil)
}

// PauserFor returns the Pauser for a Take: nil if it may wait. It returns false if the Take can neither
// wait nor pause.
func PauserFor(ctx context.Context, wait bool) (p Pauser, ok bool) {
	if wait {
		return nil, true
	}
	p = PauserOf(ctx)
	return p, p != nil
}
