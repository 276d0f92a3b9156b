package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNever is wrapped by the error of [Limiter.Wait] for a cost that is larger than a limit, and
// ErrDeadline for one that would wait beyond the deadline of the context.
var (
	ErrNever    = errors.New("limiter: the cost is larger than the limit, so no wait helps")
	ErrDeadline = errors.New("limiter: the wait would exceed the deadline of the context")
)

// shortWait is the least time between two attempts of a Wait.
const shortWait = time.Millisecond

// Wait is [Limiter.Allow], but while the request is denied, it waits and asks again. It returns the
// decision that allows the request. With an error the request was not charged, unless Allow says
// otherwise: [ErrNever], [ErrDeadline], that of ctx, or that of Allow. Those who wait have no order.
func (l *Limiter) Wait(ctx context.Context, req Request) (Decision, error) {
	for {
		d, err := l.Allow(ctx, req)
		if err != nil || d.Allowed {
			return d, err
		}
		limit := d.Limit()
		if limit.Never {
			return Decision{}, fmt.Errorf("%w (rule %s)", ErrNever, limit.Rule)
		}
		wait := max(limit.RetryAfter, shortWait)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return Decision{}, fmt.Errorf("%w (rule %s, %v)", ErrDeadline, limit.Rule, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Decision{}, ctx.Err()
		}
	}
}
