package window

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Bounds of what a store accepts. They hold for every store, so a rule that works on
// one store works on all.
const (
	// MinWindow is the shortest window.
	MinWindow = 10 * time.Millisecond
	// MaxWindow is the longest window.
	MaxWindow = 400 * 24 * time.Hour
	// MaxAhead is the furthest that [packed.View.Reserve] records ahead: 71 minutes.
	MaxAhead = math.MaxUint32 * time.Microsecond
	// MaxClock is the latest clock of a log in microseconds, in the year 2112. Its sum with a few windows stays
	// below 2^53, so Redis's Lua can count every microsecond. In nanoseconds the sum
	// stays below 2^63.
	MaxClock = 1 << 52
	// Unlimited is a limit that allows everything and records nothing. It is the largest limit that Envoy's
	// protocol can carry, 2^32-1.
	Unlimited = math.MaxUint32
	// MaxHits is the largest limit, 2^53-1, and the most hits that a log holds: Redis's Lua can count all of them.
	MaxHits = 1<<53 - 1
	// MaxSliding is the largest limit of [Sliding]: a slot of its log has 32 bits for hits.
	MaxSliding = Unlimited - 1
)

// ErrBadCheck is wrapped by the error of a [Store.Take] whose arguments break the
// contract. [Validate] lists the cases. Nothing was charged.
var ErrBadCheck = errors.New("window: bad check")

// A Limit is a number of hits, counted by a [Policy]. The zero value is not valid, because
// its window has no length. A limit of zero hits denies everything.
type Limit struct {
	// Hits is the most that may be spent: in a window, in a period, at once (the burst of a
	// [TokenBucket]), or at the same time ([InFlight]).
	Hits uint64
	// Window is a whole number of microseconds. Of a [TokenBucket] it is the time in which
	// Rate hits come back; of [Calendar] the usual length of a period, which names the log;
	// of [InFlight] the time after which a hold ends that is not given back.
	Window time.Duration
	Policy Policy
	// Rate is the number of hits that come back to a [TokenBucket] in each Window. It is
	// zero for every other policy.
	Rate uint32
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
	case l.Hits > Unlimited && l.Policy == Sliding:
		return fmt.Errorf("a sliding limit of %d is above %d; another policy, such as sliding_counter, can have it", l.Hits, uint64(MaxSliding))
	case l.Rate == 0 && l.Policy < InFlight && l.Policy != TokenBucket,
		l.Rate != 0 && l.Policy == TokenBucket && l.fillsSoon():
		return nil // the usual cases, without a call
	}
	return l.validPolicy()
}

// A LogID names one log: a key, its policy, the length of its window, and the scope whose
// store has it. A log of [InFlight] has no window, so another hold time keeps the log.
type LogID struct {
	Key    string
	Window time.Duration
	Policy Policy
	Scope  Scope
}

// HashTag returns the part of a key that chooses its slot in a Redis Cluster: the text
// between the first brace and the next closing brace. It is the whole key if the key has no
// such text.
func HashTag(key string) string {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			return key[i+1 : i+1+j]
		}
	}
	return key
}

// A Check asks one log for a cost under a limit.
type Check struct {
	// Key names the log, together with the window. It may hold any bytes, but must not
	// be empty. One key may have several windows, each with its own log.
	Key   string
	Limit Limit
	// Cost is the number of hits to spend, or to give back if Mode is [Refund]. Zero
	// only asks.
	Cost uint64
	// Mode says whether the check can deny its group, and when it is charged. The zero
	// value is [Enforce].
	Mode Mode
	// Scope says which store has the log.
	Scope Scope
	// Priority says whether the store decides the check's group before others that wait for it,
	// and which it refuses if too many wait. The highest of a group counts. A store without a
	// queue ignores it.
	Priority Priority
	// Times are rounded up to a multiple of Precision, which is from 0 to the window.
	// Zero is exact. A fraction of the log's [packed.Unit] counts as a whole unit. A log holds
	// at most window/Precision + 2 entries. A hit may count up to one Precision too
	// long, never too short. The function [Precision] chooses a value for a limit.
	Precision time.Duration
	// Lease allows a store in front of a shared store to reserve more than the cost of
	// one request. The shared store ignores it when it decides, but may then set
	// [Decision.Unsettled]. It is zero for every policy but [Sliding].
	Lease Lease
	// Period says when periods begin and end. It is zero for every policy but [Calendar].
	Period Period
	// Stream names the stream that holds the cost of a check with [InFlight] or with a Budget. It is zero for
	// every other check.
	Stream StreamID
	// Budget makes the check reserve its cost for its stream. Nil: the cost is spent. A log that
	// counts a budget has it in all of its checks that are not of mode Always or Refund.
	Budget *Budget
	// Once lets requests of one attempt charge the log once.
	Once Once
}

const (
	// LeasePart divides the limit: one reservation holds that much at most, unless
	// [Lease.Hits] says otherwise.
	LeasePart = 10
	// MinLeaseHits is the fewest hits of one reservation. Smaller ones save no calls.
	MinLeaseHits = 5
)

// A Lease bounds what may be reserved ahead on one log. The zero value allows no
// reservation.
type Lease struct {
	// Length is how long a reservation may be spent.
	Length time.Duration
	// Hits is the most that one reservation may hold. Zero means the
	// limit divided by LeasePart.
	Hits uint64
}

// A Reservation names cost that a store has recorded in one log at one instant, ahead of
// its clock. The store can take it back. The zero value reserves nothing.
type Reservation struct {
	// Log is the store's own name of the log, and Window the length of its window.
	Log    string
	Window time.Duration
	Scope  Scope
	// Instant is when the cost was recorded, in the store's own unit.
	Instant int64
	// Cost is the number of hits that were reserved.
	Cost uint64
}

// Log returns the log that c names.
func (c Check) Log() LogID {
	if c.Limit.Policy == InFlight {
		return LogID{Key: c.Key, Policy: InFlight, Scope: c.Scope}
	}
	return LogID{c.Key, c.Limit.Window, c.Limit.Policy, c.Scope}
}

// A Decision answers one check. Whether anything was charged depends on the
// whole group and the modes of its checks: see [GroupAllowed] and [Mode.Charged].
type Decision struct {
	// Allowed says that this check had room for its cost, whatever its mode and the
	// rest of the group. For a [Refund] it is always true.
	Allowed bool
	// Never says that the cost is above the limit, or that the limit is zero, so no wait
	// helps. Allowed is then false and RetryAfter zero.
	Never bool
	// Remaining is the number of hits that can still be spent, after the charge if there
	// was one.
	Remaining uint64
	// RetryAfter is the exact wait, by the store's clock, until this cost has room if no
	// other request spends. For a cost that [Always] has recorded, it is the wait until
	// the same cost has room again. Zero if Allowed or Never. A denial by another check
	// of the group does not change it.
	RetryAfter time.Duration
	// UnitAfter is the wait until Remaining is larger than now if no request spends. If
	// Remaining is above zero, that is when the oldest hit expires. Otherwise it is when
	// one unit has room. Zero if the log is empty, and if the limit is zero.
	UnitAfter time.Duration
	// ResetAfter is the wait until the log is empty if no request spends. Zero if it is
	// empty.
	ResetAfter time.Duration
	// Unsettled can be true if the check was denied, or if Remaining is zero. The
	// decision may then count hits that another request has reserved and may still give
	// back. Room may come before the waits are over, so the caller must not cache the
	// decision.
	Unsettled bool
	// Remembered is true if a store in front of a shared store repeats a denial from memory,
	// without asking the shared store.
	Remembered bool
	// Cut is true if a part of the cost of an [Always] check was not recorded, because it would
	// have used more than twice the limit.
	Cut bool
	// Reserved is what streams have reserved in the log of a check with a [Budget], after the
	// decision. Remaining does not count it. Reservations that have expired are not in it: they are spent.
	Reserved uint64
	// Expired are the reservations that have expired since the log of a check with a [Budget] was written before. It is
	// zero unless the check has written to the log, also if the request was denied and the reservation is taken back.
	Expired Expired
	// HoldsFull is true if the check was denied only because the log has [MaxHolds] reservations.
	HoldsFull bool
	// Repeated is true if the check is a repeat of a charge with the same [Check.Once], or if the stream of a check with a
	// [Budget] has reserved its cost before: it has room because it had it then, and charges nothing. It says nothing of a check with a Budget whose group is denied.
	Repeated bool
}

// MaxChecks is the most checks that one request of the service may have, with every
// store: one for each descriptor of the largest request.
const MaxChecks = 256

// The values of the wait argument of [Store.Take].
const (
	// MayWait lets a store block until it has decided.
	MayWait = true
	// NoWait makes a store answer without blocking, or say that it cannot.
	NoWait = false
)

// Store keeps logs. Implementations are safe for concurrent use.
type Store interface {
	// Take decides all checks of one request at once and charges all or none of them. The
	// package comment has the whole contract. decisions must be as long as checks; Take
	// fills it in the same order. The store keeps neither slice.
	//
	// With wait, Take blocks no longer than ctx allows, and decided is true. If ctx is
	// already done, Take charges nothing and returns the error of ctx.
	//
	// Without wait, Take waits only for short locks. If Take cannot decide then, it
	// returns false and no error. It has charged nothing, no later answer changes, and
	// the content of decisions is undefined. The caller can call Take again with wait. If ctx has a
	// [Pauser], Take may pause before it decides.
	//
	// A denial is not an error. A group without checks is allowed. On an error the content
	// of decisions is undefined. The group may have been charged, unless the error wraps
	// [ErrBadCheck] or the store's documentation says otherwise.
	Take(ctx context.Context, wait bool, checks []Check, decisions []Decision) (decided bool, err error)
	// Close frees what the store holds. The caller must not call Take afterwards.
	Close() error
}

// Validate returns an error that wraps [ErrBadCheck] if the arguments of [Store.Take]
// break the contract. The cases are: decisions of another length than checks, an empty
// key, a limit that is not [Limit.Valid], an unknown mode, a scope above [MaxScope], a precision outside 0 to the
// window, a precision, lease, period, stream or budget that does not belong to the policy or is
// missing, a [Check.Once] out of bounds or in a check that cannot have an idempotency record, two different
// streams, and two modes for one log that exclude each other. Stores call it before they change
// anything.
func Validate(checks []Check, decisions []Decision) error {
	if len(checks) != len(decisions) {
		return fmt.Errorf("%w: %d checks, but room for %d decisions", ErrBadCheck, len(checks), len(decisions))
	}
	return validChecks(checks)
}

// validChecks is [Validate] for checks alone.
func validChecks(checks []Check) error {
	for i := range checks {
		if checks[i].Key == "" {
			return fmt.Errorf("%w: check %d has no key", ErrBadCheck, i)
		}
		if err := checks[i].Limit.Valid(); err != nil {
			return fmt.Errorf("%w: check %d: %w", ErrBadCheck, i, err)
		}
		if err := checks[i].validTerms(); err != nil {
			return fmt.Errorf("%w: check %d: %w", ErrBadCheck, i, err)
		}
	}
	if len(checks) < 2 {
		return nil
	}
	if i, j, mixed := mixesStreams(checks); mixed {
		return fmt.Errorf("%w: checks %d and %d have the streams %d and %d; a group has one stream at most", ErrBadCheck, i, j, checks[i].Stream, checks[j].Stream)
	}
	if i, j, mixed := mixesModes(checks); mixed {
		return fmt.Errorf("%w: checks %d and %d name one log with modes %v and %v", ErrBadCheck, i, j, checks[i].Mode, checks[j].Mode)
	}
	return nil
}

// validTerms reports what is wrong with a check's mode or precision, or nil.
func (c *Check) validTerms() error {
	switch {
	case c.Mode > Refund:
		return fmt.Errorf("%v is not a mode", c.Mode)
	case c.Priority < PriorityLow || c.Priority > PriorityHigh:
		return fmt.Errorf("%v is not a priority", c.Priority)
	case c.Scope > MaxScope:
		return fmt.Errorf("scope %d is above %d", c.Scope, MaxScope)
	case c.Precision < 0:
		return fmt.Errorf("precision %v is below zero", c.Precision)
	case c.Precision > c.Limit.Window:
		return fmt.Errorf("precision %v is longer than the window %v", c.Precision, c.Limit.Window)
	case c.plain():
		return nil // the usual case, without a call
	}
	return c.validPolicy()
}

// Fold makes a group name each log at most once per mode. Checks with the same log and
// mode become one check, and all of them get its decision. It has their summed cost,
// which saturates, the smallest of their limits and rates, the longest of their holds, the
// finest of their precisions, the first of their budgets, and the period of the first of them. A rate with [Unlimited]
// does not count. Unless all have the same [Check.Once], they are charged each time.
//
// Usually no log is named twice with one mode. Fold then returns checks itself and nil,
// and allocates nothing. Otherwise it returns the folded checks and, for each original
// check, the index of the folded check that answers it.
func Fold(checks []Check) (folded []Check, answer []int) {
	// Large frames, of maps, are in functions of their own: without them the goroutine of a
	// call to Redis needs no larger stack.
	if !namesTwice(checks) {
		return checks, nil
	}
	return fold(checks)
}

// fold is Fold for checks of which some have the same log and mode.
//
//go:noinline
func fold(checks []Check) (folded []Check, answer []int) {
	at := make(map[named]int, len(checks))
	answer = make([]int, len(checks))
	for i, c := range checks {
		id := named{c.Log(), c.Mode}
		j, ok := at[id]
		if !ok {
			j = len(folded)
			at[id] = j
			folded = append(folded, c)
		} else {
			f := &folded[j]
			f.Cost = AddSaturating(f.Cost, c.Cost)
			// What is unlimited has no rate: with the limit of the other it need not be valid.
			switch {
			case f.Limit.Hits == Unlimited:
				f.Limit.Rate = c.Limit.Rate
			case c.Limit.Hits != Unlimited:
				f.Limit.Rate = min(f.Limit.Rate, c.Limit.Rate)
			}
			f.Limit.Hits = stricter(f.Limit.Hits, c.Limit.Hits)
			f.Limit.Window = max(f.Limit.Window, c.Limit.Window) // differs only in flight
			f.Precision = min(f.Precision, c.Precision)
			if f.Budget == nil {
				f.Budget, f.Stream = c.Budget, c.Stream
			}
			if f.Once != c.Once {
				f.Once = Once{}
			}
		}
		answer[i] = j
	}
	return folded, answer
}

// stricter returns the smaller of two limits.
func stricter(a, b uint64) uint64 {
	if a == Unlimited || b != Unlimited && b < a {
		return b
	}
	return a
}

// named identifies the checks that Fold makes one check.
type named struct {
	log  LogID
	mode Mode
}

// smallGroup is the size up to which comparing all pairs of a group is cheaper
// than a map. Requests rarely have more than a handful of checks.
const smallGroup = 16

// namesTwice reports whether two checks have the same log and mode.
func namesTwice(checks []Check) bool {
	if len(checks) > smallGroup {
		return namesTwiceInMany(checks)
	}
	for i := 1; i < len(checks); i++ {
		for j := range i {
			if checks[i].Mode == checks[j].Mode && sameLog(&checks[i], &checks[j]) {
				return true
			}
		}
	}
	return false
}

// namesTwiceInMany is namesTwice for a large group.
//
//go:noinline
func namesTwiceInMany(checks []Check) bool {
	seen := make(map[named]struct{}, len(checks))
	for i := range checks {
		id := named{checks[i].Log(), checks[i].Mode}
		if _, ok := seen[id]; ok {
			return true
		}
		seen[id] = struct{}{}
	}
	return false
}

func sameLog(a, b *Check) bool {
	return a.Scope == b.Scope && a.Limit.Policy == b.Limit.Policy && (a.Limit.Window == b.Limit.Window || a.Limit.Policy == InFlight) && a.Key == b.Key
}

// mixesStreams finds two checks of different streams.
func mixesStreams(checks []Check) (i, j int, mixed bool) {
	first := -1
	for i := range checks {
		switch {
		case checks[i].Stream == 0:
		case first < 0:
			first = i
		case checks[i].Stream != checks[first].Stream:
			return first, i, true
		}
	}
	return 0, 0, false
}

// mixesModes finds two checks of one log whose modes exclude each other. Otherwise the
// order in which they are judged would decide whether both are charged.
func mixesModes(checks []Check) (i, j int, mixed bool) {
	if allEnforce(checks) {
		return 0, 0, false // the usual case
	}
	first := make(map[LogID]int, len(checks)) // the first check of a log that is judged with the group
	for i := range checks {
		c := &checks[i]
		if c.Mode.Unconditional() {
			continue
		}
		j, ok := first[c.Log()]
		if !ok {
			first[c.Log()] = i
		} else if checks[j].Mode != c.Mode {
			return j, i, true
		}
	}
	return 0, 0, false
}

func allEnforce(checks []Check) bool {
	for i := range checks {
		if checks[i].Mode != Enforce {
			return false
		}
	}
	return true
}

// AddSaturating returns a+b, or the largest uint64 where that overflows.
func AddSaturating(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint64
}
