package window

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxBudgetHold is the longest [Budget.Hold].
const MaxBudgetHold = 24 * time.Hour

// maxPerByte is the largest [Budget.PerByte]: its millionths have 32 bits.
const maxPerByte = 4294

// MinSettled is the least for which checks of a stream are denied after it has reserved something, or after an end
// that names its costs: a second call for the same end changes nothing meanwhile.
const MinSettled = 10 * time.Second

// MaxHolds is the most reservations that the log of a budget has, with those that have expired while they still count.
const MaxHolds = 2 * MaxInFlight

// A Budget makes a check reserve its cost for the check's stream, instead of spending it. [Releaser.End]
// settles it: the reservation goes, and the log records the true cost. A limit has one Budget, which never
// changes; its checks point at it.
type Budget struct {
	// Hold is how long a reservation waits for the end of its stream: [MinHold] to [MaxBudgetHold], in
	// whole milliseconds. After that, its cost is spent at the time of the reservation.
	Hold time.Duration
	// PerByte says what a stream costs if its end does not say it: the bytes that it has sent times PerByte,
	// rounded up, and the reserved cost at most. It is from 0 to 4294, in whole millionths. Zero: the reserved cost.
	PerByte float64
}

// PerMillionBytes returns what a million bytes cost by PerByte.
func (b *Budget) PerMillionBytes() uint64 { return uint64(math.Round(b.PerByte * 1e6)) }

// validBudget reports what is wrong with c.Budget, or nil.
func (c *Check) validBudget() error {
	switch b := c.Budget; {
	case b == nil:
		return nil
	case b.Hold < MinHold || b.Hold > MaxBudgetHold || b.Hold%time.Millisecond != 0:
		return fmt.Errorf("a reservation for %v, want %v to %v in whole milliseconds", b.Hold, MinHold, MaxBudgetHold)
	case !(b.PerByte >= 0 && b.PerByte <= maxPerByte): // NaN too
		return fmt.Errorf("a cost of %v for each byte, want 0 to %d", b.PerByte, maxPerByte)
	case c.Limit.Policy == InFlight:
		return errors.New("a check in flight has no budget: it spends nothing")
	case c.Mode.Unconditional():
		return fmt.Errorf("a check of mode %v reserves nothing, so it has no budget", c.Mode)
	case c.Lease != Lease{}:
		return errors.New("a check with a budget has no lease")
	case HashTag(c.Key) == c.Key:
		return errors.New("what is reserved must be on the slot of its log, so the key needs a hash tag")
	case c.Once.ID != 0:
		return errors.New("a check with a budget has no idempotency record: its stream holds the cost once")
	}
	return nil
}

// An Ending says how a stream has ended. The zero value is not valid, because it names no stream.
type Ending struct {
	Stream StreamID
	// Deny is for how long later checks of the stream are denied, because a check may arrive after the end
	// of its stream. Zero or less denies none, but see [MinSettled].
	Deny time.Duration
	// Costs are what the stream has cost: for each budget its log, and the cost. The mode [Always] says that it is
	// known. [Enforce] says that it is an estimate, which counts only if the stream has reserved nothing in the log.
	// [Observe] says that it is known, and counts only if the stream has reserved something there: a limit that is only
	// observed lets a request pass without a reservation. No two have one log. They need no [Check.Budget] and no [Check.Stream].
	Costs []Check
	// Bytes is the number of bytes that the stream has sent to the client, for [Budget.PerByte].
	Bytes uint64
	// Unreached says that nothing of the stream has reached the upstream: a cost that Costs does not name is
	// zero.
	Unreached bool
	// Denied says that the stream was denied: Costs count only for what it has reserved.
	Denied bool
}

// Valid returns an error that wraps [ErrBadCheck] if e names no stream, or a cost that [Validate] refuses
// or that is not of mode [Always], [Enforce] or [Observe] and of any policy but [InFlight], or two costs of one log.
func (e *Ending) Valid() error {
	if e.Stream == 0 {
		return fmt.Errorf("%w: an end of no stream", ErrBadCheck)
	}
	for i := range e.Costs {
		if c := &e.Costs[i]; c.Mode != Always && c.Mode != Enforce && c.Mode != Observe || c.Limit.Policy == InFlight {
			return fmt.Errorf("%w: cost %d has the mode %v and the policy %v, want %v, %v or %v and a policy that spends", ErrBadCheck, i, c.Mode, c.Limit.Policy, Always, Enforce, Observe)
		}
	}
	if namesTwice(e.Costs) {
		return fmt.Errorf("%w: two costs have one log: Fold adds them", ErrBadCheck)
	}
	return validChecks(e.Costs)
}

// Settled is what the end of a stream has changed. The zero value changed nothing.
type Settled struct {
	// Released says that the stream had a hold: in a log of [InFlight], or a reservation.
	Released bool
	// Logs are the budgets that were settled or charged, in no order.
	Logs []SettledLog
}

// A SettledLog says what the end of a stream has changed in the log of one budget.
type SettledLog struct {
	Log LogID
	// Cost is the index in [Ending.Costs] of the cost of this log, or -1 if the end does not name it.
	Cost int
	// Reserved is what the stream had reserved. Zero: it had reserved nothing, and Spent was charged all the
	// same.
	Reserved uint64
	// Spent is what the log has recorded.
	Spent uint64
	// Expired are the reservations of the log that have expired since it was written before. It may be all that
	// the end has changed: then the others are zero, and Cost is -1.
	Expired Expired
	// Remaining is what remains afterwards of the limit, and OtherReserved what other streams have reserved of it.
	Remaining, OtherReserved uint64
}

// Expired counts reservations that have expired: their costs are spent. Each is reported once, by the first decision or
// end that writes to the log afterwards, if the log still counts it then.
type Expired struct {
	Holds uint64
	Units uint64 // their costs
}

// Add counts one more, unless its cost is zero.
func (e *Expired) Add(cost uint64) {
	if cost > 0 {
		e.Holds, e.Units = e.Holds+1, AddSaturating(e.Units, cost)
	}
}

// A Releaser ends streams. Every store implements it. Implementations are safe
// for concurrent use.
type Releaser interface {
	// End gives back all that a stream holds in logs of [InFlight], and settles all that it has reserved. For
	// each budget it records at once, and even over the limit: what the end says that the stream has cost; if
	// it does not say so, nothing if the upstream was not reached, and otherwise what [Budget] says. A cost or an
	// estimate for a log in which the stream has reserved nothing is charged too, unless [Ending.Denied].
	//
	// Later checks of the stream are denied for [Ending.Deny]. While they are denied, a second
	// End of the stream changes nothing. An invalid ending is an
	// error that wraps [ErrBadCheck]. End blocks no longer than ctx allows. After an error it
	// may be called again: it may have done all, some or nothing.
	End(ctx context.Context, end Ending) (Settled, error)
}

// A ReadyReleaser is a Releaser whose End waits only for short locks, as [Store.Take] does with [NoWait].
type ReadyReleaser interface {
	Releaser
	// EndsAtOnce does nothing.
	EndsAtOnce()
}
