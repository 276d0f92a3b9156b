package oracle

import (
	"fmt"
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// An Oracle decides as the contract says, by a loop over every charge ever made. It shares
// no idea with the stores: no running sums, no search, no pruning, no bytes, no units. It
// does not use the arithmetic of package window either.
type Oracle struct {
	Epoch time.Duration // added to every time, see Harness
	Logs  map[window.LogID]*Ledger
	Books map[window.LogID]book // of every policy but Sliding
	Paid  map[named]*paid
}

// A named is one ID of [window.Check.Once] in one log.
type named struct {
	log window.LogID
	id  uint64
}

// A paid is the charge of an attempt.
type paid struct {
	Ends    time.Duration
	cost    uint64
	repeats int // that were let in
}

// repeats returns the charge that a check repeats, or nil. lives says that an idempotency record lives,
// whether or not it covers the check.
func (o *Oracle) repeats(clock time.Duration, c window.Check) (of *paid, lives bool) {
	p := o.Paid[named{c.Log(), c.Once.ID}]
	if c.Once.ID == 0 || c.Cost == 0 || withoutLog(c) || p == nil || clock >= p.Ends {
		return nil, false
	}
	if c.Cost > p.cost || p.repeats >= int(c.Once.Repeats) {
		return nil, true
	}
	return p, true
}

// A book is what has happened to one log. Clocks are the store's, as given: the book holds
// them at its last write.
type book interface {
	// hasRoom reports whether the cost of a check has room. The limit is neither zero nor
	// unlimited.
	hasRoom(clock time.Duration, c window.Check) bool
	// charge records a cost, until twice the limit is used.
	charge(clock time.Duration, c window.Check) (recorded uint64)
	// refund gives a cost back, as far as there is something to give back.
	refund(clock time.Duration, c window.Check)
	// answer answers a check as of after the call. The limit is not unlimited.
	answer(clock time.Duration, c window.Check, room bool) window.Decision
}

// A Ledger is the book of a sliding log.
type Ledger struct {
	Win   time.Duration
	wrote time.Duration // time of the last charge or refund of something
	Spent []Spent       // oldest first
}

// Spent is one charge.
type Spent struct {
	At   time.Duration // rounded up
	Cost uint64        // less what was given back
}

// New returns an Oracle of empty logs, whose clock begins at epoch.
func New(epoch time.Duration) *Oracle {
	return &Oracle{Epoch: epoch, Logs: make(map[window.LogID]*Ledger), Books: make(map[window.LogID]book), Paid: make(map[named]*paid)}
}

// book returns a log's book, new if need be.
func (o *Oracle) book(id window.LogID) book {
	if id.Policy == window.Sliding {
		return o.Ledger(id)
	}
	b := o.Books[id]
	if b == nil {
		switch id.Policy {
		case window.TokenBucket:
			b = &bucket{}
		case window.Fixed, window.Calendar:
			b = &periods{}
		case window.SlidingCounter:
			b = &counter{}
		default:
			panic(fmt.Sprintf("windowtest: no oracle for %v", id.Policy))
		}
		o.Books[id] = b
	}
	return b
}

// Ledger returns a log's ledger, new if need be.
func (o *Oracle) Ledger(id window.LogID) *Ledger {
	l := o.Logs[id]
	if l == nil {
		l = &Ledger{Win: id.Window}
		o.Logs[id] = l
	}
	return l
}

// Take decides one group at the time clock, of which every check is within its period.
func (o *Oracle) Take(clock time.Duration, checks []window.Check) []window.Decision {
	decisions, err := o.Decide(clock, checks)
	if err != nil {
		panic(err)
	}
	return decisions
}

// Decide decides one group at the time clock. The error is nil or [window.ErrPeriod].
func (o *Oracle) Decide(clock time.Duration, checks []window.Check) ([]window.Decision, error) {
	clock += o.Epoch
	var (
		asks = make([]window.Check, len(checks)) // with all of the same log and mode
		room = make([]bool, len(checks))
		paid = make([]*paid, len(checks))
	)
	for i, c := range checks {
		asks[i] = together(checks, c)
	}
	if o.outsidePeriods(clock, asks) {
		return nil, window.ErrPeriod
	}
	o.refundAll(clock, checks, asks, room)
	// What is always charged: judged, then charged, one after the other.
	cut := make([]bool, len(checks))
	for i, c := range asks {
		if c.Mode == window.Always && isFirst(checks, i) {
			has, short := o.hasRoom(clock, c), false
			if c.Limit.Hits != window.Unlimited {
				short = o.book(c.Log()).charge(clock, c) < c.Cost
			}
			for j := range checks {
				if sameAsk(checks[i], checks[j]) {
					room[j], cut[j] = has, short
				}
			}
		}
	}
	// The others are judged together.
	for i, c := range asks {
		if c.Mode != window.Refund && c.Mode != window.Always {
			paid[i], _ = o.repeats(clock, c)
			room[i] = paid[i] != nil || o.hasRoom(clock, c)
		}
	}
	allowed := verdict(asks, room)
	for i, c := range asks {
		if !allowed || !room[i] || c.Mode == window.Refund || c.Mode == window.Always || c.Limit.Hits == window.Unlimited {
			continue
		}
		switch {
		case !isFirst(checks, i):
		case paid[i] != nil:
			paid[i].repeats++
		default:
			o.pay(clock, c)
		}
	}

	decisions := make([]window.Decision, len(checks))
	for i, c := range asks {
		switch {
		case c.Limit.Hits == window.Unlimited:
			decisions[i] = window.Decision{Allowed: true, Remaining: window.Unlimited}
		case withoutLog(c):
			decisions[i] = window.Decision{Never: true}
		default:
			decisions[i] = o.book(c.Log()).answer(clock, c, room[i])
			decisions[i].Repeated, decisions[i].Cut = paid[i] != nil, cut[i]
		}
	}
	return decisions, nil
}

// outsidePeriods reports whether a check has a period that contradicts the clock.
func (o *Oracle) outsidePeriods(clock time.Duration, asks []window.Check) bool {
	for _, c := range asks {
		if c.Limit.Policy == window.Calendar && !withoutLog(c) {
			if _, ok := o.book(c.Log()).(*periods).chosen(clock, c); !ok {
				return true
			}
		}
	}
	return false
}

// refundAll makes the refunds of a group, in its order.
func (o *Oracle) refundAll(clock time.Duration, checks, asks []window.Check, room []bool) {
	for i, c := range asks {
		if c.Mode == window.Refund {
			room[i] = true
			if isFirst(checks, i) && c.Limit.Hits != window.Unlimited {
				o.book(c.Log()).refund(clock, c)
			}
		}
	}
}

// pay charges a check, and notes its attempt.
func (o *Oracle) pay(clock time.Duration, c window.Check) {
	o.book(c.Log()).charge(clock, c)
	if _, lives := o.repeats(clock, c); c.Once.ID != 0 && c.Cost > 0 && !lives {
		o.Paid[named{c.Log(), c.Once.ID}] = &paid{Ends: clock + c.Once.For, cost: c.Cost}
	}
}

// withoutLog reports whether the answer to a check does not depend on its log.
func withoutLog(c window.Check) bool {
	return c.Limit.Hits == window.Unlimited || c.Limit.Hits == 0 && c.Mode != window.Always && c.Mode != window.Refund
}

func (o *Oracle) hasRoom(clock time.Duration, c window.Check) bool {
	switch c.Limit.Hits {
	case window.Unlimited:
		return true // unlimited
	case 0:
		return false
	}
	return o.book(c.Log()).hasRoom(clock, c)
}

// sameAsk reports whether two checks of a group are decided as one.
func sameAsk(a, b window.Check) bool { return a.Mode == b.Mode && a.Log() == b.Log() }

// isFirst reports whether no check before i is decided as one with it.
func isFirst(checks []window.Check, i int) bool {
	for j := range i {
		if sameAsk(checks[i], checks[j]) {
			return false
		}
	}
	return true
}

// together returns c with the cost, the limit and the precision of all checks
// that are decided as one with it, and with the period of the first of them.
func together(checks []window.Check, c window.Check) window.Check {
	c.Cost = 0
	first, hold := true, c.Limit.Window
	for _, other := range checks {
		if !sameAsk(c, other) {
			continue
		}
		if first {
			c.Period, first = other.Period, false
		}
		if other.Cost > math.MaxUint64-c.Cost {
			c.Cost = math.MaxUint64
		} else {
			c.Cost += other.Cost
		}
		c.Precision = min(c.Precision, other.Precision)
		if c.Once != other.Once {
			c.Once = window.Once{}
		}
		hold = max(hold, other.Limit.Window) // differs only in flight
		if other.Limit.Hits == window.Unlimited {
			continue
		}
		if c.Limit.Hits == window.Unlimited {
			c.Limit = other.Limit
		}
		c.Limit.Hits = min(c.Limit.Hits, other.Limit.Hits) // neither is unlimited
		c.Limit.Rate = min(c.Limit.Rate, other.Limit.Rate)
	}
	c.Limit.Window = hold
	return c
}

// verdict reports whether a group is allowed.
func verdict(asks []window.Check, room []bool) bool {
	some, roomy := false, false // of mode Any
	for i, c := range asks {
		switch c.Mode {
		case window.Enforce, window.Always:
			if !room[i] {
				return false
			}
		case window.Any:
			some = true
			roomy = roomy || room[i]
		}
	}
	return roomy || !some
}

// Now is the clock, or the time of the last charge or refund if that is later.
func (l *Ledger) Now(clock time.Duration) time.Duration { return max(clock, l.wrote) }

// Used is the cost of the entries that have not expired.
func (l *Ledger) Used(clock time.Duration) uint64 {
	var used uint64
	for _, e := range l.Spent {
		if l.Now(clock) < e.At+l.Win {
			used += e.Cost
		}
	}
	return used
}

// fits reports whether a cost fits in addition to what is used. Cost 0 asks for a unit.
func fits(used, cost, limit uint64) bool { return used < limit && cost <= limit-used }

func (l *Ledger) hasRoom(clock time.Duration, c window.Check) bool {
	return fits(l.Used(clock), c.Cost, c.Limit.Hits)
}

// withinMaxBelow returns as much of a cost as leaves the use at twice the limit at most.
func withinMaxBelow(c window.Check, used uint64) uint64 {
	if used >= 2*c.Limit.Hits {
		return 0
	}
	return min(c.Cost, 2*c.Limit.Hits-used)
}

// charge records a cost, up to twice the limit and to what a log can hold. It returns what it has
// recorded.
func (l *Ledger) charge(clock time.Duration, c window.Check) uint64 {
	now := l.Now(clock)
	cost := min(withinMaxBelow(c, l.Used(clock)), math.MaxUint32-l.Used(clock))
	if cost == 0 {
		return 0
	}
	at := now
	if rest := now % l.step(c.Precision); rest != 0 {
		at += l.step(c.Precision) - rest
	}
	for _, e := range l.Spent {
		if now < e.At+l.Win {
			at = max(at, e.At) // the newest may have been rounded up further
		}
	}
	l.Spent = append(l.Spent, Spent{at, cost})
	l.wrote = now
	return cost
}

// step is what times are rounded up to a multiple of.
func (l *Ledger) step(precision time.Duration) time.Duration {
	unit := time.Microsecond
	if l.Win > 6*24*time.Hour {
		unit = time.Millisecond
	}
	// First to whole microseconds, of which there are no more than in the window;
	// then to whole units.
	for _, whole := range []time.Duration{time.Microsecond, unit} {
		if rest := precision % whole; rest != 0 {
			precision += whole - rest
		}
	}
	return max(precision, unit)
}

// refund takes the cost back from the newest entries, as far as there are any.
func (l *Ledger) refund(clock time.Duration, c window.Check) {
	now, cost := l.Now(clock), c.Cost
	for i := len(l.Spent) - 1; i >= 0; i-- {
		e := &l.Spent[i]
		if back := min(cost, e.Cost); back > 0 && now < e.At+l.Win {
			e.Cost -= back
			cost -= back
			l.wrote = now
		}
	}
	// Remove entries without cost: the next charge need not be as late as they are.
	kept := l.Spent[:0]
	for _, e := range l.Spent {
		if e.Cost > 0 {
			kept = append(kept, e)
		}
	}
	l.Spent = kept
}

// answer answers a check as of after the call.
func (l *Ledger) answer(clock time.Duration, c window.Check, room bool) window.Decision {
	limit := c.Limit.Hits
	d := window.Decision{Allowed: room}
	if used := l.Used(clock); used < limit {
		d.Remaining = limit - used
	}
	d.Never = !room && (limit == 0 || c.Cost > limit)
	if !room && !d.Never {
		d.RetryAfter = l.wait(clock, c.Cost, limit)
	}
	if d.Remaining == 0 && limit > 0 {
		d.UnitAfter = l.wait(clock, 1, limit)
	}
	for _, e := range l.Spent {
		if l.Now(clock) < e.At+l.Win {
			if d.Remaining > 0 && d.UnitAfter == 0 {
				d.UnitAfter = e.At + l.Win - clock // the oldest
			}
			d.ResetAfter = max(d.ResetAfter, e.At+l.Win-clock)
		}
	}
	return d
}

// wait lets one entry after the other expire until the cost has room. Entries
// are in the order of their times, because time does not run backwards here.
func (l *Ledger) wait(clock time.Duration, cost, limit uint64) time.Duration {
	now, used := l.Now(clock), l.Used(clock)
	for _, e := range l.Spent {
		if now < e.At+l.Win {
			used -= e.Cost
			if fits(used, cost, limit) {
				return e.At + l.Win - clock
			}
		}
	}
	panic("windowtest: a cost within the limit must have room in an empty log")
}
