package window

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Bounds of what a store accepts. They hold for every store, so that a rule
// which works on one works on all.
const (
	// MinWindow is the shortest window.
	MinWindow = 10 * time.Millisecond
	// MaxWindow is the longest window.
	MaxWindow = 400 * 24 * time.Hour
	// MaxHits is the largest limit that Envoy's protocol can carry, 2^32-1.
	MaxHits = math.MaxUint32
)

// ErrBadCheck is wrapped by the error of a [Store.Take] whose arguments break
// the contract: a window outside the bounds, an empty key, or decisions of
// another length than checks. Nothing was charged.
var ErrBadCheck = errors.New("window: bad check")

// A Limit is a number of hits per window. The zero value is not valid: a window
// has a length. Hits of zero denies everything.
type Limit struct {
	Hits   uint64
	Window time.Duration // a whole number of microseconds
}

// Valid reports what is wrong with l, or nil.
func (l Limit) Valid() error {
	switch {
	case l.Window < MinWindow:
		return fmt.Errorf("window %v is shorter than %v", l.Window, MinWindow)
	case l.Window > MaxWindow:
		return fmt.Errorf("window %v is longer than %v", l.Window, MaxWindow)
	case l.Window%time.Microsecond != 0:
		return fmt.Errorf("window %v is not a whole number of microseconds", l.Window)
	case l.Hits > MaxHits:
		return fmt.Errorf("limit %d is above %d", l.Hits, uint64(MaxHits))
	}
	return nil
}

// A LogID names one log: a key and the length of its window.
type LogID struct {
	Key    string
	Window time.Duration
}

// A Check asks one log for a cost under a limit.
type Check struct {
	// Key says whose log it is. It must not be empty and may hold any bytes;
	// the store adds the window, so one key may carry several windows.
	Key   string
	Limit Limit
	// Cost is the number of hits to spend. Zero only asks.
	Cost uint64
}

// Log returns the log that c asks.
func (c Check) Log() LogID { return LogID{c.Key, c.Limit.Window} }

// A Decision answers one check. Whether anything was charged depends on the
// whole group: it was if every decision of the group is allowed.
type Decision struct {
	// Allowed says that this check has room for its cost.
	Allowed bool
	// Never says that the cost is above the limit (or the limit is zero), so
	// that no wait will help. Allowed is then false and RetryAfter zero.
	Never bool
	// Remaining is what can still be spent at the instant of the decision, after
	// the charge if there was one.
	Remaining uint64
	// RetryAfter is the exact wait until this cost has room if nobody else
	// spends. Zero if Allowed or Never. A denial by another check of the group
	// does not show here.
	RetryAfter time.Duration
	// UnitAfter is the wait until one unit can be spent; zero while something
	// remains, and where the limit is zero.
	UnitAfter time.Duration
	// ResetAfter is the wait until the log is empty if nobody spends. Zero if it
	// is empty.
	ResetAfter time.Duration
}

// Store keeps logs. Implementations are safe for concurrent use.
type Store interface {
	// Take decides all checks of one request at once and charges all of them or
	// none; see the package comment for the whole contract. decisions must be as
	// long as checks and is filled in the same order; the store keeps neither.
	//
	// Take blocks no longer than ctx allows; with a ctx that is done already it
	// charges nothing and returns its error. A denial is not an error, and neither
	// is a group without checks. On an error the content of decisions is
	// undefined, and whether the group was charged is unknown unless the error
	// wraps [ErrBadCheck] or the store says otherwise.
	Take(ctx context.Context, checks []Check, decisions []Decision) error
	// Close frees what the store holds. Take must not be called after it.
	Close() error
}

// Allowed reports whether every decision is: whether the group was charged.
func Allowed(decisions []Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// Validate reports the first check that breaks the contract as an error that
// wraps [ErrBadCheck]. Stores call it before they touch anything.
func Validate(checks []Check, decisions []Decision) error {
	if len(checks) != len(decisions) {
		return fmt.Errorf("%w: %d checks, but room for %d decisions", ErrBadCheck, len(checks), len(decisions))
	}
	for i := range checks {
		if checks[i].Key == "" {
			return fmt.Errorf("%w: check %d has no key", ErrBadCheck, i)
		}
		if err := checks[i].Limit.Valid(); err != nil {
			return fmt.Errorf("%w: check %d: %w", ErrBadCheck, i, err)
		}
	}
	return nil
}

// Fold makes a group name each log once. Checks of the same log become one
// check with their summed cost, saturating, and the smallest of their limits;
// all of them get its decision. Fold returns checks itself and nil if no log is
// named twice, which is the usual case and allocates nothing. Otherwise it
// returns the folded checks and, for each original check, the index of the
// folded one that answers it.
func Fold(checks []Check) (folded []Check, answer []int) {
	if !namesTwice(checks) {
		return checks, nil
	}
	at := make(map[LogID]int, len(checks))
	answer = make([]int, len(checks))
	for i, c := range checks {
		j, ok := at[c.Log()]
		if !ok {
			j = len(folded)
			at[c.Log()] = j
			folded = append(folded, c)
		} else {
			f := &folded[j]
			f.Cost = AddSaturating(f.Cost, c.Cost)
			f.Limit.Hits = min(f.Limit.Hits, c.Limit.Hits)
		}
		answer[i] = j
	}
	return folded, answer
}

// namesTwice compares all pairs where that is cheaper than a map: requests
// rarely have more than a handful of checks.
func namesTwice(checks []Check) bool {
	if len(checks) > 16 {
		seen := make(map[LogID]struct{}, len(checks))
		for i := range checks {
			id := checks[i].Log()
			if _, ok := seen[id]; ok {
				return true
			}
			seen[id] = struct{}{}
		}
		return false
	}
	for i := 1; i < len(checks); i++ {
		for j := range i {
			if checks[i].Limit.Window == checks[j].Limit.Window && checks[i].Key == checks[j].Key {
				return true
			}
		}
	}
	return false
}

// AddSaturating returns a+b, or the largest uint64 where that overflows.
func AddSaturating(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint64
}
